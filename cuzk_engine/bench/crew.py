"""Threads that work off one list, until it is empty, one of them fails, or the run is interrupted."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from cuzk_engine.bench.interruption import InterruptedRunError, Interruption

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_SECONDS: Final = 0.1
_ENDED: Final = "ended"
_INTERRUPTED: Final = "interrupted"


class Crew(Generic[Item, Result]):
    """``work(item, number of the thread)`` for each item, ``size`` at a time. The first error ends it all."""

    def __init__(
        self, size: int, work: Callable[[Item, int], Result], stop: Callable[[], None], interruption: Interruption
    ) -> None:
        """``stop`` makes calls of ``work`` that still run end soon; it may be called more than once."""
        self._size, self._work, self._stop, self._interruption = size, work, stop, interruption
        self._todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
        # Its `put` may be called by a signal handler, whatever the thread that it interrupts does.
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def run(self, items: Iterable[Item]) -> list[Result]:
        """The results, in the order in which they came. Whatever happens, no thread runs any more afterwards.

        Raises what the first call of ``work`` that failed raised, or InterruptedRunError.
        """
        self._interruption.check()
        for item in items:
            self._todo.put(item)
        threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"bench {number}") for number in range(self._size)
        ]
        with self._interruption.calls(lambda: self._inbox.put(_INTERRUPTED)):
            for thread in threads:
                thread.start()
            running = len(threads)
            while running:
                with contextlib.suppress(queue.Empty):
                    # A signal that comes just before a thread falls asleep, or to another thread, does not wake it.
                    if self._inbox.get(timeout=_LOOK_SECONDS) == _ENDED:
                        running -= 1
                    else:
                        self._fail(InterruptedRunError(self._interruption.number or 0))
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
            self._inbox.put(_ENDED)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        self._stop()
