"""An MSM on its way to the card: its points, its memory, its streams, and the events around it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cupy.cuda import runtime

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.cuda import need
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.moments import Moment
from cuzk_engine.devices.cuda.operations import Operations, Points
from cuzk_engine.devices.cuda.replay import Fetch, Frame
from cuzk_engine.devices.cuda.results import Fetched, Rows
from cuzk_engine.devices.cuda.slots import Place, Slot, Slots
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline, msm_times


class MsmLauncher:
    """``budget``: bytes of scratch of one MSM, as in the plan. ``launching``: held while something is enqueued.
    ``rows``: of the host, which results are fetched into."""

    def __init__(
        self,
        memory: Memory,
        slots: Slots,
        loader: Loader,
        timeline: Timeline,
        guard: Guard,
        launching: threading.RLock,
        budget: int,
        rows: Rows,
    ) -> None:
        self._memory, self._slots, self._loader, self._timeline = memory, slots, loader, timeline
        self._guard, self._launching, self._budget, self._rows = guard, launching, budget, rows

    def launch(
        self,
        operations: Operations,
        operation: Msm,
        scalars: CudaBuffer,
        result: CudaBuffer,
        sent: CudaBuffer | None,
        owner: Owner,
        after: CudaEvent | None,
    ) -> CudaEvent:
        with (
            self._guard,
            self._slots.next() as (slot, place),
            self._points(operation, sent, slot, owner) as points,
            self._launching,
        ):
            if points is None or points.count == 0:
                return self._enqueue_none(operations, operation, points, slot, place, scalars, result, after)
            return self._enqueue(operations, operation, points, slot, place, scalars, result, owner, after)

    def _points(
        self, operation: Msm, sent: CudaBuffer | None, slot: Slot, owner: Owner
    ) -> AbstractContextManager[Points | None]:
        return self._loader.points(operation, sent, slot, owner) if operation.n else nullcontext()

    def _enqueue(
        self,
        operations: Operations,
        operation: Msm,
        points: Points,
        slot: Slot,
        place: Place,
        scalars: CudaBuffer,
        result: CudaBuffer,
        owner: Owner,
        after: CudaEvent | None,
    ) -> CudaEvent:
        how, stream = operations.sum_of(operation, points, scalars, self._budget), place.stream
        scratch = slot.scratch(how.nbytes, owner)
        reads = (scalars, points.block)
        before = _before(slot, after, stream.ptr, (*reads, scratch), result)
        moments, nbytes = self._timeline.moments, need.point_bytes(operation.curve, operation.group)
        marks, end = moments.marks(1 + len(how.phases)), moments.end()
        row = self._rows.take(nbytes)
        fetch = None if row is None else Fetch(row.address, result.address, nbytes, moments.end())
        try:
            frame = Frame(before, marks.events[0], end, fetch)
            operations.msm(how, points, scalars, result, scratch, place, marks, frame)
        except BaseException:
            runtime.deviceSynchronize()  # what was launched may be on any of the place's streams
            raise
        there = end if fetch is None else fetch.there
        _used(slot, stream, reads, result, end, there)
        ends = (end,) if fetch is None else (end, there)
        times = msm_times(how.phases, fetched=fetch is not None)
        self._timeline.add(marks, ends, times, owner, nbytes, True, row)
        if row is not None:
            result.fetched = Fetched(row, nbytes, there)
        return CudaEvent(there, self._timeline, self._guard, over=self._slots.reap, ended=end)

    def _enqueue_none(
        self,
        operations: Operations,
        operation: Msm,
        points: Points | None,
        slot: Slot,
        place: Place,
        scalars: CudaBuffer,
        result: CudaBuffer,
        after: CudaEvent | None,
    ) -> CudaEvent:
        """The sum of no points."""
        stream, moments = place.stream, self._timeline.moments
        reads = (scalars,) if points is None else (scalars, points.block)
        marks, end = moments.marks(1), moments.end()
        frame = Frame(_before(slot, after, stream.ptr, reads, result), marks.events[0], end)
        try:
            operations.no_points(operation, result, stream, frame)
        except BaseException:
            stream.synchronize()  # the result may be written yet, and no event ends that
            raise
        _used(slot, stream, reads, result, end, end)
        moments.give_back(marks)
        return CudaEvent(end, self._timeline, self._guard, over=self._slots.reap)


def _used(
    slot: Slot, stream: Any, reads: tuple[CudaBuffer, ...], result: CudaBuffer, end: Moment, there: Moment
) -> None:
    """What a sum used, up to its ``end``; its result is read until ``there``."""
    slot.ended(stream, end)
    for buffer in reads:
        buffer.was_read(stream, end)
    result.was_written(stream, end)
    if there is not end:
        result.was_read(stream, there)


def _before(
    slot: Slot, after: CudaEvent | None, stream: int, reads: tuple[CudaBuffer, ...], result: CudaBuffer
) -> list[Any]:
    """The events that have to be over before the first kernel, each once."""
    events = [slot.last, None if after is None else after.event, *result.to_write(stream)]
    for buffer in reads:
        events += buffer.to_read(stream)
    return list(dict.fromkeys([event for event in events if event is not None]))
