"""The whole session in one strip: how busy the kernels were, and which stretch is shown."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from cuzk_engine.events import Lane
from cuzk_gui.charts.paint import RectBatch
from cuzk_gui.charts.plot import LEFT_WIDTH, RIGHT_MARGIN
from cuzk_gui.charts.scene import Scene

_BAR = 4.0


class Overview(QWidget):
    """Click or drag moves the shown stretch there."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self._batch = RectBatch()
        self.setFixedHeight(34)
        self.setAccessibleName("Overview of the session: busy share of the kernels")
        self.setToolTip("The whole session; click or drag to look at a part of it")

    @property
    def _inside(self) -> QRectF:
        return QRectF(LEFT_WIDTH, 2, max(self.width() - LEFT_WIDTH - RIGHT_MARGIN, 1), self.height() - 6)

    @property
    def length(self) -> float:
        """Seconds that the strip covers."""
        if self._scene.session.recorded:
            return max(self._scene.view.now, 1e-3)
        return max(self._scene.view.now, self._scene.view.width * 2.5)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scene, colours, inside = self._scene, self._scene.colours, self._inside
        painter.fillRect(inside, QColor(colours.control))
        zero = scene.view.now - self.length
        timeline = scene.timeline
        track = timeline.tracks.get(Lane.COMPUTE.value) if timeline else None
        if track is not None:
            first, last = scene.session.time_ns(zero), scene.session.time_ns(zero + self.length)
            pixel_ns = (last - first) / inside.width()
            level = track.level_for(first, pixel_ns * _BAR)
            starts, busy, _ = level.view(first, last)
            step = max(1, round(pixel_ns * _BAR / level.width))
            usable = len(starts) // step * step
            if usable:
                share = busy[:usable].sum(axis=1).reshape(-1, step).sum(axis=1) / (level.width * step)
                x0 = inside.left() + (starts[:usable:step] - first) / pixel_ns
                x1 = x0 + level.width * step / pixel_ns
                seen = share > 0.002
                height = np.maximum(np.minimum(share, 1.0) * (inside.height() - 4), 2.0)
                x0, x1 = np.maximum(np.round(x0), inside.left()), np.minimum(np.round(x1) - 1, inside.right())
                x1 = np.maximum(x1, x0 + 1)
                bottom = np.full(len(x0), inside.bottom())
                colour = QColor(colours.accent)
                colour.setAlphaF(0.55)
                self._batch.fill(painter, colour, x0[seen], (bottom - height)[seen], x1[seen], bottom[seen])
        scale = inside.width() / self.length
        self._paint_marks(painter, inside, zero, scale)
        left = inside.left() + (scene.view.start - zero) * scale
        right = inside.left() + (scene.view.end - zero) * scale
        shown = QRectF(QPointF(left, inside.top()), QPointF(max(right, left + 3), inside.bottom())) & inside
        fill = QColor(colours.accent)
        fill.setAlphaF(0.22)
        painter.fillRect(shown, fill)
        painter.setPen(QPen(QColor(colours.accent), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)  # the bars have left theirs
        painter.drawRect(shown.adjusted(0.5, 0.5, -0.5, -0.5))

    def _paint_marks(self, painter: QPainter, inside: QRectF, zero: float, scale: float) -> None:
        """Changed settings and incidents as short lines from the top."""
        scene = self._scene
        for colour, length, events in (
            (scene.colours.accent, 7.0, scene.session.marks),
            (scene.colours.bad, inside.height(), scene.session.incidents),
        ):
            painter.setPen(QPen(QColor(colour), 1))
            for event in events:
                x = round(inside.left() + (scene.session.seconds(event.time_ns) - zero) * scale)
                if event.device in ("", scene.device) and inside.left() <= x <= inside.right():
                    painter.drawLine(QPointF(x, inside.top()), QPointF(x, inside.top() + length))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._move_to(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._move_to(event.position().x())

    def _move_to(self, x: float) -> None:
        view, inside = self._scene.view, self._inside
        zero = view.now - self.length
        middle = zero + (x - inside.left()) / inside.width() * self.length
        start = min(max(middle - view.width / 2, 0.0), max(view.now - view.width * 0.5, 0.0))
        view.show(start, start + view.width)
