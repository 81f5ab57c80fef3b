"""Why no kernel ran, moment by moment.

Every span that is no kernel, every job that waited or ran, explains the time that it covers. Where several explanations
cover a moment, the one of the lowest rank holds:

    tier 0   what the worker does that holds the lock: nobody else could run a kernel then
    tier 1   what the worker does whose kernel ends the stretch: the others were not ready before it
    tier 2   what any worker does
    tier 3   no span tells, but a worker was between two steps of its work, for a short while
    tier 4   no span tells, but a partition was under way or a job ran: unknown
    tier 5   a job waited, and no worker had taken it

and within a tier the order of ``ORDER``. What nothing covers is time without a job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.diagnosis.intervals import EMPTY, IntervalSet, clipped, difference, intersection, normalise
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.diagnosis.shares import holds
from cuzk_engine.diagnosis.table import Mask, SpanTable
from cuzk_engine.events import Cause, Kind, Lane

ORDER: Final = (
    Cause.KERNEL_COMPILE,
    Cause.POOL_TRIM,
    Cause.RESULT_SYNC,
    Cause.SRS_COLD,
    Cause.PAGEABLE_UPLOAD,
    Cause.MEMORY_WAIT,
    Cause.LOCK_HANDOVER,
    Cause.HOST_STARVED,
    Cause.QUEUE_EMPTY,
    Cause.UNKNOWN,
)
FINISHING: Final = (Kind.ASSEMBLE, Kind.VERIFY, Kind.DELIVER)
_PLAIN: Final = {
    Cause.KERNEL_COMPILE: (Kind.COMPILE,),
    Cause.POOL_TRIM: (Kind.POOL_TRIM,),
    Cause.RESULT_SYNC: (Kind.RESULT_SYNC,),
    Cause.SRS_COLD: (Kind.LOAD_KEY, Kind.UPLOAD_SRS),
    Cause.MEMORY_WAIT: (Kind.MEMORY_WAIT,),
    Cause.HOST_STARVED: (Kind.READ_WITNESS, Kind.EVALUATE, Kind.PAGE_LOCK),
}
"""Kinds that mean the same inside the lock and outside it."""

_TIER: Final = 16
_INSIDE, _OWN, _ANY, _BETWEEN, _UNDER_WAY, _WAITING = (tier * _TIER for tier in range(6))
_STEP_NS: Final = 50_000_000  # between two steps of a worker, or between a job and its first or last step, at most
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Stretches:
    """Idle stretches with the worker of the kernel that ends each, -1 where none is known."""

    rows: IntervalSet
    ended_by: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Idle time, cut where the explanation changes: sorted, together the stretches. ``stretch``: number of its row."""

    rows: IntervalSet
    cause: npt.NDArray[np.int32]  # index into ORDER
    stretch: npt.NDArray[np.intp]


def stretches(idle: IntervalSet, compute: SpanTable) -> Stretches:
    """Of sorted compute spans."""
    if not len(compute):
        return Stretches(idle, np.full(len(idle), _NONE, np.int32))
    after = np.searchsorted(compute.start, idle[:, 1])
    known = after < len(compute)
    worker = compute.worker[np.minimum(after, len(compute) - 1)]
    return Stretches(idle, np.where(known, worker, _NONE).astype(np.int32))


def explain(idle: Stretches, spans: SpanTable, queue: Queue) -> Pieces:
    """The cause of every moment of the stretches. ``spans``: of one device."""
    explanations = _Explanations(idle)
    others = spans.where(~spans.in_lane(Lane.COMPUTE))
    _add_lock(explanations, others)
    _add_work(explanations, others, queue)
    _add_rest(explanations, spans, queue)
    return explanations.painted()


class _Explanations:
    """Rows of (stretch of time, rank), clipped to the idle stretches."""

    def __init__(self, idle: Stretches) -> None:
        self._idle = idle
        self._rows: dict[int, list[IntervalSet]] = {}

    def add(self, rank: int, rows: IntervalSet) -> None:
        self._rows.setdefault(rank, []).append(rows)

    def add_spans(self, cause: Cause, spans: SpanTable) -> None:
        """What workers did: those that ended a stretch before the others."""
        number, pieces = clipped(spans.start, spans.end, self._idle.rows)
        stretch = np.searchsorted(self._idle.rows[:, 0], pieces[:, 0], side="right") - 1
        worker = spans.worker[number]
        own = (worker >= 0) & (worker == self._idle.ended_by[stretch])
        self.add(_OWN + ORDER.index(cause), pieces[own])
        self.add(_ANY + ORDER.index(cause), pieces[~own])

    def painted(self) -> Pieces:
        left, rows, causes = self._idle.rows, [], []
        for rank in sorted(self._rows):
            parts = np.concatenate(self._rows[rank])
            explained = normalise(parts[:, 0], parts[:, 1])
            found = intersection(left, explained)
            if len(found):
                left = difference(left, explained)
                rows.append(found)
                causes.append(np.full(len(found), rank % _TIER, np.int32))
        rows.append(left)
        causes.append(np.full(len(left), ORDER.index(Cause.QUEUE_EMPTY), np.int32))
        every, cause = np.concatenate(rows), np.concatenate(causes)
        order = np.argsort(every[:, 0], kind="stable")
        every, cause = every[order], cause[order]
        return Pieces(every, cause, np.searchsorted(self._idle.rows[:, 0], every[:, 0], side="right") - 1)


def _add_lock(explanations: _Explanations, spans: SpanTable) -> None:
    """What the holder of the lock does; the lock itself explains what is left of the hold."""
    held = holds(spans)
    for worker in np.unique(held.worker).tolist():
        mine = held.worker == worker
        inside = normalise(held.start[mine], held.end[mine])
        own = spans.where(spans.worker == worker)
        for cause, rows in _inside_lock(own).items():
            _, pieces = clipped(own.start[rows], own.end[rows], inside)
            explanations.add(_INSIDE + ORDER.index(cause), pieces)
    explanations.add(_INSIDE + ORDER.index(Cause.LOCK_HANDOVER), np.column_stack((held.start, held.end)))


def _inside_lock(own: SpanTable) -> dict[Cause, Mask]:
    found = {cause: own.of_kind(*kinds) for cause, kinds in _PLAIN.items()}
    found[Cause.RESULT_SYNC] |= own.of_kind(Kind.DOWNLOAD_RESULT)
    found[Cause.PAGEABLE_UPLOAD] = own.of_kind(Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC) & (own.pinned == 0)
    return found


def _add_work(explanations: _Explanations, spans: SpanTable, queue: Queue) -> None:
    for cause, kinds in _PLAIN.items():
        explanations.add_spans(cause, spans.where(spans.of_kind(*kinds)))
    uploads = spans.where(spans.of_kind(Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC))
    explanations.add_spans(Cause.HOST_STARVED, uploads)
    finishing = spans.where(spans.of_kind(*FINISHING))
    # A worker that finishes keeps the device waiting only where something waits for it.
    number, pieces = clipped(finishing.start, finishing.end, queue.waiting)
    late = replace(finishing.where(number), start=pieces[:, 0], end=pieces[:, 1])
    explanations.add_spans(Cause.HOST_STARVED, late if queue.is_known else finishing)
    explanations.add(_ANY + ORDER.index(Cause.QUEUE_EMPTY), np.column_stack((finishing.start, finishing.end)))
    waits = spans.where(spans.of_kind(Kind.LOCK_WAIT))
    explanations.add(_ANY + ORDER.index(Cause.LOCK_HANDOVER), np.column_stack((waits.start, waits.end)))


def _add_rest(explanations: _Explanations, spans: SpanTable, queue: Queue) -> None:
    under_way = _under_way(spans)
    before, after = _between_steps(spans)
    starved, empty, unknown = (ORDER.index(c) for c in (Cause.HOST_STARVED, Cause.QUEUE_EMPTY, Cause.UNKNOWN))
    around = difference(queue.running, normalise(under_way[:, 0], under_way[:, 1]))
    around = around[around[:, 1] - around[:, 0] <= _STEP_NS]  # handed out, or settled
    explanations.add(_BETWEEN + starved, before)
    explanations.add(_BETWEEN + starved, intersection(after, queue.waiting) if queue.is_known else after)
    explanations.add(_BETWEEN + empty, after)
    explanations.add(_BETWEEN + starved, intersection(around, queue.waiting))
    explanations.add(_UNDER_WAY + unknown, under_way)
    explanations.add(_UNDER_WAY + unknown, queue.running)
    explanations.add(_WAITING + starved, queue.waiting)


def _between_steps(spans: SpanTable) -> tuple[IntervalSet, IntervalSet]:
    """Short holes between the spans of one partition: before its kernels, and after them, while it is finished."""
    mine = spans.where(spans.job != spans.names.find(""))
    if not len(mine):
        return EMPTY, EMPTY
    rows = mine.where(np.lexsort((mine.start, mine.partition, mine.job)))
    same = (np.diff(rows.job) == 0) & (np.diff(rows.partition) == 0)
    group = np.concatenate(([0], np.cumsum(~same)))
    # The furthest end so far within each partition: ranks of later partitions are lifted above all earlier ones.
    ends, rank = np.unique(rows.end, return_inverse=True)
    lift = group * (len(ends) + 1)
    reach = ends[np.maximum.accumulate(rank + lift) - lift]
    start, end = reach[:-1], rows.start[1:]
    hole = same & (end > start) & (end - start <= _STEP_NS) & ~rows.in_lane(Lane.COMPUTE)[1:]
    finishing = rows.of_kind(*FINISHING)[1:]
    before, after = hole & ~finishing, hole & finishing
    return normalise(start[before], end[before]), normalise(start[after], end[after])


def _under_way(spans: SpanTable) -> IntervalSet:
    """From each partition's first span to its last."""
    mine = spans.where(spans.job != spans.names.find(""))
    if not len(mine):
        return np.empty((0, 2), np.int64)
    key = mine.job.astype(np.int64) << 32 | mine.partition.astype(np.int64) & 0xFFFFFFFF
    _, group = np.unique(key, return_inverse=True)
    low = np.full(group.max() + 1, np.iinfo(np.int64).max)
    high = np.zeros(group.max() + 1, np.int64)
    np.minimum.at(low, group, mine.start)
    np.maximum.at(high, group, mine.end)
    return np.column_stack((low, high))
