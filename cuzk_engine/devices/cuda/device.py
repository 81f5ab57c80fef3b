"""An NVIDIA GPU as a device: kernels on one stream, uploads and downloads on two others, memory under a ledger.

``upload`` and ``launch`` enqueue and return. All kernels of a device run on one stream, in the order of their launches;
scratch memory of one launch is therefore free for the next one as soon as it was enqueued.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices import base
from cuzk_engine.devices.base import (
    Bytes,
    CancelToken,
    CosetExtend,
    DeviceInfo,
    Evaluate,
    EventSink,
    HJoin,
    MemoryUse,
    Msm,
    NttTable,
    Operation,
    Owner,
    Quotient,
)
from cuzk_engine.devices.cuda import faults, operations
from cuzk_engine.devices.cuda.compiling import Progress
from cuzk_engine.devices.cuda.memory import Arena, CudaBuffer, LedgerAllocator, Memory
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.nvrtc import NvrtcError
from cuzk_engine.devices.cuda.operations import FR_BYTES, Operations, Points
from cuzk_engine.devices.cuda.resident import Residents
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline, msm_spans
from cuzk_engine.devices.cuda.vectors import Matrices
from cuzk_engine.devices.ledger import Ledger, LedgerDevice, Reservation
from cuzk_engine.devices.lock import ComputeLock
from cuzk_engine.errors import CuzkError, DeviceLostError, OutOfDeviceMemoryError
from cuzk_engine.events import Incident, Kind, Lane, Purpose

log = logging.getLogger(__name__)

ADVICE: Final = "prove on a card with more memory, or on the CPU (--device cpu)"
_NOBODY: Final = Owner()
_LEAST_MARGIN: Final = 256 << 20  # for the kernels' code and stacks, which come later
_MARGIN_SHARE: Final = 256
_HOST_MEMORY: Final = 1  # cudaMemoryTypeHost: page-locked
_TO_DEVICE, _TO_HOST = 1, 2


class CudaDevice(LedgerDevice):
    """Card ``number`` as the driver counts. ``cache``: the folder of compiled kernels. ``limit``: bytes to use at most,
    besides the context's. ``progress`` hears of kernels that have to be compiled, in the thread that launches."""

    def __init__(
        self,
        number: int,
        cache: Path,
        sink: EventSink | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._id, self._number, self._sink = f"cuda:{number}", number, sink
        self._lost: DeviceLostError | None = None
        self._closed = False
        self._launching = threading.RLock()
        self._uploading = threading.Lock()
        with self._guard():
            before = free_bytes(cupy.cuda.Device(number).pci_bus_id)
            runtime.free(0)  # creates the context
            self._compute, self._h2d, self._d2h = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
            free, total = (int(x) for x in runtime.memGetInfo())
            context = max(0, before - free) if before is not None else 0
            margin = max(_LEAST_MARGIN, total // _MARGIN_SHARE)
            capacity = free + context if limit is None else min(free + context, limit + context + margin)
            self._ledger = Ledger(self._id, capacity, sink, ADVICE)
            self._context = self._ledger.take(context + margin, Purpose.CONTEXT, _NOBODY)
            self._lock = ComputeLock(self._id, sink)
            self._memory = Memory(number, self._ledger, self._compute, self._guard)
            self._timeline = Timeline(self._id, sink)
            self._residents = Residents()
            self._ledger.add_reclaimer(self._residents.reclaim)
            kernels = Kernels(cache, self._id, sink, progress)
            self._factors = self._memory.allocate(operations.FACTOR_BYTES, Purpose.CONTEXT, _NOBODY)
            self._operations = Operations(kernels, self._factors)
            self._info = _describe(number, capacity, "free on the card at the start" if limit is None else "given")

    @property
    def info(self) -> DeviceInfo:
        return self._info

    @property
    def context_bytes(self) -> int:
        """What the context, the kernels' code and their stacks count as, from the start to the end."""
        return self._context.nbytes + self._factors.nbytes

    def allocate(
        self, nbytes: int, purpose: Purpose, owner: Owner, out_of: base.Reservation | None = None
    ) -> CudaBuffer:
        self._check_open()
        if out_of is not None and not isinstance(out_of, Reservation):
            raise TypeError("a reservation of another kind of device")
        return self._memory.allocate(nbytes, purpose, owner, out_of)

    def upload(self, target: base.Buffer, source: Bytes, kind: str, owner: Owner) -> CudaEvent:
        buffer = _own(target)
        flat = source.reshape(-1).view(np.uint8)
        if flat.size > buffer.nbytes:
            raise ValueError(f"{flat.size} bytes do not fit into a buffer of {buffer.nbytes}")
        with self._guard(), self._uploading:
            stream = self._h2d
            if buffer.last is not None:
                stream.wait_event(buffer.last)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event(block=True)
            pinned = is_pinned(flat)
            begin.record(stream)
            if flat.size:
                runtime.memcpyAsync(buffer.address, flat.ctypes.data, flat.size, _TO_DEVICE, stream.ptr)
            end.record(stream)
            buffer.last, buffer.is_reversed, buffer.pending = end, False, 1
            self._timeline.add(begin, end, Lane.H2D, kind, owner, int(flat.size), pinned, flat)
        return CudaEvent(end, self._timeline, self._guard, flat)

    def download(self, source: base.Buffer, nbytes: int, kind: str, owner: Owner) -> bytes:
        buffer = _own(source)
        if nbytes > buffer.nbytes:
            raise ValueError(f"{nbytes} bytes of a buffer of {buffer.nbytes}")
        if buffer.is_reversed or buffer.pending != 1:
            raise ValueError("a vector that is not in natural order: restore() comes first")
        out = np.empty(nbytes, dtype=np.uint8)
        with self._guard():
            if buffer.last is not None:
                self._d2h.wait_event(buffer.last)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event(block=True)
            begin.record(self._d2h)
            if nbytes:
                runtime.memcpyAsync(out.ctypes.data, buffer.address, nbytes, _TO_HOST, self._d2h.ptr)
            end.record(self._d2h)
            self._timeline.add(begin, end, Lane.D2H, kind, owner, nbytes, False, out)
            end.synchronize()
            self._timeline.collect()
        return out.tobytes()

    def restore(self, curve: Curve, vector: base.Buffer, owner: Owner, table: base.Buffer | None = None) -> None:
        """Puts a vector over the domain into natural order and multiplies its pending factor in, as ``download``
        wants it. The proof itself never needs this."""
        buffer = _own(vector)
        with self._launch_on_compute(LedgerAllocator(self._memory, Purpose.SCRATCH, owner).allocate, [buffer]):
            transform = None if table is None else _own(table).table
            self._operations.restore(curve, buffer, buffer.nbytes // FR_BYTES, transform)
            buffer.last = self._compute.record(cupy.cuda.Event(block=True))

    def launch(
        self, operation: Operation, owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> CudaEvent:
        self._check_open()
        cancel.check()
        if after is not None:
            if not isinstance(after, CudaEvent):
                raise TypeError("an event of another kind of device")
            with self._guard():
                self._compute.wait_event(after.event)
        with self._guard(), self._launching:
            self._operations.prepare(operation.curve, owner, cancel.check)
        match operation:
            case Msm():
                return self._msm(operation, owner)
            case Evaluate():
                return self._evaluate(operation, owner)
            case NttTable(table=table):
                target = _own(table, operations.table_bytes(operation.log_n))
                return self._simple([target], Kind.NTT, owner, lambda ops: ops.fill_table(operation, target))
            case CosetExtend(data=data, table=table):
                vector, twiddles = _own(data), _own(table)
                return self._simple(
                    [vector, twiddles],
                    Kind.NTT_COSET,
                    owner,
                    lambda ops: ops.coset_extend(operation, vector, twiddles),
                )
            case HJoin(a=a, b=b, c=c):
                abc = (_own(a), _own(b), _own(c))
                return self._simple([*abc], Kind.POINTWISE, owner, lambda ops: ops.join(operation, *abc))
            case Quotient(a=a, b=b, c=c, table=table):
                abc, twiddles = (_own(a), _own(b), _own(c)), _own(table)
                return self._simple(
                    [*abc, twiddles], Kind.POINTWISE, owner, lambda ops: ops.quotient(operation, *abc, twiddles)
                )

    def scratch_bytes(self, operation_type: type[Any], curve: Curve, group: int, n: int) -> int:
        if operation_type is Msm:
            points = n * operations.point_bytes(curve, group)  # where they are not resident
            return operations.msm_arena_bytes(curve, group, n) + points
        return operations.evaluate_bytes(n) if operation_type is Evaluate else 0

    def table_bytes(self, curve: Curve, log_n: int) -> int:
        return operations.table_bytes(log_n)

    def compute_lock(self, owner: Owner, cancel: CancelToken) -> AbstractContextManager[None]:
        return self._lock.hold(owner, cancel)

    def memory(self) -> MemoryUse:
        return self._ledger.use()

    def pool_use(self) -> tuple[int, int]:
        """Bytes handed out by the driver's pool, and kept by it."""
        with self._guard():
            return self._memory.pool_use()

    def release_residents(self) -> None:
        """Frees the keys' points and matrices that no launch uses."""
        self._residents.clear()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._lost is not None:
            self._timeline.clear()
        try:
            self._residents.clear()
            self._memory.free_all()
            with self._guard():
                self._memory.trim()
                self._timeline.collect()
        except DeviceLostError:
            log.debug("%s was lost before it was closed", self._id)
        finally:
            self._ledger.give_back(self._context)

    # ---- inside ----

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """The device is the current one; its driver's errors become the user's."""
        if self._lost is not None:
            raise self._lost
        try:
            with cupy.cuda.Device(self._number):
                yield
        except CuzkError:
            raise
        except NvrtcError as error:
            raise CuzkError(f"device {self._id}: {error}") from error
        except Exception as error:
            translated = faults.translate(self._id, error)
            if translated is None:
                raise
            if isinstance(translated, DeviceLostError):
                self._lost = translated
                if self._sink is not None:
                    self._sink(Incident(time.monotonic_ns(), self._id, "device-lost", "", str(translated)))
            raise translated from error

    @contextmanager
    def _launch_on_compute(self, allocate: Callable[[int], Any], uses: list[CudaBuffer]) -> Iterator[None]:
        """Launches in the block go to the stream of kernels, behind the events of the buffers they use, with CuPy's
        memory from ``allocate``."""
        with self._guard(), self._launching, self._compute, cupy.cuda.using_allocator(allocate):
            for buffer in uses:
                if buffer.last is not None:
                    self._compute.wait_event(buffer.last)
            yield

    def _simple(
        self, uses: list[CudaBuffer], kind: Kind, owner: Owner, work: Callable[[Operations], None]
    ) -> CudaEvent:
        allocator = LedgerAllocator(self._memory, Purpose.SCRATCH, owner)
        with self._launch_on_compute(allocator.allocate, uses):
            begin = self._compute.record(cupy.cuda.Event())
            work(self._operations)
            return self._finish(begin, kind, owner, uses)

    def _finish(self, begin: Any, kind: Kind, owner: Owner, uses: list[CudaBuffer]) -> CudaEvent:
        end = self._compute.record(cupy.cuda.Event(block=True))
        for buffer in uses:
            buffer.last = end
        self._timeline.add(begin, end, Lane.COMPUTE, kind, owner)
        return CudaEvent(end, self._timeline, self._guard)

    def _msm(self, operation: Msm, owner: Owner) -> CudaEvent:
        curve, group, n = operation.curve, operation.group, operation.n
        if len(operation.points) != n:
            raise ValueError(f"{len(operation.points)} points for {n} scalars")
        scalars = _own(operation.scalars, (operation.offset + n) * FR_BYTES)
        result = _own(operation.result, operations.point_bytes(curve, group))
        with ExitStack() as stack:
            points = stack.enter_context(self._points(operation.points, owner)) if n else None
            nbytes = 0
            if points is not None and points.count:
                picked = points.index is not None
                nbytes = operations.msm_arena_bytes(curve, group, points.count, picked=picked)
            arena = stack.enter_context(Arena(self._memory, nbytes, Purpose.MSM, owner))
            uses = [scalars, result, *([] if points is None else [points.block])]
            stack.enter_context(self._launch_on_compute(arena.allocate, uses))
            begin = self._compute.record(cupy.cuda.Event())
            marks: list[tuple[str, Any]] = []
            self._operations.msm(operation, points, scalars, result, marks)
            end = self._compute.record(cupy.cuda.Event(block=True))
            scalars.last = result.last = end
            for start, stop, kind in msm_spans(begin, marks, end):
                self._timeline.add(start, stop, Lane.COMPUTE, kind, owner)
            if arena.overflow:
                log.info("%s: an MSM of %d points took %d bytes beyond its plan", self._id, n, arena.overflow)
        return CudaEvent(end, self._timeline, self._guard)

    @contextmanager
    def _points(self, data: Bytes, owner: Owner) -> Iterator[Points]:
        """The points on the device: resident where they can be, else for this launch alone."""

        def load(purpose: Purpose, whose: Owner) -> Points:
            buffer = self._memory.allocate(int(data.nbytes), purpose, whose)
            try:
                self.upload(buffer, data, Kind.UPLOAD_SRS, owner)
                return Points(buffer, len(data), buffer.array((buffer.nbytes,), np.uint8))
            except BaseException:
                buffer.free()
                raise

        def make() -> tuple[CudaBuffer, Points]:
            points = self._compacted(load(Purpose.SRS, _NOBODY), owner)
            return points.block, points

        with self._residents.use("points", data, make) as resident:
            if resident is not None:
                yield resident
                return
            points = load(Purpose.MSM, owner)
            with points.block:
                yield points

    def _compacted(self, full: Points, owner: Owner) -> Points:
        """Without the points at infinity, where they are many and there is memory to leave them out."""
        n, size = full.count, full.block.nbytes // full.count
        allocator = LedgerAllocator(self._memory, Purpose.SCRATCH, owner)
        try:
            with self._launch_on_compute(allocator.allocate, [full.block]):
                index = operations.present_points(full.block, n, size)
                if index is None:
                    return full
                points = operations.compact_points(
                    full.block, n, size, index, lambda nbytes: self._memory.scratch(nbytes, Purpose.SRS, _NOBODY)
                )
        except OutOfDeviceMemoryError:
            return full
        except BaseException:
            full.block.free()
            raise
        full.block.free()
        return points

    def _evaluate(self, operation: Evaluate, owner: Owner) -> CudaEvent:
        witness = _own(operation.witness)
        out = tuple(_own(x, operation.domain * FR_BYTES) for x in (operation.a, operation.b, operation.c))
        a, b, c = out
        with ExitStack() as stack:
            matrices = stack.enter_context(self._matrices(operation, witness, owner))
            allocator = LedgerAllocator(self._memory, Purpose.SCRATCH, owner)
            uses = [witness, a, b, c]
            stack.enter_context(self._launch_on_compute(allocator.allocate, uses))
            begin = self._compute.record(cupy.cuda.Event())
            self._operations.evaluate(operation.curve, matrices, witness, (a, b, c))
            return self._finish(begin, Kind.SPMV, owner, uses)

    @contextmanager
    def _matrices(self, operation: Evaluate, witness: CudaBuffer, owner: Owner) -> Iterator[Matrices]:
        data = operation.coefficients

        def prepare() -> Matrices:
            section = self._memory.allocate(int(data.nbytes), Purpose.SCRATCH, owner)
            with section:
                self.upload(section, data, Kind.UPLOAD_SRS, owner)
                allocator = LedgerAllocator(self._memory, Purpose.SCRATCH, owner)
                with self._launch_on_compute(allocator.allocate, [section]):
                    words = section.array(data.shape, np.uint8)
                    n_vars = witness.nbytes // FR_BYTES
                    return self._operations.prepare_matrices(operation.curve, words, operation.domain, n_vars)

        def make() -> tuple[CudaBuffer, Matrices]:
            prepared = prepare()
            with self._launch_on_compute(LedgerAllocator(self._memory, Purpose.SCRATCH, owner).allocate, []):
                return operations.copy_matrices(
                    prepared, lambda nbytes: self._memory.scratch(nbytes, Purpose.MATRICES, _NOBODY)
                )

        with self._residents.use("matrices", data, make) as resident:
            yield prepare() if resident is None else resident

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the device was closed")
        if self._lost is not None:
            raise self._lost


def is_pinned(data: Bytes) -> bool:
    """Whether the driver knows these host bytes as page-locked."""
    if data.size == 0:
        return False
    return int(runtime.pointerGetAttributes(data.ctypes.data).type) == _HOST_MEMORY


def free_bytes(bus_id: str) -> int | None:
    """Free memory of a card, before this process has a context on it; None where NVML cannot tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:  # a missing library, a driver without it, a bus id it does not know
        log.debug("NVML does not tell the free memory of %s: %s", bus_id, error)
        return None


def _describe(number: int, capacity: int, source: str) -> DeviceInfo:
    properties = runtime.getDeviceProperties(number)
    raw = bytes(properties["uuid"])[:16].hex()
    uuid = "-".join(("GPU", raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))
    device = cupy.cuda.Device(number)
    return DeviceInfo(
        id=f"cuda:{number}",
        kind="cuda",
        name=properties["name"].decode(errors="replace"),
        capacity=capacity,
        capacity_source=source,
        isa=f"sm_{device.compute_capability}",
        uuid=uuid,
        bus_id=str(device.pci_bus_id),
        inert_settings=("pipeline.double_buffer", "srs.residency"),
    )


def _own(buffer: base.Buffer, nbytes: int = 0) -> CudaBuffer:
    """A buffer of this kind of device, which must have at least ``nbytes``."""
    if not isinstance(buffer, CudaBuffer):
        raise TypeError("a buffer of another kind of device")
    if buffer.nbytes < nbytes:
        raise ValueError(f"a buffer of {buffer.nbytes} bytes, the operation needs {nbytes}")
    return buffer
