"""An MSM on its way to the card: its points, its memory, its streams, and the events around it."""

from __future__ import annotations

import threading
from typing import Any

from cupy.cuda import runtime

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.cuda import need
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory, used, waits
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
        with self._guard:
            points, resident = None, None
            slot, place = self._slots.take()
            try:
                if operation.n:
                    points, resident = self._loader.points(operation, sent, slot, owner)
                with self._launching:
                    if points is None or points.count == 0:
                        return self._enqueue_none(operations, operation, points, slot, place, scalars, result, after)
                    return self._enqueue(operations, operation, points, slot, place, scalars, result, owner, after)
            finally:
                self._loader.let_go(resident)
                self._slots.put(slot)

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
        how = operations.sum_of(operation, points, scalars, self._budget)
        scratch = slot.scratch(how.nbytes, owner)
        before = _before(slot, after, place, (scalars, points.block, scratch), result)
        moments, nbytes = self._timeline.moments, need.point_bytes(operation.curve, operation.group)
        marks, end = moments.marks(1 + len(how.phases)), moments.end()
        row = self._rows.take(nbytes)
        fetch = None if row is None else Fetch(row.address, result.address, nbytes, moments.end())
        try:
            frame = Frame(before, marks.handles[0], end, fetch)
            operations.msm(how, points, scalars, result, scratch, place, marks, frame)
        except BaseException:
            runtime.deviceSynchronize()  # what was launched may be on any of the place's streams
            raise
        there = end if fetch is None else fetch.there
        _used(slot, place, (scalars, points.block, *slot.buffers), result, end)
        result.reads[place.stream.ptr] = there
        ends = (end,) if fetch is None else (end, there)
        self._timeline.add(marks, ends, msm_times(how.phases, 0 if fetch is None else nbytes), owner, row)
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
        frame = Frame(_before(slot, after, place, reads, result), marks.handles[0], end)
        try:
            operations.no_points(operation, result, stream, frame)
        except BaseException:
            stream.synchronize()  # the result may be written yet, and no event ends that
            raise
        _used(slot, place, (*reads, *slot.buffers), result, end)
        moments.give_back(marks)
        return CudaEvent(end, self._timeline, self._guard, over=self._slots.reap)


def _used(slot: Slot, place: Place, reads: tuple[CudaBuffer, ...], result: CudaBuffer, end: Moment) -> None:
    """What a sum used, up to its ``end``."""
    slot.last = end
    used(place.stream.ptr, reads, (result,), end)


def _before(
    slot: Slot, after: CudaEvent | None, place: Place, reads: tuple[CudaBuffer, ...], result: CudaBuffer
) -> dict[int, Any]:
    """The events that have to be over before the first kernel, by their handles."""
    return waits(place.stream.ptr, reads, (result,), (slot.last, None if after is None else after.event))
