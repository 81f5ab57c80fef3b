"""Threads of a round: all results, the first error, and an end at once on an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuzk_engine.bench.crew import Crew
from cuzk_engine.bench.interruption import InterruptedRunError, Interruption

ROOT = Path(__file__).resolve().parents[2]


def nothing() -> None:
    pass


def test_every_item_is_worked_once_by_so_many_threads() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(item: int, number: int) -> tuple[int, int]:
        if item < 3:
            together.wait()  # three at once, or this fails
        return item, number

    results = Crew(3, work, nothing, Interruption()).run(range(50))
    assert sorted(item for item, _ in results) == list(range(50))
    assert {number for _, number in results} <= {0, 1, 2}


def test_the_first_error_ends_it_and_is_told() -> None:
    stopped = threading.Event()

    def work(item: int, number: int) -> int:
        if item == 0:
            raise ValueError("bad item")
        assert stopped.wait(10)
        raise ValueError("told to stop")

    with pytest.raises(ValueError, match="bad item"):
        Crew(2, work, stopped.set, Interruption()).run(range(100))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_work_and_leaves_no_thread(number: signal.Signals) -> None:
    stopped, begun = threading.Event(), threading.Event()
    seen: list[int] = []

    def work(item: int, thread: int) -> int:
        seen.append(item)
        if not begun.is_set():
            begun.set()
            signal.raise_signal(number)  # handled by the main thread, which waits, or still starts threads
            signal.raise_signal(number)
        assert stopped.wait(10)
        return item

    before, handler = threading.active_count(), signal.getsignal(number)
    with Interruption() as interruption:
        with pytest.raises(InterruptedRunError) as interrupted:
            Crew(2, work, stopped.set, interruption).run(range(100))
        assert interrupted.value.number == number
        with pytest.raises(InterruptedRunError):
            interruption.check()
        with pytest.raises(InterruptedRunError):  # nothing begins any more
            Crew(2, work, stopped.set, interruption).run(range(100))
    assert threading.active_count() == before
    assert signal.getsignal(number) is handler
    assert len(seen) <= 4


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGINT)
            interruption.check()
            assert Crew(2, lambda item, thread: item, nothing, interruption).run(range(3))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_third_signal_ends_the_process() -> None:
    code = (
        "import signal\nfrom cuzk_engine.bench.interruption import Interruption\n"
        "with Interruption() as one:\n    [signal.raise_signal(signal.SIGTERM) for _ in range(3)]\n    print('here')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stdout, result.stderr) == (143, b"", b"")
