"""Drawing many rectangles of one colour in one call.

``QPainter.drawRects`` on an array that Qt reads in place: about 6 ms for 20,000 rectangles, against 80 ms for a
loop of ``drawRect``
(pyqtgraph's ``PrimitiveArray`` hides how each binding passes such an array).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyqtgraph.Qt import internals
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPen

from cuzk_gui.models.columns import Array


@dataclass(frozen=True, slots=True)
class Area:
    """The inside of a plot in pixels, and the stretch of time it shows."""

    width: float
    height: float
    start_ns: int
    span_ns: int

    def x(self, times_ns: Array) -> Array:
        """Positions in pixels; int64 until the difference, so that nanoseconds survive."""
        return (times_ns - self.start_ns).astype(np.float64) * (self.width / self.span_ns)

    def x_of(self, time_ns: int) -> float:
        return (time_ns - self.start_ns) * (self.width / self.span_ns)

    @property
    def pixel_ns(self) -> float:
        return self.span_ns / max(self.width, 1.0)


class RectBatch:
    """Reused memory for the rectangles of one chart. ``painted`` counts those of the last frame."""

    def __init__(self) -> None:
        self._array: Any = internals.PrimitiveArray(QRectF, 4)
        self.painted = 0

    def begin(self) -> None:
        self.painted = 0

    def fill(self, painter: QPainter, brush: QBrush | QColor, x0: Array, y0: Array, x1: Array, y1: Array) -> None:
        """Fills [x0, x1] × [y0, y1], pixels, arrays of one length."""
        count = len(x0)
        if not count:
            return
        self._array.resize(count)
        memory = self._array.ndarray()
        memory[:, 0], memory[:, 1] = x0, y0
        memory[:, 2], memory[:, 3] = x1 - x0, y1 - y0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(brush)
        painter.drawRects(*self._array.drawargs())
        self.painted += count


def bar_edges(x0: Array, x1: Array, width: float) -> tuple[Array, Array]:
    """Whole pixels, at least one wide, one apart where there is room, cut to the plot."""
    left = np.clip(np.round(x0), -2, width + 2)
    right = np.clip(np.round(x1), -2, width + 2)
    right = np.where(right - left >= 3, right - 1, right)
    return left, np.maximum(right, left + 1)


class LabelPen:
    """Text inside bars: only where it fits, widths measured once."""

    def __init__(self) -> None:
        self._widths: dict[tuple[str, str], float] = {}

    def width(self, metrics: QFontMetricsF, text: str, key: str) -> float:
        found = self._widths.get((key, text))
        if found is None:
            if len(self._widths) > 4096:
                self._widths.clear()
            found = self._widths[(key, text)] = metrics.horizontalAdvance(text)
        return found


def dashed(colour: str, width: float = 1.0) -> QPen:
    pen = QPen(QColor(colour), width)
    pen.setDashPattern([4, 3])
    return pen
