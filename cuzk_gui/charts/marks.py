"""Where the texts of marks stand in a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from PySide6.QtCore import QRectF
from PySide6.QtGui import QFontMetricsF

from cuzk_engine.events import Mark
from cuzk_gui.charts.paint import Area
from cuzk_gui.models import words
from cuzk_gui.models.columns import Array

_ROW: Final = 19.0  # pixels from one row of texts to the next
_HEIGHT: Final = 17.0
_MOST_ROWS: Final = 6
_BESIDE: Final = 2.0  # pixels between a line and its text


def mark_texts(
    marks: Sequence[Mark],
    area: Area,
    metrics: QFontMetricsF,
    *,
    top: float = 0.0,
    tops: Array | None = None,
    taken: Sequence[QRectF] = (),
) -> list[tuple[QRectF, str]]:
    """Places of the texts of ``marks``, which are in order of time: beside its line, on the right if there is room,
    none over another one or over ``taken``, none above ``top``. ``tops``: the upper edge of what is painted, for each
    pixel of the width: a text stands above it in the highest row that is free, else over it in the lowest. One that has
    no place is left out: all, where the chart has no room but for one row."""
    rows = [row for n in range(1, _MOST_ROWS + 1) if (row := area.height - _ROW * n) >= max(top, _ROW)]
    ends = dict.fromkeys(rows, -1.0)  # the right end of the last text of each row
    found = []
    for mark in marks:
        x = float(round(area.x_of(mark.time_ns)))
        if not rows or x < min(ends.values()):
            continue
        text = words.plain(mark.text, 48)
        wide = metrics.horizontalAdvance(text) + 12
        places = (
            place
            for place in _places(x, wide, area.width, rows, tops)
            if place.left() > ends[place.top()] and not any(place.intersects(other) for other in taken)
        )
        if (place := next(places, None)) is not None:
            found.append((place, text))
            ends[place.top()] = place.right() + 4
    return found


def _places(x: float, wide: float, width: float, rows: Sequence[float], tops: Array | None) -> Iterator[QRectF]:
    """From the best one on; ``rows``: from the lowest up."""
    right, left = x + _BESIDE, x - _BESIDE - wide
    sides = [side for side in (right, left) if side >= 0 and side + wide <= width] or [max(0.0, width - wide)]
    if tops is not None:
        for side in sides:
            part = tops[int(side) : int(side + wide) + 1]
            free = float(part.min()) if len(part) else 0.0
            yield from (QRectF(side, row, wide, _HEIGHT) for row in reversed(rows) if row + _HEIGHT < free)
    for side in sides:
        yield from (QRectF(side, row, wide, _HEIGHT) for row in rows)
