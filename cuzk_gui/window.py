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
    QFrame,
    QHBoxLayout,
    QMainWindow,
    QMessageBox,
    QScrollArea,
    QSplitter,
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
from cuzk_gui.menu import WindowMenu
from cuzk_gui.models import words
from cuzk_gui.models.jobs import elapsed_ns
from cuzk_gui.models.process import Tone
from cuzk_gui.models.session import Session
from cuzk_gui.models.view import TimeView
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.widgets.banner import EngineBanner, Notice
from cuzk_gui.widgets.circuits import CircuitsPanel
from cuzk_gui.widgets.close_dialog import CloseDialog
from cuzk_gui.widgets.controls import label, rule
from cuzk_gui.widgets.device_card import DevicePanel
from cuzk_gui.widgets.job_detail import JobDetail
from cuzk_gui.widgets.jobs_list import JobsList
from cuzk_gui.widgets.log_view import LogView
from cuzk_gui.widgets.prove_dialog import ProveDialog, dropped_files
from cuzk_gui.widgets.top_bar import TopBar

FRAME_MS: Final = 33
_SLOW_S: Final = 0.25  # between two looks at loads and times
SMALLEST: Final = QSize(1100, 700)


class MainWindow(QMainWindow):
    """The window of one engine. ``close`` may ask; ``close_quietly`` does not, and leaves the engine running.

    ``ended``: it has closed for good.
    """

    ended = Signal()

    def __init__(self, engine: Engine, theme: Theme, preferences: Preferences) -> None:
        super().__init__()
        self.theme = theme
        self.preferences = preferences
        self.session = Session()
        self.controller = Controller(engine, self.session)
        self.scene = Scene(self.session, TimeView(), theme)
        self.demo = assets.demo()
        self.clean_end = True
        self._closing = False
        self._quit_requested = False
        self._seen_session = -1
        self._next_slow = 0.0
        self._files: list[str] = []
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
        self._timer.timeout.connect(self.tick)
        self._timer.start(FRAME_MS)

    # ---- parts ----

    def _build(self) -> None:
        self.top = TopBar(self.theme)
        self.banner = EngineBanner(self.theme)
        self.charts = ChartStack(self.scene)
        self.devices = DevicePanel(self.theme)
        self.circuits = CircuitsPanel()
        self.jobs = JobsList(self.theme, self.session.jobs)
        self.jobs_note = label("", "muted")
        self.detail = JobDetail(self.theme, self.demo is not None)
        self.log = LogView(self.theme, self.session.log, self.preferences.log_level)
        self.centre = QSplitter(Qt.Orientation.Vertical)
        self.centre.setHandleWidth(8)
        self.centre.addWidget(self.charts)
        self.centre.addWidget(self.log)
        self.centre.setStretchFactor(0, 5)
        self.centre.setStretchFactor(1, 1)
        self.columns = QSplitter(Qt.Orientation.Horizontal)
        self.columns.setHandleWidth(10)
        for widget in (self._left(), self.centre, self.detail):
            self.columns.addWidget(widget)
        self.columns.setStretchFactor(1, 1)
        self.centre.setMinimumWidth(480)
        self.detail.setMinimumWidth(220)
        for splitter in (self.centre, self.columns):
            splitter.setChildrenCollapsible(False)
        body = QVBoxLayout()
        body.setContentsMargins(12, 10, 12, 12)
        body.setSpacing(8)
        body.addWidget(self.banner)
        body.addWidget(self.columns, 1)
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
            table=self.show_table,
            follow=self.scene.view.follow,
            zoom=self.scene.view.zoom,
            pan=lambda share: self.scene.view.pan(share * self.scene.view.width),
            act=self.controller.act,
            theme=self._choose_theme,
            closing=self._choose_closing,
            about=self._about,
            close=self.close,
        )
        self.top.menu.setMenu(self.menu)

    def _left(self) -> QWidget:
        panel = QFrame()
        panel.setProperty("panel", True)
        upper = QWidget()
        upper.setObjectName("scrolled")
        inside = QVBoxLayout(upper)
        inside.setContentsMargins(14, 12, 14, 10)
        inside.setSpacing(10)
        inside.addWidget(self.devices)
        inside.addWidget(rule())
        inside.addWidget(self.circuits)
        inside.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(upper)
        lower = QWidget()
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
        self.left = QSplitter(Qt.Orientation.Vertical)
        self.left.setHandleWidth(6)
        self.left.setChildrenCollapsible(False)
        self.left.addWidget(scroll)
        self.left.addWidget(lower)
        self.left.setStretchFactor(0, 3)
        self.left.setStretchFactor(1, 2)
        outer = QVBoxLayout(panel)
        outer.setContentsMargins(1, 1, 1, 1)
        outer.addWidget(self.left)
        panel.setMinimumWidth(290)
        return panel

    def _connect(self) -> None:
        control = self.controller
        control.engine_changed.connect(self._show_engine)
        control.noticed.connect(self.notice.say)
        control.circuits_changed.connect(lambda: self.circuits.show_circuits(control.circuits))
        control.submitted.connect(self._submitted)
        self.top.asked.connect(control.act)
        self.top.prove_asked.connect(self.prove)
        self.banner.asked.connect(control.act)
        self.devices.changed.connect(control.apply_setting)
        self.devices.selected.connect(self.select_device)
        self.circuits.register_asked.connect(self._register)
        self.jobs.chosen.connect(lambda _: self._show_job())
        self.jobs.cancel_asked.connect(control.cancel)
        self.jobs.save_asked.connect(self.save_proof)
        self.jobs.hide_asked.connect(self.session.jobs.hide)
        self.detail.cancel_asked.connect(control.cancel)
        self.detail.save_asked.connect(self.save_proof)
        self.detail.charts_asked.connect(self.show_in_charts)
        self.detail.demo_asked.connect(self.prove_demo)
        self.detail.prove_asked.connect(self.prove)
        self.log.level_chosen.connect(lambda level: setattr(self.preferences, "log_level", level))
        self.theme.changed.connect(self._restyle)

    # ---- time ----

    def tick(self) -> None:
        """One frame: what came is taken in, and the parts that it concerns are shown again."""
        if self._quit_requested and not self._closing:
            self.close_quietly()
        if self._closing:
            return
        self.controller.tick()
        view = self.scene.view
        if self.session.origin_ns is not None:
            view.set_now(max(view.now, self.session.seconds(self.controller.now_ns())))
        if self.session.version != self._seen_session:
            self._seen_session = self.session.version
            self._show_session()
        now = time.monotonic()
        if now >= self._next_slow:
            self._next_slow = now + _SLOW_S
            self._show_slow()
        if self.isVisible() and not self.isMinimized():
            self.charts.frame(self.session.jobs.active)

    def _show_session(self) -> None:
        ids = self.session.device_ids()
        if self.scene.device not in ids:
            self.scene.device = ids[0] if ids else ""
        self.devices.show_session(self.session, self.scene.device)
        self.log.refresh()

    def _show_slow(self) -> None:
        """What moves with time: loads, times since, the jobs' progress."""
        self.devices.show_load(self.session)
        self.top.show_engine(self.controller.engine, time.time_ns())
        counts = self.session.jobs.counts()
        parts = [f"{counts[s]:,} {s}" for s in (JobState.RUNNING.value, JobState.QUEUED.value) if counts.get(s)]
        self.jobs_note.setText(" · ".join(parts))
        self.jobs.jobs.refresh()
        if not self.jobs.selected and len(self.session.jobs):
            self.jobs.select(self.session.jobs.order[0])
        self._show_job()
        self.log.say_source(words.plain(self.session.log_path, 200) if self.session.log_path else "of the engine")

    def _show_job(self) -> None:
        job = self.session.jobs.get(self.jobs.selected) if self.jobs.selected else None
        self.detail.show_job(job, self.session.jobs.place(job.id) if job else 0)
        self.menu.save.setEnabled(job is not None and job.state == JobState.COMPLETED)

    def _show_engine(self) -> None:
        engine = self.controller.engine
        self.top.show_engine(engine, time.time_ns())
        self.banner.show_banner(engine.banner())
        for action, menu_action in self.menu.engine.items():
            menu_action.setEnabled(action in engine.appearance.actions)
        self.circuits.set_live(engine.appearance.prove)
        self.devices.show_session(self.session, self.scene.device)

    def select_device(self, device: str) -> None:
        if device in self.session.device_ids():
            self.scene.device = device
            self._seen_session = -1

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
        self.jobs.jobs.refresh()
        self.jobs.select(job_id)
        self._show_job()

    def _save_selected(self) -> None:
        if self.jobs.selected:
            self.save_proof(self.jobs.selected)

    def show_in_charts(self, job_id: str) -> None:
        """Moves the time axis to the job, from its start to its end or to now."""
        job = self.session.jobs.get(job_id)
        if job is None or not job.started_unix_ns:
            return
        if job.device in self.session.device_ids():
            self.select_device(job.device)
        start = self.session.seconds(job.started_unix_ns - self.session.wall_offset_ns)
        length = max(elapsed_ns(job, time.time_ns()) / 1e9, 1e-3)
        self.scene.view.show(start - 0.06 * length, start + 1.06 * length)

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
        there = [name for name in ("proof.json", "public.json") if (Path(folder) / name).exists()]
        if not there:
            self.controller.save(job_id, Path(folder))
            return
        box = QMessageBox(
            QMessageBox.Icon.NoIcon, "Save proof", f"{folder} already has {' and '.join(there)}.", parent=self
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
        if dropped_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        files = dropped_files(event.mimeData())
        if files:
            event.acceptProposedAction()
            self.prove(files)

    # ---- the rest ----

    def show_table(self) -> TableDialog:
        dialog = TableDialog(self.charts.charts, self.session, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()
        return dialog

    def _about(self) -> None:
        identity = self.session.identity
        lines = ["<b>cuzk</b>: runs Groth16 provers and shows what they do.", "Apache License 2.0"]
        if identity is not None:
            lines.append(f"Engine {words.plain(identity.version, 40)}, build {words.plain(identity.build, 64)}")
        box = QMessageBox(
            QMessageBox.Icon.NoIcon, "About cuzk", "<br>".join(lines), QMessageBox.StandardButton.Ok, self
        )
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()

    def _choose_theme(self, choice: ThemeChoice) -> None:
        self.preferences.theme = choice
        self.theme.choose(choice)

    def _choose_closing(self, choice: OnClose) -> None:
        self.preferences.on_close = choice

    def _restyle(self) -> None:
        self.charts.restyle()
        self.log.rebuild()
        self._seen_session = -1

    def _restore(self) -> None:
        self.resize(1500, 900)
        self.menu.show_choices(self.preferences.theme, self.preferences.on_close)
        geometry = self.preferences.state("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)
        left, right = min(max(self.width() * 0.215, 290), 330), min(max(self.width() * 0.19, 225), 300)
        self.columns.setSizes([round(left), round(self.width() - left - right), round(right)])
        self.left.setSizes([560, 260])
        self.centre.setSizes([700, 150])
        for name, splitter in self._splitters():
            state = self.preferences.state(name)
            if state is not None:
                splitter.restoreState(state)

    def _splitters(self) -> tuple[tuple[str, QSplitter], ...]:
        return (
            ("columns", self.columns),
            ("centre", self.centre),
            ("left", self.left),
            ("charts", self.charts.splitter),
        )

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
        counts = self.session.jobs.counts()
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
        for name, splitter in self._splitters():
            self.preferences.set_state(name, splitter.saveState())
        self.preferences.save()
        self.hide()
        if choice is OnClose.STOP:
            self.controller.shut_down_engine(0.6)
        self.clean_end = self.controller.close(0.8)
        self.theme.changed.disconnect(self._restyle)
        self.close()
        self.ended.emit()
