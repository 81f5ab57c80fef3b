"""Device memory, every byte of it under the device's ledger.

The ledger says who may have it; the driver's stream-ordered pool (cudaMallocAsync) provides it. What is freed is given
back to the ledger at once and may be handed out again, since the pool orders reuse by streams.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.devices.cuda import driver, faults
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.results import Row
from cuzk_engine.devices.cuda.shape import aligned_size
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.devices.memory import GrantedBuffer
from cuzk_engine.errors import CuzkError, DeviceLostError, OutOfDeviceMemoryError
from cuzk_engine.events import Kind, Purpose, Span, host_lane

_KEEP: Final = 1 << 62  # bytes that the pool may keep


class Memory:
    """The memory of one device."""

    def __init__(self, number: int, ledger: Ledger, guard: Guard, sink: EventSink | None = None) -> None:
        self.number, self.ledger, self.guard, self._sink = number, ledger, guard, sink
        self._live: set[CudaBuffer] = set()  # each change is one step of the interpreter
        # Nothing runs on the first stream, so what is allocated on it is there at once for every other. Memory of
        # buffers for all streams is freed on the second, behind what still uses it.
        self._stream, self._freeing = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self._there = cupy.cuda.Event(disable_timing=True)  # behind all that was allocated on it
        self._pool = runtime.deviceGetDefaultMemPool(number)
        runtime.memPoolSetAttribute(self._pool, runtime.cudaMemPoolAttrReleaseThreshold, _KEEP)
        # Else an allocation for an upload could wait for another job's kernels.
        runtime.memPoolSetAttribute(self._pool, runtime.cudaMemPoolReuseAllowInternalDependencies, 0)

    def allocate(self, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None = None) -> CudaBuffer:
        """A buffer for every stream. Raises OutOfDeviceMemoryError; nothing is counted then."""
        with self.guard:
            return self._take(
                self.ledger.take(nbytes, purpose, owner, out_of), self._stream, self._freeing, self._there
            )

    def scratch(self, nbytes: int, purpose: Purpose, owner: Owner, stream: Any, there: Any = None) -> CudaBuffer:
        """Memory that comes and goes in the order of ``stream``'s work, asked for in the guard's block. ``there``: an
        event of that stream's, recorded anew for those who use the memory on others; None: nobody does."""
        return self._take(self.ledger.take(nbytes, purpose, owner), stream, stream, there)

    def _take(self, grant: Grant, stream: Any, home: Any, there: Any) -> CudaBuffer:
        """What was granted. ``there`` is recorded on ``stream`` behind the allocation. It may have been recorded there
        before: whoever was told to wait for it waits for what it was then, and whoever will be waits for more."""
        nbytes = grant.nbytes
        try:
            try:
                address = int(runtime.mallocAsync(nbytes, stream.ptr)) if nbytes else 0
            except runtime.CUDARuntimeError as error:
                address = self._malloc_again(nbytes, stream, grant.purpose, error)
            if there is not None:
                driver.record(there.ptr, stream.ptr)
        except BaseException:
            self.ledger.give_back(grant)
            raise
        buffer = CudaBuffer(self, grant, address, home, there)
        self._live.add(buffer)
        return buffer

    def _malloc_again(self, nbytes: int, stream: Any, purpose: str, error: Any) -> int:
        """What was freed behind running kernels comes back when they are done."""
        if error.status != faults.OUT_OF_MEMORY:
            raise error
        self.trim(everything=True)
        try:
            return int(runtime.mallocAsync(nbytes, stream.ptr))
        except runtime.CUDARuntimeError as error:
            if error.status != faults.OUT_OF_MEMORY:
                raise
            free, _ = runtime.memGetInfo()
            ledger = self.ledger
            raise OutOfDeviceMemoryError(ledger.device, purpose, nbytes, int(free), ledger.capacity) from error

    def free_all(self) -> None:
        """Frees every buffer, as nobody may after the device was closed: its streams may be gone then."""
        for buffer in list(self._live):
            buffer.free()

    def trim(self, *, everything: bool = False) -> None:
        """Gives what the pool keeps and nobody holds back to the driver; with ``everything`` after all that runs, else
        after what was freed outside of kernels' own streams. A span on the host's lane."""
        start = time.monotonic_ns()
        if everything:
            runtime.deviceSynchronize()
        else:
            self._freeing.synchronize()
        before = self.pool_bytes()
        runtime.memPoolTrimTo(self._pool, 0)
        if self._sink is not None:
            nbytes = max(0, before - self.pool_bytes())
            end, lane = time.monotonic_ns(), host_lane(-1)
            self._sink(Span(start, end, self.ledger.device, lane, Kind.POOL_TRIM, bytes=nbytes))

    def pool_use(self) -> tuple[int, int]:
        """Bytes that the pool has handed out, and that it keeps."""
        return driver.pool_use(self._pool, driver.USED), self.pool_bytes()

    def pool_bytes(self) -> int:
        """Those that it keeps, handed out or not."""
        return driver.pool_use(self._pool, driver.RESERVED)


class CudaBuffer(GrantedBuffer):
    """A block of device memory until ``free``.

    ``last``: the event after which its content is there (None: all that uses it is on one stream), on the stream
    with the handle ``_where``; ``reads``: those after which nobody reads it any more, the last one of each stream; they
    come after ``last``. ``fetched``: its first bytes, on the host or on their way there. Vectors of Fr may stand in
    bit-reversed order (``is_reversed``) and lack a factor (``pending``): the proof needs neither put right. The device
    does it where the plain content is asked for.
    """

    _where = 0
    is_reversed = False
    pending = 1
    table: Any = None  # the transform whose table it holds
    fetched: Row | None = None

    def __init__(self, memory: Memory, grant: Grant, address: int, home: Any, last: Any) -> None:
        self._grant, self.nbytes = grant, grant.nbytes
        self._memory, self._home, self.address, self.last = memory, home, address, last
        self.reads: dict[int, Any] = {}

    @cached_property
    def address(self) -> int:
        """Raises ValueError once the buffer was freed: asked for only where it is not there any more."""
        raise ValueError(f"use of a freed buffer ({self.purpose})")

    def checked(self, nbytes: int) -> int:
        """The address of its first ``nbytes``. Raises ValueError where it is smaller."""
        if nbytes > self.nbytes:
            raise ValueError(f"a buffer of {self.nbytes} bytes, the operation needs {nbytes}")
        return self.address

    def before_read(self, stream: Any) -> None:
        """What ``stream`` does next comes after the content is there."""
        if self.last is not None and self._where != stream.ptr:
            stream.wait_event(self.last)

    def before_write(self, stream: Any) -> None:
        """What ``stream`` does next comes after the content is there and nobody reads it any more."""
        reads = self.reads
        if not reads:
            self.before_read(stream)
        for where, event in reads.items():
            if where != stream.ptr:
                stream.wait_event(event)

    def was_read(self, stream: Any, event: Any) -> None:
        """``event`` ends what ``stream`` read of it."""
        self.reads[stream.ptr] = event

    def was_written(self, stream: Any, event: Any) -> None:
        """``event`` ends what ``stream`` wrote to it."""
        used(stream.ptr, (), (self,), event)

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Any:
        """A CuPy array over part of the buffer, which must stay."""
        wanted = int(cupy.dtype(dtype).itemsize)
        for size in shape:
            wanted *= size
        if offset + wanted > self.nbytes:
            raise ValueError(f"a buffer of {self.nbytes} bytes, the operation needs {offset + wanted}")
        memory = cupy.cuda.UnownedMemory(self.address, self.nbytes, None, self._memory.number)
        return cupy.ndarray(shape, dtype=dtype, memptr=cupy.cuda.MemoryPointer(memory, offset))

    def free(self) -> None:
        address: int | None = self.__dict__.pop("address", None)
        if address is None:
            return
        self.table = self.fetched = None
        memory = self._memory
        try:
            if address:
                with memory.guard:
                    self.before_write(self._home)
                    runtime.freeAsync(address, self._home.ptr)
        except DeviceLostError:  # its memory went with it
            pass
        finally:
            memory._live.discard(self)
            memory.ledger.give_back(self._grant)


def waits(stream: int, reads: Iterable[CudaBuffer], writes: Iterable[CudaBuffer], *first: Any) -> dict[int, Any]:
    """What a stream with this handle has to wait for before it reads and writes buffers, events by their handles:
    nothing where it wrote or read itself. ``first``: other events, or None."""
    events: dict[int, Any] = {}
    for event in first:
        if event is not None:
            events[event.ptr] = event
    for buffer in reads:
        if buffer._where != stream and (event := buffer.last) is not None:
            events[event.ptr] = event
    for buffer in writes:
        for where, event in (buffer.reads or {buffer._where: buffer.last}).items():
            if where != stream and event is not None:
                events[event.ptr] = event
    return events


def used(stream: int, reads: Iterable[CudaBuffer], writes: Iterable[CudaBuffer], end: Any) -> None:
    """``end`` ends what a stream with this handle read and wrote."""
    for buffer in reads:
        buffer.reads[stream] = end
    for buffer in writes:
        buffer.last, buffer._where, buffer.reads, buffer.fetched = end, stream, {}, None


class _Temporary:
    """Frees a buffer when the last array over it goes, which is while the device is open."""

    def __init__(self, buffer: CudaBuffer) -> None:
        self._buffer = buffer

    def __del__(self) -> None:
        with contextlib.suppress(CuzkError):
            self._buffer.free()


class LedgerAllocator:
    """CuPy's allocator for work on one stream whose needs are few: each array a buffer."""

    def __init__(self, memory: Memory, purpose: Purpose, owner: Owner, stream: Any) -> None:
        self._memory, self._purpose, self._owner, self._stream = memory, purpose, owner, stream

    def allocate(self, nbytes: int) -> Any:
        buffer = self._memory.scratch(aligned_size(nbytes), self._purpose, self._owner, self._stream)
        memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, _Temporary(buffer), self._memory.number)
        return cupy.cuda.MemoryPointer(memory, 0)
