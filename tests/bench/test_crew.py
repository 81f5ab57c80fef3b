"""Threads of a round: all results, the first error, and an end at once on an interruption."""

from __future__ import annotations

import signal
import threading

import pytest

from cuzk_engine.bench.crew import Crew


def nothing() -> None:
    pass


def test_every_item_is_worked_once_by_so_many_threads() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(item: int, number: int) -> tuple[int, int]:
        if item < 3:
            together.wait()  # three at once, or this fails
        return item, number

    results = Crew(3, work, nothing).run(range(50))
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
        Crew(2, work, stopped.set).run(range(100))


def test_ctrl_c_stops_the_work_and_leaves_no_thread() -> None:
    stopped, begun = threading.Event(), threading.Event()
    seen: list[int] = []

    def work(item: int, number: int) -> int:
        seen.append(item)
        if not begun.is_set():
            begun.set()
            signal.raise_signal(signal.SIGINT)  # handled by the main thread, which waits
        assert stopped.wait(10)
        return item

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        Crew(2, work, stopped.set).run(range(100))
    assert threading.active_count() == before
    assert len(seen) <= 4
