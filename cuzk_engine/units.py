"""Sizes and durations as people write them: "1.5TiB", "256 MiB", "0"; "2h", "500ms", "7d"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

SIZE_FORMS: Final = 'a number and one of B, KiB, MiB, GiB, TiB, as in "1.5GiB"'
DURATION_FORMS: Final = 'a number and one of ms, s, m, h, d, as in "90s"'

_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATIONS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_QUANTITY: Final = re.compile(r"(\d{1,999}(?:\.\d{1,9})?) ?([A-Za-z]+)", re.ASCII)
_END: Final = 1 << 63


class TooLargeError(ValueError):
    """A quantity of the right form that no number of the engine's can hold."""


def parse_size(text: str) -> int:
    """Bytes, rounded down to whole ones. Raises ValueError that says what is accepted."""
    if text == "0":
        return 0
    return int(_parse(text, _SIZES, SIZE_FORMS))


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises ValueError that says what is accepted."""
    if text == "0":
        return 0
    return int(_parse(text, _DURATIONS, DURATION_FORMS))


def format_size(value: int) -> str:
    """The largest unit that leaves at least 1, three significant digits: "1.46 GiB"; whole bytes below 1 KiB."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(value) >= _SIZES[unit]:
            return (
                f"{value / _SIZES[unit]:.3g} {unit}"
                if abs(value) < 1000 * _SIZES[unit]
                else f"{value / _SIZES[unit]:.0f} {unit}"
            )
    return f"{value} B"


def format_duration(nanoseconds: int) -> str:
    """A short text for messages: "12 ms", "3.4 s", "2.0 h"."""
    if nanoseconds < 10**9:
        return f"{nanoseconds / 10**6:.0f} ms"
    for unit, limit in (("s", 120 * 10**9), ("m", 2 * 3600 * 10**9), ("h", 2 * 86400 * 10**9)):
        if nanoseconds < limit:
            return f"{nanoseconds / _DURATIONS[unit]:.1f} {unit}"
    return f"{nanoseconds / _DURATIONS['d']:.1f} d"


def format_count(number: int, noun: str) -> str:
    """ "1 value", "2,000 values"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _parse(text: str, units: dict[str, int], forms: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match[2]) if match else None
    if match is None or factor is None:
        raise ValueError(f"expected {forms}")
    value = Decimal(match[1]) * factor
    if value >= _END:
        largest = max(units, key=lambda unit: units[unit])
        raise TooLargeError(f"is too large: expected at most {(_END - 1) // units[largest]}{largest}")
    return value
