"""Names of the profiles: ``chain:2^k``, ``dense:2^k``, ``sha256:N``, ``porep:2^k``.

2^k names the domain, which ``chain`` and ``dense`` fill: constraints + public signals + 1 = 2^k. ``porep`` has
0.97 · 2^k constraints. N is the number of blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.errors import UsageError
from cuzk_engine.workload.porep import porep
from cuzk_engine.workload.rows import Circuit
from cuzk_engine.workload.sha256 import sha256
from cuzk_engine.workload.synthetic import chain, dense

MAX_LOG_DOMAIN: Final = 24
EXAMPLES: Final = "chain:2^16, dense:2^16, sha256:2 or porep:2^16"


@dataclass(frozen=True)
class _Kind:
    make: Callable[[int, Curve], Circuit]
    is_power: bool
    least: int
    most: int


_KINDS: Final = {
    "chain": _Kind(chain, True, 3, MAX_LOG_DOMAIN),
    "dense": _Kind(dense, True, 3, MAX_LOG_DOMAIN),
    "porep": _Kind(porep, True, 8, MAX_LOG_DOMAIN),
    "sha256": _Kind(sha256, False, 1, 580),
}
_PATTERN: Final = re.compile(r"([a-z0-9]+):(2\^)?([0-9]{1,9})", re.ASCII)


def _power(number: int, kind: _Kind) -> int:
    """The k of 2^k that was meant by a plain number: itself, or its logarithm; 0 where neither can be made."""
    log = number.bit_length() - 1 if number.bit_count() == 1 else 0
    found = (power for power in (number, log) if kind.is_power and kind.least <= power <= kind.most)
    return next(found, 0)


def make_circuit(profile: str, curve: Curve) -> Circuit:
    """The circuit that a profile names, its rows and values still to be made. Raises UsageError."""
    match = _PATTERN.fullmatch(profile)
    kind = _KINDS.get(match[1]) if match else None
    if match is not None and kind is not None and kind.is_power != bool(match[2]):
        form = "a domain is written as a power" if kind.is_power else "N is a plain number"
        form += f": {match[1]}:2^{power}" if (power := _power(int(match[3]), kind)) else ""
        raise UsageError(f'profile "{profile}" has another form, {form}; expected one like {EXAMPLES}')
    if match is None or kind is None:
        raise UsageError(f'profile "{profile}" is not known, expected one like {EXAMPLES}')
    size = int(match[3])
    if not kind.least <= size <= kind.most:
        prefix = "2^" if kind.is_power else ""
        what = f"{match[1]}:{prefix}{kind.least} to {match[1]}:{prefix}{kind.most}"
        raise UsageError(f'profile "{profile}" has a size that cannot be made, expected {what}')
    return kind.make(size, curve)
