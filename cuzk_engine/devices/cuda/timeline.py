"""Spans with the device's own time stamps, on the host's monotonic clock, and events to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import cupy

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.events import Kind, Lane, Span

_CALIBRATION_LIFE_NS: Final = 10_000_000_000  # elapsed times are 32-bit floats: 1 µs of resolution after 10 s
_TRIES: Final = 3


class Events:
    """Events that can be timed, to be used again: making one takes as long as a launch."""

    def __init__(self) -> None:
        self._free: list[Any] = []

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(self._free.pop())  # another thread may have been faster
            except IndexError:
                found.append(cupy.cuda.Event())
        return found

    def give_back(self, events: Sequence[Any]) -> None:
        """Nobody reads their times or waits for them any more."""
        self._free += events


@dataclass(frozen=True, eq=False, slots=True)
class _Pending:
    """Times from one event to another, each with a kind, which are known once those of ``until`` are over. ``kept``:
    what must live until then; ``lent``: events to be used again then."""

    times: Sequence[tuple[Any, Any, str]]
    until: tuple[Any, ...]
    lane: Lane
    owner: Owner
    nbytes: int = 0
    pinned: bool | None = None
    kept: object = None
    lent: Sequence[Any] = ()


class Timeline:
    """The spans of one device that are not yet over. Any thread may call; the device must be the current one."""

    def __init__(self, device: str, sink: EventSink | None) -> None:
        self._device, self._sink = device, sink
        self.events = Events()
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._base: Any = None
        self._base_ns = 0
        self._calibrate()

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
                best, self._base, self._base_ns = after - before, event, (before + after) // 2

    def nanoseconds(self, event: Any) -> int:
        """CLOCK_MONOTONIC when ``event``, which is over, happened."""
        return self._base_ns + int(cupy.cuda.get_elapsed_time(self._base, event) * 1e6)

    def add(
        self,
        begin: Any,
        end: Any,
        lane: Lane,
        kind: str,
        owner: Owner,
        nbytes: int = 0,
        pinned: bool | None = None,
        kept: object = None,
    ) -> None:
        """The time from one recorded event to another is a span, once both are over."""
        if self._sink is None and kept is None:
            return
        # They may lie on two streams: the end can come before the begin.
        pending = _Pending([(begin, end, kind)], (end, begin), lane, owner, nbytes, pinned, kept)
        with self._lock:
            self._pending.append(pending)

    def add_sum(self, begin: Any, marks: list[tuple[str, Any]], end: Any, owner: Owner) -> None:
        """The spans of an MSM from what `Msm.play` returned. ``end`` comes after all of the others, which are from
        ``events`` and go back there."""
        lent = [begin, *(event for _, event in marks)]
        if self._sink is None:
            self.events.give_back(lent)
            return
        pending = _Pending(msm_spans(begin, marks, end), (end,), Lane.COMPUTE, owner, lent=lent)
        with self._lock:
            self._pending.append(pending)

    def collect(self) -> None:
        """Emits the spans that are over."""
        spans: list[Span] = []
        with self._lock:
            over: list[_Pending] = []
            left: list[_Pending] = []
            for one in self._pending:
                (over if all(event.done for event in one.until) else left).append(one)
            if not over:
                return
            self._pending = left
            if time.monotonic_ns() - self._base_ns > _CALIBRATION_LIFE_NS:
                self._calibrate()
            if self._sink is not None:
                spans = [span for one in over for span in self._spans(one)]
            for one in over:
                self.events.give_back(one.lent)
        for span in spans:
            assert self._sink is not None
            self._sink(span)

    def _spans(self, pending: _Pending) -> Iterator[Span]:
        events = {id(event): event for begin, end, _ in pending.times for event in (begin, end)}
        at = {key: self.nanoseconds(event) for key, event in events.items()}
        owner = pending.owner
        for first, last, kind in pending.times:
            end = at[id(last)]
            begin = min(at[id(first)], end)
            yield Span(
                begin, end, self._device, pending.lane, kind, owner.job, owner.partition, owner.worker,
                pending.nbytes, pending.pinned,
            )  # fmt: skip

    def clear(self) -> None:
        """Forgets what is pending: the device is gone."""
        with self._lock:
            self._pending.clear()


class CudaEvent:
    """A recorded event of a device; see DeviceEvent. ``guard`` makes the device the current one and translates its
    errors; ``over`` is called when the event is known to have happened."""

    def __init__(
        self,
        event: Any,
        timeline: Timeline,
        guard: AbstractContextManager[None],
        kept: object = None,
        over: Callable[[], None] | None = None,
    ) -> None:
        self.event = event
        self._timeline, self._guard, self._kept, self._over = timeline, guard, kept, over

    def wait(self) -> None:
        with self._guard:
            if not self.event.done:
                self._timeline.collect()  # while there is time for it
                self.event.synchronize()  # without the interpreter lock
            self._end()

    def done(self) -> bool:
        with self._guard:
            over = bool(self.event.done)
            if over:
                self._end()
            return over

    def _end(self) -> None:
        self._timeline.collect()
        if self._over is not None:
            self._over()


PHASES: Final = {
    "sort": Kind.MSM_DIGITS,
    "accumulate": Kind.MSM_ACCUMULATE,
    "reduce": Kind.MSM_REDUCE,
    "total": Kind.MSM_REDUCE,
}


def msm_spans(begin: Any, marks: list[tuple[str, Any]], end: Any) -> list[tuple[Any, Any, str]]:
    """(begin, end, kind) of an MSM's phases from the events that ``Msm.play`` left at their ends.

    The parts' sorts follow each other, and so do their accumulations; a part's reduction follows its accumulation.
    ``end``: after the affine form, which counts as reduction."""
    spans: list[tuple[Any, Any, str]] = []
    last_of: dict[str, Any] = {}
    before = begin
    for phase, event in marks:
        start = before
        if phase in ("sort", "accumulate"):
            start = last_of.get(phase, before)
        spans.append((start, event, PHASES[phase]))
        last_of[phase] = before = event
    if marks:
        spans.append((before, end, Kind.MSM_REDUCE))
    return spans
