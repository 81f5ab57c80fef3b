"""Which name a certificate is checked against, and whether a program speaks TLS at all."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final

from cuzk_engine.client.address import Address

_PROBE_SECONDS: Final = 1.0
_KINDS: Final = ("DNS", "IP Address")


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


def _names(certificate: bytes) -> list[str]:
    """Host names and addresses of the PEM's certificates, where they may sign, as one that signs itself does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return []
    found: list[dict[str, Any]] = context.get_ca_certs()
    return [str(value) for one in found for kind, value in one.get("subjectAltName", ()) if kind in _KINDS]
