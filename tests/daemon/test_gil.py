"""The share of time for which the interpreter lock is held."""

from __future__ import annotations

import threading
import time

import pytest

from cuzk_engine.daemon.gil import GilCounts, GilWatch
from cuzk_engine.native import library


def share_while(work: str) -> float:
    """Measured while another thread counts in Python, or sleeps in native code."""
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            sum(range(1000))

    def sleep() -> None:
        while not stop.is_set():
            library().sleep(20_000)

    watch = GilWatch()
    other = threading.Thread(target=count if work == "python" else sleep)
    watch.start()
    time.sleep(0.6)  # in which it learns what a free lock costs
    other.start()
    watch.resume()
    samples = held = 0
    try:
        while samples < 100:
            time.sleep(0.05)
            more, found = watch.take()
            samples, held = samples + more, held + found
    finally:
        stop.set()
        other.join()
        watch.stop()
    return held / samples


def test_a_thread_of_python_holds_it_and_a_native_one_does_not() -> None:
    assert share_while("python") > 0.5 > share_while("native")


def test_nothing_is_looked_at_while_paused() -> None:
    watch = GilWatch()
    watch.start()
    assert watch.take() == (0, 0)
    watch.stop()
    assert watch.take()[0] <= 1


def test_a_native_sleep_tells_when_it_ended() -> None:
    before = time.monotonic_ns()
    woke = library().sleep(2_000)
    assert before + 2_000_000 <= woke <= time.monotonic_ns()


@pytest.mark.parametrize(("samples", "held", "ratio"), [(0, 0, 0.0), (10, 1, 0.1)])
def test_counts(samples: int, held: int, ratio: float) -> None:
    counts = GilCounts()
    counts.add(5, 5)
    counts.add(samples, held)
    assert (counts.samples, counts.held, counts.ratio) == (samples + 5, held + 5, ratio)
