"""Device memory, every byte of it under the device's ledger.

The ledger says who may have it; the driver's stream-ordered pool (cudaMallocAsync) provides it. What is freed is given
back to the ledger at once and may be handed out again, since the pool orders reuse by streams.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda import faults
from cuzk_engine.devices.cuda.shape import aligned_size
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.errors import CuzkError, DeviceLostError, OutOfDeviceMemoryError
from cuzk_engine.events import Purpose

_KEEP: Final = 1 << 62  # bytes that the pool may keep

Guard = Callable[[], AbstractContextManager[None]]
"""Makes the device the current one and translates its errors."""


class Memory:
    """The memory of one device. ``compute`` is the stream of its kernels."""

    def __init__(self, number: int, ledger: Ledger, compute: Any, guard: Guard) -> None:
        self.number, self.ledger, self.compute, self.guard = number, ledger, compute, guard
        self._lock = threading.Lock()
        self._live: set[CudaBuffer] = set()
        # Nothing runs on this stream, so what is allocated on it is there at once for every other.
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = runtime.deviceGetDefaultMemPool(number)
        runtime.memPoolSetAttribute(self._pool, runtime.cudaMemPoolAttrReleaseThreshold, _KEEP)
        # Else an allocation for an upload could wait for another job's kernels.
        runtime.memPoolSetAttribute(self._pool, runtime.cudaMemPoolReuseAllowInternalDependencies, 0)

    def allocate(self, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None = None) -> CudaBuffer:
        """A buffer for every stream. Raises OutOfDeviceMemoryError; nothing is counted then."""
        return self._take(nbytes, purpose, owner, out_of, self._stream, shared=True)

    def scratch(self, nbytes: int, purpose: Purpose, owner: Owner) -> CudaBuffer:
        """Memory for work on the stream of kernels alone."""
        return self._take(nbytes, purpose, owner, None, self.compute, shared=False)

    def _take(
        self, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None, stream: Any, *, shared: bool
    ) -> CudaBuffer:
        grant = self.ledger.take(nbytes, purpose, owner, out_of)
        try:
            with self.guard():
                address = self._malloc(nbytes, stream, purpose)
                ready = stream.record(cupy.cuda.Event(disable_timing=True)) if shared else None
        except BaseException:
            self.ledger.give_back(grant)
            raise
        buffer = CudaBuffer(self, grant, address, ready)
        with self._lock:
            self._live.add(buffer)
        return buffer

    def _malloc(self, nbytes: int, stream: Any, purpose: str) -> int:
        if nbytes == 0:
            return 0
        try:
            return int(runtime.mallocAsync(nbytes, stream.ptr))
        except runtime.CUDARuntimeError as error:
            if error.status != faults.OUT_OF_MEMORY:
                raise
        # What was freed behind running kernels comes back when they are done.
        runtime.deviceSynchronize()
        runtime.memPoolTrimTo(self._pool, 0)
        try:
            return int(runtime.mallocAsync(nbytes, stream.ptr))
        except runtime.CUDARuntimeError as error:
            if error.status != faults.OUT_OF_MEMORY:
                raise
            free, _ = runtime.memGetInfo()
            ledger = self.ledger
            raise OutOfDeviceMemoryError(ledger.device, purpose, nbytes, int(free), ledger.capacity) from error

    def release(self, address: int, last: Any) -> None:
        """Frees behind the kernels enqueued so far, and behind the event ``last``."""
        if address:
            with contextlib.suppress(DeviceLostError), self.guard():  # a lost device's memory went with it
                if last is not None:
                    self.compute.wait_event(last)
                runtime.freeAsync(address, self.compute.ptr)

    def forget(self, buffer: CudaBuffer) -> None:
        with self._lock:
            self._live.discard(buffer)

    def free_all(self) -> None:
        """Frees every buffer, as nobody may after the device was closed: its streams may be gone then."""
        with self._lock:
            live = list(self._live)
        for buffer in live:
            buffer.free()

    def trim(self) -> None:
        """Gives what the pool keeps and nobody holds back to the driver."""
        runtime.deviceSynchronize()
        runtime.memPoolTrimTo(self._pool, 0)

    def pool_use(self) -> tuple[int, int]:
        """Bytes that the pool has handed out, and that it keeps."""
        used, reserved = runtime.cudaMemPoolAttrUsedMemCurrent, runtime.cudaMemPoolAttrReservedMemCurrent
        return (
            int(runtime.memPoolGetAttribute(self._pool, used)),
            int(runtime.memPoolGetAttribute(self._pool, reserved)),
        )


class CudaBuffer:
    """A block of device memory until ``free``.

    ``last``: the event after which its content is there. Vectors of Fr may stand in bit-reversed order
    (``is_reversed``) and lack a factor (``pending``): the proof needs neither put right. The device does it where the
    plain content is asked for.
    """

    def __init__(self, memory: Memory, grant: Grant, address: int, last: Any) -> None:
        self._memory = memory
        self._grant = grant
        self._address: int | None = address
        self.last = last
        self.is_reversed = False
        self.pending = 1
        self.table: Any = None  # the transform whose table it holds

    def __enter__(self) -> CudaBuffer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        return self._grant.nbytes

    @property
    def purpose(self) -> Purpose:
        return self._grant.purpose

    @property
    def address(self) -> int:
        """Raises ValueError once the buffer was freed."""
        if self._address is None:
            raise ValueError(f"use of a freed buffer ({self.purpose})")
        return self._address

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
        address, self._address = self._address, None
        if address is None:
            return
        self.table = None
        try:
            self._memory.release(address, self.last)
        finally:
            self._memory.forget(self)
            self._memory.ledger.give_back(self._grant)


class Arena:
    """CuPy's allocator for one operation: hands out one block, front to back, and takes nothing back before
    ``close``, so that arrays may be used on several streams. What does not fit is taken from the ledger besides."""

    def __init__(self, memory: Memory, nbytes: int, purpose: Purpose, owner: Owner) -> None:
        self._memory, self._purpose, self._owner = memory, purpose, owner
        self._block = memory.scratch(nbytes, purpose, owner)
        self._besides: list[CudaBuffer] = []
        self.used = 0

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def overflow(self) -> int:
        """Bytes beyond the block: zero, where the plan is true."""
        return sum(buffer.nbytes for buffer in self._besides)

    def allocate(self, nbytes: int) -> Any:
        """A MemoryPointer of at least ``nbytes``."""
        size = aligned_size(nbytes)
        block, offset = self._block, self.used
        if offset + size > block.nbytes:
            block, offset = self._memory.scratch(size, self._purpose, self._owner), 0
            self._besides.append(block)
        else:
            self.used += size
        memory = cupy.cuda.UnownedMemory(block.address, block.nbytes, None, self._memory.number)
        return cupy.cuda.MemoryPointer(memory, offset)

    def close(self) -> None:
        """Everything enqueued on the stream of kernels so far may still use the memory."""
        for buffer in (self._block, *self._besides):
            buffer.free()


class _Temporary:
    """Frees a buffer when the last array over it goes, which is while the device is open."""

    def __init__(self, buffer: CudaBuffer) -> None:
        self._buffer = buffer

    def __del__(self) -> None:
        with contextlib.suppress(CuzkError):
            self._buffer.free()


class LedgerAllocator:
    """CuPy's allocator for work on the stream of kernels whose needs are not known before: each array a buffer."""

    def __init__(self, memory: Memory, purpose: Purpose, owner: Owner) -> None:
        self._memory, self._purpose, self._owner = memory, purpose, owner

    def allocate(self, nbytes: int) -> Any:
        buffer = self._memory.scratch(aligned_size(nbytes), self._purpose, self._owner)
        memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, _Temporary(buffer), self._memory.number)
        return cupy.cuda.MemoryPointer(memory, 0)
