"""An MSM on its way to the card: its points, its memory, its streams, and the events around it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.cuda import need
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.operations import Operations
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
        curve, group = operation.curve, operation.group
        with self._guard, self._slots.next() as (slot, place), ExitStack() as stack:
            points = stack.enter_context(self._loader.points(operation, sent, slot, owner)) if operation.n else None
            count = 0 if points is None else points.count
            picked = points is not None and points.pick
            nbytes = need.msm_arena_bytes(curve, group, count, self._budget, picked=picked) if count else 0
            form = need.msm_form(curve, group, count, self._budget)
            stack.enter_context(self._launching)
            scratch = slot.scratch(nbytes, owner)
            reads = [scalars, *([] if points is None else [points.block])]
            (begin,) = self._timeline.events.take(1)
            try:
                with place.stream:
                    _begin(slot, place, after, [*reads, scratch], result, begin)
                    marks = operations.msm(
                        operation, points, scalars, result, scratch, form, place.streams, self._timeline.events.take
                    )
                    end = place.stream.record(cupy.cuda.Event(block=True))
            except BaseException:
                runtime.deviceSynchronize()  # what was launched may be on any of the place's streams
                raise
            slot.ended(place.stream, end)
            for buffer in reads:
                buffer.was_read(place.stream, end)
            result.was_written(place.stream, end)
            self._timeline.add_sum(begin, marks, end, owner)
        return CudaEvent(end, self._timeline, self._guard, over=self._slots.reap)


def _begin(
    slot: Slot, place: Place, after: CudaEvent | None, reads: list[CudaBuffer], result: CudaBuffer, begin: Any
) -> None:
    """Records the event before the first kernel, behind what has to be there."""
    stream = place.stream
    for event in (slot.last, None if after is None else after.event):
        if event is not None:
            stream.wait_event(event)
    for buffer in reads:
        buffer.before_read(stream)
    result.before_write(stream)
    stream.record(begin)
