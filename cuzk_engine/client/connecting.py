"""A client of this user's own engine, or of another one, with what it asks of those who call."""

from __future__ import annotations

import os
from pathlib import Path

from cuzk_engine import config as configuration
from cuzk_engine.client.address import Address, parse_address
from cuzk_engine.client.api import EngineClient
from cuzk_engine.client.instance import read_lock
from cuzk_engine.errors import CuzkError, DaemonError, SettingError


def connect(address: str = "", *, certificate: Path | None = None, token: Path | None = None) -> EngineClient:
    """A client of the engine at ``address``, "": of this user's own, where it runs or would. ``certificate`` and
    ``token`` are files; without them the own engine's are those of its configuration, and another one gets none.

    Raises DaemonError for files that cannot be read, SettingError for a configuration that says no address.
    """
    lock = read_lock()
    known = lock.instance if lock.held else None
    try:
        settings = settings_of(known.config if known else "")
    except SettingError:
        if not address:
            raise
        settings = configuration.Settings()
    own = parse_address(known.address) if known else _configured(settings, is_needed=not address)
    target = parse_address(address) if address else own
    assert target is not None
    if certificate is not None:
        return _secure(target, certificate, token)
    is_own = own is not None and _is_same(target, own)
    return own_client(target, settings) if is_own else EngineClient(str(target))


def _configured(settings: configuration.Settings, *, is_needed: bool) -> Address | None:
    """Where this user's own engine would be."""
    try:
        return parse_address(settings.text("daemon.listen"))
    except CuzkError as error:
        if is_needed:
            raise SettingError(f"daemon.listen: {error}") from error
        return None


def settings_of(config: str | Path | None) -> configuration.Settings:
    """A file that was broken since the engine started does not keep anybody from seeing and ending it."""
    try:
        return configuration.load(config or None)
    except SettingError:
        if read_lock().held:
            return configuration.Settings()
        raise


def settings_at(target: Address, config: str | Path | None) -> configuration.Settings:
    """Those of the engine at ``target``: it may have been started with another configuration than ``config``."""
    lock = read_lock()
    known = lock.instance if lock.held else None
    if known is not None and known.config and _is_same(target, parse_address(known.address)):
        config = known.config
    return settings_of(config)


def own_client(target: Address, settings: configuration.Settings) -> EngineClient:
    """With the certificate and the token of the configuration, where TLS is set up; on a socket with the token."""
    certificate, token = (os.path.expanduser(settings.text(f"daemon.{key}")) for key in ("tls_cert", "token_file"))
    if not (token if target.path else certificate):
        return EngineClient(str(target))
    return _secure(target, None if target.path else Path(certificate), Path(token) if token else None)


def _secure(target: Address, certificate: Path | None, token: Path | None) -> EngineClient:
    try:
        return EngineClient(
            str(target),
            certificate=certificate.read_bytes() if certificate else None,
            token=token.read_text(encoding="utf-8").strip() if token else None,
        )
    except OSError as error:
        where, words = error.filename or certificate or token, (error.strerror or str(error)).lower()
        raise DaemonError(f"the engine's certificate or token file cannot be read: {where}: {words}") from error
    except UnicodeDecodeError as error:
        raise DaemonError(
            f"the engine's certificate or token file cannot be read: {token}: it holds no text"
        ) from error


def _is_same(target: Address, own: Address) -> bool:
    """Whether both lead to one engine of this machine; a wildcard address is reached by every local one."""
    if own.path or target.path:
        return target == own
    return target == own or (target.port == own.port and target.is_here and own.is_here)
