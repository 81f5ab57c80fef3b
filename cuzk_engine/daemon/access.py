"""Who may reach the daemon: addresses beyond this machine need TLS and a token."""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from cuzk_engine.client.address import Address
from cuzk_engine.client.tls import is_certificate
from cuzk_engine.config import Settings
from cuzk_engine.errors import SettingError

_SHORTEST_TOKEN: Final = 16
_NEEDED: Final = ("daemon.tls_cert", "daemon.tls_key", "daemon.token_file")


@dataclass(frozen=True, slots=True)
class Access:
    """``credentials`` None: no TLS; ``token`` "": none asked for."""

    credentials: grpc.ServerCredentials | None = None
    token: str = ""


def access_for(address: Address, settings: Settings) -> Access:
    """What the configuration asks for. Raises SettingError when it is not enough for the address, or cannot be read."""
    given = [key for key in _NEEDED if settings.text(key)]
    if not given and address.is_local:
        return Access()
    if address.path:
        return Access(token=_token(settings.text(_NEEDED[2])) if settings.text(_NEEDED[2]) else "")
    missing = [key for key in _NEEDED if key not in given]
    if missing:
        reason = "can be reached from other machines" if not address.is_local else "is to be served with TLS"
        raise SettingError(f"daemon.listen {address} {reason}: set {', '.join(missing)} too, or listen on 127.0.0.1")
    certificate, key = (_read(name, settings.text(name)) for name in _NEEDED[:2])
    _check_pair(*(settings.text(name) for name in _NEEDED[:2]))
    credentials = grpc.ssl_server_credentials([(key, certificate)])
    return Access(credentials, _token(settings.text(_NEEDED[2])))


class TokenCheck(aio.ServerInterceptor):
    """Refuses calls that do not carry ``authorization: Bearer <token>``."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        metadata: Any = handler_call_details.invocation_metadata or ()
        given = next((value for key, value in metadata if key == "authorization"), "")
        text = given if isinstance(given, bytes) else str(given).encode()
        return handler if hmac.compare_digest(text, self._expected) else _refusing(handler)


def _refusing(handler: Any) -> Any:
    """A handler of the same kind that ends every call."""

    async def refuse(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

    async def refuse_stream(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
        yield

    make: Any = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, refuse),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }[handler.request_streaming, handler.response_streaming]
    return make[0](make[1], handler.request_deserializer, handler.response_serializer)


def _check_pair(certificate: str, key: str) -> None:
    """gRPC says of files that are no certificate and its key only that the address cannot be listened on."""
    if not is_certificate(_read("daemon.tls_cert", certificate)):
        raise SettingError(f"daemon.tls_cert {certificate}: expected a certificate in PEM form, it holds none")
    first, second = (os.path.expanduser(path) for path in (certificate, key))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            first, second, password=b""
        )  # else it would ask the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingError(f"daemon.tls_key {key}: is not the key of daemon.tls_cert {certificate}") from error
        detail = f": {error.reason.replace('_', ' ').lower()}" if error.reason else ""
        raise SettingError(
            f"daemon.tls_key {key}: expected the private key of daemon.tls_cert, in PEM form and without a password"
            f"{detail}"
        ) from error


def _token(path: str) -> str:
    token = _read("daemon.token_file", path).decode(errors="replace").strip()
    if len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable()):  # a call can carry no other
        raise SettingError(
            f"daemon.token_file {path}: expected one line, a token of at least {_SHORTEST_TOKEN} ASCII characters"
        )
    mode = os.stat(os.path.expanduser(path)).st_mode & 0o777
    if mode & 0o077:
        raise SettingError(f"daemon.token_file {path}: others may read it (mode {mode:03o}), expected mode 600")
    return token


def _read(key: str, path: str) -> bytes:
    try:
        return Path(os.path.expanduser(path)).read_bytes()
    except OSError as error:
        raise SettingError(f"{key} {path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
