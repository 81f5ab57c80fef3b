"""The figures as text."""

from __future__ import annotations

from collections.abc import Sequence

from cuzk_engine.bench.results import Series, Spread
from cuzk_engine.units import format_size

_UNKNOWN = "n/a"


def table(series: Sequence[Series]) -> list[str]:
    """One row a variation, then the phases of each."""
    heads = ["", "s a proof", "(min–max)", "proofs/min", "(min–max)", "device busy", "device peak", "resident peak"]
    rows = [heads]
    for each in series:
        rows.append(
            [
                each.variation.name,
                *_pair(each.seconds, 3),
                *_pair(each.proofs_a_minute, 1),
                _share(each.busy),
                _bytes(each.device_peak),
                _bytes(each.resident_peak),
            ]
        )
    return [*_aligned(rows), "", *_aligned(_phase_rows(series))]


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


def _pair(spread: Spread | None, digits: int) -> list[str]:
    if spread is None:
        return [_UNKNOWN, ""]
    return [f"{spread.median:.{digits}f}", f"({spread.low:.{digits}f}–{spread.high:.{digits}f})"]


def _share(spread: Spread | None) -> str:
    return _UNKNOWN if spread is None else f"{100 * spread.median:.0f} %"


def _bytes(value: int | None) -> str:
    return _UNKNOWN if value is None else format_size(value)
