"""How long the window's thread ever stands still, what of that is its own work, and what a frame costs.

    .venv/bin/python benchmarks/gui_stall.py [--engine real|fake] [--seconds 15] [--kernels 40] [--recording 200000]

First telemetry streams: ``fake`` sends synthetic proofs (``--kernels`` times 16 kernels each, two workers); ``real``
starts an engine of its own and proves the demo circuit over and over. Then a recording of ``--recording`` spans is
opened, read to its end, scrolled through and closed; 0 leaves that out.

A timer of 5 ms notes the gaps between its own ticks: the largest one is the longest stall. ``longest_work_ms`` is the
most processor time that the window's thread took between two ticks: what the stall would be on a machine with nothing
else to do. ``work_in_the_longest_stall_ms`` tells whose fault that one was. ``longest_without_queue_ms`` is the longest
gap less what the thread waited for a processor core in it, which is other programs' doing: work, and waits for the
interpreter's lock. Prints one JSON object; the exit code is 0 when no stall was longer than 50 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
from PySide6.QtCore import QElapsedTimer, Qt, QTimer
from PySide6.QtWidgets import QApplication

from cuzk_engine.client import ProcessState
from cuzk_engine.events import Sample
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.writer import RecordingWriter
from cuzk_engine.telemetry.columns import encode_events
from cuzk_gui.demo import OwnEngine, free_port, own_home
from cuzk_gui.engine import Engine
from cuzk_gui.main import keep_pauses_short
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.window import MainWindow
from tests.gui.fakes import FakeEngine
from tests.gui.prover import Prover, proof_events

_WARM_UP_S = 2.0
_OPEN_S = 120.0
_LONGEST_MS = 50
_SECOND = 1_000_000_000


class Heart:
    """Beats every 5 ms on the window's thread; keeps how late each beat was and the thread's work before it."""

    def __init__(self) -> None:
        self._gaps: list[float] = []
        self._work: list[float] = []
        self._queued: list[float] = []
        self._scheduler = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115 - closed by stop
        self._waited = self._queue_ns()
        self._clock = QElapsedTimer()
        self._worked = time.thread_time()
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)
        self._clock.start()
        self._timer.start(5)

    def _beat(self) -> None:
        now = time.thread_time()
        self._gaps.append(self._clock.nsecsElapsed() / 1e6)
        self._work.append((now - self._worked) * 1e3)
        waited = self._queue_ns()
        self._queued.append((waited - self._waited) / 1e6)
        self._clock.restart()
        self._worked, self._waited = time.thread_time(), waited

    def _queue_ns(self) -> int:
        """How long this thread has been ready to run without a core."""
        self._scheduler.seek(0)
        return int(self._scheduler.read().split()[1])

    def begin(self) -> None:
        self._gaps.clear()
        self._work.clear()
        self._queued.clear()

    def report(self) -> dict[str, float]:
        gaps, work, queued = np.array(self._gaps), np.array(self._work), np.array(self._queued)
        return {
            "longest_stall_ms": round(float(gaps.max()), 1),
            "work_in_the_longest_stall_ms": round(float(work[gaps.argmax()]), 1),
            "longest_work_ms": round(float(work.max()), 1),
            "longest_without_queue_ms": round(float((gaps - queued).max()), 1),
            "p99_gap_ms": round(float(np.percentile(gaps, 99)), 1),
            "p99_work_ms": round(float(np.percentile(work, 99)), 1),
        }

    def stop(self) -> None:
        self._timer.stop()
        self._scheduler.close()


@contextlib.contextmanager
def _engine(kind: str, kernels: int) -> Iterator[Engine]:
    if kind == "real":
        with own_home():
            real = OwnEngine(f"127.0.0.1:{free_port()}")
            real.start()
            try:
                yield real
            finally:
                real.stop()
        return
    fake = FakeEngine(ProcessState.READY)
    prover = Prover(fake, proof_s=0.8, scale=kernels, back_s=20)
    prover.start()
    try:
        yield fake
    finally:
        prover.stop()
        fake.set_state(ProcessState.STOPPED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("real", "fake"), default="fake")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--recording", type=int, default=200_000, metavar="SPANS")
    arguments = parser.parse_args()
    app = QApplication(["gui_stall"])
    with own_home() as home, _engine(arguments.engine, arguments.kernels) as engine:
        file = home / "large.cuzkrec"
        if arguments.recording:
            write_recording(file, arguments.recording)
        window = MainWindow(engine, Theme(app, ThemeChoice.DARK), Preferences(home / "w.ini"))
        window.resize(1600, 1000)
        window.show()
        keep_pauses_short()
        heart = Heart()
        result = {"engine": arguments.engine, "cores": psutil.cpu_count()}
        result |= _stream(window, heart, arguments)
        if arguments.recording:
            result["recording"] = _open(window, heart, file)
        result["load_average"] = round(os.getloadavg()[0], 1)
        heart.stop()
        window.close_quietly()
    print(json.dumps(result, indent=2))
    stalls = [part["longest_stall_ms"] for part in (result, result.get("recording")) if part]
    return 0 if max(stalls) <= _LONGEST_MS else 1


def _stream(window: MainWindow, heart: Heart, arguments: argparse.Namespace) -> dict[str, object]:
    process = psutil.Process()
    again = QTimer()
    if arguments.engine == "real":

        def hand_in() -> None:
            if window.controller.engine.appearance.prove and not window.session.jobs.active:
                window.proofs.prove_demo()

        again.timeout.connect(hand_in)
        again.start(100)
    _run_for(_WARM_UP_S)
    heart.begin()
    begin, before = time.monotonic(), process.cpu_times()
    _run_for(arguments.seconds)
    cpu, seconds, beats = process.cpu_times(), time.monotonic() - begin, heart.report()
    again.stop()
    frames = _frame_times(window)
    return {
        **beats,
        "frame_ms": {"median": round(float(np.median(frames)), 2), "largest": round(max(frames), 2)},
        "process_cpu_share_of_one_core": round((cpu.user + cpu.system - before.user - before.system) / seconds, 3),
        "rectangles_in_the_last_frame": {chart.title: chart.batch.painted for chart in window.charts.charts},
        "spans_kept": {
            lane: len(track.rows)
            for timeline in window.session.devices.values()
            for lane, track in timeline.tracks.items()
        },
        "model_mib": round(window.session.nbytes / 2**20, 1),
    }


def _open(window: MainWindow, heart: Heart, file: Path) -> dict[str, object]:
    """Opens a recording, reads it to its end, looks at parts of it and goes back to the engine."""
    heart.begin()
    begin = time.monotonic()
    window.recordings.open(str(file))
    opened = window.recording
    assert opened is not None
    _run_until(lambda: opened.is_ready)
    shown_after = time.monotonic() - begin
    _run_until(lambda: opened.feed.done)
    read_after = time.monotonic() - begin
    _run_for(0.5)
    for _ in range(30):
        window.scene.view.zoom(0.8)
        window.scene.view.pan(window.scene.view.width * 0.1)
        _run_for(0.04)
    rows = {lane: len(track.rows) for lane, track in window.session.devices["cuda:0"].tracks.items()}
    window.recordings.close()
    _run_for(0.5)
    beats = heart.report()
    return {
        "spans": rows,
        "file_mib": round(file.stat().st_size / 2**20, 1),
        "shown_after_s": round(shown_after, 2),
        "read_after_s": round(read_after, 2),
        **beats,
    }


def write_recording(path: Path, spans: int) -> None:
    """A recording of one GPU with two workers, 640 kernels a partition, as `cuzk record` writes it."""
    begin, length, wall = 5_000 * _SECOND, 800_000_000, 1_790_000_000 * _SECOND
    device = pb.DeviceInfo(id="cuda:0", name="NVIDIA H200", kind="cuda", capacity=150 << 30, state="ready", workers=2)
    with RecordingWriter(path, address="gpu-node:9820") as writer:
        head = pb.TelemetryBatch(time_ns=begin, wall_ns=wall + begin, memory_is_set=True)
        head.identity.CopyFrom(pb.Identity(build="77c1e4a0b2", version="1", state="ready", devices=[device]))
        writer.add(head)
        written = number = 0
        while written < spans:
            at = begin + number * length // 2
            events = proof_events(at, length, number % 2, f"job-{number}", "cuda:0", scale=40)
            events.samples.append(Sample(at, "cuda:0", memory_used=60 << 30, memory_other=1 << 30, utilisation=0.9))
            written += len(events.spans)
            number += 1
            batch = encode_events(events)
            batch.time_ns = at + length
            batch.wall_ns = wall + batch.time_ns
            writer.add(batch)


def _run_for(seconds: float) -> None:
    QTimer.singleShot(round(seconds * 1000), lambda: QApplication.exit(0))
    QApplication.exec()


def _run_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + _OPEN_S
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"not done after {_OPEN_S:.0f} s")
        _run_for(0.02)


def _frame_times(window: MainWindow, count: int = 60) -> list[float]:
    """Milliseconds of a whole frame: taking in, layout, and painting all charts."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        window.session.version += 1
        window.tick()
        for chart in window.charts.charts:
            chart.plot.repaint()
        found.append((time.perf_counter() - start) * 1e3)
        QApplication.processEvents()
    return found


if __name__ == "__main__":
    sys.exit(main())
