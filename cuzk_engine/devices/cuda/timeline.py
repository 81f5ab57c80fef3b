"""Spans with the device's own time stamps, on the host's monotonic clock, and events to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import cupy

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.events import Kind, Lane, Span

_CALIBRATION_LIFE_NS: Final = 10_000_000_000  # elapsed times are 32-bit floats: 1 µs of resolution after 10 s
_TRIES: Final = 3


@dataclass(frozen=True, eq=False, slots=True)
class _Pending:
    begin: Any
    end: Any
    lane: Lane
    kind: str
    owner: Owner
    nbytes: int
    pinned: bool | None
    kept: object  # what must live until the work is done


class Timeline:
    """The spans of one device that are not yet over. Any thread may call; the device must be the current one."""

    def __init__(self, device: str, sink: EventSink | None) -> None:
        self._device, self._sink = device, sink
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
        with self._lock:
            self._pending.append(_Pending(begin, end, lane, kind, owner, nbytes, pinned, kept))

    def collect(self) -> None:
        """Emits the spans that are over."""
        spans: list[Span] = []
        with self._lock:
            over: list[_Pending] = []
            left: list[_Pending] = []
            for one in self._pending:
                # They may lie on two streams: the end can come before the begin.
                (over if one.end.done and one.begin.done else left).append(one)
            if not over:
                return
            self._pending = left
            if time.monotonic_ns() - self._base_ns > _CALIBRATION_LIFE_NS:
                self._calibrate()
            if self._sink is not None:
                spans = [self._span(span) for span in over]
        for span in spans:
            assert self._sink is not None
            self._sink(span)

    def _span(self, span: _Pending) -> Span:
        end = self.nanoseconds(span.end)
        begin = min(self.nanoseconds(span.begin), end)
        owner = span.owner
        return Span(
            begin, end, self._device, span.lane, span.kind, owner.job, owner.partition, owner.worker,
            span.nbytes, span.pinned,
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
        guard: Callable[[], AbstractContextManager[None]],
        kept: object = None,
        over: Callable[[], None] | None = None,
    ) -> None:
        self.event = event
        self._timeline, self._guard, self._kept, self._over = timeline, guard, kept, over

    def wait(self) -> None:
        with self._guard():
            if not self.event.done:
                self._timeline.collect()  # while there is time for it
                self.event.synchronize()  # without the interpreter lock
            self._end()

    def done(self) -> bool:
        with self._guard():
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


def msm_spans(begin: Any, marks: list[tuple[str, Any]], end: Any) -> list[tuple[Any, Any, Kind]]:
    """(begin, end, kind) of an MSM's phases from the events that ``Msm.run`` left at their ends.

    The parts' sorts follow each other, and so do their accumulations; a part's reduction follows its accumulation.
    ``end``: after the affine form, which counts as reduction."""
    spans: list[tuple[Any, Any, Kind]] = []
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
