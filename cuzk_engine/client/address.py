"""Addresses of an engine: ``host:port``, ``[::1]:port``, ``unix:///path``, and ``http://host:port`` for what people
paste.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from cuzk_engine.errors import CuzkError
from cuzk_engine.paths import is_utf8

_FORMS = "host:port, [::1]:port or unix:///path"


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address (``host``, ``port``) or, with ``path``, a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        """The form people write and messages show."""
        if self.path:
            return f"unix://{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The form gRPC takes."""
        return f"unix:{self.path}" if self.path else str(self)

    @property
    def dialled(self) -> Address:
        """Where to connect: an address that stands for all of a machine's own is reached by loopback."""
        if not self.is_wildcard:
            return self
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port)

    @property
    def is_wildcard(self) -> bool:
        try:
            return not self.path and ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def is_here(self) -> bool:
        """It leads to this machine, whoever else may reach it."""
        return self.is_local or self.is_wildcard

    @property
    def is_local(self) -> bool:
        """Only this machine can reach it: a unix socket or a loopback address. A name other than localhost is not
        trusted to be one.
        """
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Raises CuzkError that names the accepted forms."""
    value = text.strip()
    if not is_utf8(value):
        raise CuzkError(f"address {text!r} is not one: expected {_FORMS}, in UTF-8")
    if value.startswith("unix:"):
        path = value.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("//") else path
        if not path.startswith("/"):
            raise CuzkError(
                f"address {text!r}: the path of a unix socket must be absolute, as in unix:///run/user/1000/cuzk.sock"
            )
        if len(path.encode()) > 107:  # sun_path holds 108 bytes with its end
            raise CuzkError(f"address {text!r}: the path has {len(path.encode())} bytes, a unix socket's may have 107")
        return Address(path=path)
    for scheme in ("http://", "https://"):
        value = value.removeprefix(scheme)
    value = value.rstrip("/")
    host, separator, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise CuzkError(f"address {text!r}: an IPv6 address goes in brackets, as in [::1]:9820")
    if not separator or not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise CuzkError(f"address {text!r} is not one: expected {_FORMS}")
    return Address(host=host, port=int(port))
