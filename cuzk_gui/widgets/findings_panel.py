"""What went wrong and what could be better: a card each, with its evidence and one button."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from cuzk_engine.client import SettingChange
from cuzk_engine.events import Finding
from cuzk_gui.models import findings as model
from cuzk_gui.models import incidents as incident_words
from cuzk_gui.models import words
from cuzk_gui.models.findings import RemedyState
from cuzk_gui.models.incidents import IncidentList, Record
from cuzk_gui.models.loads import MINUTE_NS, idle_by_cause, measured_ns
from cuzk_gui.models.session import Session
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import label, set_role

_MOST_INCIDENTS = 8
_SINCE_NS = 3_000_000_000  # shorter after a change says nothing
_KEPT_NS = 300_000_000_000  # so long a finding whose remedy was applied here stays, to say what that brought


class Card(QFrame):
    """``pressed``: the card itself was clicked; ``button``: the one thing to do; ``dismiss``: of incidents."""

    pressed = Signal()

    def __init__(self, tone: str) -> None:
        super().__init__()
        self.setProperty("card", tone)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.title = label("", "card-title")
        self.body = label("", "muted")
        self.remedy = label("", "card-text")
        self.gain = label("", "gain")
        self.reason = label("", "faint")
        for text in (self.title, self.body, self.remedy, self.gain, self.reason):
            text.setWordWrap(True)
            text.setTextFormat(Qt.TextFormat.PlainText)
        self.dismiss = QPushButton("×")
        self.dismiss.setProperty("role", "link")
        self.dismiss.setAccessibleName("Dismiss")
        self.dismiss.setToolTip("<p>Dismiss: it is no finding any more. What the charts show of it stays.</p>")
        self.dismiss.hide()
        self.button = QPushButton("Apply")
        self.button.setProperty("role", "small")
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.gain, 1)
        foot.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(10, 7, 8, 8)
        layout.setSpacing(3)
        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self.title, 1)
        head.addWidget(self.dismiss, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(head)
        for widget in (self.body, self.remedy):
            layout.addWidget(widget)
        layout.addLayout(foot)
        layout.addWidget(self.reason)

    def say(self, title: str, body: str, remedy: str = "", gain: str = "", reason: str = "") -> None:
        for widget, text in (
            (self.title, title),
            (self.body, body),
            (self.remedy, remedy),
            (self.reason, reason),
        ):
            if widget.text() != text:
                widget.setText(text)
            widget.setVisible(bool(text))
        if self.gain.text() != gain:
            self.gain.setText(gain)
        self.gain.setVisible(bool(gain) or not self.button.isHidden())
        self.setAccessibleName(f"{title}. {body}")

    def set_tone(self, tone: str) -> None:
        """The colour of its edge."""
        set_role(self.gain, "muted" if tone == "good" else "gain")
        if self.property("card") != tone:
            self.setProperty("card", tone)
            self.style().unpolish(self)
            self.style().polish(self)

    def show_state(self, state: RemedyState) -> None:
        self.button.setText(state.text)
        self.button.setEnabled(state.enabled)
        self.button.setToolTip(f"<p>{state.reason}</p>" if state.reason else "")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class FindingsPanel(QFrame):
    """``apply_asked``: a setting shall change; ``incident_asked``: an incident's number; ``finding_chosen``: a finding
    whose gaps and stretch of time shall be shown."""

    apply_asked = Signal(SettingChange)
    incident_asked = Signal(int)
    finding_chosen = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setProperty("panel", True)
        self._theme = theme
        self.cards: dict[tuple[str, str], Card] = {}
        self._applied: dict[tuple[str, str], int] = {}  # (device, kind) → when its remedy was applied here
        self._note = label("", "muted")
        header = QHBoxLayout()
        header.setContentsMargins(0, 0, 4, 0)
        header.addWidget(label("Findings", "title"), 1)
        header.addWidget(self._note)
        self._empty = label("", "faint")
        self._empty.setWordWrap(True)
        self._inside = QWidget()
        self._inside.setObjectName("scrolled")
        self._list = QVBoxLayout(self._inside)
        self._list.setContentsMargins(0, 0, 4, 0)
        self._list.setSpacing(7)
        self._list.addStretch(1)
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setWidget(self._inside)
        self._scroll.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 9, 10, 9)
        layout.setSpacing(6)
        layout.addLayout(header)
        layout.addWidget(self._empty)
        layout.addWidget(self._scroll, 1)
        self._order: list[tuple[str, str]] = []
        self.version = 0  # of the cards that are there
        self._finding_of: dict[tuple[str, str], Finding] = {}
        self._records_of: dict[tuple[str, str], list[Record]] = {}
        self._incidents: IncidentList | None = None
        self._now_ns = 0

    def show_session(self, session: Session, device: str) -> None:
        """Takes the cards anew; those that stay are only given their texts."""
        self._now_ns = session.latest_ns
        there = [r for r in session.incidents.records if r.incident.device in ("", device)]
        incidents = _alike([r for r in there if _concerns(r, session)], session)
        told = {r.incident.kind for r in there}
        since = 0 if session.recorded else session.latest_ns - model.STALE_NS
        self._applied = {k: at for k, at in self._applied.items() if session.latest_ns - at < _KEPT_NS}
        found = [f for f in session.findings.of(device, since, self._applied) if f.kind not in told]
        order = [("incident", str(records[0].number)) for records in incidents] + [(f.device, f.kind) for f in found]
        self._arrange(order)
        self._incidents = session.incidents
        self._records_of = {("incident", str(records[0].number)): records for records in incidents}
        for records in incidents:
            self._show_incidents(self.cards["incident", str(records[0].number)], session, records)
        for finding in found:
            self._show_finding(self.cards[finding.device, finding.kind], session, finding, device)
        self._empty.setVisible(not order)
        self._scroll.setVisible(bool(order))
        self._note.setText(_stretch(session) + words.plain(device, 20) if order else "")
        if not order:
            self._empty.setText(_none(session))

    @property
    def wanted_height(self) -> int:
        """Pixels in which everything is seen."""
        if not self._order:
            lines = self.heightForWidth(self.width())
            return lines if lines > 0 else self.minimumSizeHint().height()  # nothing is said yet
        width = max(self._scroll.viewport().width(), 150)
        inside = self._list.heightForWidth(width) if self._list.hasHeightForWidth() else self._list.sizeHint().height()
        return inside + 58

    def _arrange(self, order: list[tuple[str, str]]) -> None:
        if order == self._order:
            return
        for key in [key for key in self.cards if key not in order]:
            card = self.cards.pop(key)
            self._list.removeWidget(card)
            card.hide()
            card.deleteLater()
        for card in self.cards.values():  # an item that is taken instead lives on, and keeps the card's old height
            self._list.removeWidget(card)
        for place, key in enumerate(order):
            if key not in self.cards:
                self.cards[key] = Card("bad" if key[0] == "incident" else "warn")
                self.cards[key].button.clicked.connect(partial(self._pressed, key))
                self.cards[key].pressed.connect(partial(self._chosen, key))
                self.cards[key].dismiss.clicked.connect(partial(self._dismissed, key))
                self.cards[key].dismiss.setVisible(key[0] == "incident")
            self._list.insertWidget(place, self.cards[key])
        self._order = order
        self.version += 1

    def _show_incidents(self, card: Card, session: Session, records: Sequence[Record]) -> None:
        """Of those that are alike the first is shown."""
        incident = records[0].incident
        first, last = (
            words.clock(r.incident.time_ns + session.wall_offset_ns).partition(".")[0] for r in _ends(records)
        )
        when = first if len(records) == 1 else f"{len(records):,} times, {first}"
        when += f" to {last}" if last != first else ""
        remedies = incident.picture.remedies if incident.picture else ()
        done = [r for r in remedies if model.remedy_state(r, session, incident.device).done]
        cured = f"Since changed: {model.setting_text(session, done[0].key, done[0].value)}" if done else ""
        card.say(f"{incident_words.title(incident)}, {when}", incident_words.headline(incident), reason=cured)
        card.show_state(RemedyState("Show who held what" if incident.picture else "Show", True))

    def _show_finding(self, card: Card, session: Session, finding: Finding, device: str) -> None:
        key = (finding.device, finding.kind)
        self._finding_of[key] = finding
        remedy = finding.remedies[0] if finding.remedies else None
        body = f"{_sentences(finding.evidence[:1])}{_when(session, finding)}"
        card.setToolTip(f"<p>{escape(_sentences(finding.evidence))}</p>")
        title = words.plain(finding.title, 120)
        card.button.setVisible(remedy is not None)
        card.set_tone("warn" if remedy is not None else "quiet")
        if remedy is None:
            card.say(title, body)
            return
        state = model.remedy_state(remedy, session, finding.device or device)
        gain = "" if state.done else model.gain_text(remedy.gain)
        what = _sentences([remedy.text]) or model.setting_text(session, remedy.key, remedy.value, remedy.device)
        if state.done:
            card.set_tone("good")
            gain = self._since(session, finding, key)
        card.say(title, body, what, gain, state.reason)
        card.show_state(state)

    def _since(self, session: Session, finding: Finding, key: tuple[str, str]) -> str:
        """How much of the time this cause took before its remedy was applied, and takes since."""
        timeline = session.devices.get(finding.device)
        changed = self._applied.get(key)
        if timeline is None or changed is None or session.latest_ns - changed < _SINCE_NS:
            return ""
        shares = []
        for start, end in (
            (finding.start_ns, min(finding.end_ns, changed)),
            (max(changed, session.latest_ns - MINUTE_NS), session.latest_ns),
        ):
            time = measured_ns(session, start, end)
            idle = sum(row.ns for row in idle_by_cause(timeline.gaps, start, end) if row.cause == finding.kind)
            shares.append(f"{idle / time * 100:.1f} %" if time > 0 else words.UNKNOWN)
        return f"{shares[0]} of the time before, {shares[1]} since"

    def _pressed(self, key: tuple[str, str]) -> None:
        if key[0] == "incident":
            self.incident_asked.emit(int(key[1]))
            return
        finding = self._finding_of.get(key)
        if finding is not None and finding.remedies:
            self._applied[key] = self._now_ns
            self.apply_asked.emit(model.change_of(finding.remedies[0]))

    def _dismissed(self, key: tuple[str, str]) -> None:
        if self._incidents is not None:
            self._incidents.dismiss(self._records_of.get(key, ()))

    def _chosen(self, key: tuple[str, str]) -> None:
        if key[0] == "incident":
            self.incident_asked.emit(int(key[1]))
        elif (finding := self._finding_of.get(key)) is not None:
            self.finding_chosen.emit(finding)


def _stretch(session: Session) -> str:
    """What time the findings are about, where that is always the same."""
    if not session.recorded or session.origin_ns is None:
        return ""
    return f"all {words.duration(session.latest_ns - session.origin_ns)} · "


def _when(session: Session, finding: Finding) -> str:
    """What time a finding is about, where that is not all there is: it stays while the minute that it tells of moves
    on."""
    length = finding.end_ns - finding.start_ns
    if session.recorded or length <= 0:
        return ""
    clock = words.clock(finding.end_ns + session.wall_offset_ns).partition(".")[0]
    return f" In the {words.duration(length)} before {clock}."


def _none(session: Session) -> str:
    if session.reading:
        return "The recording is still being read."
    return "The recording holds none for this device." if session.recorded else "Nothing to improve was found yet."


def _concerns(record: Record, session: Session) -> bool:
    """Whether an incident is of the engine that runs, and of a recording's time: what an earlier one told is past, and
    stays in the charts."""
    if session.recorded and record.incident.time_ns < (session.origin_ns or 0):
        return False
    return not record.dismissed and (not session.run or record.run in (0, session.run))


def _alike(records: Sequence[Record], session: Session) -> list[list[Record]]:
    """Those that failed in the same way, of one circuit, under the same settings and limit and in one run of the engine
    together; the group of the newest first."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        incident, picture = record.incident, record.incident.picture
        asked = (picture.purpose, picture.capacity, picture.settings) if picture else incident.message
        job = session.jobs.get(incident.job) if incident.job else None
        key = (incident.kind, incident.device, asked, job.circuit_id if job else "", record.run)
        groups[key] = [*groups.pop(key, []), record]
    return list(reversed(groups.values()))[:_MOST_INCIDENTS]


def _ends(records: Sequence[Record]) -> tuple[Record, Record]:
    return records[0], records[-1]


def _sentences(texts: Sequence[str]) -> str:
    plain = [words.plain(text, 320).rstrip(".") for text in texts]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in plain if text)


class SideColumn(QWidget):
    """The findings above what is selected: as high as their cards, at most ``SHARE`` of the column."""

    SHARE = 0.56

    def __init__(self, findings: FindingsPanel, below: QWidget) -> None:
        super().__init__()
        self._findings = findings
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(findings)
        layout.addWidget(below, 1)

    def fit(self) -> None:
        wanted = min(self._findings.wanted_height, round(self.height() * self.SHARE))
        if self._findings.height() != wanted or self._findings.maximumHeight() != wanted:
            self._findings.setFixedHeight(wanted)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.fit()
