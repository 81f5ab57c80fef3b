"""What driving a GPU costs a device process in Python: milliseconds of it a partition, without a GPU.

    .venv/bin/python benchmarks/driving.py [--profile porep:2^10] [--count 300] [--workers 2] [--calls] [--json]

Whole partitions run through the real runner on the CUDA device, whose driver does nothing: CuPy is a stub, kernels
write nothing, all points are infinity, and a proof passes whatever the pairings say. What is left is what a worker's
thread does between the launches. Measured is the processor time of the workers' threads, in which no wait counts,
without the native calls in which the interpreter's lock is free; ``--calls`` counts what was asked of CuPy and of the
native library a partition. What is told the supervisor at a partition's end, its events and its proof, is encoded as
the device process does and has a figure of its own.

A card's driver takes time of its own in each call, and CuPy keeps the lock in those marked with *. So the figures are
for comparing two states of the engine, and a lower bound of what a card will show.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
import types
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - from the project's environment

CALLS: Counter[str] = Counter()
NATIVE: defaultdict[int, int] = defaultdict(int)  # thread → nanoseconds of native calls
_LIMIT: Final = 16 << 30
_WITHOUT_THE_LOCK: Final = frozenset(
    [
        "bytes_copy",
        "bytes_zero",
        "evaluate",
        "field_check",
        "msm",
        "pairing_check",
        "point_op",
        "point_sums",
        "points_check",
        "proof_assemble",
        "proof_check",
        "proof_input",
    ]
)


# ---- a driver that does nothing ----


class Runtime(types.ModuleType):
    """CuPy's runtime over host memory. Blocks are kept by size, so that results stay zero: infinity."""

    class CUDARuntimeError(RuntimeError):
        status = 0

    cudaMemPoolAttrReleaseThreshold, cudaMemPoolReuseAllowInternalDependencies = 4, 3  # noqa: N815
    cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrUsedMemCurrent = 5, 7  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cupy.cuda.runtime")
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._blocks: dict[int, Any] = {}

    def mallocAsync(self, nbytes: int, stream: int) -> int:  # noqa: N802
        CALLS["mallocAsync"] += 1
        with contextlib.suppress(IndexError):
            return self._free[nbytes].pop()
        block = (ctypes.c_char * nbytes)()
        address = ctypes.addressof(block)
        self._blocks[address] = block
        return address

    def freeAsync(self, address: int, stream: int) -> None:  # noqa: N802
        CALLS["freeAsync"] += 1
        self._free[len(self._blocks[address])].append(address)

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        CALLS["memcpyAsync"] += 1
        ctypes.memmove(target, source, nbytes)

    def memsetAsync(self, address: int, value: int, nbytes: int, stream: int) -> None: ...  # noqa: N802
    def getDevice(self) -> int:  # noqa: N802
        return 0

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        CALLS["memGetInfo"] += 1
        return _LIMIT, _LIMIT

    def hostRegister(self, address: int, nbytes: int, flags: int) -> None: ...  # noqa: N802
    def hostUnregister(self, address: int) -> None: ...  # noqa: N802
    def getDeviceProperties(self, number: int) -> dict[str, bytes]:  # noqa: N802
        return {"name": b"None", "uuid": bytes(range(16))}

    def deviceGetDefaultMemPool(self, number: int) -> int:  # noqa: N802
        return 1

    def memPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None: ...  # noqa: N802
    def memPoolTrimTo(self, pool: int, nbytes: int) -> None: ...  # noqa: N802
    def deviceSynchronize(self) -> None: ...  # noqa: N802
    def free(self, address: int) -> None: ...


class Event:
    """All is over as soon as it was asked for."""

    _count = 0

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        CALLS["eventCreate*"] += 1
        Event._count += 1
        self.ptr = 0x1000 + Event._count

    def __del__(self) -> None:
        CALLS["eventDestroy*"] += 1

    def record(self, stream: Any = None) -> None:
        CALLS["eventRecord*"] += 1

    def synchronize(self) -> None:
        CALLS["eventSynchronize"] += 1

    @property
    def done(self) -> bool:
        CALLS["eventQuery*"] += 1
        return True


_here = threading.local()


class Stream:
    _count = 0

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        Stream._count += 1
        self.ptr = Stream._count

    def __enter__(self) -> Stream:
        _here.__dict__.setdefault("streams", []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _here.streams.pop()

    def record(self, event: Any = None) -> Any:
        CALLS["eventRecord*"] += 1
        return Event() if event is None else event

    def wait_event(self, event: Any) -> None:
        CALLS["streamWaitEvent"] += 1

    def synchronize(self) -> None: ...


class Array:
    """As much of an array as launches look at."""

    def __init__(self, shape: Any, dtype: Any = np.uint64, memptr: Any = None) -> None:
        CALLS["ndarray"] += 1
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = 1
        for n in self.shape:
            self.size *= n
        self.nbytes = self.size * self.dtype.itemsize
        self.data = memptr if memptr is not None else _here.allocate(self.nbytes)

    def __getitem__(self, part: slice) -> Array:
        start, stop, _ = part.indices(self.shape[0])
        row = self.nbytes // max(1, self.shape[0])
        return Array((stop - start, *self.shape[1:]), self.dtype, MemoryPointer(self.data.memory, start * row))

    def set(self, values: Any, stream: Any = None) -> None: ...


class MemoryPointer:
    def __init__(self, memory: Any, offset: int) -> None:
        self.memory, self.ptr = memory, memory.ptr + offset


class Memory:
    def __init__(self, address: int, nbytes: int, owner: Any, number: int) -> None:
        self.ptr, self._owner = address, owner


@contextlib.contextmanager
def using_allocator(allocate: Any) -> Any:
    before, _here.allocate = getattr(_here, "allocate", None), allocate
    yield
    _here.allocate = before


def elapsed(first: Any, second: Any) -> float:
    CALLS["eventElapsedTime*"] += 1
    return second.ptr * 1e-3 % 7


class Module:
    """A kernel is a function that nobody hears."""

    def load(self, cubin: bytes) -> None: ...
    def get_function(self, name: str) -> Any:
        def launch(*_: Any, **__: Any) -> None:
            CALLS["launch"] += 1

        launch.ptr = 0xF000  # type: ignore[attr-defined]
        return launch


class Device:
    pci_bus_id, compute_capability = "0000:01:00.0", "90"

    def __init__(self, number: int = 0) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def install() -> None:
    """Makes the stub what ``import cupy`` finds, and the driver's functions ones that return 0."""
    runtime, cuda, cupy = Runtime(), types.ModuleType("cupy.cuda"), types.ModuleType("cupy")
    driver = types.SimpleNamespace(
        check_status=lambda code: None, ctxGetCurrent=lambda: 0xC0, funcSetAttribute=lambda *_: None
    )
    names: dict[str, Any] = {
        "runtime": runtime, "Event": Event, "Stream": Stream, "Device": Device, "driver": driver,
        "using_allocator": using_allocator, "get_current_stream": lambda: _here.streams[-1],
        "get_elapsed_time": elapsed, "UnownedMemory": Memory, "MemoryPointer": MemoryPointer,
        "function": types.SimpleNamespace(Module=Module),
    }  # fmt: skip
    vars(cuda).update(names)
    vars(cupy).update(
        cuda=cuda, dtype=np.dtype, ndarray=Array, empty=Array, zeros=Array,
        empty_like=lambda a: Array(a.shape, a.dtype), asarray=lambda a: Array(a.shape, a.dtype),
    )  # fmt: skip
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime})

    from cuzk_engine.devices.cuda import driver as calls
    from cuzk_engine.devices.cuda import module, physical, vectors
    from cuzk_engine.native_replay import Driver

    silent = ctypes.cast(ctypes.CDLL("libm.so.6").fegetround, ctypes.c_void_p).value  # takes anything, returns 0
    calls.functions = lambda: Driver(*[silent] * len(Driver._fields_))  # type: ignore[assignment]
    calls.record = _counted("eventRecord", None)
    calls.is_over = _counted("eventQuery", True)
    calls.is_page_locked = _counted("pointerGetAttribute", True)
    calls.pool_use = _counted("memPoolGetAttribute", 0)
    physical.memory_info = runtime.memGetInfo
    module.build = lambda *_: (b"", "")  # type: ignore[assignment]
    module.Kernels.prepare = lambda *_: 0  # type: ignore[assignment,method-assign]
    vectors.Vectors.prepare = _prepared  # type: ignore[method-assign]


def _counted(name: str, answer: Any) -> Any:
    def call(*_: Any) -> Any:
        CALLS[name] += 1
        return answer

    return call


def _prepared(self: Any, parts: Any, n: int, domain: int, n_vars: int, allocate: Any) -> Any:
    from cuzk_engine.devices.cuda.vectors import Matrices

    block = allocate(n * 8)
    array = block.array((8,), np.uint32)
    return block, Matrices(domain, array, array, array, array, array)


# ---- what is measured ----


def count_native_calls() -> None:
    """Native calls are counted; the processor time of those that compute is taken off."""
    from cuzk_engine import native

    library = native.library()
    library._dll = _Counted(library._dll)  # type: ignore[assignment]


class _Counted:
    def __init__(self, dll: Any) -> None:
        self._found, self._dll = {}, dll

    def __getattr__(self, name: str) -> Any:
        function, short = getattr(self._dll, name), name.removeprefix("cuzk_")

        def plain(*arguments: Any) -> Any:
            CALLS[f"native {short}"] += 1
            return function(*arguments)

        def timed(*arguments: Any) -> Any:
            CALLS[f"native {short}"] += 1
            start = time.thread_time_ns()
            result = function(*arguments)
            NATIVE[threading.get_ident()] += time.thread_time_ns() - start
            return result

        made = timed if short in _WITHOUT_THE_LOCK else plain
        setattr(self, name, made)
        return made


class Channel:
    """Where a device process's messages go."""

    def send(self, message: Any, blob: bytes = b"") -> None:
        from cuzk_engine.daemon.channel import encode

        self.write(encode(message, blob))

    def write(self, frames: bytes) -> None:
        CALLS["writes"] += 1
        CALLS["bytes of messages"] += len(frames)


class Bench:
    """A device process's runtime, without the process. ``telling_ns``: processor time of each partition's end in the
    last run, which is not in that of the workers."""

    def __init__(self, folder: Path) -> None:
        from cuzk_engine.daemon.device import EventBuffer
        from cuzk_engine.daemon.reports import Reports
        from cuzk_engine.daemon.runner_runtime import RunnerRuntime
        from cuzk_engine.devices.cuda.device import CudaDevice
        from cuzk_engine.devices.host import HostMemory
        from cuzk_engine.groth16 import verify
        from cuzk_engine.proving_process import OpenedDevice

        problem = verify._NativeBackend.problem
        verify._NativeBackend.problem = lambda *a: problem(*a) and None  # type: ignore[method-assign]
        self.channel = Channel()
        self.events = EventBuffer(self.channel)  # type: ignore[arg-type]
        self.reports = Reports(self.channel)  # type: ignore[arg-type]
        host = HostMemory(8 << 30, self.events.add)
        device = CudaDevice(0, folder / "kernels", self.events.add, host=host)
        self.runtime = RunnerRuntime(OpenedDevice(device, host, 1), self.events.add)
        self.key, self.witness = str(folder / "circuit.zkey"), str(folder / "witness.wtns")
        self._numbers = iter(range(1 << 40))
        self._over = threading.Event()
        self.telling_ns: list[int] = []

    def run(self, workers: int, count: int) -> float:
        """Milliseconds of Python a partition in the workers' threads."""
        spent: list[int] = []
        left = iter(range(count))
        self.telling_ns = []
        faults: list[BaseException] = []

        def work(worker: int) -> None:
            start, native = time.thread_time_ns(), NATIVE[threading.get_ident()]
            try:
                while not faults and next(left, None) is not None:
                    self._prove(worker)
            except BaseException as fault:
                faults.append(fault)
            spent.append(time.thread_time_ns() - start - NATIVE[threading.get_ident()] + native)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return (sum(spent) - sum(self.telling_ns)) / count / 1e6

    def _prove(self, worker: int) -> None:
        from cuzk_engine.daemon.channel import encode
        from cuzk_engine.daemon.runtime import Order
        from cuzk_engine.devices.base import CancelToken

        order = Order(
            f"job-{next(self._numbers)}", worker, self.key, (), self.witness,
            {
                "pipeline.prestage": "ahead", "pipeline.double_buffer": "true", "pipeline.evaluate": "device",
                "srs.residency": "device",
            },
        )  # fmt: skip
        with self.reports.of(order) as progress:
            outcome = self.runtime.prove(order, progress, CancelToken())
        assert outcome.proof_json
        start = time.thread_time_ns()
        done = {"type": "done", "job": order.job, "partition": order.partition, "outcome": "completed"}
        self.events.end(encode({**done, "proof": outcome.proof_json, "phases": outcome.phases}, outcome.public))
        self.telling_ns.append(time.thread_time_ns() - start)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--profile", default="porep:2^10")
    parser.add_argument("--curve", default="bls12381")
    parser.add_argument("--count", type=int, default=300, help="partitions of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--calls", action="store_true", help="what was asked of CuPy and the library, a partition")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from cuzk_engine.cli.main import main as command_line

    with tempfile.TemporaryDirectory(prefix="cuzk-driving-") as name:
        folder = Path(name)
        with contextlib.redirect_stdout(sys.stderr):
            code = command_line(["workload", args.profile, str(folder), "--curve", args.curve])
        if code:
            return code
        install()
        count_native_calls()
        bench = Bench(folder)
        bench.run(args.workers, 20)
        CALLS.clear()
        found, told = [], []
        for _ in range(args.rounds):
            found.append(bench.run(args.workers, args.count))
            told.append(sum(bench.telling_ns) / args.count / 1e6)
        calls = {name: count / args.count / args.rounds for name, count in sorted(CALLS.items())}
    workers, ends = min(found), min(told)
    if args.json:
        print(json.dumps({"workers_ms": found, "ends_ms": told, "calls": calls}))
        return 0
    print(f"workers' threads: {workers:.2f} ms a partition (median {statistics.median(found):.2f})")
    print(f"ends, with their events: {ends:.2f} ms a partition")
    if args.calls:
        for call, number in calls.items():
            print(f"  {call:<28} {number:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
