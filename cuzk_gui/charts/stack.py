"""The three charts and the overview, on one time axis."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPoint, QPointF, QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QSplitter, QVBoxLayout, QWidget

from cuzk_gui.charts.chart import Chart
from cuzk_gui.charts.lanes_chart import LanesChart
from cuzk_gui.charts.memory_chart import MemoryChart
from cuzk_gui.charts.overview import Overview
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.transfer_chart import TransferChart
from cuzk_gui.models import words
from cuzk_gui.models.view import nice_step

_IDLE_FRAMES = 6  # of the window's timer between two repaints while nothing runs


class ChartStack(QWidget):
    """``begin`` and ``finish`` are called by the window's timer, one after another; they repaint only what changed, a
    part of the charts each. ``frame`` is both.

    ``whole``: all charts are there at once; else they come with ``build``, one at each call."""

    incident_chosen = Signal(int)

    def __init__(self, scene: Scene, *, whole: bool = True) -> None:
        super().__init__()
        self.scene = scene
        self._pointed: tuple[Chart, QPointF] | None = None
        self._seen: tuple[object, ...] = ()
        self._skipped = 0
        self._begun = False
        self._axis: tuple[float, float, bool] | None = None
        self._parts = self._assemble()
        while whole and self.build():
            pass

    def build(self) -> bool:
        """Builds the next part; False when all are there."""
        return next(self._parts, None) is not None

    def _assemble(self) -> Iterator[str]:
        scene = self.scene
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.setHandleWidth(8)
        self.splitter.setChildrenCollapsible(False)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self.splitter)
        self.memory = MemoryChart(scene)
        self._add(self.memory, 120, 30)
        yield "memory"
        self.transfers = TransferChart(scene)
        self._add(self.transfers, 90, 16)
        yield "transfers"
        self.lanes = LanesChart(scene)
        self._add(self.lanes, 210, 40)
        self.charts: tuple[Chart, ...] = (self.memory, self.transfers, self.lanes)
        yield "lanes"
        self.overview = Overview(scene)
        self.follow = QPushButton("Follow")
        self.follow.setProperty("role", "link")
        self.follow.setToolTip("Show the present again and stay there (F)")
        self.follow.clicked.connect(scene.view.follow)
        self.lanes.header.addWidget(self.follow)
        self.follow.ensurePolished()
        self.lanes.header.addStrut(self.follow.sizeHint().height())  # nothing moves when it comes and goes
        layout = self.lanes.layout()
        assert layout is not None
        layout.addWidget(self.overview)
        self._tip = _Tip(self)

    def _add(self, chart: Chart, minimum: int, share: int) -> None:
        chart.setMinimumHeight(minimum)
        self.splitter.addWidget(chart)
        self.splitter.setStretchFactor(self.splitter.count() - 1, share)
        chart.plot.pointed.connect(lambda position: self._point(chart, position))
        chart.incident_chosen.connect(self.incident_chosen)

    def frame(self, active: bool) -> bool:
        """Repaints if there is something new; ``active`` while jobs run. Returns whether it did."""
        begun = self.begin(active)
        self.finish()
        return begun

    def begin(self, active: bool) -> bool:
        view, session = self.scene.view, self.scene.session
        state = (
            session.version,
            view.version,
            view.following,
            self.scene.device,
            self.scene.pointer,
            self.scene.cause,
            self.scene.plan,
            self.scene.theme.colours,
        )
        moved = view.following and view.now
        if state == self._seen and not moved:
            return False
        interacting = state[1:] != self._seen[1:]
        self._skipped += 1
        if not active and not interacting and self._skipped < _IDLE_FRAMES:
            return False
        self._skipped = 0
        self._seen = state
        self._set_axis()
        self.follow.setVisible(not view.following)
        self.memory.refresh()
        self.transfers.refresh()
        self._begun = True
        if interacting:  # under the mouse all of them move together
            self.finish()
        return True

    def finish(self) -> None:
        """The rest of what ``begin`` has begun."""
        if self._begun:
            self._begun = False
            self.lanes.refresh()
            self.overview.update()
            self._show_tip()

    def restyle(self) -> None:
        for chart in self.charts:
            chart.restyle()
        self._axis = None
        self._seen = ()

    def _set_axis(self) -> None:
        """Range and labels of the time axis; untouched while following at one width."""
        view = self.scene.view
        low = view.start - view.axis_zero
        axis = (0.0 if view.following else low, view.width, view.following)
        if axis == self._axis:
            return
        self._axis = axis
        step = nice_step(view.width, 8)
        first = int(low / step) - 1
        ticks = [
            (i * step, _tick_text(i * step, step, view.following))
            for i in range(first, first + int(view.width / step) + 3)
            if low - 1e-9 <= i * step <= low + view.width + 1e-9
        ]
        self.lanes.plot.set_bottom(ticks)
        for chart in self.charts:
            chart.plot.set_x_range(low, low + view.width)

    def _point(self, chart: Chart, position: QPointF | None) -> None:
        if position is None:
            self._pointed, self.scene.pointer = None, None
            self._tip.hide()
            return
        self._pointed = (chart, position)
        self.scene.pointer = chart.plot.seconds_at(position.x())

    def _show_tip(self) -> None:
        if self._pointed is None:
            return
        chart, position = self._pointed
        if self.scene.view.following:  # the pointer stays, time moves on under it
            self.scene.pointer = chart.plot.seconds_at(position.x())
        text = chart.point_at(position)
        if text is None:
            self._tip.hide()
            return
        corner = chart.plot.mapTo(self, chart.plot.inside().topLeft().toPoint())
        self._tip.show_at(corner + position.toPoint(), text, self.rect().size())


class _Tip(QFrame):
    """Readout beside the pointer."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("hover")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.RichText)
        self._label.setStyleSheet("font-size: 11px")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 5, 8, 6)
        layout.addWidget(self._label)
        self.hide()

    @property
    def text(self) -> str:
        return self._label.text()

    def show_at(self, point: QPoint, text: str, room: QSize) -> None:
        if text != self._label.text():
            self._label.setText(text)
            self.adjustSize()
        x = point.x() + 14
        if x + self.width() > room.width() - 8:
            x = point.x() - 14 - self.width()
        y = min(max(point.y() + 10, 4), room.height() - self.height() - 4)
        self.move(max(x, 4), max(y, 4))
        self.raise_()
        self.show()


def _tick_text(value: float, step: float, relative: bool) -> str:
    if relative:
        return "now" if abs(value) < step / 2 else _seconds(value, step)
    if step >= 60 or value >= 3600:
        whole = round(value)
        return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return _seconds(value, step)


def _seconds(value: float, step: float) -> str:
    if step < 1e-3:
        return f"{value:.{4 if step >= 1e-4 else 6}f} s".replace("-0.0000 ", "0 ")
    if step < 1:
        return f"{value:.{1 if step >= 0.1 else 2 if step >= 0.01 else 3}f} s"
    if abs(value) >= 120:
        return ("-" if value < 0 else "") + words.span(abs(value))
    return f"{value:.0f} s"
