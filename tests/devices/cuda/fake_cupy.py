"""The few calls of CuPy that the CUDA device's own logic makes, on host memory: streams, events, an allocator with a
limit. Kernels are none of it.

Work is done late: what is put on a stream happens when somebody waits for an event behind it. And every access to a
block is checked: it must come, by streams, events and waits, after those before it that it would collide with.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

GIB = 1 << 30
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
CONTEXT = 0xC0
Clock = dict[int, int]
"""Stream → how many pieces of its work have happened, or will have."""


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def merge(into: Clock, other: Clock) -> None:
    for stream, ticks in other.items():
        into[stream] = max(into.get(stream, 0), ticks)


@dataclass(eq=False)
class Block:
    """Device memory, with the last write and the last reads of each stream."""

    data: Any
    nbytes: int
    written: tuple[int, int] | None = None
    read: Clock = field(default_factory=dict)


class Runtime(types.ModuleType):
    """``limit``: bytes of the card; ``fault``: every later call fails with it. ``locked``: page-locked host memory."""

    CUDARuntimeError = CUDARuntimeError
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolReuseAllowInternalDependencies = 4, 3  # noqa: N815
    cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrUsedMemCurrent = 5, 7  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cupy.cuda.runtime")
        self.limit = 4 * GIB
        self.most_locked = GIB
        self.blocks: dict[int, Block] = {}
        self.peak = 0
        self.locked: dict[int, int] = {}
        self.fault: CUDARuntimeError | None = None
        self.streams: dict[int, Any] = {}
        self.events: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.next_event = 0
        self.host: Clock = {}
        self.pending: list[tuple[int, int, Callable[[], None]]] = []
        self.copies: list[tuple[int, int, int, int]] = []  # stream, tick, and the host's bytes that are copied
        self.trims = 0
        self.lock = threading.RLock()

    # ---- the order of things ----

    def check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def put(
        self,
        stream: Any,
        work: Callable[[], None],
        reads: tuple[int, ...] = (),
        writes: tuple[int, ...] = (),
    ) -> None:
        """``work`` on a stream, which reads and writes the blocks at these addresses."""
        self.check()
        with self.lock:
            self._put(stream, work, reads, writes)

    def _put(self, stream: Any, work: Callable[[], None], reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        merge(stream.clock, self.host)
        tick = stream.clock[stream.ptr] = stream.clock.get(stream.ptr, 0) + 1
        for address in reads:
            block = self.block(address)
            self._ordered(stream, block.written, f"a read of {block.nbytes} bytes before they are written")
            block.read[stream.ptr] = tick
        for address in writes:
            block = self.block(address)
            self._ordered(stream, block.written, f"two writes of {block.nbytes} bytes at a time")
            for reader in block.read.items():
                self._ordered(stream, reader, f"a write of {block.nbytes} bytes that are still read")
            block.written, block.read = (stream.ptr, tick), {}
        self.pending.append((stream.ptr, tick, work))

    def reach(self, clock: Clock) -> None:
        """The host waits for all that happens before ``clock``."""
        self.check()
        with self.lock:
            merge(self.host, clock)
            left = []
            for stream, tick, work in self.pending:
                if tick <= self.host.get(stream, 0):
                    work()
                else:
                    left.append((stream, tick, work))
            self.pending = left
            self.copies = [copy for copy in self.copies if copy[1] > self.host.get(copy[0], 0)]

    def block(self, address: int) -> Block:
        for start, block in self.blocks.items():
            if start <= address < start + max(1, block.nbytes):
                return block
        raise AssertionError("an access to memory that is none, or was freed")

    @staticmethod
    def _ordered(stream: Any, before: tuple[int, int] | None, what: str) -> None:
        assert before is None or stream.clock.get(before[0], 0) >= before[1], what

    # ---- CuPy's calls ----

    @property
    def used(self) -> int:
        return sum(block.nbytes for block in self.blocks.values())

    def mallocAsync(self, nbytes: int, stream: int) -> int:  # noqa: N802
        self.check()
        with self.lock:
            if self.used + nbytes > self.limit:
                raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
            data = (ctypes.c_char * nbytes)()
            address = ctypes.addressof(data)
            self.blocks[address] = Block(data, nbytes)
            self.peak = max(self.peak, self.used)
            self.put(self.streams[stream], lambda: None, writes=(address,))
        return address

    def freeAsync(self, address: int, stream: int) -> None:  # noqa: N802
        with self.lock:
            block = self.blocks[address]
            # The memory itself lives until the work before was done.
            self.put(self.streams[stream], lambda: block.data and None, writes=(address,))
            del self.blocks[address]

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        assert kind in (TO_DEVICE, TO_HOST, ON_DEVICE)
        where = self.streams[stream]
        if kind == TO_DEVICE:
            staged = None if self.is_locked(source) else ctypes.string_at(source, nbytes)
            self.put(where, lambda: ctypes.memmove(target, staged or source, nbytes) and None, writes=(target,))
        else:
            writes = (target,) if kind == ON_DEVICE else ()
            if kind == TO_HOST:
                assert not self.copied(target, nbytes), "two copies to the same bytes of the host at a time"
            self.put(where, lambda: ctypes.memmove(target, source, nbytes) and None, (source,), writes)

        if kind == TO_HOST or (kind == TO_DEVICE and staged is None):
            host = target if kind == TO_HOST else source
            self.copies.append((stream, where.clock[stream], host, nbytes))

    def copied(self, address: int, nbytes: int) -> bool:
        """Whether a copy from or to these bytes of the host is under way."""
        return any(start < address + nbytes and address < start + size for _, _, start, size in self.copies)

    def memsetAsync(self, address: int, value: int, nbytes: int, stream: int) -> None:  # noqa: N802
        self.put(self.streams[stream], lambda: ctypes.memset(address, value, nbytes) and None, writes=(address,))

    def getDevice(self) -> int:  # noqa: N802
        return 0

    def setDevice(self, number: int) -> None: ...  # noqa: N802

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self.limit - self.used, self.limit

    def hostRegister(self, address: int, nbytes: int, flags: int) -> None:  # noqa: N802
        self.check()
        if sum(self.locked.values()) + nbytes > self.most_locked:
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
        self.locked[address] = nbytes

    def hostUnregister(self, address: int) -> None:  # noqa: N802
        self.check()
        assert not self.copied(address, self.locked[address]), "memory that is copied from or to is unlocked"
        del self.locked[address]

    def is_locked(self, address: int) -> bool:
        return any(start <= address < start + nbytes for start, nbytes in self.locked.items())

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:  # noqa: N802
        return {"name": b"NVIDIA Fake", "uuid": bytes(range(16))}

    def deviceGetDefaultMemPool(self, number: int) -> int:  # noqa: N802
        return 1

    def memPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None: ...  # noqa: N802

    def memPoolTrimTo(self, pool: int, nbytes: int) -> None:  # noqa: N802
        self.trims += 1

    def deviceSynchronize(self) -> None:  # noqa: N802
        for stream in self.streams.values():
            self.reach(stream.clock)

    def free(self, address: int) -> None: ...


def make() -> tuple[types.ModuleType, dict[str, types.ModuleType]]:
    """A module to stand for ``cupy``, and what ``sys.modules`` must hold."""
    runtime = Runtime()
    here = threading.local()  # the streams and the allocator of each thread

    class Event:
        def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
            self.clock: Clock | None = None
            self.at = 0
            self.timed = not disable_timing
            self.ptr = runtime.next_event = runtime.next_event + 1
            runtime.events[self.ptr] = self
            self.is_destroyed = False

        def __del__(self) -> None:
            """As CuPy's: the handle is destroyed, and the object keeps it even where it is known again since."""
            self.is_destroyed = True

        def _check(self) -> None:
            runtime.check()
            assert not self.is_destroyed, "an event that was destroyed is used again"

        def record(self, stream: Any = None) -> None:
            self._check()
            self.clock = dict(stream.clock) if stream is not None else {}
            self.at = time.monotonic_ns()

        def synchronize(self) -> None:
            self._check()
            runtime.reach(self.clock or {})

        @property
        def done(self) -> bool:
            self._check()
            clock = self.clock
            return clock is not None and all(runtime.host.get(s, 0) >= t for s, t in clock.items())

    class Stream:
        def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
            self.ptr = len(runtime.streams) + 1
            self.priority = priority
            self.clock: Clock = {}
            runtime.streams[self.ptr] = self

        def __enter__(self) -> None:
            here.streams = [*getattr(here, "streams", []), self]

        def __exit__(self, *exc: object) -> None:
            here.streams.pop()

        def record(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None:
            runtime.check()
            clock = runtime.events[event.ptr].clock
            assert clock is not None, "a wait for an event that was never recorded"
            with runtime.lock:
                merge(self.clock, clock)

        def synchronize(self) -> None:
            runtime.reach(self.clock)

    class Device:
        pci_bus_id, compute_capability = "0000:01:00.0", "90"

        def __init__(self, number: int = 0) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    @contextlib.contextmanager
    def using_allocator(allocate: Any) -> Iterator[None]:
        before, here.allocate = getattr(here, "allocate", None), allocate
        yield
        here.allocate = before

    def array(shape: tuple[int, ...], dtype: Any, memptr: Any) -> Any:
        memory, offset = memptr
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not count:
            return np.zeros(shape, dtype)
        data = (ctypes.c_char * count).from_address(memory[0] + offset)
        return np.frombuffer(data, np.uint8).view(dtype).reshape(shape)

    def check_status(code: int) -> None:
        if code:
            raise CUDARuntimeError(code, f"CUDA_ERROR_{code}: words of the driver")

    cuda: Any = types.ModuleType("cupy.cuda")
    cuda.driver = types.SimpleNamespace(check_status=check_status, ctxGetCurrent=lambda: CONTEXT)
    cuda.runtime, cuda.Event, cuda.Stream, cuda.Device = runtime, Event, Stream, Device
    cuda.using_allocator, cuda.here = using_allocator, here
    cuda.get_current_stream = lambda: here.streams[-1]
    cuda.get_elapsed_time = lambda a, b: (b.at - a.at) / 1e6
    cuda.UnownedMemory = lambda address, nbytes, owner, number: (address, nbytes, owner)
    cuda.MemoryPointer = lambda memory, offset: (memory, offset)
    cupy: Any = types.ModuleType("cupy")
    cupy.cuda, cupy.dtype, cupy.ndarray = cuda, np.dtype, array
    return cupy, {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime}
