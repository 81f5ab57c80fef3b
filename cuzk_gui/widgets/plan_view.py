"""The memory plan of a device: a bar of what its workers will need against what is free, and what follows in words."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from cuzk_gui.models import plan as model
from cuzk_gui.models import words
from cuzk_gui.models.plan import PlanState
from cuzk_gui.models.process import Tone
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import ElidedLabel, label, set_role

_NAMES = {"workers": "the other workers", "reserve": "kept as a margin", "processes": "other processes"}


class PlanBar(QWidget):
    """Needed bytes from the left, taken ones from the right end of the capacity; what is too much lies beyond it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._bar: model.PlanBar | None = None
        self.setFixedHeight(13)

    def show_bar(self, bar: model.PlanBar | None) -> None:
        if bar != self._bar:
            self._bar = bar
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        colours, width, height = self._theme.colours, float(self.width()), float(self.height())
        painter.fillRect(self.rect(), QColor(colours.control))
        bar = self._bar
        if bar is None:
            return
        pixel = width / bar.scale
        x = 0.0
        for part in bar.planned:
            x = self._part(painter, x, part.bytes * pixel, part.name)
        x = max(x, (bar.capacity - bar.held) * pixel)
        for part in bar.taken:
            x = self._part(painter, x, part.bytes * pixel, part.name)
        if bar.over:
            edge = bar.capacity * pixel
            painter.fillRect(
                QRectF(edge, 0, width - edge, height), QBrush(QColor(colours.bad), Qt.BrushStyle.BDiagPattern)
            )
            painter.setPen(QPen(QColor(colours.bad), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(edge, 0.5, width - edge - 0.5, height - 1))
        if bar.planned:  # where the plan ends
            painter.fillRect(QRectF(min(bar.needed * pixel, width - 2), 0, 2, height), QColor(colours.text))

    def _part(self, painter: QPainter, x: float, wide: float, name: str) -> float:
        colours = self._theme.colours
        box = QRectF(x, 0, max(wide, 1.0), self.height())
        if name == "reserve":
            painter.fillRect(box, QBrush(QColor(colours.faint), Qt.BrushStyle.Dense6Pattern))
        else:
            painter.fillRect(box, QColor(colours.selected if name == "workers" else colours.purpose(name)))
        return x + wide


class PlanView(QWidget):
    """``show_plan`` takes what there is: a plan, or why there is none."""

    def __init__(self, theme: Theme, device: str) -> None:
        super().__init__()
        self._title = ElidedLabel("Plan")
        self._title.setProperty("role", "muted")
        self._amount = label("", "")
        self._amount.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.bar = PlanBar(theme)
        self.bar.setAccessibleName(f"Memory plan of {device}")
        self._said = label("", "faint")
        self._said.setWordWrap(True)
        line = QHBoxLayout()
        line.addWidget(self._title, 1)
        line.addWidget(self._amount)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(3)
        layout.addLayout(line)
        layout.addWidget(self.bar)
        layout.addWidget(self._said)
        self._short = False
        self._shown: PlanState | None = None
        self.show_plan(PlanState(said=model.NO_CIRCUIT))

    def set_short(self, short: bool) -> None:
        """Without words while all is well."""
        self._short = short
        self._said.setVisible(not short or self._said.property("role") != "faint")

    @property
    def sentence(self) -> str:
        return self._said.text()

    @property
    def amount(self) -> str:
        return self._amount.text()

    @property
    def title(self) -> str:
        return self._title.whole()

    def show_plan(self, state: PlanState) -> None:
        if state == self._shown:
            return
        self._shown = state
        plan = state.plan
        self._title.set_text(_title(state))
        self.bar.setVisible(plan is not None)
        self._amount.setVisible(plan is not None)
        tone = Tone.WARN if state.circuit else Tone.QUIET  # a circuit without a plan is worth a look
        said = state.said
        if plan is not None:
            self.bar.show_bar(model.bar(plan))
            self._amount.setText(model.headline(plan))
            said, tone = model.sentence(plan)
            tip = _tip(state)
            for widget in (self, self.bar, self._said, self._amount):
                widget.setToolTip(tip)
        self._said.setText(said)
        self.bar.setAccessibleDescription(said)
        set_role(self._said, {Tone.WARN: "warn", Tone.BAD: "error"}.get(tone, "faint"))
        self.set_short(self._short)


def _title(state: PlanState) -> str:
    if state.what_if:
        return f"If {words.plain(state.what_if, 60)}"
    return f"Plan · {words.plain(state.circuit, 60)}" if state.circuit else "Plan"


def _tip(state: PlanState) -> str:
    from html import escape

    plan = state.plan
    assert plan is not None
    cell = "<td style='padding-right:14px'>"
    rows = "".join(f"<tr>{cell}{escape(n)}</td>{cell}{b}</td><td>{s}</td></tr>" for n, b, s in model.table(plan))
    ways = "".join(
        f"<tr>{cell}{escape(what)}</td>{cell}{one}</td>{cell}{every}</td><td>{verdict}</td></tr>"
        for what, one, every, verdict in model.ways(plan)
    )
    taken = "".join(
        f"<tr>{cell}{_NAMES[part.name]}</td><td>{words.size(part.bytes)}</td></tr>" for part in model.bar(plan).taken
    )
    host = ""
    if plan.host_peak:
        host = f"<p>Memory of the machine: {words.size(plan.host_peak)} of {words.size(plan.host_capacity or None)}</p>"
    return (
        f"<p><b>One partition, at its peak: {words.size(plan.peak)}</b></p><table>{rows}</table>"
        f"<p><b>{words.count(plan.workers, 'worker')} together: {words.size(plan.total or plan.peak)}</b></p>"
        + (f"<p>Taken already</p><table>{taken}</table>" if taken else "")
        + (f"<p>Ways to run it, in the order in which they are tried</p><table>{ways}</table>" if ways else "")
        + host
    )
