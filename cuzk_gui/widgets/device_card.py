"""A device: what it is, what of its memory is used, and the settings that act on it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from cuzk_engine.client import DeviceDescription, SettingChange, SettingInfo
from cuzk_gui.models import findings, words
from cuzk_gui.models.memory import PURPOSES
from cuzk_gui.models.plan import PlanState
from cuzk_gui.models.session import DeviceTimeline, Session
from cuzk_gui.models.settings import WORKERS, SettingsModel, inert_note, inert_reason
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import ElidedLabel, Segmented, ShareBar, Stepper, Switch, label, rule, set_role
from cuzk_gui.widgets.plan_view import PlanView

_BUILD_S: Final = 0.003  # of a part of a frame, to make cards and rows


class SettingRow(QWidget):
    """One setting as a form: made from what the engine says of it, nothing known beforehand. ``looked_at``: the change
    that the pointer is on, None when it leaves."""

    changed = Signal(SettingChange)
    looked_at = Signal(object)

    def __init__(self, theme: Theme, info: SettingInfo) -> None:
        super().__init__()
        self.key, self.device, self.type, self.choices = info.key, info.device, info.type, info.choices
        title = words.plain(info.title or info.key, 60)
        self._title = label(title, "")
        self._title.setWordWrap(True)
        self._note = label("", "faint")
        self._note.setWordWrap(True)
        self._note.hide()
        self.control: Segmented | Switch = (
            Switch(theme, title)
            if info.type == "bool"
            else Segmented([words.plain(c, 20) for c in info.choices], title)
        )
        if isinstance(self.control, Switch):
            self.control.clicked.connect(self._switched)
            self.control.looked_at.connect(self._look_at_switch)
        else:
            self.control.chosen.connect(self._ask)
            self.control.looked_at.connect(self._look_at)
        line = QHBoxLayout()
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self._title, 1)
        line.addWidget(self.control, 0, Qt.AlignmentFlag.AlignRight)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 3, 0, 3)
        layout.setSpacing(2)
        layout.addLayout(line)
        layout.addWidget(self._note)
        help_text = words.plain(info.help, 600)
        self._help = (
            f"<p>{help_text}</p><p>{info.key} = {words.plain(info.value, 40)} ({words.plain(info.source, 40)})</p>"
        )
        for widget in (self, self._title, self.control):
            widget.setToolTip(self._help)
        self.control.setAccessibleDescription(help_text)

    def show_value(self, value: str | None, pending: bool, note: str, reason: str = "", blocked: str = "") -> None:
        """``note``: what there is to say of it, in few words; ``reason``: the same at length. ``blocked``: why it
        cannot be changed now."""
        if isinstance(self.control, Switch):
            self.control.setChecked(value == "true")
        else:
            self.control.set_value(value)
        self.control.setEnabled(not pending and not blocked)
        tip = f"<p>{blocked}</p>" if blocked else self._help
        if tip != self.control.toolTip():
            self.control.setToolTip(tip)
        shown = "applying…" if pending else note
        self._note.setText(shown)
        self._note.setToolTip(f"<p>{reason}</p>" if reason and not pending else "")
        self._note.setVisible(bool(shown))

    @property
    def note(self) -> str:
        return self._note.text()

    def _switched(self) -> None:
        self._ask("true" if self.control.isChecked() else "false")  # type: ignore[union-attr]

    def _ask(self, value: str) -> None:
        self.changed.emit(SettingChange(self.key, value, self.device))

    def _look_at(self, value: str) -> None:
        self.looked_at.emit(SettingChange(self.key, value, self.device) if value else None)

    def _look_at_switch(self, there: bool) -> None:
        self._look_at(("false" if self.control.isChecked() else "true") if there else "")  # type: ignore[union-attr]


class DeviceCard(QFrame):
    """``selected``: the charts shall show this device. ``changed``: a setting is to be applied."""

    changed = Signal(SettingChange)
    looked_at = Signal(object)
    selected = Signal(str)

    def __init__(self, theme: Theme, device: DeviceDescription) -> None:
        super().__init__()
        self.device_id = device.id
        self._title = ElidedLabel()
        self._title.setProperty("role", "title")
        self._line = ElidedLabel()
        self._line.setProperty("role", "faint")
        self._state = label("", "warn")
        self._state.setWordWrap(True)
        self._used = label("", "")
        self._used.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._bar = ShareBar(theme)
        self._bar.setAccessibleName(f"Memory of {device.id}")
        self._limit = ""
        self._source = ElidedLabel()
        self._source.setProperty("role", "faint")
        self.workers = Stepper(f"Workers of {device.id}", 1, 8)
        self.workers.stepped.connect(self._workers_stepped)
        self.workers.looked_at.connect(self._workers_looked_at)
        self._workers_note = label("", "faint")
        self._workers_note.setWordWrap(True)
        self._readings = ElidedLabel()
        self._readings.setProperty("role", "faint")
        self._readings.hide()
        self.plan = PlanView(theme, device.id)
        memory = QHBoxLayout()
        memory.addWidget(label("Memory", "muted"))
        memory.addWidget(self._used, 1)
        workers = QHBoxLayout()
        workers.addWidget(label("Workers", ""), 1)
        workers.addWidget(self.workers)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self._title)
        layout.addWidget(self._line)
        layout.addWidget(self._readings)
        layout.addWidget(self._state)
        layout.addSpacing(4)
        layout.addLayout(memory)
        layout.addWidget(self._bar)
        layout.addWidget(self._source)
        layout.addSpacing(3)
        layout.addWidget(self.plan)
        layout.addSpacing(4)
        layout.addLayout(workers)
        layout.addWidget(self._workers_note)
        self._workers_widgets = (self.workers, self._workers_note)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.selected.emit(self.device_id)

    def mark_selected(self, selected: bool, count: int) -> None:
        """Of ``count`` devices, the one whose charts are shown; where there are many, the others are short."""
        set_role(self._title, "title-selected" if selected and count > 1 else "title")
        short = count > 2 and not selected
        self._line.setVisible(not short and bool(self._line.whole()))
        self._source.setVisible(not short)
        self.plan.set_short(short)

    def show_device(
        self, device: DeviceDescription, settings: SettingsModel, live: bool = True, blocked: str = ""
    ) -> None:
        """``live``: the engine is there; without it the device has no state to tell. ``blocked``: why nothing can be
        changed."""
        name = "CPU" if device.kind == "cpu" else words.plain(device.id, 24)
        self._title.set_text(f"{name}  {words.plain(device.name, 80)}")
        self._line.set_text(" · ".join(words.plain(f, 40) for f in (device.bus_id, device.isa) if f))
        tip = _identity_tip(device)
        if tip != self._title.toolTip():
            self._title.set_tip(tip)
            self._line.set_tip(tip)
        troubled = live and device.state != "ready"
        state = words.plain(device.state, 30) + (f": {words.plain(device.reason, 200)}" if device.reason else "")
        self._state.setText(state if troubled else "")
        self._state.setVisible(troubled)
        self._limit = f"limit: {words.plain(device.capacity_source, 60)}" if device.capacity_source else ""
        info = settings.info(WORKERS, device.id)
        self.workers.setEnabled(info is not None and not settings.pending(WORKERS, device.id) and not blocked)
        if info is not None:
            self.workers.setToolTip(f"<p>{blocked or words.plain(info.help, 600)}</p><p>{info.key}</p>")
        value = settings.value(WORKERS, device.id)
        pending = settings.pending(WORKERS, device.id)
        override = info is not None and info.device == device.id
        shown = value if (pending or override) and value is not None else str(device.workers or value or 1)
        self.workers.set_value(int(shown) if shown.isdigit() else 1)
        note = "applying…" if pending else inert_note(WORKERS, device)
        self._workers_note.setText(note)
        self._workers_note.setToolTip(f"<p>{inert_reason(WORKERS, device)}</p>" if note and not pending else "")
        self._workers_note.setVisible(bool(note))

    def show_load(self, session: Session) -> None:
        """Memory and readings; called several times a second at most."""
        timeline = session.devices.get(self.device_id)
        described = session.described.get(self.device_id)
        if timeline is None or described is None:
            return
        capacity = described.capacity
        other = timeline.samples.latest("memory_other", session.latest_ns) if session.identity is not None else None
        known = timeline.memory.known
        total = timeline.memory.total + (other or 0) if known else None
        text = words.size_of(total, capacity)
        if text != self._used.text():
            self._used.setText(text)
        parts: list[tuple[float, str]] = []
        if capacity > 0:
            parts = [(int(v) / capacity, n) for n, v in zip(PURPOSES, timeline.memory.current, strict=True)]
        if capacity > 0 and other:
            parts.append((other / capacity, "processes"))
        self._bar.set_parts(parts if known else [])
        others = f"others {words.size(other)}" if other else ""
        self._source.set_text(" · ".join(text for text in (others, self._limit) if text))
        readings = _readings(timeline, session) if described.kind != "cpu" else ""
        self._readings.set_text(readings)
        self._readings.setVisible(bool(readings))

    def _workers_stepped(self, value: int) -> None:
        self.changed.emit(SettingChange(WORKERS, str(value), self.device_id))

    def _workers_looked_at(self, value: int) -> None:
        self.looked_at.emit(SettingChange(WORKERS, str(value), self.device_id) if value else None)


def _identity_tip(device: DeviceDescription) -> str:
    facts = (
        ("name", words.plain(device.name, 120)),
        ("id", words.plain(device.id, 40)),
        ("UUID", words.plain(device.uuid, 60)),
        ("bus", words.plain(device.bus_id, 40)),
        ("instructions", words.plain(device.isa, 60)),
        ("process", str(device.pid) if device.pid else ""),
    )
    rows = "".join(
        f"<tr><td style='padding-right:12px'>{name}</td><td>{escape(value)}</td></tr>" for name, value in facts if value
    )
    return f"<table>{rows}</table>"


def _readings(timeline: DeviceTimeline, session: Session) -> str:
    """Power, temperature, clock, utilisation: what could be read; nothing of what could not."""
    if session.identity is None:
        return ""
    forms = (("utilisation", 100, "% busy"), ("power", 1, "W"), ("temperature", 1, "°C"), ("clock", 1, "MHz"))
    read = ((timeline.samples.latest(name, session.latest_ns), scale, unit) for name, scale, unit in forms)
    return " · ".join(f"{value * scale:.0f} {unit}" for value, scale, unit in read if value is not None)


class DevicePanel(QWidget):
    """A card for each device, then the settings that hold for all of them. Cards are built one at a time: a machine may
    have many devices."""

    changed = Signal(SettingChange)
    looked_at = Signal(object)
    selected = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.cards: dict[str, DeviceCard] = {}
        self.rows: dict[str, SettingRow] = {}
        self._cards = QVBoxLayout()
        self._cards.setSpacing(12)
        self._settings = QVBoxLayout()
        self._settings.setSpacing(2)
        self._empty = label("Devices appear when the engine runs.", "muted")
        self._empty.setWordWrap(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(self._empty)
        layout.addLayout(self._cards)
        layout.addLayout(self._settings)
        self._shape: tuple[object, ...] = ()
        self._missing: deque[Callable[[], None]] = deque()  # makes cards and rows that are still to come
        self.version = 0  # of the widgets that are there
        self._plans: Mapping[str, PlanState] | None = None

    def show_session(self, session: Session, device: str) -> bool:
        """After a change of devices or settings; ``device`` is the one whose charts are shown. False: call it again,
        not all is there."""
        there = session.identity is not None
        blocked = findings.RECORDED[:1].upper() + findings.RECORDED[1:] + "." if session.recorded else ""
        switches = session.settings.switches() if there else []
        shape = (tuple(session.described), tuple((s.key, s.type, s.choices) for s in switches))
        if shape != self._shape:
            self._shape = shape
            self._rebuild(session, switches)
        limit = time.monotonic() + _BUILD_S
        while self._missing:
            self._missing.popleft()()
            if time.monotonic() >= limit:
                break
        for card_id, card in self.cards.items():
            card.show_device(session.described[card_id], session.settings, session.live, blocked)
            card.setEnabled(there)
            card.mark_selected(card_id == device, len(session.described))
        self._empty.setVisible(not self.cards)
        chosen = session.described.get(device)
        for key, row in self.rows.items():
            note, reason = (inert_note(key, chosen), inert_reason(key, chosen)) if chosen else ("", "")
            row.show_value(session.settings.value(key), session.settings.pending(key), note, reason, blocked)
        return self.whole

    @property
    def whole(self) -> bool:
        """Whether all cards and rows are there."""
        return not self._missing

    def show_plans(self, plans: Mapping[str, PlanState]) -> None:
        self._plans = plans
        for device, card in self.cards.items():
            card.plan.setVisible(device in plans)
            if device in plans:
                card.plan.show_plan(plans[device])

    def show_load(self, session: Session) -> None:
        for card in self.cards.values():
            card.show_load(session)

    def _rebuild(self, session: Session, switches: list[SettingInfo]) -> None:
        for layout in (self._cards, self._settings):
            while (item := layout.takeAt(0)) is not None:
                widget = item.widget()
                if widget is not None:
                    widget.hide()
                    widget.deleteLater()
        self.cards, self.rows = {}, {}
        cards = [partial(self._add_card, device) for device in session.described.values()]
        rows = [partial(self._add_row, info) for info in switches]
        self._missing = deque([*cards[:1], *rows, *cards[1:]])

    def _add_row(self, info: SettingInfo) -> None:
        row = SettingRow(self._theme, info)
        row.changed.connect(self.changed)
        row.looked_at.connect(self.looked_at)
        self.rows[info.key] = row
        self._settings.addWidget(row)

    def _add_card(self, device: DeviceDescription) -> None:
        if self.cards:
            self._cards.addWidget(rule())
        card = DeviceCard(self._theme, device)
        card.changed.connect(self.changed)
        card.looked_at.connect(self.looked_at)
        card.selected.connect(self.selected)
        self.cards[device.id] = card
        self.version += 1
        self._cards.addWidget(card)
        if self._plans is not None:
            self.show_plans(self._plans)
