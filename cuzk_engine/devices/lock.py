"""The compute lock of a device: one partition's kernels at a time, first come, first served, cancellable, and seen on
lane ``lock``."""

from __future__ import annotations

import threading
import time
from collections import deque

from cuzk_engine.devices.base import CancelToken, EventSink, Owner
from cuzk_engine.events import Kind, Lane, Span


class Hold:
    """See `ComputeLock.hold`."""

    __slots__ = ("_cancel", "_lock", "_owner", "_taken", "_ticket")

    def __init__(self, lock: ComputeLock, owner: Owner, cancel: CancelToken) -> None:
        self._lock, self._owner, self._cancel = lock, owner, cancel

    def __enter__(self) -> None:
        self._ticket, self._taken = self._lock.take(self._owner, self._cancel)

    def __exit__(self, *exc: object) -> None:
        self._lock.give(self._ticket, self._taken, self._owner)


class ComputeLock:
    """Not re-entrant. Every ``hold`` emits a lock.wait and a lock.held span; a cancelled wait only the former."""

    def __init__(self, device: str, sink: EventSink | None = None) -> None:
        self._device = device
        self._sink = sink
        self._lock = threading.RLock()  # quicker to take than the condition around it
        self._changed = threading.Condition(self._lock)
        self._queue: deque[object] = deque()  # the first one holds the lock

    def hold(self, owner: Owner, cancel: CancelToken) -> Hold:
        """For a block."""
        return Hold(self, owner, cancel)

    def take(self, owner: Owner, cancel: CancelToken) -> tuple[object, int]:
        """What `hold` begins with: a ticket, and since when the lock is held."""
        ticket, asked = object(), time.monotonic_ns()
        with self._lock:
            self._queue.append(ticket)
        try:
            self._wait(ticket, cancel)
        except BaseException:
            self._emit(asked, time.monotonic_ns(), Kind.LOCK_WAIT, owner)
            self._leave(ticket)
            raise
        taken = time.monotonic_ns()
        self._emit(asked, taken, Kind.LOCK_WAIT, owner)
        return ticket, taken

    def give(self, ticket: object, taken: int, owner: Owner) -> None:
        """What it ends with."""
        self._emit(taken, time.monotonic_ns(), Kind.LOCK_HELD, owner)
        self._leave(ticket)

    @property
    def waiting(self) -> int:
        """How many wait for the lock, without the one that holds it."""
        with self._lock:
            return max(0, len(self._queue) - 1)

    def _wait(self, ticket: object, cancel: CancelToken) -> None:
        with self._lock:
            if self._queue[0] is ticket:
                cancel.check()
                return
        unsubscribe = cancel.on_set(self._wake)
        try:
            with self._lock:
                while self._queue[0] is not ticket and not cancel.is_set:
                    self._changed.wait()
        finally:
            unsubscribe()
        cancel.check()

    def _leave(self, ticket: object) -> None:
        with self._lock:
            self._queue.remove(ticket)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._lock:
            self._changed.notify_all()

    def _emit(self, start: int, end: int, kind: Kind, owner: Owner) -> None:
        if self._sink is not None:
            self._sink(Span(start, end, self._device, Lane.LOCK, kind, owner.job, owner.partition, owner.worker))
