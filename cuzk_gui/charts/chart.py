"""A chart: a panel with title, legend and plot. Subclasses paint, describe a point, and list their content as rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap

from PySide6.QtCore import QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from cuzk_engine.events import Mark
from cuzk_gui.charts.marks import mark_texts
from cuzk_gui.charts.paint import Area, LabelPen, RectBatch, dashed
from cuzk_gui.charts.plot import Plot
from cuzk_gui.charts.scene import Scene
from cuzk_gui.models import incidents, words
from cuzk_gui.models.columns import Array
from cuzk_gui.models.incidents import Record
from cuzk_gui.theme import ui_font
from cuzk_gui.widgets.controls import ElidedLabel

Row = tuple[str | int | float, ...]
LegendEntry = tuple[str, str]  # (name, colour)
FLAG_WIDTH, FLAG_HEIGHT = 13.0, 12.0
_TIP_WIDTH = 64  # characters of a sentence in a readout


class Legend(QWidget):
    """Names with their colours in at most three lines; those that do not fit are in the tooltip."""

    _LINE = 17

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self._entries: tuple[LegendEntry, ...] = ()
        self.setFont(ui_font(11.5))
        self.setFixedHeight(self._LINE)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def show_entries(self, entries: Sequence[LegendEntry]) -> None:
        if tuple(entries) != self._entries:
            self._entries = tuple(entries)
            names = ", ".join(name for name, _ in entries)
            self.setToolTip(names)
            self.setAccessibleName(f"Legend: {names}")
            self._fit()
            self.update()

    @property
    def line_width(self) -> float:
        """Pixels that all names take on one line."""
        metrics = QFontMetricsF(self.font())
        return sum(30 + metrics.horizontalAdvance(name) for name, _ in self._entries)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(QColor(self._scene.colours.muted))
        for rect, (name, colour) in zip(self._places(), self._entries, strict=False):
            painter.fillRect(QRectF(rect.left(), rect.center().y() - 5, 10, 10), QColor(colour))
            painter.drawText(rect.adjusted(15, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, name)

    def _fit(self) -> None:
        places = self._places()
        self.setFixedHeight(round(places[-1].bottom()) if places else self._LINE)

    def _places(self) -> list[QRectF]:
        metrics = QFontMetricsF(self.font())
        found: list[QRectF] = []
        x, y = 2.0, 0.0
        for name, _ in self._entries:
            wide = 16 + metrics.horizontalAdvance(name)
            if x + wide > self.width() and x > 2:
                x, y = 2.0, y + self._LINE
            if y >= 3 * self._LINE or x + wide > max(self.width(), 1):
                break
            found.append(QRectF(x, y, wide, self._LINE))
            x += wide + 14
        return found


class Chart(QFrame):
    """``shows_marks``: this chart carries the texts of marks and incidents; all charts carry their lines.
    ``incident_chosen``: the flag or line of an incident (its number) was clicked."""

    incident_chosen = Signal(int)

    title = ""
    empty = "nothing measured yet"
    shows_marks = False

    def __init__(self, scene: Scene, *, bottom_axis: bool = False) -> None:
        super().__init__()
        self.scene = scene
        self.batch = RectBatch()
        self.pens = LabelPen()
        self.setProperty("panel", True)
        self._title = QLabel(self.title)
        self._title.setProperty("role", "title")
        self._legend = Legend(scene)
        self._note = ElidedLabel(natural=True)
        self._head: tuple[str, Sequence[LegendEntry]] = "", ()  # what the title's line says: note and legend
        self._note.setProperty("role", "muted")
        self.header = QHBoxLayout()
        self.header.setContentsMargins(14, 8, 12, 2)
        self.header.setSpacing(14)
        self.header.addWidget(self._title)
        self._gap = QWidget()  # in the legend's place while that has a line of its own
        self._gap.hide()
        self.header.addWidget(self._gap, 1)
        self.header.addWidget(self._legend, 1)
        self.header.addWidget(self._note)
        self.plot = Plot(
            scene, self._paint, bottom_axis=bottom_axis, top=7 if self.shows_marks or not bottom_axis else 2
        )
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 0, 4, 6)
        layout.setSpacing(0)
        self._legend_line = QHBoxLayout()  # of its own, where the title's line has no room
        self._legend_line.setContentsMargins(14, 0, 12, 2)
        layout.addLayout(self.header)
        layout.addLayout(self._legend_line)
        layout.addWidget(self.plot, 1)
        self.plot.setAccessibleName(f"{self.title}, chart")
        self.plot.setAccessibleDescription("The same content as a table: View, Show as table")
        self.plot.clicked.connect(self._clicked)
        self.words_at: list[QRectF] = []  # of the last frame: where texts stand, and those of marks
        self.marks_at: list[tuple[QRectF, str]] = []
        self.marks_top = FLAG_HEIGHT + 2  # pixels: no text of a mark stands above it
        self._ticks: list[tuple[float, str]] | None = None

    def set_title(self, title: str) -> None:
        self._title.setText(title)
        self.plot.setAccessibleName(f"{title}, chart")

    # ---- for subclasses ----

    def paint_content(self, painter: QPainter, area: Area) -> None:
        raise NotImplementedError

    def paint_words(self, painter: QPainter, area: Area) -> list[QRectF]:
        """Paints texts that no line shall run through; where they stand."""
        return []

    def tops(self, area: Area) -> Array | None:
        """The upper edge of what was painted, for each pixel of the width; None where that does not matter."""
        return None

    def describe(self, position: QPointF, area: Area) -> str | None:
        """Rich text about the point under the mouse; None for nothing to say."""
        raise NotImplementedError

    def columns(self) -> Sequence[str]:
        raise NotImplementedError

    def rows(self, limit: int) -> list[Row]:
        """The shown stretch as table rows, the newest ``limit``."""
        raise NotImplementedError

    def clicked(self, position: QPointF, area: Area) -> bool:
        """A click that hit no incident; whether it meant something here."""
        return False

    def legend(self) -> Sequence[LegendEntry]:
        return ()

    def note(self) -> str:
        return ""

    # ---- shared ----

    def _place_legend(self) -> None:
        """Beside the title, or on a line of its own where it would have to be cut."""
        own = not self._gap.isHidden()
        items = [item for i in range(self.header.count()) if (item := self.header.itemAt(i)) is not None]
        taken = sum(
            item.sizeHint().width() + self.header.spacing()
            for item in items
            if not item.isEmpty() and item.widget() not in (self._gap, self._legend)
        )
        room = self.width() - taken - (90 if own else 30)  # the place shall not change with every new text
        if (self._legend.line_width > room) == own:
            return
        if own:
            self._legend_line.removeWidget(self._legend)
            self.header.insertWidget(2, self._legend, 1)
        else:
            self.header.removeWidget(self._legend)
            self._legend_line.addWidget(self._legend)
        self._gap.setVisible(not own)

    def area(self) -> Area:
        rect = self.plot.inside()
        return Area(rect.width(), rect.height(), self.scene.start_ns, max(1, round(self.scene.view.width * 1e9)))

    def refresh(self) -> None:
        """Asks for a repaint; texts change only when their content does."""
        self._head = note, legend = self.note(), self.legend()
        self._note.set_text(note)
        self._legend.show_entries(legend)
        self._place_legend()
        self.plot.update()

    def restyle(self) -> None:
        self.plot.update()

    def say_empty(self, painter: QPainter, area: Area) -> None:
        """Nothing was measured, which is not the same as zero."""
        painter.setPen(QColor(self.scene.colours.faint))
        painter.setFont(ui_font(12))
        painter.drawText(QRectF(0, 0, area.width, area.height), Qt.AlignmentFlag.AlignCenter, self.empty)

    def set_ticks(self, ticks: list[tuple[float, str]], low: float, high: float) -> None:
        """Labels of the left axis; the range is in the same unit."""
        if ticks != self._ticks or (low, high) != self.plot.y_range:
            self._ticks = ticks
            self.plot.set_left(ticks, low, high)

    def _paint(self, painter: QPainter, width: float, height: float) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        self.batch.begin()
        area = self.area()
        self.paint_content(painter, area)
        if (self.note(), self.legend()) != self._head:  # painting finds the scale, and may be over with that
            QTimer.singleShot(0, self, self.refresh)
        self._paint_marks(painter, area)
        if self.scene.pointer is not None:
            x = area.x_of(self.scene.session.time_ns(self.scene.pointer))
            painter.setPen(QPen(QColor(self.scene.colours.faint), 1))
            painter.drawLine(QPointF(x, 0), QPointF(x, height))

    def point_at(self, position: QPointF) -> str | None:
        """What to say of the point under the mouse: an incident goes first."""
        area = self.area()
        record = self._incident_at(position, area)
        if record is None:
            return self.describe(position, area)
        clock = words.clock(record.incident.time_ns + self.scene.session.wall_offset_ns)
        said = [incidents.headline(record.incident), "Click to see who held what."]
        return tooltip(f"{incidents.title(record.incident)}, {clock}", [], said)

    def _incident_at(self, position: QPointF, area: Area) -> Record | None:
        reach = FLAG_WIDTH if self.shows_marks and position.y() <= FLAG_HEIGHT + 2 else 3.0
        middle = area.start_ns + round((position.x() - (reach - 3) / 2) * area.pixel_ns)
        return self.scene.session.incidents.near(self.scene.device, middle, round(reach * area.pixel_ns))

    def _clicked(self, position: QPointF) -> None:
        area = self.area()
        record = self._incident_at(position, area)
        if record is not None:
            self.incident_chosen.emit(record.number)
        else:
            self.clicked(position, area)

    def _paint_marks(self, painter: QPainter, area: Area) -> None:
        """All lines, then the texts, so that none runs through a text."""
        marks = self._marks_in(area)
        painter.setPen(dashed(self.scene.colours.accent))
        for mark in marks:
            x = round(area.x_of(mark.time_ns))
            painter.drawLine(QPointF(x, 0), QPointF(x, area.height))
        self._paint_incidents(painter, area)
        self.words_at = self.paint_words(painter, area)
        if not self.shows_marks:
            return
        painter.setFont(ui_font(11))
        metrics = QFontMetricsF(painter.font())
        tops = self.tops(area) if marks else None
        self.marks_at = mark_texts(marks, area, metrics, top=self.marks_top, tops=tops, taken=self.words_at)
        for rect, text in self.marks_at:
            self._pill(painter, rect, text)

    def _marks_in(self, area: Area) -> list[Mark]:
        """Those to be seen, by time."""
        end = area.start_ns + area.span_ns
        there = ("", self.scene.device)
        seen = (m for m in self.scene.session.marks if area.start_ns <= m.time_ns <= end and m.device in there)
        return sorted(seen, key=lambda mark: mark.time_ns)

    def incidents_at(self, area: Area) -> list[float]:
        """Pixels at which the lines of incidents stand."""
        end, there = area.start_ns + area.span_ns, ("", self.scene.device)
        seen = (i for i in self.scene.session.incidents if area.start_ns <= i.time_ns <= end and i.device in there)
        return [float(round(area.x_of(incident.time_ns))) for incident in seen]

    def _paint_incidents(self, painter: QPainter, area: Area) -> None:
        colour = QColor(self.scene.colours.bad)
        for x in self.incidents_at(area):
            painter.setPen(QPen(colour, 1))
            painter.drawLine(QPointF(x, 0), QPointF(x, area.height))
            if self.shows_marks:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(colour)
                middle = FLAG_HEIGHT / 2
                painter.drawPolygon([QPointF(x, 0), QPointF(x + FLAG_WIDTH, middle), QPointF(x, FLAG_HEIGHT)])

    def _pill(self, painter: QPainter, rect: QRectF, text: str) -> None:
        colours = self.scene.colours
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        painter.setPen(QPen(QColor(colours.accent), 1))
        painter.setBrush(QColor(colours.control))
        painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setPen(QColor(colours.accent))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)


def tooltip(title: str, pairs: Sequence[tuple[str, str]], marks: Sequence[str] = ()) -> str:
    """A small table as rich text."""
    lines = "".join(
        f'<tr><td style="padding-right:12px">{name}</td><td align="right">{escape(value)}</td></tr>'
        for name, value in pairs
    )
    notes = "".join(f"<div>{'<br>'.join(escape(line) for line in wrap(mark, _TIP_WIDTH))}</div>" for mark in marks)
    return f"<b>{escape(title)}</b><table cellspacing=0 width='100%'>{lines}</table>{notes}"


def swatch(colour: str, name: str) -> str:
    return f'<span style="color:{colour}">■</span> {escape(name)}'
