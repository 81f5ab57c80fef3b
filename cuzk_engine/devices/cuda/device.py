"""An NVIDIA GPU as a device: transforms on one stream, MSMs on a few others, copies on their own, under a ledger.

``upload`` and ``launch`` enqueue and return. What uses a buffer stands behind the events of what wrote and read it
before (`CudaBuffer`), whatever streams they are on. MSMs take turns in slots (`slots.py`), so that one is reduced while
the next one runs; their scratch counts until they are known to be over: one of their events was waited for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices import base
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import (
    Bytes,
    CancelToken,
    CosetExtend,
    DeviceInfo,
    Evaluate,
    EventSink,
    HJoin,
    HostBudget,
    Lease,
    Msm,
    Need,
    NttTable,
    Operation,
    Owner,
    Quotient,
    Room,
    StagingBuffer,
)
from cuzk_engine.devices.cuda import card, need, physical
from cuzk_engine.devices.cuda.compiling import Progress
from cuzk_engine.devices.cuda.feeder import is_pinned
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.launcher import MsmLauncher
from cuzk_engine.devices.cuda.loader import Loader, own_reservation
from cuzk_engine.devices.cuda.locker import CudaLocker
from cuzk_engine.devices.cuda.memory import CudaBuffer, LedgerAllocator, Memory
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.need import FR_BYTES
from cuzk_engine.devices.cuda.operations import FACTOR_BYTES, Operations
from cuzk_engine.devices.cuda.resident import Residents
from cuzk_engine.devices.cuda.slots import HIGHEST, PARALLEL, Slots
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline
from cuzk_engine.devices.cuda.vectors import Matrices
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.ledger import Ledger, LedgerDevice
from cuzk_engine.devices.lock import ComputeLock
from cuzk_engine.errors import CuzkError, DeviceLostError
from cuzk_engine.events import Incident, Kind, Lane, OtherProcess, Purpose

log = logging.getLogger(__name__)

ADVICE: Final = 'prove on a card with more memory, or on the CPU (--device cpu; with the daemon gpus.devices = ["cpu"])'
_NOBODY: Final = Owner()
_LEAST_MARGIN: Final = 256 << 20  # for the kernels' code and stacks, which come later
_MARGIN_SHARE: Final = 256
_LISTED_NS: Final = 10**9  # for which a list of other programs serves
_READ_NS: Final = 10**7  # for which a reading of the card's memory serves: the driver takes more than a millisecond
_TO_DEVICE, _TO_HOST = 1, 2


class CudaDevice(LedgerDevice):
    """Card ``number`` as the driver counts. ``cache``: the folder of compiled kernels. ``limit``: bytes to use at most,
    besides the context's. ``host``: the host's memory, None for one of its own. ``parallel``: MSMs under way at a time.
    ``progress`` hears of kernels that have to be compiled, in the thread that launches."""

    def __init__(
        self,
        number: int,
        cache: Path,
        sink: EventSink | None = None,
        limit: int | None = None,
        host: HostMemory | None = None,
        parallel: int = PARALLEL,
        progress: Progress | None = None,
    ) -> None:
        self._id, self._number, self._sink = f"cuda:{number}", number, sink
        self._guard = Guard(self._id, number, self._on_loss)
        self._closed = False
        self._prepared: set[str] = set()  # curves
        self._read: tuple[tuple[int, int, int] | None, int] = None, 0
        self._launching = threading.RLock()
        self._uploading = threading.Lock()
        self._host, self._owns_host = host or HostMemory(host_budget().nbytes, sink, device=self._id), host is None
        self._listed: tuple[OtherProcess, ...] | None = None
        self._listed_ns = 0
        with self._guard:
            self._card = card.view(number)
            before = self._card.memory()
            runtime.free(0)  # creates the context
            self._compute = cupy.cuda.Stream(non_blocking=True, priority=HIGHEST)
            self._h2d, self._d2h = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            free, total = physical.memory_info()
            self._own = max(0, before.free - free) if before is not None else 0
            self._margin = max(_LEAST_MARGIN, total // _MARGIN_SHARE)
            fixed = self._own + self._margin
            capacity = free + self._own if limit is None else min(free + self._own, limit + fixed + FACTOR_BYTES)
            self._ledger = Ledger(self._id, capacity, sink, ADVICE, self._available)
            self._context = self._ledger.take(fixed, Purpose.CONTEXT, _NOBODY)
            self._budget = need.msm_budget(capacity - fixed, parallel)
            self._lock = ComputeLock(self._id, sink)
            self._memory = Memory(number, self._ledger, self._guard, sink)
            self._timeline = Timeline(self._id, sink)
            self._slots = Slots(self._memory, parallel)
            self._residents = Residents()
            self._ledger.add_reclaimer(self._residents.reclaim, self._residents.idle)
            self._locker = CudaLocker(self._guard)
            self._loader = Loader(self._memory, self._residents, self._timeline, self._guard, self._page_locked)
            self._launcher = MsmLauncher(
                self._memory, self._slots, self._loader, self._timeline, self._guard, self._launching, self._budget
            )
            kernels = Kernels(cache, self._id, sink, progress)
            self._factors = self._memory.allocate(FACTOR_BYTES, Purpose.CONTEXT, _NOBODY)
            self._operations = Operations(kernels, self._factors)
            source = "free on the card at the start" if limit is None else "given"
            self._info = card.describe(number, capacity, source, parallel)

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
        return self._memory.allocate(nbytes, purpose, owner, own_reservation(out_of))

    def upload(self, target: base.Buffer, source: Bytes, kind: str, owner: Owner) -> CudaEvent:
        buffer = _own(target)
        flat = source.reshape(-1).view(np.uint8)
        if flat.size > buffer.nbytes:
            raise ValueError(f"{flat.size} bytes do not fit into a buffer of {buffer.nbytes}")
        if kind == Kind.UPLOAD_SRS:
            rows = source.reshape(len(source), -1).view(np.uint8)
            return CudaEvent(self._loader.load(buffer, rows, owner), self._timeline, self._guard, rows)
        with self._guard, self._uploading:
            stream = self._h2d
            buffer.before_write(stream)
            (begin,), end = self._timeline.events.take(1), cupy.cuda.Event(block=True)
            pinned = is_pinned(flat)
            begin.record(stream)
            if flat.size:
                runtime.memcpyAsync(buffer.address, flat.ctypes.data, flat.size, _TO_DEVICE, stream.ptr)
            end.record(stream)
            buffer.was_written(stream, end)
            buffer.is_reversed, buffer.pending = False, 1
            self._timeline.add(stream, begin, end, Lane.H2D, kind, owner, int(flat.size), pinned, flat)
        return CudaEvent(end, self._timeline, self._guard, flat)

    def download(self, source: base.Buffer, nbytes: int, kind: str, owner: Owner) -> bytes:
        buffer = _own(source)
        if nbytes > buffer.nbytes:
            raise ValueError(f"{nbytes} bytes of a buffer of {buffer.nbytes}")
        if buffer.is_reversed or buffer.pending != 1:
            raise ValueError("a vector that is not in natural order: restore() comes first")
        out = np.empty(nbytes, dtype=np.uint8)
        with self._guard:
            buffer.before_read(self._d2h)
            (begin,), (end,) = self._timeline.events.take(1), self._timeline.ends.take(1)
            begin.record(self._d2h)
            if nbytes:
                runtime.memcpyAsync(out.ctypes.data, buffer.address, nbytes, _TO_HOST, self._d2h.ptr)
            end.record(self._d2h)
            end.synchronize()
            self._timeline.tell(begin, end, Lane.D2H, kind, owner, nbytes, False)
        return out.tobytes()

    def restore(self, curve: Curve, vector: base.Buffer, owner: Owner, table: base.Buffer | None = None) -> None:
        """Puts a vector over the domain into natural order and multiplies its pending factor in, as ``download``
        wants it. The proof itself never needs this."""
        buffer = _own(vector)
        tables = [] if table is None else [_own(table)]
        with self._computing(Purpose.SCRATCH, owner, reads=tables, writes=[buffer]):
            transform = tables[0].table if tables else None
            self._operations.restore(curve, buffer, buffer.nbytes // FR_BYTES, transform)

    def launch(
        self, operation: Operation, owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> CudaEvent:
        self._check_open()
        cancel.check()
        if after is not None and not isinstance(after, CudaEvent):
            raise TypeError("an event of another kind of device")
        if operation.curve.name not in self._prepared:
            with self._guard, self._launching:
                self._operations.prepare(operation.curve, owner, cancel.check)
            self._prepared.add(operation.curve.name)
        if isinstance(operation, Msm):
            return self._msm(operation, owner, after)
        if after is not None:
            with self._guard:
                self._compute.wait_event(after.event)
        match operation:
            case Evaluate():
                return self._evaluate(operation, owner)
            case NttTable(table=table):
                target = _own(table, need.table_bytes(operation.log_n))
                return self._simple([], [target], Kind.NTT, owner, lambda ops: ops.fill_table(operation, target))
            case CosetExtend(data=data, table=table):
                vector, twiddles = _own(data), _own(table)
                return self._simple(
                    [twiddles],
                    [vector],
                    Kind.NTT_COSET,
                    owner,
                    lambda ops: ops.coset_extend(operation, vector, twiddles),
                )
            case HJoin(a=a, b=b, c=c):
                abc = (_own(a), _own(b), _own(c))
                return self._simple(abc[1:], abc[:1], Kind.POINTWISE, owner, lambda ops: ops.join(operation, *abc))
            case Quotient(a=a, b=b, c=c, table=table):
                abc, twiddles = (_own(a), _own(b), _own(c)), _own(table)
                return self._simple(
                    [*abc[1:], twiddles],
                    abc[:1],
                    Kind.POINTWISE,
                    owner,
                    lambda ops: ops.quotient(operation, *abc, twiddles),
                )

    def msm_need(self, curve: Curve, group: int, n: int, present: int, *, resident: bool) -> Need:
        return need.msm_need(curve, group, n, present, self._budget, resident=resident)

    def evaluate_need(
        self,
        curve: Curve,
        coefficients: int,
        n_vars: int,
        domain: int,
        *,
        prepared: bool = False,
        general: int | None = None,
    ) -> Need:
        return need.evaluate_need(coefficients, n_vars, domain, prepared=prepared, general=general)

    def lease(self, sources: Sequence[Bytes]) -> Lease:
        return self._residents.lease(sources)

    def evict(self, sources: Sequence[Bytes]) -> int:
        return self._residents.evict(sources)

    @property
    def host(self) -> HostBudget:
        return self._host

    def staging(self, nbytes: int, purpose: Purpose, owner: Owner, *, pinned: bool) -> StagingBuffer:
        self._check_open()
        return self._host.staging(nbytes, purpose, owner, self._locker, pinned=pinned)

    def table_bytes(self, curve: Curve, log_n: int) -> int:
        return need.table_bytes(log_n)

    def compute_lock(self, owner: Owner, cancel: CancelToken) -> AbstractContextManager[None]:
        return self._lock.hold(owner, cancel)

    def room(self) -> Room:
        """Other programs' memory comes from the driver: the engine's own is known, the rest of what is not free is
        theirs."""
        self._residents.purge()
        free, total, ours = self._physical()
        if time.monotonic_ns() - self._listed_ns > _LISTED_NS:
            self._list(ours)
        found = self._listed
        if found is None or any(row.bytes is None for row in found):
            others = max(0, total - free - ours)
        else:
            others = sum(row.bytes or 0 for row in found)
        available = min(self._info.capacity, free + ours)
        return Room(available, self._ledger.use().used, self._ledger.idle(), others, self._margin)

    def others(self) -> tuple[OtherProcess, ...]:
        return self._list(self._physical()[2]) or ()

    def pool_use(self) -> tuple[int, int]:
        """Bytes handed out by the driver's pool, and kept by it."""
        with self._guard:
            return self._memory.pool_use()

    def release_residents(self) -> None:
        """Frees the keys' points and matrices that no launch and no lease uses, and gives the driver their memory."""
        self._residents.clear()
        with self._guard:
            self._memory.trim()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._guard.lost is not None:
            self._timeline.clear()
        try:
            self._residents.clear()
            self._settle()
            self._memory.free_all()
            with self._guard:
                self._memory.trim(everything=True)
                self._timeline.collect()
        except DeviceLostError:
            log.debug("%s was lost before it was closed", self._id)
        finally:
            self._loader.close()
            self._host.release(self._locker)
            if self._owns_host:
                self._host.close()
            self._card.close()
            self._ledger.give_back(self._context)

    # ---- inside ----

    def _on_loss(self, error: DeviceLostError) -> None:
        self._slots.abandon()
        if self._sink is not None:
            self._sink(Incident(time.monotonic_ns(), self._id, "device-lost", "", str(error)))

    def _settle(self) -> None:
        """Waits for the MSMs under way and gives their scratch back."""
        with contextlib.suppress(CuzkError), self._guard:
            self._slots.settle()

    def _page_locked(self, nbytes: int) -> StagingBuffer:
        """For as long as the device is open."""
        return self.staging(nbytes, Purpose.SRS, _NOBODY, pinned=True)

    def _available(self) -> int:
        """For the ledger: what other programs leave."""
        free, _, ours = self._physical()
        return free + ours

    def _list(self, ours: int) -> tuple[OtherProcess, ...] | None:
        self._listed, self._listed_ns = card.others(self._card, ours), time.monotonic_ns()
        return self._listed

    def _physical(self) -> tuple[int, int, int]:
        """Bytes that are free on the card, all of it, and what the engine has of it."""
        found, read_ns = self._read
        if found is not None and time.monotonic_ns() - read_ns < _READ_NS:
            return found
        with self._guard:
            free, total = physical.memory_info()
            _, reserved = self._memory.pool_use()
        found = free, total, self._own + reserved
        self._read = found, time.monotonic_ns()
        return found

    @contextmanager
    def _computing(
        self, purpose: Purpose, owner: Owner, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer]
    ) -> Iterator[_Work]:
        """Launches in the block go to the stream of transforms, behind what used the buffers before, with CuPy's
        memory from the ledger."""
        stream = self._compute
        allocator = LedgerAllocator(self._memory, purpose, owner, stream)
        with self._guard, self._launching, stream, cupy.cuda.using_allocator(allocator.allocate):
            for buffer in reads:
                buffer.before_read(stream)
            for buffer in writes:
                buffer.before_write(stream)
            (begin,) = self._timeline.events.take(1)
            begin.record(stream)
            work = _Work(begin, cupy.cuda.Event(block=True))
            try:
                yield work
            finally:
                work.end.record(stream)
                for buffer in reads:
                    buffer.was_read(stream, work.end)
                for buffer in writes:
                    buffer.was_written(stream, work.end)

    def _simple(
        self,
        reads: Sequence[CudaBuffer],
        writes: Sequence[CudaBuffer],
        kind: Kind,
        owner: Owner,
        launches: Callable[[Operations], None],
    ) -> CudaEvent:
        with self._computing(Purpose.SCRATCH, owner, reads, writes) as work:
            launches(self._operations)
        return self._timed(work, kind, owner)

    def _timed(self, work: _Work, kind: Kind, owner: Owner) -> CudaEvent:
        self._timeline.add(self._compute, work.begin, work.end, Lane.COMPUTE, kind, owner)
        return CudaEvent(work.end, self._timeline, self._guard)

    def _msm(self, operation: Msm, owner: Owner, after: CudaEvent | None) -> CudaEvent:
        curve, group, n = operation.curve, operation.group, operation.n
        if len(operation.points) != n:
            raise ValueError(f"{len(operation.points)} points for {n} scalars")
        scalars = _own(operation.scalars, (operation.offset + n) * FR_BYTES)
        result = _own(operation.result, need.point_bytes(curve, group))
        sent = None if operation.sent is None else _own(operation.sent, int(operation.points.nbytes))
        return self._launcher.launch(self._operations, operation, scalars, result, sent, owner, after)

    def _evaluate(self, operation: Evaluate, owner: Owner) -> CudaEvent:
        witness = _own(operation.witness)
        a, b, c = (_own(x, operation.domain * FR_BYTES) for x in (operation.a, operation.b, operation.c))
        with self._matrices(operation, witness, owner) as (block, matrices):
            with self._computing(Purpose.SCRATCH, owner, [witness, block], [a, b, c]) as work:
                self._operations.evaluate(operation.curve, matrices, witness, (a, b, c))
            return self._timed(work, Kind.SPMV, owner)

    @contextmanager
    def _matrices(
        self, operation: Evaluate, witness: CudaBuffer, owner: Owner
    ) -> Iterator[tuple[CudaBuffer, Matrices]]:
        data, room = operation.coefficients, own_reservation(operation.room)
        n_vars = witness.nbytes // FR_BYTES

        def prepare(allocate: Callable[[int], CudaBuffer]) -> tuple[CudaBuffer, tuple[CudaBuffer, Matrices]]:
            with (
                self._loader.parts(data, self._compute, owner) as parts,
                self._computing(Purpose.SCRATCH, owner, [], []) as work,
            ):
                block, matrices = self._operations.prepare_matrices(
                    operation.curve, parts, len(data), operation.domain, n_vars, allocate
                )
            block.was_written(self._compute, work.end)
            return block, (block, matrices)

        def make() -> tuple[CudaBuffer, tuple[CudaBuffer, Matrices]]:
            return prepare(lambda nbytes: self._memory.allocate(nbytes, Purpose.MATRICES, _NOBODY, room))

        with self._residents.use("matrices", data, make) as resident:
            if resident is not None:
                yield resident
                return
        block, prepared = prepare(lambda nbytes: self._memory.allocate(nbytes, Purpose.MATRICES, owner))
        with block:
            yield prepared

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the device was closed")
        if self._guard.lost is not None:
            raise self._guard.lost


class _Work:
    """The events around launches."""

    __slots__ = ("begin", "end")

    def __init__(self, begin: Any, end: Any) -> None:
        self.begin, self.end = begin, end


def _own(buffer: base.Buffer, nbytes: int = 0) -> CudaBuffer:
    """A buffer of this kind of device, which must have at least ``nbytes``."""
    if not isinstance(buffer, CudaBuffer):
        raise TypeError("a buffer of another kind of device")
    if buffer.nbytes < nbytes:
        raise ValueError(f"a buffer of {buffer.nbytes} bytes, the operation needs {nbytes}")
    return buffer
