"""An engine at an address, with the certificate and the token that it asks for: it is looked at and used, not started
or ended."""

from __future__ import annotations

import errno
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cuzk_engine.client import CuzkError, DaemonStatus, EngineClient, EngineIdentity, ProcessState
from cuzk_engine.client.address import parse_address
from cuzk_engine.client.connecting import connect

SHORTEST_TOKEN: Final = 16  # characters
_MOST_BYTES: Final = 1 << 20
_STATES: Final = {
    "starting": ProcessState.STARTING,
    "draining": ProcessState.DRAINING,
    "stopping": ProcessState.STOPPING,
}


@dataclass(frozen=True, slots=True)
class Access:
    """``certificate`` and ``token`` are paths of files, "" for none."""

    address: str
    certificate: str = ""
    token: str = ""


def problem(access: Access) -> str:
    """What is wrong with it before anybody is asked, in one line that says what to do; "" when nothing is."""
    try:
        address = parse_address(access.address)
    except CuzkError as error:
        return str(error)
    if bool(access.certificate) != bool(access.token):
        missing = "token file" if access.certificate else "certificate"
        return f"certificate and token go together: choose the {missing} too, or leave both empty"
    if not access.certificate:
        where = f"an engine beyond this machine ({address}) asks for TLS and a token"
        return "" if address.is_here else f"{where}: choose copies of its certificate and token file"
    return _problem_of_certificate(access.certificate) or _problem_of_token(access.token)


def _problem_of_certificate(file: str) -> str:
    wanted = "choose the PEM file that the engine has as daemon.tls_cert, or that of the authority that signed it"
    try:
        pem = _read(file).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        return f"certificate {file} holds no certificate in PEM form; {wanted}"
    except OSError as error:
        return f"certificate {file} cannot be read: {(error.strerror or str(error)).lower()}; {wanted}"
    return ""


def _problem_of_token(file: str) -> str:
    wanted = "choose a copy of the file that the engine has as daemon.token_file"
    try:
        token = _read(file).decode("utf-8").strip()
    except ValueError:
        return f"token file {file} holds no text; {wanted}"
    except OSError as error:
        return f"token file {file} cannot be read: {(error.strerror or str(error)).lower()}; {wanted}"
    if len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()):
        expected = f"one line of at least {SHORTEST_TOKEN} ASCII characters"
        return f"token file {file} holds no token: expected {expected}; {wanted}"
    return ""


def _read(file: str) -> bytes:
    """The beginning of a file that is a plain one: a pipe would be waited for."""
    if Path(file).exists() and not Path(file).is_file():
        raise OSError(errno.EINVAL, "it is not a plain file")
    with open(file, "rb") as opened:
        return opened.read(_MOST_BYTES)


class RemoteEngine:
    """The engine at an address. Each call of ``status`` reads the files anew, so renewed ones count at once."""

    def __init__(self, access: Access) -> None:
        self.access = access

    @property
    def elsewhere(self) -> str:
        return "over TLS" if self.access.certificate else "without TLS"

    def status(self) -> DaemonStatus:
        """An engine that cannot be reached has the state ``FOREIGN``; the message says why and what to do."""
        try:
            identity = self.identify()
        except CuzkError as error:
            return DaemonStatus(ProcessState.FOREIGN, self.access.address, str(error))
        state = _STATES.get(identity.state, ProcessState.READY)
        return DaemonStatus(
            state,
            self.access.address,
            f"the engine at {self.access.address} is {state.value}",
            pid=identity.pid,
            build=identity.build,
            version=identity.version,
            started_unix_ns=identity.started_unix_ns,
            started_by=identity.started_by,
            devices=identity.devices,
        )

    def identify(self) -> EngineIdentity:
        """Who answers. Raises CuzkError, in one line that says what to do."""
        fault = problem(self.access)
        if fault:
            raise CuzkError(fault)
        try:
            with self.connect(self.access.address) as client:
                return client.identify()
        except CuzkError as error:
            raise CuzkError(self._what_to_do(error)) from error

    def connect(self, address: str) -> EngineClient:
        files = [Path(file) if file else None for file in (self.access.certificate, self.access.token)]
        return connect(self.access.address, certificate=files[0], token=files[1])

    def start(self) -> DaemonStatus:
        raise CuzkError(f"the engine at {self.access.address} is started on its own machine: `cuzk daemon start`")

    def stop(self) -> DaemonStatus:
        raise CuzkError(f"the engine at {self.access.address} is stopped on its own machine: `cuzk daemon stop`")

    def restart(self) -> DaemonStatus:
        raise CuzkError(f"the engine at {self.access.address} is restarted on its own machine: `cuzk daemon restart`")

    def _what_to_do(self, error: CuzkError) -> str:
        """The client's words are for the command line."""
        text, access = str(error), self.access
        address = parse_address(access.address)
        if "no engine answers" in text:
            there = "" if address.is_here else " there"
            return f"no engine answers at {address}: start it{there} (`cuzk daemon start`), or correct the address"
        if "asks for TLS" in text:
            return f"the engine at {address} asks for TLS and a token: choose its certificate and token file"
        if "does not speak TLS" in text:
            return f"what answers at {address} does not speak TLS: correct the address, or leave both files empty"
        if "TLS handshake" in text:
            return (
                f"the certificate {access.certificate} does not fit the engine at {address}: choose its "
                "daemon.tls_cert, or an address that this certificate names"
            )
        if "token is missing or wrong" in text:
            return (
                f"the engine at {address} refuses the token of {access.token}: choose a copy of its daemon.token_file"
            )
        return text
