"""Everything that shows one session: of the running engine, or of a recording. The window holds one or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QSplitter, QVBoxLayout, QWidget

from cuzk_engine.client import JobInfo, JobState, SettingChange
from cuzk_engine.events import Finding
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models import words
from cuzk_gui.models.causes import CAUSES
from cuzk_gui.models.jobs import elapsed_ns
from cuzk_gui.models.loads import last_minute, load, shown_stretch
from cuzk_gui.models.session import Session
from cuzk_gui.models.view import TimeView
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.circuits import CircuitsPanel
from cuzk_gui.widgets.controls import label, rule
from cuzk_gui.widgets.device_card import DevicePanel
from cuzk_gui.widgets.findings_panel import FindingsPanel, SideColumn
from cuzk_gui.widgets.focus import tab_through
from cuzk_gui.widgets.idle_table import IdleTable
from cuzk_gui.widgets.incident_dialog import IncidentDialog
from cuzk_gui.widgets.job_detail import JobDetail
from cuzk_gui.widgets.jobs_list import JobsList
from cuzk_gui.widgets.log_view import LogView

# pixels in which the names of settings and of phases are whole, beside a scroll bar
_LEAST_LEFT, _LEAST_RIGHT = 318, 256


class Workspace(QWidget):
    """``frame`` and ``show_slow`` are called by the window's timer. ``apply_asked``: a setting shall change.

    ``whole``: all parts are there at once; else they come with ``build``, one at each call.
    """

    apply_asked = Signal(SettingChange)

    def __init__(
        self, session: Session, theme: Theme, preferences: Preferences, *, has_demo: bool, whole: bool = True
    ) -> None:
        super().__init__()
        self.session = session
        self.theme = theme
        self.scene = Scene(session, TimeView(), theme)
        self._seen_session = -1
        self._seen_findings: tuple[object, ...] = ()
        self._seen_idle: tuple[object, ...] = ()
        self._seen_widgets: tuple[object, ...] = ()
        self._parts = self._assemble(preferences, has_demo)
        while whole and self.build():
            pass

    # ---- parts ----

    def build(self) -> bool:
        """Builds the next part; False when all are there."""
        return next(self._parts, None) is not None

    def _assemble(self, preferences: Preferences, has_demo: bool) -> Iterator[str]:
        """From the outside to the inside, so that each part gets its style once. Stops after each."""
        self.columns = QSplitter(Qt.Orientation.Horizontal)
        self.columns.setHandleWidth(10)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.columns)
        self._panel = QFrame()
        self._panel.setProperty("panel", True)
        self._panel.setMinimumWidth(_LEAST_LEFT)
        self.columns.addWidget(self._panel)
        self.centre = QSplitter(Qt.Orientation.Vertical)
        self.centre.setHandleWidth(8)
        self.centre.setMinimumWidth(436)
        self.columns.addWidget(self.centre)
        self.left = QSplitter(Qt.Orientation.Vertical)
        self.left.setHandleWidth(6)
        outer = QVBoxLayout(self._panel)
        outer.setContentsMargins(1, 1, 1, 1)
        outer.addWidget(self.left)
        for splitter in (self.centre, self.columns, self.left):
            splitter.setChildrenCollapsible(False)
        yield "frame"
        self.charts = ChartStack(self.scene, whole=False)
        self.centre.addWidget(self.charts)
        self.centre.setStretchFactor(0, 5)
        while self.charts.build():
            yield "chart"
        yield "charts"
        self._add_devices()
        yield "devices"
        self._add_jobs()
        yield "jobs"
        self.findings = FindingsPanel(self.theme)
        yield "findings"
        self.detail = JobDetail(self.theme, has_demo)
        yield "detail"
        self.side = SideColumn(self.findings, self.detail)
        self.side.setMinimumWidth(_LEAST_RIGHT)
        self.columns.addWidget(self.side)
        self.columns.setStretchFactor(1, 1)
        yield "side"
        self.log = LogView(self.theme, self.session.log, preferences.log_level)
        self.centre.addWidget(self.log)
        self.centre.setStretchFactor(1, 1)
        self._connect()

    def _add_devices(self) -> None:
        self.devices = DevicePanel(self.theme)
        self.idle = IdleTable(self.theme)
        self.circuits = CircuitsPanel()
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.left.addWidget(scroll)
        self.left.setStretchFactor(0, 3)
        upper = QWidget()
        upper.setObjectName("scrolled")
        inside = QVBoxLayout(upper)
        inside.setContentsMargins(14, 12, 14, 10)
        inside.setSpacing(9)
        scroll.setWidget(upper)
        self._idle_rule = rule()
        self._circuits_rule = rule()
        for widget in (self.devices, self._idle_rule, self.idle, self._circuits_rule, self.circuits):
            inside.addWidget(widget)
        inside.addStretch(1)

    def _add_jobs(self) -> None:
        self.jobs = JobsList(self.theme, self.session.jobs)
        self.jobs_note = label("", "muted")
        lower = QWidget()
        self.left.addWidget(lower)
        self.left.setStretchFactor(1, 2)
        jobs = QVBoxLayout(lower)
        jobs.setContentsMargins(6, 6, 4, 8)
        jobs.setSpacing(4)
        header = QWidget()
        line = QHBoxLayout(header)
        line.setContentsMargins(8, 4, 20, 0)
        line.addWidget(label("Jobs", "title"), 1)
        line.addWidget(self.jobs_note)
        jobs.addWidget(header)
        jobs.addWidget(self.jobs, 1)

    def _connect(self) -> None:
        self.devices.selected.connect(self.select_device)
        self.devices.changed.connect(self.apply_asked)
        self.jobs.chosen.connect(lambda _: self.show_job())
        self.jobs.hide_asked.connect(self.session.jobs.hide)
        self.detail.charts_asked.connect(self.show_in_charts)
        self.findings.apply_asked.connect(self.apply_asked)
        self.findings.incident_asked.connect(self.show_incident)
        self.findings.finding_chosen.connect(self.show_finding)
        self.charts.incident_chosen.connect(self.show_incident)
        self.charts.lanes.cause_chosen.connect(self.single_out)
        self.idle.cause_chosen.connect(self.single_out)

    def splitters(self) -> tuple[tuple[str, QSplitter], ...]:
        return (
            ("columns", self.columns),
            ("centre", self.centre),
            ("left", self.left),
            ("charts", self.charts.splitter),
        )

    def parts(self) -> tuple[QWidget, ...]:
        """Which cover it and can be painted one by one."""
        return *self.charts.charts, self._panel, self.side, self.log

    def hide_circuits(self) -> None:
        """Of a recording, which holds none."""
        self._circuits_rule.hide()
        self.circuits.hide()

    def set_sizes(self, width: int) -> None:
        """Shares of the columns and rows in a window of ``width`` pixels."""
        left, right = min(max(width * 0.215, _LEAST_LEFT), 330), min(max(width * 0.19, _LEAST_RIGHT), 310)
        self.columns.setSizes([round(left), round(width - left - right), round(right)])
        self.left.setSizes([600, 220])
        self.centre.setSizes([700, 150])

    # ---- time ----

    def frame(self, now_ns: int, *, painting: bool) -> None:
        """What came is shown; ``painting``: there is somebody to see it, and ``charts.finish`` follows."""
        view = self.scene.view
        if self.session.origin_ns is not None:
            view.set_now(max(view.now, self.session.seconds(now_ns)))
        if self.session.version != self._seen_session:
            self._seen_session = self.session.version
            self._show_session()
        if painting:
            self.charts.begin(self.session.jobs.active and not self.session.recorded)

    def show_again(self) -> None:
        """All of it anew with the next frame."""
        self._seen_session = -1
        self._seen_findings = self._seen_idle = ()

    def restyle(self) -> None:
        self.charts.restyle()
        self.log.rebuild()
        self.show_again()

    def _show_session(self) -> None:
        ids = self.session.device_ids()
        if self.scene.device not in ids:
            self.scene.device = ids[0] if ids else ""
        if not self.devices.show_session(self.session, self.scene.device):
            self._seen_session = -1  # more of it with the next frame
        self.log.refresh()

    def slow_parts(self) -> tuple[Callable[[], None], ...]:
        """What moves with time: loads, times since, the jobs' progress. A part each."""
        return self._show_loads, self._show_idle, self._show_findings, self._show_jobs, self.show_job

    def show_slow(self) -> None:
        for part in self.slow_parts():
            part()

    def _show_loads(self) -> None:
        self.devices.show_load(self.session)
        self.log.say_source(words.plain(self.session.log_path, 200) if self.session.log_path else "of the engine")
        self._order_focus()

    def _show_jobs(self) -> None:
        counts = self.session.jobs.counts()
        parts = [f"{counts[s]:,} {s}" for s in (JobState.RUNNING.value, JobState.QUEUED.value) if counts.get(s)]
        self.jobs_note.setText(" · ".join(parts))
        self.jobs.jobs.refresh()
        # of a recording the first of all jobs, not of those that happen to be read by now
        if not self.jobs.selected and len(self.session.jobs) and not self.session.reading:
            self.jobs.select(self.session.jobs.order[0])

    def _order_focus(self) -> None:
        widgets = (self.devices.version, self.findings.version, self.detail.job_id != "", self.isVisible())
        if widgets != self._seen_widgets:
            self._seen_widgets = widgets
            tab_through((self.left, self.centre, self.side))

    def _show_idle(self) -> None:
        timeline = self.scene.timeline
        there = timeline is not None and self.session.identity is not None
        self.idle.setVisible(there)
        self._idle_rule.setVisible(there)
        if timeline is None or not there:
            return
        view, session = self.scene.view, self.session
        state = (session.version, view.version, view.following, self.scene.device, self.scene.cause)
        if state == self._seen_idle:
            return
        self._seen_idle = state
        if view.following:
            stretch, between = "last minute", last_minute(session, timeline)
        else:
            stretch, between = "shown stretch", shown_stretch(session, self.scene.start_ns, self.scene.end_ns)
            if session.recorded and between == (session.origin_ns, session.latest_ns):
                stretch = "whole recording"
        which = self.scene.device if len(session.described) > 1 else ""
        self.idle.show_load(load(session, timeline, *between), which, self.scene.cause, stretch)

    def _show_findings(self) -> None:
        session = self.session
        state = (
            self.scene.device,
            session.findings.version,
            session.incidents.version,
            len(session.jobs),  # incidents of one circuit are told together
            session.settings.version,
            session.live,
            session.run,
            session.reading,
            session.latest_ns // 1_000_000_000,
        )
        if state != self._seen_findings:
            self._seen_findings = state
            self.findings.show_session(session, self.scene.device)
        self.side.fit()

    # ---- what is selected ----

    @property
    def selected_job(self) -> JobInfo | None:
        return self.session.jobs.get(self.jobs.selected) if self.jobs.selected else None

    def show_job(self) -> None:
        job = self.selected_job
        now = self.session.jobs.clock()
        charted = job is not None and self.session.knows_of(job.finished_unix_ns or now)
        self.detail.show_job(job, self.session.jobs.place(job.id) if job else 0, now, charted=charted)

    def select_device(self, device: str) -> None:
        if device in self.session.device_ids():
            self.scene.device = device
            self.show_again()

    def single_out(self, cause: str) -> None:
        """The gaps of a cause stand out; "" ends that."""
        self.scene.cause = cause
        self._show_idle()

    def show_finding(self, finding: Finding) -> None:
        """Its gaps stand out; its stretch of time is shown."""
        if finding.device:
            self.select_device(finding.device)
        if finding.kind in CAUSES:
            self.single_out("" if self.scene.cause == finding.kind else finding.kind)

    def show_incident(self, number: int) -> IncidentDialog | None:
        """Opens the picture of an incident, or raises it."""
        for open_one in self.findChildren(IncidentDialog):
            if open_one.record.number == number and open_one.isVisible():
                open_one.raise_()
                open_one.activateWindow()
                return open_one
        record = next((r for r in self.session.incidents.records if r.number == number), None)
        if record is None:
            return None
        dialog = IncidentDialog(self.theme, self.session, record, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.apply_asked.connect(self.apply_asked)
        dialog.show()
        return dialog

    def show_in_charts(self, job_id: str) -> None:
        """Moves the time axis to the job, from its start to its end or to now."""
        job = self.session.jobs.get(job_id)
        if job is None or not job.started_unix_ns:
            return
        if job.device in self.session.device_ids():
            self.select_device(job.device)
        start = self.session.seconds(job.started_unix_ns - self.session.wall_offset_ns)
        length = max(elapsed_ns(job, self.session.jobs.clock()) / 1e9, 1e-3)
        self.scene.view.show(start - 0.06 * length, start + 1.06 * length)
