"""The plot of a chart: a ground, labels at its left and bottom edge, and content that the chart paints in pixels, with
the mouse bound to the shared time view.

One plain widget: a graphics scene with axes of its own took longer to build and to repaint than all it showed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from cuzk_gui.charts.scene import Scene
from cuzk_gui.theme import ui_font

LEFT_WIDTH = 78
RIGHT_MARGIN = 16  # half of a label at the end of the axis
_BOTTOM_AXIS, _NO_AXIS = 22, 6
_LABEL_GAP = 8
PaintLayer = Callable[[QPainter, float, float], None]
Ticks = Sequence[tuple[float, str]]


class Plot(QWidget):
    """``x_range``, ``y_range``: the ends of the axes in the units of their labels; the y axis points up.

    Wheel: zoom about the pointer. Shift and wheel, sideways wheel, drag: pan. Double click: follow the present.
    ``pointed``: the pointer in pixels of the inside, None when it left; ``clicked``: there, without a drag.
    """

    pointed = Signal(object)
    clicked = Signal(QPointF)

    def __init__(self, scene: Scene, paint_layer: PaintLayer, *, bottom_axis: bool, top: int) -> None:
        super().__init__()
        self.x_range = self.y_range = (0.0, 1.0)
        self._scene = scene
        self._paint = paint_layer
        self._top, self._bottom = top, _BOTTOM_AXIS if bottom_axis else _NO_AXIS
        self._left_ticks: Ticks = ()
        self._bottom_ticks: Ticks = ()
        self._pressed: QPointF | None = None
        self._dragged_to: float | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    # ---- what is shown ----

    def inside(self) -> QRectF:
        """Where the content is, in this widget's pixels."""
        width, height = self.width() - LEFT_WIDTH - RIGHT_MARGIN, self.height() - self._top - self._bottom
        return QRectF(LEFT_WIDTH, self._top, max(width, 1), max(height, 1))

    def set_left(self, ticks: Ticks, low: float, high: float) -> None:
        """Labels of the left axis and its range."""
        self._left_ticks, self.y_range = tuple(ticks), (low, high)
        self.update()

    def set_bottom(self, ticks: Ticks) -> None:
        self._bottom_ticks = tuple(ticks)
        self.update()

    def set_x_range(self, low: float, high: float) -> None:
        self.x_range = (low, high)
        self.update()

    def seconds_at(self, x: float) -> float:
        """Time at a position in pixels of the inside."""
        view = self._scene.view
        return view.start + view.width * x / self.inside().width()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        inside, colours = self.inside(), self._scene.colours
        painter.fillRect(event.rect(), QColor(colours.panel))
        painter.save()
        painter.setClipRect(inside)
        painter.translate(inside.topLeft())
        self._paint(painter, inside.width(), inside.height())
        painter.restore()
        # After the content: it may have asked for other labels.
        painter.setPen(QColor(colours.faint))
        painter.setFont(ui_font(11))
        metrics = QFontMetricsF(painter.font())
        self._paint_left(painter, metrics, inside)
        self._paint_bottom(painter, metrics, inside)

    def _paint_left(self, painter: QPainter, metrics: QFontMetricsF, inside: QRectF) -> None:
        low, high = self.y_range
        room, height = LEFT_WIDTH - _LABEL_GAP - 2, metrics.height()
        taken = float("inf")  # upper end of the last label; the lowest comes first
        for value, text in sorted(self._left_ticks):
            y = inside.bottom() - (value - low) / ((high - low) or 1.0) * inside.height()
            if not inside.top() - 1 <= y <= inside.bottom() + 1 or y + height / 2 > taken + 1:
                continue
            taken = y - height / 2
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, room)
            painter.drawText(
                QRectF(2, y - height / 2, room, height),
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
                shown,
            )

    def _paint_bottom(self, painter: QPainter, metrics: QFontMetricsF, inside: QRectF) -> None:
        low, high = self.x_range
        taken = float("-inf")
        for value, text in sorted(self._bottom_ticks):
            x = inside.left() + (value - low) / ((high - low) or 1.0) * inside.width()
            wide = metrics.horizontalAdvance(text)
            if not inside.left() - 1 <= x <= inside.right() + 1 or x - wide / 2 < taken:
                continue
            taken = x + wide / 2 + _LABEL_GAP
            painter.drawText(QPointF(x - wide / 2, inside.bottom() + 5 + metrics.ascent()), text)

    # ---- the mouse ----

    def wheelEvent(self, event: QWheelEvent) -> None:
        view, turned = self._scene.view, event.angleDelta()
        sideways = abs(turned.x()) > abs(turned.y())
        steps = (turned.x() if sideways else turned.y()) / 120.0
        if sideways or event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            view.pan(-steps * view.width * 0.1)
        else:
            view.zoom(0.8**steps, self.seconds_at(self._at(event.position()).x()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() in (Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton):
            self._pressed, self._dragged_to = event.position(), None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._drag(event.position())
        position = self._at(event.position())
        inside = self.inside()
        is_there = 0 <= position.x() <= inside.width() and 0 <= position.y() <= inside.height()
        self.pointed.emit(position if is_there else None)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        was_click = self._pressed is not None and self._dragged_to is None
        self._pressed = self._dragged_to = None
        if was_click and event.button() == Qt.MouseButton.LeftButton:
            self.clicked.emit(self._at(event.position()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._scene.view.follow()

    def leaveEvent(self, event: QEvent) -> None:
        self.pointed.emit(None)

    def _drag(self, position: QPointF) -> None:
        if self._pressed is None:
            return
        if self._dragged_to is None:
            if (position - self._pressed).manhattanLength() < QApplication.startDragDistance():
                return
            self._dragged_to = self._pressed.x()
        view = self._scene.view
        view.pan(-(position.x() - self._dragged_to) * view.width / self.inside().width())
        self._dragged_to = position.x()

    def _at(self, position: QPointF) -> QPointF:
        return position - self.inside().topLeft()
