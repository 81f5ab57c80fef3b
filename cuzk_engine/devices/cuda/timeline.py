"""Spans with the device's own time stamps, on the host's monotonic clock, and events to wait for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import cupy

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.events import Kind, Lane, Span

_CALIBRATION_LIFE_NS: Final = 10_000_000_000  # elapsed times are 32-bit floats: 1 µs of resolution after 10 s
_TRIES: Final = 3
_SUMS: Final = 0  # the queue of MSMs, which run on many streams

Times = tuple[tuple[int, int, str], ...]
"""Spans as the numbers of the events that they lie between, and their kinds."""


class Events:
    """Events that can be timed, to be used again: making one takes as long as a launch. ``block``: who waits for one
    sleeps."""

    def __init__(self, block: bool = False) -> None:
        self._block = block
        self._free: list[Any] = []

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(self._free.pop())  # another thread may have been faster
            except IndexError:
                found.append(cupy.cuda.Event(block=self._block))
        return found

    def give_back(self, events: Sequence[Any]) -> None:
        """Nobody reads their times or waits for them any more."""
        self._free += events


@dataclass(frozen=True, eq=False, slots=True)
class _Pending:
    """Spans between ``events``, which are over with ``end``. ``kept``: what must live until then; ``lent``: events to
    be used again then."""

    events: Sequence[Any]
    times: Times
    end: Any
    lane: Lane
    owner: Owner
    nbytes: int = 0
    pinned: bool | None = None
    kept: object = None
    lent: Sequence[Any] = ()


class Timeline:
    """The spans of one device that are not yet over. Any thread may call; the device must be the current one.

    They stand in queues, one a stream, in about the order in which they will be over, so that few events have to be
    looked at."""

    def __init__(self, device: str, sink: EventSink | None) -> None:
        self._device, self._sink = device, sink
        self.events, self.ends = Events(), Events(block=True)
        self._lock = threading.Lock()
        self._queues: dict[int, deque[_Pending]] = {}
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._base: tuple[Any, int] = None, 0
        self._calibrate()

    @property
    def pending(self) -> list[_Pending]:
        with self._lock:
            return [one for queue in self._queues.values() for one in queue]

    def _calibrate(self) -> None:
        """A pair of one moment on both clocks, the tightest of a few."""
        best = None
        for _ in range(_TRIES):
            event = cupy.cuda.Event()
            before = time.monotonic_ns()
            event.record(self._stream)
            event.synchronize()
            after = time.monotonic_ns()
            if best is None or after - before < best:
                best, self._base = after - before, (event, (before + after) // 2)

    def nanoseconds(self, events: Sequence[Any]) -> list[int]:
        """CLOCK_MONOTONIC when ``events``, which are over, happened."""
        (base, base_ns), elapsed = self._base, cupy.cuda.get_elapsed_time
        return [base_ns + int(elapsed(base, event) * 1e6) for event in events]

    def add(
        self,
        stream: Any,
        begin: Any,
        end: Any,
        lane: Lane,
        kind: str,
        owner: Owner,
        nbytes: int = 0,
        pinned: bool | None = None,
        kept: object = None,
    ) -> None:
        """The time between two events that were recorded on ``stream`` is a span, once they are over. ``begin`` is from
        ``events`` and goes back there."""
        lent = (begin,)
        if self._sink is None and kept is None:
            self.events.give_back(lent)
            return
        times = ((0, 1, kind),)
        self._add(stream.ptr, _Pending((begin, end), times, end, lane, owner, nbytes, pinned, kept, lent))

    def add_sum(self, begin: Any, marks: list[tuple[str, Any]], end: Any, owner: Owner) -> None:
        """The spans of an MSM from what `Msm.play` returned. ``end`` comes after all of the others, which are from
        ``events`` and go back there."""
        lent = [begin, *(event for _, event in marks)]
        if self._sink is None:
            self.events.give_back(lent)
            return
        times = msm_times(tuple(phase for phase, _ in marks))
        self._add(_SUMS, _Pending([*lent, end], times, end, Lane.COMPUTE, owner, lent=lent))

    def _add(self, queue: int, pending: _Pending) -> None:
        with self._lock:
            self._queues.setdefault(queue, deque()).append(pending)

    def tell(self, begin: Any, end: Any, lane: Lane, kind: str, owner: Owner, nbytes: int, pinned: bool | None) -> None:
        """A span that is over. Its events, from ``events`` and ``ends``, go back there."""
        self._emit(_Pending((begin, end), ((0, 1, kind),), end, lane, owner, nbytes, pinned, lent=(begin,)))
        self.ends.give_back((end,))

    def collect(self, known: Any = None) -> None:
        """Emits the spans that are over; those that end with the event ``known`` are."""
        with self._lock:
            over = list(self._over(known))
            if not over:
                return
            if time.monotonic_ns() - self._base[1] > _CALIBRATION_LIFE_NS:
                self._calibrate()
        for one in over:
            self._emit(one)

    def _over(self, known: Any) -> Iterator[_Pending]:
        """Takes them out of the queues."""
        for queue in self._queues.values():
            while queue and (queue[0].end is known or queue[0].end.done):
                yield queue.popleft()
            for one in [one for one in queue if one.end is known]:
                queue.remove(one)
                yield one

    def _emit(self, pending: _Pending) -> None:
        if self._sink is not None:
            at = self.nanoseconds(pending.events)
            owner = pending.owner
            for first, last, kind in pending.times:
                end = at[last]
                begin = min(at[first], end)  # they may lie on two streams: the end can come before the begin
                self._sink(
                    Span(
                        begin, end, self._device, pending.lane, kind, owner.job, owner.partition, owner.worker,
                        pending.nbytes, pending.pinned,
                    )
                )  # fmt: skip
        self.events.give_back(pending.lent)

    def clear(self) -> None:
        """Forgets what is pending: the device is gone."""
        with self._lock:
            self._queues.clear()


class CudaEvent:
    """A recorded event of a device; see DeviceEvent. ``guard`` makes the device the current one and translates its
    errors; ``over`` is called with the event when it is known to have happened."""

    def __init__(
        self,
        event: Any,
        timeline: Timeline,
        guard: AbstractContextManager[None],
        kept: object = None,
        over: Callable[[Any], None] | None = None,
    ) -> None:
        self.event = event
        self._timeline, self._guard, self._kept, self._over = timeline, guard, kept, over

    def wait(self) -> None:
        with self._guard:
            self.event.synchronize()  # without the interpreter lock
            self._end()

    def done(self) -> bool:
        with self._guard:
            over = bool(self.event.done)
            if over:
                self._end()
            return over

    def _end(self) -> None:
        self._timeline.collect(self.event)
        if self._over is not None:
            self._over(self.event)


PHASES: Final = {
    "sort": Kind.MSM_DIGITS,
    "accumulate": Kind.MSM_ACCUMULATE,
    "reduce": Kind.MSM_REDUCE,
    "total": Kind.MSM_REDUCE,
}


@lru_cache(maxsize=256)
def msm_times(phases: tuple[str, ...]) -> Times:
    """The spans of an MSM from the names of the phases at whose ends its events are. Event 0 is its begin, the last one
    comes after the affine form, which counts as reduction.

    The parts' sorts follow each other, and so do their accumulations; a part's reduction follows its accumulation."""
    spans: list[tuple[int, int, str]] = []
    last_of: dict[str, int] = {}
    before = 0
    for number, phase in enumerate(phases, 1):
        start = before
        if phase in ("sort", "accumulate"):
            start = last_of.get(phase, before)
        spans.append((start, number, PHASES[phase]))
        last_of[phase] = before = number
    if phases:
        spans.append((before, len(phases) + 1, Kind.MSM_REDUCE))
    return tuple(spans)
