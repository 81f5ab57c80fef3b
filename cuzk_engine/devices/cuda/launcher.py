"""An MSM on its way to the card: its points, its memory, its streams, and the events around it."""

from __future__ import annotations

import threading

from cupy.cuda import runtime

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory, used, waits
from cuzk_engine.devices.cuda.operations import Operations, Points
from cuzk_engine.devices.cuda.replay import new_frame
from cuzk_engine.devices.cuda.results import Rows
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
                if resident is not None:
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
        stream, ready, timeline = place.handle, None if after is None else after.event, self._timeline
        before = waits(stream, (scalars, points.block, scratch), (result,), slot.last, ready)
        moments, nbytes = timeline.moments, how.result_bytes
        marks, end = moments.marks(1 + len(how.phases)), moments.end()
        fetch = self._rows.take(nbytes)
        if fetch is not None:
            fetch.source, fetch.there = result.address, moments.end()
        try:
            frame = new_frame((before, marks.handles[0], end, fetch))
            operations.msm(how, points, scalars, result, scratch, place, marks, frame)
        except BaseException:
            runtime.deviceSynchronize()  # what was launched may be on any of the place's streams
            raise
        slot.last = end
        used(stream, (scalars, points.block, *slot.buffers), (result,), end)
        if fetch is None:
            timeline.add(marks, (end,), msm_times(how.phases), owner)
            return CudaEvent(end, timeline, self._guard, over=self._slots.reap)
        result.reads[stream], result.fetched = fetch.there, fetch
        timeline.add(marks, (end, fetch.there), msm_times(how.phases, nbytes), owner, fetch)
        return CudaEvent(fetch.there, timeline, self._guard, None, self._slots.reap, end)

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
        marks, end, ready = moments.marks(1), moments.end(), None if after is None else after.event
        frame = new_frame((waits(place.handle, reads, (result,), slot.last, ready), marks.handles[0], end, None))
        try:
            operations.no_points(operation, result, stream, frame)
        except BaseException:
            stream.synchronize()  # the result may be written yet, and no event ends that
            raise
        slot.last = end
        used(place.handle, (*reads, *slot.buffers), (result,), end)
        moments.give_back(marks)
        return CudaEvent(end, self._timeline, self._guard, over=self._slots.reap)
