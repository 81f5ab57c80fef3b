"""How long the window's thread ever stands still while telemetry streams, and what a frame costs.

    .venv/bin/python benchmarks/gui_stall.py [--engine real|fake] [--seconds 15] [--kernels 40]

A timer of 5 ms notes the gaps between its own ticks: the largest one is the longest stall. ``fake`` sends synthetic
proofs (``--kernels``
times 16 kernels each, two workers); ``real`` starts an engine of its own and proves the demo circuit over and over.
Prints one JSON object.
``longest_work_ms`` is the most processor time that the window's thread took between two ticks: what the stall would
be on a machine with
nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
from PySide6.QtCore import QElapsedTimer, Qt, QTimer
from PySide6.QtWidgets import QApplication

from cuzk_engine.client import ProcessState
from cuzk_gui.demo import OwnEngine, free_port, own_home
from cuzk_gui.engine import Engine
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.window import MainWindow
from tests.gui.fakes import FakeEngine, Prover

_WARM_UP_S = 2.0


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("real", "fake"), default="fake")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kernels", type=int, default=40)
    arguments = parser.parse_args()
    sys.setswitchinterval(0.001)  # as the window's own main does
    app = QApplication(["gui_stall"])
    with own_home() as home, _engine(arguments.engine, arguments.kernels) as engine:
        result = _measure(app, engine, home, arguments)
    print(json.dumps(result, indent=2))
    return 0 if result["longest_stall_ms"] <= 50 else 1


def _measure(app: QApplication, engine: Engine, home: Path, arguments: argparse.Namespace) -> dict[str, object]:
    window = MainWindow(engine, Theme(app, ThemeChoice.DARK), Preferences(home / "w.ini"))
    window.resize(1600, 1000)
    window.show()
    gaps: list[float] = []
    work: list[float] = []
    cpu_at = [0.0]
    clock = QElapsedTimer()
    clock.start()
    begin = time.monotonic()
    process = psutil.Process()
    cpu_before = process.cpu_times()

    def beat() -> None:
        gap = clock.nsecsElapsed() / 1e6
        clock.restart()
        now = time.thread_time()
        if time.monotonic() - begin > _WARM_UP_S:
            gaps.append(gap)
            work.append((now - cpu_at[0]) * 1e3)
        cpu_at[0] = now

    heart = QTimer()
    heart.setTimerType(Qt.TimerType.PreciseTimer)
    heart.timeout.connect(beat)
    heart.start(5)
    again = QTimer()
    if arguments.engine == "real":

        def hand_in() -> None:
            if window.controller.engine.appearance.prove and not window.session.jobs.active:
                window.prove_demo()

        again.timeout.connect(hand_in)
        again.start(100)
    QTimer.singleShot(round((arguments.seconds + _WARM_UP_S) * 1000), lambda: app.exit(0))
    app.exec()
    heart.stop()
    again.stop()
    cpu = process.cpu_times()
    frames = _frame_times(window)
    rectangles = {chart.title: chart.batch.painted for chart in window.charts.charts}
    spans = {
        lane: len(track.rows) for timeline in window.session.devices.values() for lane, track in timeline.tracks.items()
    }
    model_mib = window.session.nbytes / 2**20
    window.close_quietly()
    seconds = time.monotonic() - begin
    return {
        "engine": arguments.engine,
        "cores": psutil.cpu_count(),
        "longest_stall_ms": round(max(gaps), 1),
        "longest_work_ms": round(max(work), 1),
        "load_average": round(os.getloadavg()[0], 1),
        "p99_gap_ms": round(float(np.percentile(gaps, 99)), 1),
        "frame_ms": {"median": round(float(np.median(frames)), 2), "largest": round(max(frames), 2)},
        "process_cpu_share_of_one_core": round(
            (cpu.user + cpu.system - cpu_before.user - cpu_before.system) / seconds, 3
        ),
        "rectangles_in_the_last_frame": rectangles,
        "spans_kept": spans,
        "model_mib": round(model_mib, 1),
    }


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
