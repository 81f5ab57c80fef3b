"""Transforms and rows on their way to the card: one stream, where each stands behind what used its buffers before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices import base
from cuzk_engine.devices.base import Evaluate, Owner
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.loader import Loader, own_reservation
from cuzk_engine.devices.cuda.memory import CudaBuffer, LedgerAllocator, Memory, used, waits
from cuzk_engine.devices.cuda.moments import Marks, Moment
from cuzk_engine.devices.cuda.need import FR_BYTES, evaluation_bytes
from cuzk_engine.devices.cuda.operations import Operations
from cuzk_engine.devices.cuda.replay import Frame, new_frame
from cuzk_engine.devices.cuda.resident import Residents
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline, span_times, step_times
from cuzk_engine.devices.cuda.vectors import Matrices
from cuzk_engine.devices.ledger import Reservation
from cuzk_engine.events import Kind, Lane, Purpose

_NOBODY = Owner()
Prepared = tuple[CudaBuffer, Matrices]


class Step(NamedTuple):
    """What ``enqueue`` plays on a stream within a frame; a span of ``kind``."""

    reads: Sequence[CudaBuffer]
    writes: Sequence[CudaBuffer]
    kind: Kind
    enqueue: Callable[[Any, Frame], None]


class VectorLauncher:
    """``launching``: held while something is enqueued on ``stream``."""

    def __init__(
        self,
        memory: Memory,
        residents: Residents,
        loader: Loader,
        timeline: Timeline,
        guard: Guard,
        launching: threading.RLock,
        stream: Any,
    ) -> None:
        self._memory, self._residents, self._loader, self._timeline = memory, residents, loader, timeline
        self._guard, self._launching, self._stream = guard, launching, stream
        self._handle: int = stream.ptr

    def play(self, steps: Sequence[Step], owner: Owner, after: CudaEvent | None) -> CudaEvent:
        """One step after another, at least one, all of them after ``after``."""
        with self._guard, self._launching:
            return self._play(steps, owner, after)

    def _play(self, steps: Sequence[Step], owner: Owner, after: CudaEvent | None) -> CudaEvent:
        """The buffers are used until the last one's end: the other ends are marks, which serve again."""
        stream, moments, handle = self._stream, self._timeline.moments, self._handle
        marks, end = moments.marks(2 * len(steps) - 1), moments.end()
        begins, ends = marks.handles[::2], (*marks.events[1::2], end)
        ready = None if after is None else after.event
        try:
            for (reads, writes, _, enqueue), begin, its_end in zip(steps, begins, ends, strict=True):
                enqueue(stream, new_frame((waits(handle, reads, writes, ready), begin, its_end, None)))
        except BaseException:
            runtime.deviceSynchronize()  # some of it may be under way, and no event ends it
            raise
        for step in steps:
            used(handle, step.reads, step.writes, end)
        self._timeline.add(marks, (end,), step_times(*[step.kind for step in steps]), owner)
        return CudaEvent(end, self._timeline, self._guard)

    def launch(
        self,
        reads: Sequence[CudaBuffer],
        writes: Sequence[CudaBuffer],
        kind: Kind,
        owner: Owner,
        after: CudaEvent | None,
        work: Callable[[], None],
    ) -> CudaEvent:
        """The same for what ``work`` launches on CuPy's current stream."""
        with self._computing(owner, reads, writes, after) as frame:
            work()
        self._timeline.add(frame.marks, (frame.end,), span_times(Lane.COMPUTE, kind), owner)
        return CudaEvent(frame.end, self._timeline, self._guard)

    def evaluate(
        self,
        operations: Operations,
        operation: Evaluate,
        witness: CudaBuffer,
        out: tuple[CudaBuffer, CudaBuffer, CudaBuffer],
        owner: Owner,
        after: CudaEvent | None,
    ) -> CudaEvent:
        """With matrices that are resident where they can be."""
        room, nbytes = own_reservation(operation.room), evaluation_bytes(witness.nbytes // FR_BYTES)

        def evaluate(block: base.Buffer, matrices: Matrices) -> CudaEvent:
            assert isinstance(block, CudaBuffer)
            with (
                self._guard,
                self._launching,
                self._memory.scratch(nbytes, Purpose.SCRATCH, owner, self._stream) as scratch,
            ):
                enqueue = partial(operations.evaluate, operation.curve, matrices, witness, scratch, out)
                return self._play((Step((witness, block), out, Kind.SPMV, enqueue),), owner, after)

        def prepare(whose: Owner, room: Reservation | None) -> Prepared:
            return self._prepare(operations, operation, witness, owner, whose, room)

        resident = self._residents.acquire("matrices", operation.coefficients, lambda: prepare(_NOBODY, room))
        if resident is None:
            block, matrices = prepare(owner, None)
            with block:
                return evaluate(block, matrices)
        try:
            return evaluate(resident.buffer, resident.value)
        finally:
            self._residents.let_go(resident)

    def _prepare(
        self,
        operations: Operations,
        operation: Evaluate,
        witness: CudaBuffer,
        owner: Owner,
        whose: Owner,
        room: Reservation | None,
    ) -> Prepared:
        """Matrices on the device, in memory of ``whose`` out of ``room``."""
        data = operation.coefficients
        with self._loader.parts(data, self._stream, owner) as parts, self._computing(owner) as work:
            block, matrices = operations.prepare_matrices(
                operation.curve, parts, len(data), operation.domain, witness.nbytes // FR_BYTES,
                lambda nbytes: self._memory.allocate(nbytes, Purpose.MATRICES, whose, room),
            )  # fmt: skip
        self._timeline.moments.give_back(work.marks)
        block.was_written(self._stream, work.end)
        return block, matrices

    @contextmanager
    def _computing(
        self,
        owner: Owner,
        reads: Sequence[CudaBuffer] = (),
        writes: Sequence[CudaBuffer] = (),
        after: CudaEvent | None = None,
    ) -> Iterator[_Open]:
        """Launches in the block go to the stream, behind what used the buffers before, with CuPy's memory from the
        ledger."""
        stream, moments = self._stream, self._timeline.moments
        allocator = LedgerAllocator(self._memory, Purpose.SCRATCH, owner, stream)
        with self._guard, self._launching, stream, cupy.cuda.using_allocator(allocator.allocate):
            work = _Open(moments.marks(1), moments.end())
            before = waits(stream.ptr, reads, writes, None if after is None else after.event)
            frame = Frame(before, work.marks.handles[0], work.end, None)
            frame.open(stream)
            try:
                yield work
                frame.close(stream)
            except BaseException:
                runtime.deviceSynchronize()  # some of it may be under way, and no event ends it
                raise
            used(stream.ptr, reads, writes, work.end)


class _Open:
    """The events around launches."""

    __slots__ = ("end", "marks")

    def __init__(self, marks: Marks, end: Moment) -> None:
        self.marks, self.end = marks, end
