"""Keeps of events, while they come, what a round needs: what a device did when, and how many bytes were taken."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from typing import Final

from cuzk_engine.bench.results import Use
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.diagnosis.summary import KERNELS, Summary, summarise
from cuzk_engine.diagnosis.table import Names, SpanTable, joined
from cuzk_engine.events import Allocation, Event, Span

_MOST_SPANS: Final = 2 << 20  # of a round: a hundred megabytes
_CHUNK: Final = 4096  # spans: as rows they take several times the memory


class Meter:
    """An event sink; may be called from any thread."""

    def __init__(self, most_spans: int = _MOST_SPANS) -> None:
        self._lock = threading.Lock()
        self._most = most_spans
        self._used: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self._is_complete = True
        self._forget()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Span):
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
        """A round begins: forgets spans and peaks."""
        with self._lock:
            self._forget()
            self._peaks = dict(self._used)
            self._is_complete = True

    def use(
        self, start: int, end: int, devices: Sequence[str], queue: Callable[[str], Queue] | None = None
    ) -> Use | None:
        """How ``devices`` spent [start, end) nanoseconds; None when not known. ``queue``: of a device, when jobs ran
        and waited, where that is known."""
        with self._lock:
            if not self._is_complete or end <= start or not devices:
                return None
            self._condense()
            spans = joined(self._chunks, self._names)
        return _mean(
            [
                summarise(spans, start, end, device=device, queue=None if queue is None else queue(device))
                for device in devices
            ]
        )

    def peak(self, devices: tuple[str, ...]) -> int | None:
        """The largest number of bytes in use on one of ``devices`` since the round began."""
        with self._lock:
            if not self._is_complete:
                return None
            return max((self._peaks[name] for name in devices if name in self._peaks), default=None)

    def _forget(self) -> None:
        self._names = Names()
        self._chunks: list[SpanTable] = []
        self._rows: list[Span] = []

    def _add_span(self, span: Span) -> None:
        with self._lock:
            if len(self._chunks) * _CHUNK >= self._most:
                self._is_complete = False
                return
            self._rows.append(span)
            if len(self._rows) == _CHUNK:
                self._condense()

    def _condense(self) -> None:
        self._chunks.append(SpanTable.of(self._rows, self._names))
        self._rows = []

    def _add_allocation(self, event: Allocation) -> None:
        with self._lock:
            used = self._used.get(event.device, 0) + event.delta
            self._used[event.device] = used
            self._peaks[event.device] = max(self._peaks.get(event.device, 0), used)


def _mean(summaries: Sequence[Summary]) -> Use:
    shares = [summary.idle_by_cause() for summary in summaries]
    causes = dict.fromkeys(cause for each in shares for cause in each)
    idle = {str(cause): statistics.fmean(each.get(cause, 0.0) for each in shares) for cause in causes}
    kernels = [summary.partitions[KERNELS].median for summary in summaries if KERNELS in summary.partitions]
    return Use(
        statistics.fmean(summary.busy_share for summary in summaries),
        {cause: share for cause, share in idle.items() if share},
        statistics.fmean(kernels) / 1e9 if kernels else None,
    )
