"""The window's own memory under an hour of telemetry: the models' arrays never grow, the process hardly."""

import gc
import time

import psutil
import pytest
from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState
from cuzk_engine.events import Mark, Sample
from tests.gui import fakes, prover
from tests.gui.conftest import OpenWindow
from tests.gui.fakes import FakeEngine

SECOND = 1_000_000_000
PER_HOUR_MIB = 8.0
"""What an hour may add once the first part has filled caches: names, log lines and jobs fill up to their bounds."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_hour_of_telemetry_does_not_grow_the_window(open_window: OpenWindow, qtbot: QtBot) -> None:
    engine = FakeEngine(ProcessState.READY)
    window = open_window(engine)
    qtbot.waitUntil(lambda: window.session.identity is not None, timeout=8000)
    begin = time.monotonic_ns()
    process = psutil.Process()

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            start = begin + number * 2 * SECOND
            events = prover.proof_events(start, 2 * SECOND, number % 2, f"job-{number % 50}", scale=4)
            events.allocations.sort(key=lambda a: a.time_ns)
            events.samples += [Sample(start + i * SECOND // 2, "cpu", memory_other=1 << 30) for i in range(4)]
            events.marks.append(Mark(start, "setting", f"mark {number % 20}"))
            engine.push(fakes.update(start + 2 * SECOND, events, jobs=[fakes.job(f"job-{number % 50}")]))
            if number % 20 == 19:
                target = start + 2 * SECOND
                qtbot.waitUntil(lambda target=target: window.session.latest_ns >= target, timeout=20_000)
                window.grab()

    def measure() -> tuple[int, float]:
        gc.collect()
        return window.session.nbytes, process.memory_info().rss / 2**20

    send(0, 900)
    arrays, resident = measure()
    send(900, 1800)
    arrays_after, resident_after = measure()
    assert arrays_after == arrays
    assert resident_after - resident < PER_HOUR_MIB / 2
