"""A pyqtgraph plot whose content is painted by us in pixels, with the mouse bound to the shared time view.

The view box's x range is the axis' range: relative to the present while following, so that nothing of pyqtgraph has
to be laid out
again while time passes; only the layer is painted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QGraphicsObject, QStyleOptionGraphicsItem, QWidget

from cuzk_gui.charts.scene import Scene
from cuzk_gui.theme import ui_font

LEFT_WIDTH = 78
RIGHT_MARGIN = 16  # half of a label at the end of the axis
PaintLayer = Callable[[QPainter, float, float], None]


class TimeViewBox(pg.ViewBox):
    """Wheel: zoom about the pointer. Shift and wheel, sideways wheel, drag: pan. Double click: follow the present."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(enableMenu=False)
        self._scene = scene
        self.on_click: Callable[[QPointF], None] = lambda _: None
        self.setMouseEnabled(x=False, y=False)
        self.setDefaultPadding(0)

    def seconds_at(self, x: float) -> float:
        """Time at a position in the box's own pixels."""
        view = self._scene.view
        return view.start + view.width * x / max(self.width(), 1.0)

    def wheelEvent(self, event: Any, axis: int | None = None) -> None:
        view = self._scene.view
        steps = event.delta() / 120.0
        sideways = event.orientation() == Qt.Orientation.Horizontal
        if sideways or event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            view.pan(-steps * view.width * 0.1)
        else:
            view.zoom(0.8**steps, self.seconds_at(self.mapFromScene(event.scenePos()).x()))
        event.accept()

    def mouseDragEvent(self, event: Any, axis: int | None = None) -> None:
        if event.button() not in (Qt.MouseButton.LeftButton, Qt.MouseButton.MiddleButton):
            event.ignore()
            return
        event.accept()
        moved = self.mapFromScene(event.scenePos()).x() - self.mapFromScene(event.lastScenePos()).x()
        view = self._scene.view
        view.pan(-moved * view.width / max(self.width(), 1.0))

    def mouseClickEvent(self, event: Any) -> None:
        if event.double():
            self._scene.view.follow()
        elif event.button() == Qt.MouseButton.LeftButton:
            self.on_click(self.mapFromScene(event.scenePos()))
        event.accept()


class Layer(QGraphicsObject):
    """Covers the view box; ``paint_layer`` draws in its pixels."""

    def __init__(self, box: TimeViewBox, paint_layer: PaintLayer) -> None:
        super().__init__(box)
        self._box = box
        self._paint = paint_layer
        box.sigResized.connect(self._resized)

    def _resized(self, *_args: object) -> None:
        self.prepareGeometryChange()

    def boundingRect(self) -> QRectF:
        return QRectF(0, 0, max(self._box.width(), 1.0), max(self._box.height(), 1.0))

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        rect = self.boundingRect()
        self._paint(painter, rect.width(), rect.height())


class Plot(pg.PlotWidget):
    """The plot of one chart."""

    pointed = Signal(object)  # QPointF in the view box's pixels, or None when the pointer left

    def __init__(self, scene: Scene, paint_layer: PaintLayer, *, bottom_axis: bool, top: int) -> None:
        self.box = TimeViewBox(scene)
        super().__init__(viewBox=self.box)
        self._scene = scene
        item = self.getPlotItem()
        item.hideButtons()
        item.setMenuEnabled(False)
        item.layout.setContentsMargins(0, top, RIGHT_MARGIN, 0 if bottom_axis else 6)
        self.left = item.getAxis("left")
        self.left.setWidth(LEFT_WIDTH)
        self.left.setStyle(tickLength=0, autoExpandTextSpace=False, tickTextOffset=8)
        self.bottom = item.getAxis("bottom")
        if bottom_axis:
            self.bottom.setHeight(22)
            self.bottom.setStyle(tickLength=0, autoExpandTextSpace=False, tickTextOffset=5, hideOverlappingLabels=False)
        else:
            item.hideAxis("bottom")
        self.box.disableAutoRange()
        self.layer = Layer(self.box, paint_layer)
        self.setFrameShape(pg.QtWidgets.QFrame.Shape.NoFrame)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.restyle()

    def restyle(self) -> None:
        colours = self._scene.colours
        self.setBackground(colours.panel)
        for axis in (self.left, self.bottom):
            axis.setPen(QPen(Qt.PenStyle.NoPen))
            axis.setTextPen(QColor(colours.faint))
            axis.setStyle(tickFont=ui_font(11), tickAlpha=0)
        self.layer.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        position = self.box.mapFromScene(self.mapToScene(event.position().toPoint()))
        self.pointed.emit(position if self.box.rect().contains(position) else None)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def inside(self) -> QRectF:
        """The view box in this widget's pixels."""
        scene_rect = self.box.mapRectToScene(self.box.rect())
        corner = self.mapFromScene(scene_rect.topLeft())
        return QRectF(QPointF(corner), scene_rect.size())
