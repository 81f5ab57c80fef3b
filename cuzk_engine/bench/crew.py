"""Threads that work off one list; the calling thread waits so that Ctrl-C reaches it at once."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Crew(Generic[Item, Result]):
    """``work(item, number of the thread)`` for each item, ``size`` at a time. The first error ends it all."""

    def __init__(self, size: int, work: Callable[[Item, int], Result], stop: Callable[[], None]) -> None:
        """``stop`` makes calls of ``work`` that still run end soon; it may be called more than once."""
        self._size, self._work, self._stop = size, work, stop
        self._todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._running = size
        # Not Thread.join, which CPython 3.11 and 3.12 leave in a wrong state when a signal interrupts it.
        self._all_ended = threading.Event()

    def run(self, items: Iterable[Item]) -> list[Result]:
        """The results, in the order in which they came. Whatever happens, no thread runs any more afterwards."""
        for item in items:
            self._todo.put(item)
        threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"bench {number}") for number in range(self._size)
        ]
        try:
            with uninterrupted():
                for thread in threads:
                    thread.start()
            self._all_ended.wait()
        except BaseException as interruption:
            self._fail(interruption)
            self._all_ended.wait()
            raise
        finally:
            if self._all_ended.is_set():
                for thread in threads:
                    thread.join()
        if self._error is not None:
            raise self._error
        return self._results

    def _serve(self, number: int) -> None:
        try:
            with contextlib.suppress(queue.Empty):
                while self._error is None:
                    result = self._work(self._todo.get_nowait(), number)
                    with self._lock:
                        self._results.append(result)
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._all_ended.set()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        self._stop()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come within the block are acted on at its end: what is in it must not be done by half."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before: dict[int, Any] = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(caught):
            signal.raise_signal(number)
