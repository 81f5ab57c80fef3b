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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
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
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.need import FR_BYTES
from cuzk_engine.devices.cuda.operations import FACTOR_BYTES, Operations
from cuzk_engine.devices.cuda.resident import Residents
from cuzk_engine.devices.cuda.result_rows import ALL_BYTES, ROWS, ResultRows
from cuzk_engine.devices.cuda.results import ROW_BYTES, Rows
from cuzk_engine.devices.cuda.slots import HIGHEST, PARALLEL, Slots
from cuzk_engine.devices.cuda.timeline import CudaEvent, Timeline, span_times
from cuzk_engine.devices.cuda.vector_launcher import Step, VectorLauncher
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.ledger import Ledger
from cuzk_engine.devices.ledger_device import LedgerDevice
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
        self._prepared: set[Curve] = set()
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
            self._guard.has_context = True
            self._compute = cupy.cuda.Stream(non_blocking=True, priority=HIGHEST)
            self._h2d, self._d2h = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            free, total = physical.memory_info()
            self._own = max(0, before.free - free) if before is not None else 0
            self._margin = max(_LEAST_MARGIN, total // _MARGIN_SHARE)
            fixed = self._own + self._margin
            capacity = (
                free + self._own if limit is None else min(free + self._own, limit + fixed + FACTOR_BYTES + ALL_BYTES)
            )
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
            kernels = Kernels(cache, self._id, sink, progress)
            self._factors = self._memory.allocate(FACTOR_BYTES, Purpose.CONTEXT, _NOBODY)
            self._operations = Operations(kernels, self._factors)
            self._results = ResultRows(self._memory.allocate(ROW_BYTES, Purpose.CONTEXT, _NOBODY) for _ in range(ROWS))
            self._rows = Rows(self._guard, lambda nbytes: self.staging(nbytes, Purpose.CONTEXT, _NOBODY, pinned=True))
            self._launcher = MsmLauncher(
                self._memory, self._slots, self._loader, self._timeline, self._guard, self._launching, self._budget,
                self._rows,
            )  # fmt: skip
            self._vectors = VectorLauncher(
                self._memory, self._residents, self._loader, self._timeline, self._guard, self._launching, self._compute
            )
            self._launches: dict[type[Operation], Callable[[Any, Owner, CudaEvent | None], CudaEvent]] = {
                Msm: self._msm, Evaluate: self._evaluate, NttTable: self._fill_table, Quotient: self._quotient,
            }  # fmt: skip
            self._steps: dict[type[Operation], Callable[[Any], Step]] = {
                CosetExtend: self._extend,
                HJoin: self._join,
            }
            source = "free on the card at the start" if limit is None else "given"
            self._info = card.describe(number, capacity, source, parallel)

    @property
    def info(self) -> DeviceInfo:
        return self._info

    @property
    def context_bytes(self) -> int:
        """What the context, the kernels' code and their stacks, and rows for results count as, from the start to the
        end."""
        return self._context.nbytes + FACTOR_BYTES + ALL_BYTES

    def allocate(
        self, nbytes: int, purpose: Purpose, owner: Owner, out_of: base.Reservation | None = None
    ) -> CudaBuffer:
        self._check_open()
        room = None if out_of is None else own_reservation(out_of)
        return self._memory.allocate(nbytes, purpose, owner, room)

    def result(self, nbytes: int, owner: Owner) -> CudaBuffer:
        self._check_open()
        return self._results.take(nbytes) or self._memory.allocate(nbytes, Purpose.RESULT, owner)

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
            marks, end = self._timeline.moments.marks(1), self._timeline.moments.end()
            pinned = is_pinned(flat)
            marks.begin(stream)
            try:
                if flat.size:
                    runtime.memcpyAsync(buffer.address, flat.ctypes.data, flat.size, _TO_DEVICE, stream.ptr)
                end.record(stream)
            except BaseException:
                stream.synchronize()  # the copy may be under way, and no event ends it
                raise
            buffer.was_written(stream, end)
            buffer.is_reversed, buffer.pending = False, 1
            self._timeline.add(marks, (end,), span_times(Lane.H2D, kind, flat.size, pinned), owner, flat)
        return CudaEvent(end, self._timeline, self._guard, flat)

    def download(self, source: base.Buffer, nbytes: int, kind: str, owner: Owner) -> bytes:
        buffer = _own(source)
        if nbytes > buffer.nbytes:
            raise ValueError(f"{nbytes} bytes of a buffer of {buffer.nbytes}")
        if buffer.is_reversed or buffer.pending != 1:
            raise ValueError("a vector that is not in natural order: restore() comes first")
        fetched = buffer.fetched
        if fetched is not None and nbytes <= fetched.nbytes:
            if not fetched.there.over:
                with self._guard:
                    fetched.there.synchronize()
            return fetched.read(nbytes)
        out = np.empty(nbytes, dtype=np.uint8)
        with self._guard:
            buffer.before_read(self._d2h)
            marks, end = self._timeline.moments.marks(1), self._timeline.moments.end()
            marks.begin(self._d2h)
            try:
                if nbytes:
                    runtime.memcpyAsync(out.ctypes.data, buffer.address, nbytes, _TO_HOST, self._d2h.ptr)
                end.record(self._d2h)
            except BaseException:
                self._d2h.synchronize()  # the copy may be under way, and no event ends it
                raise
            self._timeline.add(marks, (end,), span_times(Lane.D2H, kind, nbytes, False), owner, out)
            end.synchronize()
            self._timeline.collect()
        return out.tobytes()

    def restore(self, curve: Curve, vector: base.Buffer, owner: Owner, table: base.Buffer | None = None) -> None:
        """Puts a vector over the domain into natural order and multiplies its pending factor in, as ``download``
        wants it. The proof itself never needs this."""
        buffer = _own(vector)
        tables = [] if table is None else [_own(table)]

        def work() -> None:
            transform = tables[0].table if tables else None
            self._operations.restore(curve, buffer, buffer.nbytes // FR_BYTES, transform)

        self._vectors.launch(tables, [buffer], Kind.POINTWISE, owner, None, work)

    def launch(
        self, operation: Operation, owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> CudaEvent:
        ready = self._prepare(operation.curve, owner, cancel, after)
        step = self._steps.get(type(operation))
        if step is None:
            return self._launches[type(operation)](operation, owner, ready)
        return self._vectors.play((step(operation),), owner, ready)

    def launch_each(
        self, operations: Sequence[Operation], owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> CudaEvent:
        """Those that are steps of the same stream are enqueued at once."""
        if not self._steps.keys() >= set(map(type, operations)):
            return [self.launch(operation, owner, cancel, after) for operation in operations][-1]
        ready = self._prepare(operations[0].curve, owner, cancel, after)
        return self._vectors.play([self._steps[type(one)](one) for one in operations], owner, ready)

    def _prepare(
        self, curve: Curve, owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None
    ) -> CudaEvent | None:
        """What each launch begins with: ``after``, checked, and the curve's kernels are there."""
        self._check_open()
        cancel.check()
        if curve not in self._prepared:
            with self._guard, self._launching:
                self._operations.prepare(curve, owner, cancel.check)
            self._prepared.add(curve)
        if after is not None and not isinstance(after, CudaEvent):
            raise TypeError("an event of another kind of device")
        return after

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
        return Room(self._ledger.available(), self._ledger.used, self._ledger.idle(), others, self._margin)

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
            self._rows.close()
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
            reserved = self._memory.pool_bytes()
        found = free, total, self._own + reserved
        self._read = found, time.monotonic_ns()
        return found

    def _msm(self, operation: Msm, owner: Owner, after: CudaEvent | None) -> CudaEvent:
        curve, group, points, given, offset, n, out, _, _, through = operation
        if len(points) != n:
            raise ValueError(f"{len(points)} points for {n} scalars")
        scalars, result = _own(given, (offset + n) * FR_BYTES), _own(out, need.point_bytes(curve, group))
        sent = None if through is None else _own(through, int(points.nbytes))
        return self._launcher.launch(self._operations, operation, scalars, result, sent, owner, after)

    def _evaluate(self, operation: Evaluate, owner: Owner, after: CudaEvent | None) -> CudaEvent:
        witness, nbytes = _own(operation.witness), operation.domain * FR_BYTES
        out = _own(operation.a, nbytes), _own(operation.b, nbytes), _own(operation.c, nbytes)
        return self._vectors.evaluate(self._operations, operation, witness, out, owner, after)

    def _fill_table(self, operation: NttTable, owner: Owner, after: CudaEvent | None) -> CudaEvent:
        table = _own(operation.table, need.table_bytes(operation.log_n))
        return self._vectors.launch(
            (), (table,), Kind.NTT, owner, after, lambda: self._operations.fill_table(operation, table)
        )

    def _extend(self, operation: CosetExtend) -> Step:
        data, table = _own(operation.data), _own(operation.table)
        return Step((table,), (data,), Kind.NTT_COSET, partial(self._operations.coset_extend, operation, data, table))

    def _join(self, operation: HJoin) -> Step:
        a, b, c = _own(operation.a), _own(operation.b), _own(operation.c)
        return Step((b, c), (a,), Kind.POINTWISE, partial(self._operations.join, operation, a, b, c))

    def _quotient(self, operation: Quotient, owner: Owner, after: CudaEvent | None) -> CudaEvent:
        a, b, c, table = _own(operation.a), _own(operation.b), _own(operation.c), _own(operation.table)
        return self._vectors.launch(
            (b, c, table), (a,), Kind.POINTWISE, owner, after,
            lambda: self._operations.quotient(operation, a, b, c, table),
        )  # fmt: skip

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the device was closed")
        if self._guard.lost is not None:
            raise self._guard.lost


def _own(buffer: base.Buffer, nbytes: int = 0) -> CudaBuffer:
    """A buffer of this kind of device, which must have at least ``nbytes``."""
    if not isinstance(buffer, CudaBuffer):
        raise TypeError("a buffer of another kind of device")
    if buffer.nbytes < nbytes:
        raise ValueError(f"a buffer of {buffer.nbytes} bytes, the operation needs {nbytes}")
    return buffer
