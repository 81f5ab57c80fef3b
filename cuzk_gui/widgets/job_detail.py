"""The selected job in full; without any job, how to begin."""

from __future__ import annotations

import re
import time
from html import escape
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from cuzk_engine.client import JobInfo, JobState
from cuzk_gui.models import jobs as model
from cuzk_gui.models import words
from cuzk_gui.models.log import short_ids
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import ElidedLabel, ShareBar, label, rule

_UNIT: Final = re.compile(r"(\d) ([a-zµ]{1,3})\b")  # a number and its unit stay on one line
_BESIDE: Final = 22  # pixels of a row of facts that are neither caption nor value
_LEAST: Final = 60
_PHASE_COLOURS = {
    "load_key": "srs",
    "read_witness": "witness",
    "evaluate": "witness",
    "upload": "result",
    "ntt": "ntt",
    "h": "ntt",
    "msm": "msm",
}


class JobDetail(QFrame):
    save_asked = Signal(str)
    charts_asked = Signal(str)
    cancel_asked = Signal(str)
    demo_asked = Signal()
    prove_asked = Signal()

    def __init__(self, theme: Theme, has_demo: bool) -> None:
        super().__init__()
        self.setProperty("panel", True)
        self._theme = theme
        self._job_id = ""
        self._recorded = False
        self._phase_rows: dict[str, tuple[QLabel, ShareBar, QLabel]] = {}
        outer = QVBoxLayout(self)
        outer.setContentsMargins(14, 10, 14, 12)
        self._begin = self._make_begin(has_demo)
        self._job = self._make_job()
        self._none = label("", "faint")
        self._none.hide()
        outer.addWidget(self._none)
        outer.addWidget(self._begin)
        outer.addWidget(self._job, 1)
        self._job.hide()
        outer.addStretch(0)

    @property
    def job_id(self) -> str:
        return self._job_id

    def set_recorded(self) -> None:
        """Of a recording: nothing can be asked of its jobs."""
        self._recorded = True
        self.say_none("")
        for widget in (self._begin, self._save, self._cancel):
            widget.hide()

    def say_none(self, text: str) -> None:
        """What a recording without a job says here."""
        self._none.setText(text)

    def show_job(self, job: JobInfo | None, place: int = 0, now: int | None = None, *, charted: bool = True) -> None:
        """``place``: in the queue, 1 for the next. ``now``: Unix nanoseconds that durations count to. ``charted``: the
        charts reach back to it."""
        self._begin.setVisible(job is None and not self._recorded)
        self._none.setVisible(job is None and self._recorded)
        self._job.setVisible(job is not None)
        self._job_id = job.id if job else ""
        if job is None:
            return
        now = time.time_ns() if now is None else now
        state = model.state_of(job)
        self._title.set_text(model.title(job))
        self._state.setText(_UNIT.sub("\\1\u00a0\\2", self._state_text(job, state, now, place)))
        bad = job.state == JobState.FAILED
        role = "error" if bad else "muted"
        if self._state.property("role") != role:
            self._state.setProperty("role", role)
            self._state.style().unpolish(self._state)
            self._state.style().polish(self._state)
        share = model.fraction(job)
        colours = self._theme.colours
        colour = {JobState.COMPLETED: colours.good, JobState.FAILED: colours.bad}.get(job.state, colours.accent)
        self._progress.set_parts([(share, colour)])
        self._progress.setAccessibleName(f"{share * 100:.0f} % of the job done")
        self._error.setText(words.plain(job.error, 2000))
        self._error.setVisible(bool(job.error))
        self._facts.setText(self._facts_html(_facts(job, now)))
        circuit = words.plain(job.circuit_name or job.circuit_id, 80)
        self._facts.setToolTip(f"job {words.plain(job.id, 80)}" + (f"\ncircuit {circuit}" if circuit else ""))
        self._show_phases(job)
        self._charts.setVisible(job.started_unix_ns > 0 and charted)
        self._save.setVisible(job.state == JobState.COMPLETED and not self._recorded)
        self._cancel.setVisible(not getattr(job.state, "ended", False) and not self._recorded)

    @property
    def error_text(self) -> str:
        return self._error.text()

    @property
    def state_text(self) -> str:
        return self._state.text().replace("\u00a0", " ")

    def _state_text(self, job: JobInfo, state: str, now: int, place: int) -> str:
        took = words.duration(model.elapsed_ns(job, now))
        if state == JobState.COMPLETED:
            verified = model.verified_ns(job)
            return f"proved in {took}" + (f", verified in {words.duration(verified)}" if verified is not None else "")
        if state == JobState.FAILED:
            return f"failed after {took}" if job.started_unix_ns else "failed"
        if state == JobState.RUNNING:
            return f"{model.progress_text(job, now)} · {took}"
        return model.progress_text(job, now, place)

    def _facts_html(self, facts: list[tuple[str, str]]) -> str:
        """Captions stay on one line, values wrap. A word that is too long for a line is cut: it would widen all."""
        metrics, faint = self._facts.fontMetrics(), self._theme.colours.faint
        captions = max(metrics.horizontalAdvance(name) for name, _ in facts)
        room = max(self._facts.width() - captions - _BESIDE, _LEAST)

        def fitting(value: str) -> str:
            return " ".join(metrics.elidedText(word, Qt.TextElideMode.ElideMiddle, room) for word in value.split(" "))

        rows = "".join(
            f'<tr><td style="padding-right:14px; color:{faint}">{name}</td><td>{escape(fitting(value))}</td></tr>'
            for name, value in ((name.replace(" ", "\u00a0"), value) for name, value in facts)
        )
        return f"<table cellspacing=2>{rows}</table>"

    def _show_phases(self, job: JobInfo) -> None:
        names = [phase.name for phase in job.phases[:40]]
        if names != list(self._phase_rows):
            while (item := self._phases.takeAt(0)) is not None:
                widget = item.widget()
                if widget is not None:
                    widget.hide()
                    widget.deleteLater()
            self._phase_rows = {}
            for row, name in enumerate(names):
                parts = (ElidedLabel(words.phase(name), natural=True), ShareBar(self._theme, 7), label("", ""))
                parts[0].setProperty("role", "muted")
                parts[1].setMinimumWidth(16)
                parts[2].setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                for column, widget in enumerate(parts):
                    self._phases.addWidget(widget, row, column)
                self._phase_rows[name] = parts
        self._phases_title.setText("Phases" if names else "Details")
        longest = max((phase.nanoseconds for phase in job.phases), default=0)
        for phase in job.phases[:40]:
            _, bar, time_label = self._phase_rows[phase.name]
            head = phase.name.rpartition(".")[2] if phase.name.startswith("host.") else phase.name.partition(".")[0]
            colour = self._theme.colours.purposes.get(_PHASE_COLOURS.get(head, "processes"), self._theme.colours.faint)
            bar.set_parts([(phase.nanoseconds / longest if longest > 0 else 0.0, colour)])
            time_label.setText(words.duration(phase.nanoseconds))

    def _make_job(self) -> QWidget:
        self._title = ElidedLabel()
        self._title.setProperty("role", "title")
        self._state = label("", "muted")
        self._state.setWordWrap(True)
        self._progress = ShareBar(self._theme, 5)
        self._error = label("", "error")
        self._error.setWordWrap(True)
        self._error.setTextFormat(Qt.TextFormat.PlainText)
        self._error.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._facts = QLabel()
        self._facts.setTextFormat(Qt.TextFormat.RichText)
        self._facts.setStyleSheet("font-size: 12px")
        self._facts.setWordWrap(True)
        self._facts.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._facts.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._phases_title = label("Phases", "title")
        self._phases = QGridLayout()
        self._phases.setHorizontalSpacing(10)
        self._phases.setVerticalSpacing(4)
        self._phases.setColumnStretch(1, 1)
        self._save = QPushButton("Save proof…")
        self._save.setProperty("role", "primary")
        self._save.clicked.connect(lambda: self.save_asked.emit(self._job_id))
        self._cancel = QPushButton("Cancel job")
        self._cancel.clicked.connect(lambda: self.cancel_asked.emit(self._job_id))
        self._charts = QPushButton("Show in charts")
        self._charts.setProperty("role", "link")
        self._charts.setToolTip("Moves the time axis to this job")
        self._charts.clicked.connect(lambda: self.charts_asked.emit(self._job_id))
        buttons = QHBoxLayout()
        buttons.addWidget(self._save)
        buttons.addWidget(self._cancel)
        buttons.addStretch(1)
        inner = QWidget()
        inner.setObjectName("scrolled")
        layout = QVBoxLayout(inner)
        layout.setContentsMargins(0, 0, 6, 0)
        layout.setSpacing(8)
        layout.addWidget(self._title)
        layout.addWidget(self._state)
        layout.addWidget(self._progress)
        layout.addWidget(self._error)
        layout.addLayout(buttons)
        layout.addSpacing(4)
        layout.addWidget(rule())
        layout.addSpacing(4)
        heading = QHBoxLayout()
        heading.addWidget(self._phases_title, 1)
        heading.addWidget(self._charts)
        layout.addLayout(heading)
        layout.addLayout(self._phases)
        layout.addSpacing(6)
        layout.addWidget(self._facts)
        layout.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inner)
        return scroll

    def _make_begin(self, has_demo: bool) -> QWidget:
        page = QWidget()
        layout = QVBoxLayout(page)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(10)
        layout.addWidget(label("First proof", "title"))
        text = label(
            "The demo circuit is at hand: membership in a Merkle tree of depth 10 with Poseidon hashes, "
            "2,873 constraints."
            if has_demo
            else "Choose a proving key made by snarkjs and a witness for it.",
            "muted",
        )
        text.setWordWrap(True)
        layout.addWidget(text)
        if has_demo:
            demo = QPushButton("Prove the demo circuit")
            demo.setProperty("role", "primary")
            demo.clicked.connect(self.demo_asked)
            layout.addWidget(demo)
        own = QPushButton("Choose a key and a witness…")
        own.clicked.connect(self.prove_asked)
        layout.addWidget(own)
        drop = label("Or drop a .zkey and a .wtns file onto the window.", "faint")
        drop.setWordWrap(True)
        layout.addWidget(drop)
        return page


def _facts(job: JobInfo, now: int) -> list[tuple[str, str]]:
    """Captions and values, those that there are."""
    facts = [
        ("circuit", words.plain(job.circuit_name or job.circuit_id, 60)),
        ("curve", words.curve(job.curve)),
        ("device", words.plain(job.device, 30)),
        ("priority", str(getattr(job.priority, "value", job.priority))),
        ("submitted", words.clock(job.submitted_unix_ns) if job.submitted_unix_ns else ""),
        ("partitions", f"{job.partitions_done} of {job.partitions} done" if job.partitions > 1 else ""),
        ("retried", job.retried),
        ("last activity", _ago(job, now)),
        ("job", short_ids(words.plain(job.id, 80))),
    ]
    return [(name, value) for name, value in facts if value]


def _ago(job: JobInfo, now: int) -> str:
    quiet = model.quiet_ns(job, now)
    return f"{words.span(quiet / 1e9)} ago" if quiet else ""
