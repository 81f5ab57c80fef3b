"""The demo without a display: a real proof through the real window, which nobody sees, and a picture of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from cuzk_engine.client import (
    CuzkError,
    DaemonStatus,
    ProcessState,
    ProofResult,
    daemon_status,
    start_daemon,
    stop_daemon,
)
from cuzk_gui.engine import LocalEngine
from cuzk_gui.files import save_proof
from cuzk_gui.models import jobs as job_words
from cuzk_gui.models import words
from cuzk_gui.models.process import Tone
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.window import MainWindow

_TIMEOUT_S: Final = 120.0
_PICTURE: Final = (1600, 1000)
_SETTLE_MS: Final = 900  # for the last telemetry after the proof


class OwnEngine(LocalEngine):
    """An engine of the demo's own, at a free port."""

    def __init__(self, address: str) -> None:
        self._address = address

    def status(self) -> DaemonStatus:
        return daemon_status(self._address)

    def start(self) -> DaemonStatus:
        return start_daemon(started_by="window", listen=self._address)

    def stop(self) -> DaemonStatus:
        return stop_daemon(address=self._address)


@dataclass(slots=True)
class _Outcome:
    files: tuple[Path, ...] = ()
    said: str = ""
    error: str = ""


class _Interruption:
    """SIGINT and SIGTERM while the demo runs: ``end`` ends it in Qt's loop, before and after that they are only noted,
    so that an engine of its own is never left behind. ``came``: the signal's number, 0 for none."""

    def __init__(self) -> None:
        self.came = 0
        self.end: Callable[[], None] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = number
        if self.end is not None:
            self.end()


@contextlib.contextmanager
def _interruptible() -> Iterator[_Interruption]:
    interruption = _Interruption()
    before = {number: signal.signal(number, interruption) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prove_demo(folder: Path) -> int:
    """Proves the demo circuit with the engine that runs, else with one of its own that it stops again; leaves
    proof.json, public.json and window.png in ``folder``. Returns the exit code."""
    with _interruptible() as interruption:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            outcome = _run(folder, interruption)
        except (CuzkError, OSError) as error:
            outcome = _Outcome(error=str(error))
    if interruption.came:
        return 128 + interruption.came
    if outcome.error:
        print(f"cuzk: error: {outcome.error}", file=sys.stderr)
        return 1
    print(f"cuzk: {outcome.said}")
    for file in outcome.files:
        print(f"cuzk: left {file}")
    return 0


def _run(folder: Path, interruption: _Interruption) -> _Outcome:
    running = daemon_status()
    if running.state is ProcessState.READY:
        return _with_engine(LocalEngine(), folder, interruption)
    with own_home():
        address = f"127.0.0.1:{free_port()}"
        engine = OwnEngine(address)
        print(f"cuzk: starting an engine at {address}", flush=True)
        engine.start()
        try:
            return _with_engine(engine, folder, interruption)
        finally:
            print(f"cuzk: {engine.stop().message}", flush=True)


def _with_engine(engine: LocalEngine, folder: Path, interruption: _Interruption) -> _Outcome:
    app = QApplication.instance()
    app = app if isinstance(app, QApplication) else QApplication(["cuzk"])
    outcome = _Outcome()
    window = MainWindow(engine, Theme(app, ThemeChoice.DARK), Preferences(folder / ".window.ini"))
    if window.proofs.demo is None:
        return _Outcome(error="the demo circuit is not there: the installation lacks assets/demo")
    window.ended.connect(lambda: app.exit(0))
    window.resize(*_PICTURE)
    window.live.set_sizes(window.width())
    window.show()
    control = window.controller
    wait_ready = QTimer()
    deadline = QTimer()

    def end(error: str = "") -> None:
        outcome.error = outcome.error or error
        wait_ready.stop()
        deadline.stop()
        window.close_quietly()

    def hand_in_when_ready() -> None:
        if window.session.identity is not None and control.engine.appearance.prove:
            wait_ready.stop()
            window.proofs.prove_demo()

    def proved(job_id: str) -> None:
        control.fetch(job_id, lambda proof: fetched(job_id, proof), end)

    def fetched(job_id: str, proof: ProofResult) -> None:
        try:
            outcome.files = save_proof(folder, proof)
        except OSError as error:
            end(f"the proof was not saved: {error}")
            return
        job = window.session.jobs.get(job_id)
        if job is not None:
            took = words.duration(job_words.elapsed_ns(job, time.time_ns()))
            name = window.proofs.demo.name if window.proofs.demo else "demo"
            outcome.said = f"{name}: proved in {took}, {job_words.progress_text(job)}"
        QTimer.singleShot(_SETTLE_MS, picture)

    def picture() -> None:
        first, last = _proof_in_time(window)
        window.scene.view.show(first - (last - first) * 0.06, last + (last - first) * 0.06)
        window.notice.hide()
        window.tick()
        app.processEvents()
        file = folder / "window.png"
        if not window.grab().save(str(file)):
            end(f"{file} could not be written")
            return
        outcome.files = (*outcome.files, file)
        end()

    def noticed(text: str, tone: Tone) -> None:
        if tone is Tone.BAD and not outcome.files:
            end(text)

    control.completed.connect(proved)
    control.noticed.connect(noticed)
    wait_ready.timeout.connect(hand_in_when_ready)
    wait_ready.start(50)
    deadline.setSingleShot(True)
    deadline.timeout.connect(lambda: end(f"the demo proof did not end within {_TIMEOUT_S:.0f} s"))
    deadline.start(round(_TIMEOUT_S * 1000))
    interruption.end = lambda: QTimer.singleShot(0, end)  # in the loop, which may be about to begin
    if interruption.came:
        interruption.end()
    app.exec()
    interruption.end = None
    with contextlib.suppress(OSError):
        (folder / ".window.ini").unlink()
    return outcome


def _proof_in_time(window: MainWindow) -> tuple[float, float]:
    """Seconds on the axis from the first to the last span."""
    rows = [track.rows for d in window.session.devices.values() for track in d.tracks.values() if len(track.rows)]
    if not rows:
        return window.scene.view.start, window.scene.view.end
    first, last = min(int(r["start"][0]) for r in rows), max(int(r["reach"][-1]) for r in rows)
    return window.session.seconds(first), window.session.seconds(last)


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    """A CUZK_HOME for the time of the demo: nothing of the user's is touched, nothing is left behind."""
    before = os.environ.get("CUZK_HOME")
    home = Path(tempfile.mkdtemp(prefix="cuzk-demo-"))
    os.environ["CUZK_HOME"] = str(home)
    try:
        yield home
    finally:
        if before is None:
            os.environ.pop("CUZK_HOME", None)
        else:
            os.environ["CUZK_HOME"] = before
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
