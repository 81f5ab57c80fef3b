"""An incident as it was: what failed, who held the memory, what would have fitted. Time does not change it."""

from __future__ import annotations

from functools import partial
from html import escape

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QIcon, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from cuzk_engine.client import SettingChange
from cuzk_engine.events import Incident, Picture, Remedy
from cuzk_gui.charts.memory_chart import MemoryChart
from cuzk_gui.charts.scene import Scene
from cuzk_gui.models import findings, words
from cuzk_gui.models import incidents as model
from cuzk_gui.models.frozen import frozen_session
from cuzk_gui.models.incidents import Record
from cuzk_gui.models.jobs import title as job_title
from cuzk_gui.models.memory import PURPOSES
from cuzk_gui.models.session import Session
from cuzk_gui.models.view import TimeView
from cuzk_gui.theme import Theme, ui_font
from cuzk_gui.widgets.controls import ElidedLabel, label, rule

_REFRESH_MS = 250
_CHART_HEIGHT = 220
_WITH_PICTURE, _WITHOUT = 700, 440  # pixels of height
_BETWEEN = 14  # pixels between two captions


class HeldBar(QWidget):
    """Capacity from end to end: who held what, what was free, and the request that did not fit, outlined."""

    def __init__(self, theme: Theme, picture: Picture, requested: int | None) -> None:
        super().__init__()
        self._theme = theme
        held = model.by_purpose(picture.holdings)
        order = [*PURPOSES, *(name for name in held if name not in PURPOSES)]
        self._parts = [(name, held[name]) for name in order if held.get(name, 0) > 0]
        others = sum(other.bytes or 0 for other in picture.others)
        if others:
            self._parts.append(("processes", others))
        self._used = sum(amount for _, amount in self._parts)
        self._capacity = picture.capacity
        self._requested = requested or 0
        self.setFixedHeight(44)
        self.setAccessibleName(
            f"Memory: {words.size(self._used)} held of {words.size(self._capacity)}, "
            f"{words.size(picture.free)} free, {words.size(requested)} asked for"
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        colours = self._theme.colours
        top, height, width = 2.0, 22.0, float(self.width()) - 2
        # what could not be given away, such as a margin, is neither held nor free
        scale = width / max(self._capacity, self._used + self._requested, 1)
        edge = self._capacity * scale
        painter.fillRect(QRectF(0, top, edge, height), QColor(colours.control))
        x = 0.0
        for name, amount in self._parts:
            painter.fillRect(QRectF(x, top, max(amount * scale, 1.0), height), QColor(colours.purpose(name)))
            x += amount * scale
        if self._requested:
            asked = QRectF(x, top + 0.5, max(self._requested * scale, 3.0), height - 1)
            painter.fillRect(asked, QBrush(QColor(colours.bad), Qt.BrushStyle.BDiagPattern))
            painter.setPen(QPen(QColor(colours.bad), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(asked)
        painter.setPen(QPen(QColor(colours.bad), 1.5))
        painter.drawLine(QRectF(edge, 0, 0, 0).topLeft(), QRectF(edge, top + height + 3, 0, 0).topLeft())
        painter.setFont(ui_font(11))
        painter.setPen(QColor(colours.muted))
        for text, at in self.captions(edge, QFontMetricsF(painter.font())):
            painter.drawText(at.translated(0, top + height + 2), Qt.AlignmentFlag.AlignLeft, text)

    def captions(self, edge: float, metrics: QFontMetricsF) -> list[tuple[str, QRectF]]:
        """What is written under the bar and where; that of the capacity ends at its ``edge`` where the other one leaves
        room."""
        held, capacity = f"held {words.size(self._used)}", f"capacity {words.size(self._capacity)}"
        wide, other = metrics.horizontalAdvance(held) + 1, metrics.horizontalAdvance(capacity) + 1
        left = max(edge - other, wide + _BETWEEN)
        return [(held, QRectF(0, 0, wide, 17)), (capacity, QRectF(left, 0, other, 17))]


class IncidentDialog(QDialog):
    """Not modal. ``apply_asked``: a change of settings that would have helped shall be made."""

    apply_asked = Signal(SettingChange)

    def __init__(self, theme: Theme, session: Session, record: Record, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._drawn = theme.colours
        self._session = session
        self.record = record
        incident = record.incident
        self.setWindowTitle(f"{model.title(incident)}, incident {record.number}")
        self.resize(1040, _WITH_PICTURE if incident.picture is not None else _WITHOUT)
        self.setSizeGripEnabled(True)
        self.remedies: list[tuple[Remedy, QPushButton, QLabel]] = []
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 14, 18, 14)
        layout.setSpacing(8)
        self._head(layout, incident)
        picture = incident.picture
        if picture is None:
            layout.addWidget(label("The engine kept no picture of what was held at that time.", "muted"))
        else:
            layout.addWidget(HeldBar(theme, picture, incident.requested))
            middle = QHBoxLayout()
            middle.setSpacing(18)
            middle.addWidget(self._holders(picture), 3)
            middle.addLayout(self._side(picture), 2)
            layout.addLayout(middle, 1)
        self.chart = self._chart(record)
        if self.chart is not None and picture is not None:
            self.chart.setFixedHeight(_CHART_HEIGHT)
            layout.addWidget(self.chart)
        elif self.chart is not None:
            self.chart.setMinimumHeight(_CHART_HEIGHT)
            layout.addWidget(self.chart, 1)
        elif picture is None:
            layout.addStretch(1)
        close = QPushButton("Close")
        close.setDefault(True)
        close.setFocus()
        close.clicked.connect(self.accept)
        foot = QHBoxLayout()
        foot.addWidget(label("This is a picture of that moment: it does not change.", "faint"), 1)
        foot.addWidget(close)
        layout.addLayout(foot)
        self.show_states()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.show_states)
        self._timer.start(_REFRESH_MS)

    def show_states(self) -> None:
        """The buttons follow the settings."""
        for remedy, button, reason in self.remedies:
            state = findings.remedy_state(remedy, self._session, self.record.incident.device)
            if button.text() != state.text:
                button.setText(state.text)
            button.setEnabled(state.enabled)
            if reason.text() != state.reason:
                reason.setText(state.reason)
            reason.setVisible(bool(state.reason))
        if self.chart is not None and self.chart.scene.colours is not self._drawn:
            self._drawn = self.chart.scene.colours
            self.chart.restyle()
        if self.chart is not None:
            self.chart.refresh()  # its unit and legend follow what was painted

    def _head(self, layout: QVBoxLayout, incident: Incident) -> None:
        session = self._session
        described = session.described.get(incident.device)
        job = session.jobs.get(incident.job) if incident.job else None
        facts = [
            words.clock(incident.time_ns + session.wall_offset_ns),
            f"{words.plain(incident.device, 24)} {words.plain(described.name, 40)}" if described else incident.device,
            f"job {job_title(job)}" if job else f"job {words.plain(incident.job, 8)}" if incident.job else "",
        ]
        title = label(model.title(incident), "headline")
        line = QHBoxLayout()
        line.setSpacing(14)
        line.addWidget(title)
        where = ElidedLabel(" · ".join(f for f in facts if f))
        where.setProperty("role", "muted")
        line.addWidget(where, 1)
        layout.addLayout(line)
        holder = model.largest_holder(incident.picture) if incident.picture else ""
        self.headline = label(f"{model.headline(incident)}." + (f" {holder}." if holder else ""), "")
        self.headline.setToolTip(f"<p>{escape(words.plain(incident.message, 600))}</p>")
        self.headline.setWordWrap(True)
        self.headline.setTextFormat(Qt.TextFormat.PlainText)
        layout.addWidget(self.headline)

    def _holders(self, picture: Picture) -> QWidget:
        rows: list[tuple[str, str, str, str, int | None]] = []  # colour, what, who, job, bytes
        for held in picture.holdings:
            rows.append((held.purpose, model.purpose_words(held.purpose), model.holder(held), held.job, held.bytes))
        for other in picture.others:
            name = words.plain(other.name, 40) or "a program that is not visible here"
            rows.append(("processes", "another program", f"{name} (pid {other.pid})", "", other.bytes))
        rows.sort(key=lambda row: -(row[4] or 0))
        rows.append(("", "free", "", "", picture.free))
        table = QTableWidget(len(rows), 4)
        table.setAccessibleName("Who held the memory")
        table.setHorizontalHeaderLabels(["What for", "Held by", "Bytes", "Share"])
        table.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        table.setSelectionMode(QTableWidget.SelectionMode.NoSelection)
        table.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        table.setShowGrid(False)
        table.setFrameShape(QFrame.Shape.NoFrame)
        table.setIconSize(QSize(10, 10))
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(21)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for index, (colour, what, who, job, amount) in enumerate(rows):
            known = self._session.jobs.get(job) if job else None
            of = (
                f", {words.plain(known.label or job_title(known), 30)}"
                if known
                else f", job {words.plain(job, 8)}"
                if job
                else ""
            )
            share = f"{amount / picture.capacity * 100:.1f} %" if amount is not None and picture.capacity else ""
            size = words.size(amount) if amount is not None else "not known"
            for column, text in enumerate((what, who + of, size, share)):
                item = QTableWidgetItem(text)
                if column == 0:
                    item.setIcon(self._swatch(colour))
                if column >= 2:
                    item.setTextAlignment(right)
                item.setToolTip(text)
                table.setItem(index, column, item)
        header = table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        for column in (2, 3):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        for column, side in enumerate((left, left, right, right)):
            heading = table.horizontalHeaderItem(column)
            if heading is not None:
                heading.setTextAlignment(side)
        self.table = table
        return table

    def _swatch(self, purpose: str) -> QIcon:
        pixmap = QPixmap(10, 10)
        colours = self._theme.colours
        pixmap.fill(QColor(colours.purpose(purpose) if purpose else colours.control))
        return QIcon(pixmap)

    def _side(self, picture: Picture) -> QVBoxLayout:
        side = QVBoxLayout()
        side.setSpacing(6)
        side.addWidget(label("What would have fitted", "title"))
        if not picture.remedies:
            none = label("No change of settings would have been enough.", "muted")
            none.setWordWrap(True)
            side.addWidget(none)
        for remedy in picture.remedies:
            side.addWidget(self._remedy(remedy))
        side.addSpacing(4)
        side.addWidget(rule())
        side.addWidget(label("Settings at that time", "title"))
        side.addWidget(self._settings(picture))
        if picture.host:
            held = sum(h.bytes for h in picture.host)
            largest = max(picture.host, key=lambda h: h.bytes)
            said = f"The machine's memory: the engine held {words.size(held)}, most of it for " + model.purpose_words(
                largest.purpose
            )
            host = label(said + ".", "faint")
            host.setWordWrap(True)
            side.addWidget(host)
        side.addStretch(1)
        return side

    def _settings(self, picture: Picture) -> QLabel:
        """All in one paragraph: there may be many."""
        muted, shown = self._theme.colours.muted, []
        for key, value in picture.settings[:24]:
            info = self._session.settings.info(key)
            name = escape(words.plain(info.title if info else key, 40)).replace(" ", "&nbsp;")
            text = escape({"true": "on", "false": "off"}.get(value, words.plain(value, 40))).replace(" ", "&nbsp;")
            shown.append(f"<span style='color:{muted}'>{name}</span>&nbsp;{text}")
        made = label(" &nbsp; ".join(shown), "card-text")
        made.setTextFormat(Qt.TextFormat.RichText)
        made.setWordWrap(True)
        return made

    def _remedy(self, remedy: Remedy) -> QWidget:
        box = QFrame()
        box.setProperty("card", "good")
        text = label(
            words.plain(remedy.text, 200)
            or findings.setting_text(self._session, remedy.key, remedy.value, remedy.device),
            "card-text",
        )
        text.setWordWrap(True)
        text.setTextFormat(Qt.TextFormat.PlainText)
        needs = label(f"would need {words.size(remedy.peak)}" if remedy.peak is not None else "", "faint")
        reason = label("", "faint")
        reason.setWordWrap(True)
        button = QPushButton("Apply")
        button.setProperty("role", "small")
        button.setAutoDefault(False)
        button.clicked.connect(partial(self.apply_asked.emit, findings.change_of(remedy)))
        line = QHBoxLayout()
        line.addWidget(needs, 1)
        line.addWidget(button)
        layout = QVBoxLayout(box)
        layout.setContentsMargins(10, 6, 8, 6)
        layout.setSpacing(2)
        layout.addWidget(text)
        layout.addLayout(line)
        layout.addWidget(reason)
        self.remedies.append((remedy, button, reason))
        return box

    def _chart(self, record: Record) -> MemoryChart | None:
        past = frozen_session(self._session, record)
        if past is None:
            return None
        begin, end = past.seconds(model.begin_ns(record.incident)), past.seconds(past.latest_ns)
        view = TimeView()
        view.set_now(end)
        view.show(begin, end)
        scene = Scene(past, view, self._theme, record.incident.device)
        chart = MemoryChart(scene, bottom_axis=True)
        chart.set_title("Device memory, ten seconds before")
        moment = past.seconds(record.incident.time_ns)
        chart.plot.set_x_range(begin - moment, end - moment)
        first = -int(moment - begin)
        ticks = [(float(s), "incident" if s == 0 else f"{s} s".replace("-", "−")) for s in range(first, 1, 2)]
        if (0.0, "incident") not in ticks:
            ticks.append((0.0, "incident"))
        chart.plot.set_bottom(ticks)
        chart.refresh()
        return chart
