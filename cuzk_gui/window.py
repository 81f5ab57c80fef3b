"""The main window: parts put together, and the timer that keeps them up to date."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QIcon
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFileDialog,
    QMainWindow,
    QMessageBox,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from cuzk_engine.client import JobState, ProcessState
from cuzk_gui import assets
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.charts.table import TableDialog
from cuzk_gui.controller import Controller, Proof
from cuzk_gui.engine import Engine
from cuzk_gui.files import names
from cuzk_gui.menu import WindowMenu
from cuzk_gui.models.plan import chart_level
from cuzk_gui.models.process import Tone
from cuzk_gui.models.session import Session
from cuzk_gui.planner import Planner
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.recording import Opener, RecordingFeed, open_recording
from cuzk_gui.recording_view import RecordingView, dropped_recording
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.widgets.about import open_about
from cuzk_gui.widgets.banner import EngineBanner, Notice
from cuzk_gui.widgets.circuits import CircuitsPanel
from cuzk_gui.widgets.close_dialog import CloseDialog
from cuzk_gui.widgets.controls import label
from cuzk_gui.widgets.device_card import DevicePanel
from cuzk_gui.widgets.job_detail import JobDetail
from cuzk_gui.widgets.jobs_list import JobsList
from cuzk_gui.widgets.log_view import LogView
from cuzk_gui.widgets.prove_dialog import ProveDialog, dropped_files
from cuzk_gui.widgets.top_bar import TopBar
from cuzk_gui.workspace import Workspace

STEP_MS: Final = 8  # a frame has four steps
_SLOW_S: Final = 0.25  # between two looks at loads and times
SMALLEST: Final = QSize(1024, 700)
_LARGEST: Final = QSize(1500, 900)  # when it opens for the first time
_FRAME: Final = QSize(16, 44)  # the title bar and edges that a desktop adds


class MainWindow(QMainWindow):
    """The window of one engine. ``close`` may ask; ``close_quietly`` does not, and leaves the engine running.

    ``ended``: it has closed for good.
    """

    ended = Signal()

    def __init__(self, engine: Engine, theme: Theme, preferences: Preferences, opener: Opener = open_recording) -> None:
        super().__init__()
        self.theme = theme
        self.preferences = preferences
        self.demo = assets.demo()
        self.live = Workspace(Session(), theme, preferences, has_demo=self.demo is not None)
        self.recording: RecordingView | None = None
        self.controller = Controller(engine, self.live.session)
        self.planner = Planner(self.controller)
        self.clean_end = True
        self._closing = False
        self._quit_requested = False
        self._opener = opener
        self._seen_plans = -1
        self._planned_device = ""
        self._next_slow = 0.0
        self._steps = (self._take_in, self._show_new, self._show_rest, self._show_slow_now)
        self._turn = 0
        self._files: list[str] = []
        self._ending: list[RecordingFeed] = []  # of closed recordings, whose threads may still run
        self.setWindowTitle("cuzk")
        icon = assets.icon_file()
        if icon is not None:
            self.setWindowIcon(QIcon(str(icon)))
        self.setMinimumSize(SMALLEST)
        self.setAcceptDrops(True)
        self._build()
        self._connect()
        self._restore()
        self._show_engine()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._step)
        self._timer.start(STEP_MS)

    # ---- parts ----

    def _build(self) -> None:
        self.top = TopBar(self.theme)
        self.banner = EngineBanner(self.theme)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.live)
        self.cover = label("", "muted")  # until a recording can be shown
        self.cover.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.pages.addWidget(self.cover)
        body = QVBoxLayout()
        body.setContentsMargins(12, 10, 12, 12)
        body.setSpacing(8)
        body.addWidget(self.banner)
        body.addWidget(self.pages, 1)
        central = QWidget()
        self.notice = Notice(self.theme, central)
        layout = QVBoxLayout(central)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.top)
        layout.addLayout(body, 1)
        self.setCentralWidget(central)
        central.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        central.setFocus()
        self.menu = WindowMenu(self)
        self.menu.build(
            prove=self.prove,
            demo=self.prove_demo if self.demo else None,
            save=self._save_selected,
            recording=self._choose_recording,
            live=self.back_to_live,
            table=self.show_table,
            follow=lambda: self.scene.view.follow(),
            zoom=lambda factor: self.scene.view.zoom(factor),
            pan=lambda share: self.scene.view.pan(share * self.scene.view.width),
            act=self.controller.act,
            theme=self._choose_theme,
            closing=self._choose_closing,
            about=lambda: open_about(self, self.session.identity),
            close=self.close,
        )
        self.top.menu.setMenu(self.menu)

    def _connect(self) -> None:
        control, live = self.controller, self.live
        control.engine_changed.connect(self._show_engine)
        control.noticed.connect(self.notice.say)
        control.circuits_changed.connect(self._show_circuits)
        control.submitted.connect(self._submitted)
        self.top.asked.connect(control.act)
        self.top.prove_asked.connect(self.prove)
        self.top.live_asked.connect(self.back_to_live)
        self.banner.asked.connect(control.act)
        live.apply_asked.connect(control.apply_setting)
        live.devices.looked_at.connect(self.planner.look_at)
        live.circuits.register_asked.connect(self._register)
        live.circuits.chosen.connect(self._plan_for)
        live.jobs.cancel_asked.connect(control.cancel)
        live.jobs.save_asked.connect(self.save_proof)
        live.detail.cancel_asked.connect(control.cancel)
        live.detail.save_asked.connect(self.save_proof)
        live.detail.demo_asked.connect(self.prove_demo)
        live.detail.prove_asked.connect(self.prove)
        live.log.level_chosen.connect(lambda level: setattr(self.preferences, "log_level", level))
        self.theme.changed.connect(self._restyle)

    @property
    def shown(self) -> Workspace:
        """The recording while one is open, else the running engine."""
        return self.recording.workspace if self.recording is not None and self.recording.is_ready else self.live

    @property
    def session(self) -> Session:
        return self.shown.session

    @property
    def scene(self) -> Scene:
        return self.shown.scene

    @property
    def charts(self) -> ChartStack:
        return self.shown.charts

    @property
    def devices(self) -> DevicePanel:
        return self.shown.devices

    @property
    def circuits(self) -> CircuitsPanel:
        return self.shown.circuits

    @property
    def jobs(self) -> JobsList:
        return self.shown.jobs

    @property
    def detail(self) -> JobDetail:
        return self.shown.detail

    @property
    def log(self) -> LogView:
        return self.shown.log

    # ---- time ----

    def tick(self) -> None:
        """One frame: what came is taken in, and the parts that it concerns are shown again."""
        for step in self._steps:
            step()
        if self.recording is not None and not self._closing:
            self.recording.tick()

    def _step(self) -> None:
        """A part of a frame, so that what the user does waits for a part only."""
        step = self._steps[self._turn]
        self._turn = (self._turn + 1) % len(self._steps)
        step()
        if self.recording is not None and not self._closing:
            self.recording.tick()

    def _take_in(self) -> None:
        if self._quit_requested and not self._closing:
            self.close_quietly()
        if self._closing:
            return
        self.controller.tick()
        self.planner.tick()

    def _show_new(self) -> None:
        if self._closing:
            return
        seen = self.isVisible() and not self.isMinimized()
        self.live.frame(self.controller.now_ns(), painting=seen and self.recording is None)
        if self.recording is not None and self.recording.is_ready:
            self.recording.workspace.frame(self.recording.feed.now_ns(), painting=seen)
        if self.planner.version != self._seen_plans or self.live.scene.device != self._planned_device:
            self._show_plans()

    def _show_rest(self) -> None:
        self.charts.finish()

    def _show_slow_now(self) -> None:
        if time.monotonic() >= self._next_slow and not self._closing:
            self._next_slow = time.monotonic() + _SLOW_S
            self._show_slow()

    def _show_plans(self) -> None:
        self._seen_plans, self._planned_device = self.planner.version, self.live.scene.device
        self.live.devices.show_plans(self.planner.plans)
        plan, timeline = self.planner.stated.get(self.live.scene.device), self.live.scene.timeline
        self.live.scene.plan = chart_level(plan, timeline.memory.by_purpose()) if plan and timeline else None

    def _show_slow(self) -> None:
        """What moves with time: loads, times since, the jobs' progress."""
        self.shown.show_slow()
        if self.recording is None:
            self.top.show_engine(self.controller.engine, time.time_ns())
        else:
            self.top.show_recording(self.recording.title, self.recording.facts, self.recording.feed.progress)
        job = self.live.selected_job if self.recording is None else None
        self.menu.save.setEnabled(job is not None and job.state == JobState.COMPLETED)

    def _show_engine(self) -> None:
        engine = self.controller.engine
        if self.recording is None:
            self.top.show_engine(engine, time.time_ns())
            self.banner.show_banner(engine.banner())
        for action, menu_action in self.menu.engine.items():
            menu_action.setEnabled(action in engine.appearance.actions)
        self.live.circuits.set_live(engine.appearance.prove)
        self.live.devices.show_session(self.live.session, self.live.scene.device)

    def _show_circuits(self) -> None:
        self.live.circuits.show_circuits(self.controller.circuits)
        self._plan_for(self.planner.chosen)

    def _plan_for(self, circuit_id: str) -> None:
        self.planner.choose(circuit_id)
        circuit = self.planner.circuit
        self.live.circuits.mark(circuit.id if circuit else "")

    def select_device(self, device: str) -> None:
        self.shown.select_device(device)

    # ---- recordings ----

    def _choose_recording(self) -> None:
        dialog = QFileDialog(self, "Open a recording", self.preferences.folder("recording"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.open_recording)
        dialog.open()

    def open_recording(self, file: str) -> None:
        """Shows a recording in the place of the running engine, which goes on meanwhile."""
        self.back_to_live()
        path = Path(file)
        self.preferences.set_folder("recording", str(path.parent))
        self.recording = RecordingView(path, self._opener, self.theme, self.preferences)
        self.recording.ready.connect(self._show_recording)
        self.recording.failed.connect(self._recording_failed)
        self.recording.damaged.connect(lambda text: self.notice.say(text, Tone.WARN))
        self.pages.addWidget(self.recording.workspace)
        self.cover.setText(f"Opening {self.recording.title}…")
        self.pages.setCurrentWidget(self.cover)
        self.banner.hide()
        self.menu.live.setEnabled(True)
        self._show_slow()

    def _show_recording(self) -> None:
        workspace = self.shown
        workspace.set_sizes(self.width())
        for (_, mine), (_, theirs) in zip(workspace.splitters(), self.live.splitters(), strict=True):
            mine.restoreState(theirs.saveState())
        workspace.show_slow()  # what is not known yet shall not be read as zero
        self.pages.setCurrentWidget(workspace)

    def back_to_live(self) -> None:
        """Closes the recording."""
        if self.recording is None:
            return
        closed, self.recording = self.recording, None
        self.pages.setCurrentWidget(self.live)
        self.pages.removeWidget(closed.workspace)
        closed.close()
        self._ending = [feed for feed in (*self._ending, closed.feed) if not feed.close(0.0)]
        self.menu.live.setEnabled(False)
        self.live.show_again()
        self.banner.show_again()
        self._show_engine()
        self._show_slow()

    def _recording_failed(self, reason: str) -> None:
        self.back_to_live()
        self.notice.say(reason[:1].upper() + reason[1:], Tone.BAD)

    # ---- proofs ----

    def prove(self, files: list[str] | None = None) -> None:
        """Opens the dialog; the last choice, else the demo, is filled in."""
        runs = self.controller.engine.appearance.prove
        dialog = ProveDialog(self.preferences, self.demo, runs, self)
        if self._files:
            dialog.take_files(self._files)
        elif not files:
            dialog.use_demo()
        dialog.take_files(files or [])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

        def accepted() -> None:
            self._files = [dialog.key, dialog.witness]
            demo = self.demo is not None and dialog.key == str(self.demo.key)
            self._hand_in(Proof(dialog.key, dialog.witness, dialog.name, self.demo.name if self.demo and demo else ""))

        dialog.accepted.connect(accepted)
        dialog.open()

    def prove_demo(self) -> None:
        if self.demo is not None:
            self._hand_in(Proof(str(self.demo.key), str(self.demo.witness), circuit=self.demo.name))

    def _hand_in(self, proof: Proof) -> None:
        engine = self.controller.engine
        if engine.appearance.prove:
            self.controller.submit(proof)
        elif engine.state in (ProcessState.STOPPED, ProcessState.CRASHED, None):
            self.controller.start_and_submit(proof)
        else:
            self.notice.say(f"The engine takes no jobs now: {engine.appearance.word.lower()}", Tone.WARN)

    def _submitted(self, job_id: str) -> None:
        self.live.jobs.jobs.refresh()
        self.live.jobs.select(job_id)
        self.live.show_job()

    def _save_selected(self) -> None:
        if self.recording is None and self.live.jobs.selected:
            self.save_proof(self.live.jobs.selected)

    def save_proof(self, job_id: str) -> None:
        """Asks for a folder, then writes proof.json and public.json there."""
        dialog = QFileDialog(self, "Folder for proof.json and public.json", self.preferences.folder("proof"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(partial(self.save_into, job_id))
        dialog.open()

    def save_into(self, job_id: str, folder: str) -> None:
        """Writes the proof; where one is already, asks before it is replaced."""
        self.preferences.set_folder("proof", folder)
        job = self.live.session.jobs.get(job_id)
        there = [name for name in names(job.partitions if job else 1) if (Path(folder) / name).exists()]
        if not there:
            self.controller.save(job_id, Path(folder))
            return
        box = QMessageBox(
            QMessageBox.Icon.NoIcon, "Save proof", f"{folder} already has {' and '.join(there[:4])}.", parent=self
        )
        replace = box.addButton("Replace", QMessageBox.ButtonRole.AcceptRole)
        box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.buttonClicked.connect(
            lambda button: self.controller.save(job_id, Path(folder)) if button is replace else None
        )
        box.open()

    def _register(self) -> None:
        dialog = QFileDialog(self, "Choose a .zkey file", self.preferences.folder(".zkey"), "Proving keys (*.zkey)")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.controller.register)
        dialog.open()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if dropped_files(event.mimeData()) or dropped_recording(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        recording = dropped_recording(event.mimeData())
        files = dropped_files(event.mimeData())
        if recording:
            event.acceptProposedAction()
            self.open_recording(recording)
        elif files:
            event.acceptProposedAction()
            self.prove(files)

    # ---- the rest ----

    def show_table(self) -> TableDialog:
        dialog = TableDialog(self.charts, self.session, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()
        return dialog

    def _choose_theme(self, choice: ThemeChoice) -> None:
        self.preferences.theme = choice
        self.theme.choose(choice)

    def _choose_closing(self, choice: OnClose) -> None:
        self.preferences.on_close = choice

    def _restyle(self) -> None:
        self.live.restyle()
        if self.shown is not self.live:
            self.shown.restyle()

    def _restore(self) -> None:
        self.resize(first_size(self.screen().availableSize()))
        self.menu.show_choices(self.preferences.theme, self.preferences.on_close)
        geometry = self.preferences.state("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)
        self.live.set_sizes(self.width())
        for name, splitter in self.live.splitters():
            state = self.preferences.state(name)
            if state is not None:
                splitter.restoreState(state)

    # ---- closing ----

    def request_quit(self) -> None:
        """From a signal handler: closes at the next frame, without a question."""
        self._quit_requested = True

    def close_quietly(self) -> None:
        for widget in QApplication.topLevelWidgets():
            if isinstance(widget, QDialog) and widget.isVisible():
                widget.reject()
        self._finish(OnClose.KEEP)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._closing:
            event.accept()
            return
        event.ignore()
        runs = self.controller.engine.state in (ProcessState.READY, ProcessState.DRAINING, ProcessState.STARTING)
        choice = self.preferences.on_close
        if not runs or choice is not OnClose.ASK:
            self._finish(choice if runs else OnClose.KEEP)
            return
        counts = self.live.session.jobs.counts()
        dialog = CloseDialog(self.theme, counts.get("running", 0) + counts.get("queued", 0), self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

        def accepted() -> None:
            if dialog.remember.isChecked():
                self.preferences.on_close = dialog.choice
            self._finish(dialog.choice)

        dialog.accepted.connect(accepted)
        dialog.open()

    def _finish(self, choice: OnClose) -> None:
        if self._closing:
            return
        self._closing = True
        self._timer.stop()
        self.preferences.set_state("geometry", self.saveGeometry())
        for name, splitter in self.live.splitters():
            self.preferences.set_state(name, splitter.saveState())
        self.preferences.save()
        self.hide()
        if choice is OnClose.STOP:
            self.controller.shut_down_engine(0.6)
        self.clean_end = self.controller.close(0.8)
        if self.recording is not None:
            self.recording.close()
            self._ending.append(self.recording.feed)
        for feed in self._ending:
            self.clean_end = feed.close() and self.clean_end
        self.theme.changed.disconnect(self._restyle)
        self.close()
        self.ended.emit()


def first_size(available: QSize) -> QSize:
    """So large that nothing lies beyond the ``available`` part of a screen, where that is possible."""
    return _LARGEST.boundedTo(available - _FRAME).expandedTo(SMALLEST)
