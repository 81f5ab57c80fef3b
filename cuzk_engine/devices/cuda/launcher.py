"""An MSM on its way to the card: its points, its memory, its streams, and the events around it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.cuda import need
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.operations import Operations, Points
from cuzk_engine.devices.cuda.replay import Frame
from cuzk_engine.devices.cuda.slots import Place, Slot, Slots
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline


class MsmLauncher:
    """``budget``: bytes of scratch of one MSM, as in the plan. ``launching``: held while something is enqueued."""

    def __init__(
        self,
        memory: Memory,
        slots: Slots,
        loader: Loader,
        timeline: Timeline,
        guard: Guard,
        launching: threading.RLock,
        budget: int,
    ) -> None:
        self._memory, self._slots, self._loader, self._timeline = memory, slots, loader, timeline
        self._guard, self._launching, self._budget = guard, launching, budget

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
            end = self._enqueue(operations, operation, points, slot, place, scalars, result, owner, after)
        return CudaEvent(end, self._timeline, self._guard, over=self._slots.reap)

    def _points(
        self, operation: Msm, sent: CudaBuffer | None, slot: Slot, owner: Owner
    ) -> AbstractContextManager[Points | None]:
        return self._loader.points(operation, sent, slot, owner) if operation.n else nullcontext()

    def _enqueue(
        self,
        operations: Operations,
        operation: Msm,
        points: Points | None,
        slot: Slot,
        place: Place,
        scalars: CudaBuffer,
        result: CudaBuffer,
        owner: Owner,
        after: CudaEvent | None,
    ) -> Any:
        """Returns the event of its end."""
        curve, group, stream = operation.curve, operation.group, place.stream
        count = 0 if points is None else points.count
        picked = points is not None and points.pick
        nbytes = need.msm_arena_bytes(curve, group, count, self._budget, picked=picked) if count else 0
        form = need.msm_form(curve, group, count, self._budget)
        scratch = slot.scratch(nbytes, owner)
        reads = [scalars] if points is None else [scalars, points.block]
        before = _before(slot, after, stream.ptr, [*reads, scratch], result)
        (begin,), end = self._timeline.events.take(1), cupy.cuda.Event(block=True)
        try:
            marks = operations.msm(
                operation, points, scalars, result, scratch, form, place.streams, self._timeline.events.take,
                stream, Frame(before, begin, end),
            )  # fmt: skip
        except BaseException:
            runtime.deviceSynchronize()  # what was launched may be on any of the place's streams
            raise
        slot.ended(stream, end)
        for buffer in reads:
            buffer.was_read(stream, end)
        result.was_written(stream, end)
        self._timeline.add_sum(begin, marks, end, owner)
        return end


def _before(slot: Slot, after: CudaEvent | None, stream: int, reads: list[CudaBuffer], result: CudaBuffer) -> list[Any]:
    """The events that have to be over before the first kernel, each once."""
    events = [slot.last, None if after is None else after.event, *result.to_write(stream)]
    for buffer in reads:
        events += buffer.to_read(stream)
    return list({id(event): event for event in events if event is not None}.values())
