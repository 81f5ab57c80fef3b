"""The compute lock of a device: one partition's kernels at a time, first come, first served, cancellable, and seen on
lane ``lock``."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from cuzk_engine.devices.base import CancelToken, EventSink, Owner
from cuzk_engine.events import Kind, Lane, Span


class ComputeLock:
    """Not re-entrant. Every ``hold`` emits a lock.wait and a lock.held span; a cancelled wait only the former."""

    def __init__(self, device: str, sink: EventSink | None = None) -> None:
        self._device = device
        self._sink = sink
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()  # the first one holds the lock

    @contextmanager
    def hold(self, owner: Owner, cancel: CancelToken) -> Iterator[None]:
        ticket = object()
        asked = time.monotonic_ns()
        taken: int | None = None
        with self._changed:
            self._queue.append(ticket)
        try:
            self._wait(ticket, cancel)
            taken = time.monotonic_ns()
            self._emit(asked, taken, Kind.LOCK_WAIT, owner)
            yield
        finally:
            now = time.monotonic_ns()
            if taken is None:
                self._emit(asked, now, Kind.LOCK_WAIT, owner)
            else:
                self._emit(taken, now, Kind.LOCK_HELD, owner)
            with self._changed:
                self._queue.remove(ticket)
                self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many wait for the lock, without the one that holds it."""
        with self._changed:
            return max(0, len(self._queue) - 1)

    def _wait(self, ticket: object, cancel: CancelToken) -> None:
        unsubscribe = cancel.on_set(self._wake)
        try:
            with self._changed:
                while self._queue[0] is not ticket and not cancel.is_set:
                    self._changed.wait()
        finally:
            unsubscribe()
        cancel.check()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _emit(self, start: int, end: int, kind: Kind, owner: Owner) -> None:
        if self._sink is not None:
            self._sink(Span(start, end, self._device, Lane.LOCK, kind, owner.job, owner.partition, owner.worker))
