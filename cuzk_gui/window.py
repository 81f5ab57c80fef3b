"""The main window: parts put together, and the timer that keeps them up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QIcon
from PySide6.QtWidgets import QApplication, QDialog, QMainWindow, QVBoxLayout, QWidget

from cuzk_engine.client import JobState, ProcessState
from cuzk_gui import assets
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.charts.table import TableDialog
from cuzk_gui.controller import Controller
from cuzk_gui.engine import Engine
from cuzk_gui.menu import WindowMenu
from cuzk_gui.models.plan import chart_level
from cuzk_gui.models.process import Action
from cuzk_gui.models.session import Session
from cuzk_gui.planner import Planner
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.proofs import Proofs
from cuzk_gui.recording import Opener, open_recording
from cuzk_gui.recording_view import RecordingView, dropped_recording
from cuzk_gui.recordings import Recordings
from cuzk_gui.remote import Access, RemoteEngine
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.turns import Part, Turns
from cuzk_gui.widgets.about import open_about
from cuzk_gui.widgets.banner import EngineBanner, Notice
from cuzk_gui.widgets.circuits import CircuitsPanel
from cuzk_gui.widgets.close_dialog import CloseDialog
from cuzk_gui.widgets.connect_dialog import ConnectDialog
from cuzk_gui.widgets.device_card import DevicePanel
from cuzk_gui.widgets.job_detail import JobDetail
from cuzk_gui.widgets.jobs_list import JobsList
from cuzk_gui.widgets.log_view import LogView
from cuzk_gui.widgets.pages import Pages
from cuzk_gui.widgets.prove_dialog import dropped_files
from cuzk_gui.widgets.top_bar import TopBar
from cuzk_gui.workspace import Workspace

STEP_MS: Final = 8  # a frame has four steps
_LONG_S: Final = 0.003  # a step after which a recording waits for the next one
SMALLEST: Final = QSize(1024, 700)
_LARGEST: Final = QSize(1500, 900)  # when it opens for the first time
_FRAME: Final = QSize(16, 44)  # the title bar and edges that a desktop adds


class MainWindow(QMainWindow):
    """The window of one engine. ``close`` may ask; ``close_quietly`` does not, and leaves the engine running.

    ``ended``: it has closed for good. ``engine_chosen``: the engine with this access shall be shown, None for this
    machine's own; whoever opened the window opens another one.
    """

    ended = Signal()
    engine_chosen = Signal(object)

    def __init__(self, engine: Engine, theme: Theme, preferences: Preferences, opener: Opener = open_recording) -> None:
        super().__init__()
        self.theme = theme
        self.preferences = preferences
        self.turns = Turns((self._take_in, self._show_new, self._show_rest), self._slow_parts)
        has_demo = assets.demo() is not None and not engine.elsewhere
        self.live = Workspace(Session(), theme, preferences, has_demo=has_demo)
        self.pages = Pages(self.live)
        self.recordings = Recordings(self.pages, self.live, self.turns, preferences, opener)
        self.controller = Controller(engine, self.live.session)
        self._engine = engine
        self.proofs = Proofs(self, self.controller, self.live, preferences)
        self.planner = Planner(self.controller)
        self.clean_end = True
        self._closing = False
        self._quit_requested = False
        self._seen_plans = -1
        self._planned_device = ""
        self.setWindowTitle("cuzk")
        icon = assets.icon_file()
        if icon is not None:
            self.setWindowIcon(QIcon(str(icon)))
        self.setMinimumSize(SMALLEST)
        self.setAcceptDrops(True)
        self._build()
        self._build_menu()
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

    def _build_menu(self) -> None:
        self.menu = WindowMenu(self)
        self.menu.build(
            prove=self.proofs.ask,
            demo=self.proofs.prove_demo if self.proofs.demo else None,
            save=lambda: self.proofs.save(self.live.jobs.selected if self.recording is None else ""),
            recording=lambda: self.recordings.choose(self),
            live=self.recordings.close,
            table=self.show_table,
            follow=lambda: self.scene.view.follow(),
            zoom=lambda factor: self.scene.view.zoom(factor),
            pan=lambda share: self.scene.view.pan(share * self.scene.view.width),
            act=self.controller.act,
            connect=self.choose_engine,
            theme=self._choose_theme,
            closing=lambda choice: setattr(self.preferences, "on_close", choice),
            about=lambda: open_about(self, self.session.identity),
            close=self.close,
        )
        self.top.menu.setMenu(self.menu)

    def _connect(self) -> None:
        control, live, proofs = self.controller, self.live, self.proofs
        control.engine_changed.connect(self._show_engine)
        control.circuits_changed.connect(self._show_circuits)
        for teller in (control.noticed, proofs.said, self.recordings.said):
            teller.connect(self.notice.say)
        self.recordings.changed.connect(self._show_recording)
        self.top.asked.connect(control.act)
        self.top.prove_asked.connect(proofs.ask)
        self.top.live_asked.connect(self.recordings.close)
        self.banner.asked.connect(self._act)
        live.apply_asked.connect(control.apply_setting)
        live.devices.looked_at.connect(self.planner.look_at)
        live.circuits.register_asked.connect(proofs.register)
        live.circuits.chosen.connect(self._plan_for)
        live.jobs.cancel_asked.connect(control.cancel)
        live.jobs.save_asked.connect(proofs.save)
        live.detail.cancel_asked.connect(control.cancel)
        live.detail.save_asked.connect(proofs.save)
        live.detail.demo_asked.connect(proofs.prove_demo)
        live.detail.prove_asked.connect(proofs.ask)
        live.log.level_chosen.connect(lambda level: setattr(self.preferences, "log_level", level))
        self.theme.changed.connect(self._restyle)
        if control.engine.elsewhere:
            live.circuits.set_elsewhere()

    @property
    def recording(self) -> RecordingView | None:
        return self.recordings.current

    @property
    def shown(self) -> Workspace:
        """The recording while one is open, else the running engine."""
        return self.recordings.shown

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
        self.turns.take_all()
        if not self._closing:
            self.recordings.tick()

    def _step(self) -> None:
        begin = time.monotonic()
        self.turns.take()
        if not self._closing and time.monotonic() - begin < _LONG_S:
            self.recordings.tick()

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

    def _slow_parts(self) -> Sequence[Part]:
        """What moves with time: loads, times since, the jobs' progress."""
        return () if self._closing else (*self.shown.slow_parts(), self._show_top)

    def _show_plans(self) -> None:
        self._seen_plans, self._planned_device = self.planner.version, self.live.scene.device
        self.live.devices.show_plans(self.planner.plans)
        plan, timeline = self.planner.stated.get(self.live.scene.device), self.live.scene.timeline
        self.live.scene.plan = chart_level(plan, timeline.memory.by_purpose()) if plan and timeline else None

    def _show_top(self) -> None:
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
        self.live.show_again()  # in a turn of its own: the card of a new device takes a while to make

    def _show_recording(self) -> None:
        """Another recording is shown, or the engine again."""
        self.menu.live.setEnabled(self.recording is not None)
        if self.recording is None:
            self.banner.show_again()
            self._show_engine()
        else:
            self.banner.hide()
        self._show_top()

    def _show_circuits(self) -> None:
        self.live.circuits.show_circuits(self.controller.circuits)
        self._plan_for(self.planner.chosen)

    def _plan_for(self, circuit_id: str) -> None:
        self.planner.choose(circuit_id)
        circuit = self.planner.circuit
        self.live.circuits.mark(circuit.id if circuit else "")

    def _restyle(self) -> None:
        self.live.restyle()
        if self.shown is not self.live:
            self.shown.restyle()

    # ---- what the user does ----

    def select_device(self, device: str) -> None:
        self.shown.select_device(device)

    def choose_engine(self) -> ConnectDialog:
        """Asks which engine it shall be."""
        access = self._engine.access if isinstance(self._engine, RemoteEngine) else None
        dialog = ConnectDialog(self.preferences, self._attempt, access, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.own_asked.connect(lambda: self.engine_chosen.emit(None))
        dialog.accepted.connect(lambda: self.engine_chosen.emit(dialog.access))
        dialog.open()
        return dialog

    def _attempt(self, access: Access, done: Callable[[object], None], failed: Callable[[str], None]) -> None:
        self.controller.attempt(RemoteEngine(access).identify, done, failed)

    def _act(self, action: Action) -> None:
        if action is Action.CONNECT:
            self.choose_engine()
        else:
            self.controller.act(action)

    def show_table(self) -> TableDialog:
        dialog = TableDialog(self.charts, self.session, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()
        return dialog

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if dropped_files(event.mimeData()) or dropped_recording(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        recording = dropped_recording(event.mimeData())
        files = dropped_files(event.mimeData())
        if recording:
            event.acceptProposedAction()
            self.recordings.open(recording)
        elif files:
            event.acceptProposedAction()
            self.proofs.ask(files)

    def _choose_theme(self, choice: ThemeChoice) -> None:
        self.preferences.theme = choice
        self.theme.choose(choice)

    # ---- opening and closing ----

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

    def remember_layout(self) -> None:
        self.preferences.set_state("geometry", self.saveGeometry())
        for name, splitter in self.live.splitters():
            self.preferences.set_state(name, splitter.saveState())
        self.preferences.save()

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
        engine = self.controller.engine
        runs = not engine.elsewhere and engine.state in (
            ProcessState.READY,
            ProcessState.DRAINING,
            ProcessState.STARTING,
        )
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
        self.remember_layout()
        self.hide()
        if choice is OnClose.STOP:
            self.controller.shut_down_engine(0.6)
        self.clean_end = self.controller.close(0.8)
        self.clean_end = self.recordings.end() and self.clean_end
        self.theme.changed.disconnect(self._restyle)
        self.close()
        self.ended.emit()


def first_size(available: QSize) -> QSize:
    """So large that nothing lies beyond the ``available`` part of a screen, where that is possible."""
    return _LARGEST.boundedTo(available - _FRAME).expandedTo(SMALLEST)
