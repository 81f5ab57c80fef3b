"""The figures as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cuzk_engine.bench.results import Series, Spread
from cuzk_engine.units import format_size

_UNKNOWN: Final = "n/a"
_SEEN: Final = 0.0005


def table(series: Sequence[Series]) -> list[str]:
    """One row a variation, then why the device idled, and the phases of each."""
    pairs = [part for name in ("s a proof", "proofs/min", "% busy") for part in (name, "(min–max)")]
    rows = [["", *pairs, "kernels, ms", "device peak", "resident peak"]]
    for each in series:
        rows.append(
            [
                each.variation.name,
                *_pair(each.seconds, 3),
                *_pair(each.proofs_a_minute, 1),
                *_pair(each.busy, 1, 100),
                _UNKNOWN if each.kernels is None else f"{1000 * each.kernels.median:.1f}",
                _bytes(each.device_peak),
                _bytes(each.resident_peak),
            ]
        )
    tables = [rows, _idle_rows(series), _phase_rows(series)]
    return [line for each in tables if len(each[0]) > 1 for line in ("", *_aligned(each))][1:]


def _idle_rows(series: Sequence[Series]) -> list[list[str]]:
    """Only causes that can be seen in the table."""
    found = [each.idle for each in series]
    most: dict[str, float] = {}
    for idle in found:
        for cause, spread in idle.items():
            most[cause] = max(most.get(cause, 0.0), spread.median)
    causes = [cause for cause, share in sorted(most.items(), key=lambda item: -item[1]) if share >= _SEEN]
    rows = [["median % idle by", *causes]]
    for each, idle in zip(series, found, strict=True):
        shares = [f"{100 * idle[cause].median:.1f}" if cause in idle else "–" for cause in causes]
        rows.append([each.variation.name, *shares])
    return rows


def _phase_rows(series: Sequence[Series]) -> list[list[str]]:
    phases = [each.phases() for each in series]
    names = list(dict.fromkeys(name for each in phases for name in each))
    rows = [["median ms of", *names]]
    for each, found in zip(series, phases, strict=True):
        rows.append(
            [each.variation.name, *(f"{1000 * found[name].median:.1f}" if name in found else "–" for name in names)]
        )
    return rows


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _pair(spread: Spread | None, digits: int, scale: float = 1) -> list[str]:
    if spread is None:
        return [_UNKNOWN, ""]
    median, low, high = (f"{scale * value:.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return [median, "" if spread.count == 1 else f"({low}–{high})"]


def _bytes(value: int | None) -> str:
    return _UNKNOWN if value is None else format_size(value)
