"""Reads off events, while they come, what a round needs: when kernels ran, and how many bytes were taken."""

from __future__ import annotations

import bisect
import threading
from typing import Final

from cuzk_engine.events import Allocation, Event, Lane, Span

_MAX_INTERVALS: Final = 1 << 20


class Intervals:
    """A union of time intervals: disjoint, in order. Adding what overlaps or touches keeps it small."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        if end <= start:
            return
        first = bisect.bisect_left(self._ends, start)  # the first one that is not wholly before
        last = bisect.bisect_right(self._starts, end)  # the first one that is wholly behind
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def within(self, start: int, end: int) -> int:
        """How much of [start, end] it covers."""
        return sum(max(0, min(e, end) - max(s, start)) for s, e in zip(self._starts, self._ends, strict=True))


class Meter:
    """An event sink; may be called from any thread. Only compute spans and allocations of devices count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self._busy: dict[str, Intervals] = {}
        self._is_complete = True

    def __call__(self, event: Event) -> None:
        if isinstance(event, Span):
            if event.lane == Lane.COMPUTE:
                self._add_span(event)
        elif isinstance(event, Allocation):
            self._add_allocation(event)

    def set_used(self, used: dict[str, int]) -> None:
        """What the ledgers hold before the allocations that follow."""
        with self._lock:
            self._used.update(used)

    def lose(self) -> None:
        """Events were lost: this round's share and peak are not known."""
        with self._lock:
            self._is_complete = False

    def begin(self) -> None:
        """A round begins: forgets intervals and peaks."""
        with self._lock:
            self._busy.clear()
            self._peaks = dict(self._used)
            self._is_complete = True

    def busy(self, start: int, end: int, devices: tuple[str, ...]) -> float | None:
        """Share of [start, end] nanoseconds in which a kernel ran, mean over ``devices``; None when not known."""
        with self._lock:
            if not self._is_complete or end <= start or not devices:
                return None
            covered = sum(self._busy[name].within(start, end) for name in devices if name in self._busy)
            return covered / (len(devices) * (end - start))

    def peak(self, devices: tuple[str, ...]) -> int | None:
        """The largest number of bytes in use on one of ``devices`` since the round began."""
        with self._lock:
            if not self._is_complete:
                return None
            return max((self._peaks[name] for name in devices if name in self._peaks), default=None)

    def _add_span(self, span: Span) -> None:
        with self._lock:
            intervals = self._busy.setdefault(span.device, Intervals())
            intervals.add(span.start_ns, span.end_ns)
            if len(intervals) > _MAX_INTERVALS:
                self._is_complete = False
                del self._busy[span.device]

    def _add_allocation(self, event: Allocation) -> None:
        with self._lock:
            used = self._used.get(event.device, 0) + event.delta
            self._used[event.device] = used
            self._peaks[event.device] = max(self._peaks.get(event.device, 0), used)
