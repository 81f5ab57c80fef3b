"""The few calls of CuPy that the CUDA device's own logic makes, on host memory: streams that do everything at once,
events with the host's time, an allocator with a limit. Kernels are none of it."""

from __future__ import annotations

import contextlib
import ctypes
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

GIB = 1 << 30


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Runtime(types.ModuleType):
    """``limit``: bytes of the card; ``fault``: every later call fails with it."""

    CUDARuntimeError = CUDARuntimeError
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolReuseAllowInternalDependencies = 4, 3  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cupy.cuda.runtime")
        self.limit = 4 * GIB
        self.blocks: dict[int, Any] = {}
        self.fault: CUDARuntimeError | None = None

    def check(self) -> None:
        if self.fault is not None:
            raise self.fault

    @property
    def used(self) -> int:
        return sum(len(block) for block in self.blocks.values())

    def mallocAsync(self, nbytes: int, stream: int) -> int:  # noqa: N802
        self.check()
        if self.used + nbytes > self.limit:
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
        block = (ctypes.c_char * nbytes)()
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def freeAsync(self, address: int, stream: int) -> None:  # noqa: N802
        self.check()
        del self.blocks[address]

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        self.check()
        assert kind in (1, 2)
        ctypes.memmove(target, source, nbytes)

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self.limit - self.used, self.limit

    def pointerGetAttributes(self, address: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(type=0)

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:  # noqa: N802
        return {"name": b"NVIDIA Fake", "uuid": bytes(range(16))}

    def deviceGetDefaultMemPool(self, number: int) -> int:  # noqa: N802
        return 1

    def memPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None: ...  # noqa: N802
    def memPoolTrimTo(self, pool: int, nbytes: int) -> None: ...  # noqa: N802
    def deviceSynchronize(self) -> None: ...  # noqa: N802
    def free(self, address: int) -> None: ...


def make() -> tuple[types.ModuleType, dict[str, types.ModuleType]]:
    """A module to stand for ``cupy``, and what ``sys.modules`` must hold."""
    runtime = Runtime()

    class Event:
        def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
            self.at: int | None = None

        def record(self, stream: Any = None) -> None:
            runtime.check()
            self.at = time.monotonic_ns()

        def synchronize(self) -> None:
            runtime.check()

        @property
        def done(self) -> bool:
            runtime.check()
            return self.at is not None

    class Stream:
        ptr = 1

        def __init__(self, non_blocking: bool = False, priority: int = 0) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

        def record(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None:
            assert event.at is not None

    class Device:
        pci_bus_id, compute_capability = "0000:01:00.0", "90"

        def __init__(self, number: int = 0) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> None: ...

    @contextlib.contextmanager
    def using_allocator(allocate: Any) -> Iterator[None]:
        cuda.allocate = allocate
        yield
        cuda.allocate = None

    def array(shape: tuple[int, ...], dtype: Any, memptr: Any) -> Any:
        memory, offset = memptr
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not count:
            return np.zeros(shape, dtype)
        data = (ctypes.c_char * count).from_address(memory[0] + offset)
        return np.frombuffer(data, np.uint8).view(dtype).reshape(shape)

    cuda: Any = types.ModuleType("cupy.cuda")
    cuda.runtime, cuda.Event, cuda.Stream, cuda.Device = runtime, Event, Stream, Device
    cuda.using_allocator = using_allocator
    cuda.get_elapsed_time = lambda a, b: (b.at - a.at) / 1e6
    cuda.UnownedMemory = lambda address, nbytes, owner, number: (address, nbytes, owner)
    cuda.MemoryPointer = lambda memory, offset: (memory, offset)
    cupy: Any = types.ModuleType("cupy")
    cupy.cuda, cupy.dtype, cupy.ndarray = cuda, np.dtype, array
    return cupy, {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime}
