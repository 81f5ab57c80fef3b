"""The share of time for which the interpreter lock is held."""

from __future__ import annotations

import ctypes
import threading
import time

from cuzk_engine.daemon.gil import RECENT, GilCounts, GilWatch
from cuzk_engine.native import library

HOLDING = ctypes.PyDLL(None)  # its calls keep the lock
RELEASING = ctypes.CDLL(None)


def share_while(held_us: int, free_us: int) -> float:
    """Measured while another thread keeps the lock for so long and then does without it, in turn."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            HOLDING.usleep(held_us)
            RELEASING.usleep(free_us)

    watch = GilWatch()
    other = threading.Thread(target=work)
    watch.start()
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


def test_the_share_is_that_of_the_time() -> None:
    """Wide bounds: a sleep takes longer than it says, and much so on a busy machine."""
    assert share_while(20_000, 1) > 0.8
    assert 0.15 < share_while(3_000, 6_000) < 0.7
    assert share_while(1, 20_000) < 0.3


def test_a_free_lock_is_never_waited_for() -> None:
    """Though taking it takes long when the processor slept or did other things before."""
    assert not any(library().has_to_wait(2_000) for _ in range(50))


def test_nothing_is_looked_at_while_paused() -> None:
    watch = GilWatch()
    watch.start()
    assert watch.take() == (0, 0)
    watch.stop()
    assert watch.take()[0] <= 1


def test_counts() -> None:
    counts = GilCounts()
    assert (counts.samples, counts.held, counts.ratio) == (0, 0, 0.0)
    counts.add(10, 5)
    counts.add(90, 0)
    assert (counts.samples, counts.held, counts.ratio) == (100, 5, 0.05)


def test_the_ratio_is_of_the_last_looks_with_work_however_few_a_report_has() -> None:
    counts = GilCounts()
    counts.add(RECENT, RECENT)
    counts.add(RECENT - 1, 0)
    assert counts.ratio == RECENT / (2 * RECENT - 1)  # the last report alone has too few
    counts.add(1, 1)
    assert (counts.samples, counts.held, counts.ratio) == (2 * RECENT, RECENT + 1, 1 / RECENT)
