"""What can be a certificate or a token, which name a certificate is checked against, and whether a program speaks
TLS at all."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final

from cuzk_engine.client.address import Address
from cuzk_engine.errors import DaemonError

_PROBE_SECONDS: Final = 1.0
_KINDS: Final = ("DNS", "IP Address")


def check_access(certificate: bytes | None, token: str | None) -> None:
    """Raises DaemonError for a certificate that is none, without which the token would go its way in the clear, and for
    a token that a call cannot carry. The message holds nothing of either."""
    if certificate is not None and not is_certificate(certificate):
        raise DaemonError(
            "the file given as the engine's certificate holds none in PEM form: give a copy of its daemon.tls_cert"
        )
    if token and not (token.isascii() and token.isprintable()):
        raise DaemonError(
            "the file given as the engine's token holds no token: expected one line of printable ASCII characters, a "
            "copy of its daemon.token_file"
        )


def is_certificate(pem: bytes) -> bool:
    return _authorities(pem) is not None


def name_to_verify(certificate: bytes, address: Address) -> str | None:
    """A name that the certificate (PEM) has, for an engine of this machine whose address it does not have; None where
    the address itself is to be checked. Only who has the certificate's key passes, under whatever name."""
    if address.path or not address.is_local:
        return None
    names = _names(certificate)
    if not names or address.host in names:
        return None
    return "localhost" if "localhost" in names else names[0].replace("*", "engine")


def is_spoken(address: Address) -> bool:
    """Whether who listens there answers a TLS greeting. Nothing is sent behind it."""
    if address.path:
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # who it is does not matter
    context.set_alpn_protocols(["h2"])
    try:
        plain = socket.create_connection((address.host, address.port), _PROBE_SECONDS)
        with plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _authorities(certificate: bytes) -> ssl.SSLContext | None:
    """That trusts the PEM's certificates; None where it holds none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))  # others only stand in remarks
    except (ssl.SSLError, ValueError):
        return None
    return context


def _names(certificate: bytes) -> list[str]:
    """Host names and addresses of the PEM's certificates, where they may sign, as one that signs itself does."""
    context = _authorities(certificate)
    found: list[dict[str, Any]] = context.get_ca_certs() if context is not None else []
    return [str(value) for one in found for kind, value in one.get("subjectAltName", ()) if kind in _KINDS]
