"""The CPU as a device: the native library's operations on buffers under a ledger.

Its capacity is an accounting limit, not a block of memory. Uploads and downloads are real copies, timed on the lanes
h2d and d2h; the key stays mapped and is read where it lies. Everything has happened when a method returns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.devices import base
from cuzk_engine.devices.arena import Capacity, machine_limit
from cuzk_engine.devices.base import (
    Bytes,
    CancelToken,
    CosetExtend,
    DeviceInfo,
    Evaluate,
    EventSink,
    HJoin,
    HostBudget,
    Msm,
    Need,
    NttTable,
    Operation,
    Owner,
    Quotient,
)
from cuzk_engine.devices.host import HostMemory, StagingBuffer
from cuzk_engine.devices.ledger import Ledger, Reservation
from cuzk_engine.devices.ledger_device import LedgerDevice
from cuzk_engine.devices.lock import ComputeLock
from cuzk_engine.devices.memory import HostBuffer, Spare
from cuzk_engine.events import Kind, Lane, Purpose, Span
from cuzk_engine.native import Group, SpanKind

DEVICE_ID: Final = "cpu"
ADVICE: Final = "raise cpu.arena (or CUZK_CPU_ARENA), or prove on a machine with more memory"
_COPY_CHUNK: Final = 4 << 20  # between two looks at nothing else: keeps the interpreter lock free for others
_FR_BYTES: Final = 32
_SPANS: Final = 256
_MOST_SPARE: Final = 32 << 20  # larger scratch goes back to the system with each MSM, and pays for that with time

_KINDS: Final = {
    SpanKind.MSM_DIGITS: Kind.MSM_DIGITS,
    SpanKind.MSM_ACCUMULATE: Kind.MSM_ACCUMULATE,
    SpanKind.MSM_REDUCE: Kind.MSM_REDUCE,
    SpanKind.NTT: Kind.NTT,
    SpanKind.COSET: Kind.NTT_COSET,
    SpanKind.SPMV: Kind.SPMV,
    SpanKind.POINTWISE: Kind.POINTWISE,
    SpanKind.CHECK: Kind.CHECK,
}


class Done:
    """The event of work that has already happened."""

    def wait(self) -> None:
        return

    def done(self) -> bool:
        return True


class Nothing:
    """The lease of a device on which nothing of a key stays, since it reads the host's memory."""

    def __init__(self, count: int) -> None:
        self.nbytes = 0
        self.each: Sequence[int] = [0] * count

    def release(self) -> None:
        return

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *exc: object) -> None:
        return


class CpuDevice(LedgerDevice):
    """All processors of this process as one device. ``threads`` 0: as many as the affinity mask allows. ``host``: what
    is staged for it is taken from there; None: from memory of its own, as large as the machine."""

    def __init__(
        self, capacity: Capacity, sink: EventSink | None = None, threads: int = 0, host: HostMemory | None = None
    ) -> None:
        self._library = native.library()
        self._ledger = Ledger(DEVICE_ID, capacity.nbytes, sink, ADVICE)
        self._host = HostMemory(machine_limit().nbytes, sink, device=DEVICE_ID) if host is None else host
        self._lock = ComputeLock(DEVICE_ID, sink)
        self._scratch = Spare(_MOST_SPARE)
        self._sink = sink
        self._threads = threads
        self._closed = False
        self._info = DeviceInfo(
            id=DEVICE_ID,
            kind="cpu",
            name=processor_name(),
            capacity=capacity.nbytes,
            capacity_source=capacity.source,
            isa=self._library.isa(),
            inert_settings=("pipeline.double_buffer", "srs.residency"),
        )

    @property
    def info(self) -> DeviceInfo:
        return self._info

    def allocate(
        self, nbytes: int, purpose: Purpose, owner: Owner, out_of: base.Reservation | None = None
    ) -> HostBuffer:
        self._check_open()
        if out_of is not None and not isinstance(out_of, Reservation):
            raise TypeError("a reservation of another kind of device")
        return HostBuffer.allocate(self._ledger, nbytes, purpose, owner, out_of)

    def result(self, nbytes: int, owner: Owner) -> HostBuffer:
        return self.allocate(nbytes, Purpose.RESULT, owner)

    def upload(self, target: base.Buffer, source: Bytes, kind: str, owner: Owner) -> Done:
        data = _data(target)
        flat = source.reshape(-1).view(np.uint8)
        if flat.size > data.size:
            raise ValueError(f"{flat.size} bytes do not fit into a buffer of {data.size}")
        start = time.monotonic_ns()
        for first in range(0, flat.size, _COPY_CHUNK):
            part = flat[first : first + _COPY_CHUNK]
            np.copyto(data[first : first + part.size], part)
        self._emit_copy(start, Lane.H2D, kind, owner, int(flat.size))
        return Done()

    def download(self, source: base.Buffer, nbytes: int, kind: str, owner: Owner) -> bytes:
        data = _data(source)
        if nbytes > data.size:
            raise ValueError(f"{nbytes} bytes of a buffer of {data.size}")
        start = time.monotonic_ns()
        copy = data[:nbytes].tobytes()
        self._emit_copy(start, Lane.D2H, kind, owner, nbytes)
        return copy

    def launch(
        self, operation: Operation, owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> Done:
        self._check_open()
        cancel.check()
        if after is not None:
            after.wait()
        call = native.Call(self._threads, cancel.address, _SPANS)
        try:
            self._run(operation, owner, call)
        finally:
            self._emit_spans(call, owner)
        return Done()

    def launch_each(
        self, operations: Sequence[Operation], owner: Owner, cancel: CancelToken, after: base.DeviceEvent | None = None
    ) -> Done:
        return [self.launch(operation, owner, cancel, after) for operation in operations][-1]

    def msm_need(self, curve: Curve, group: int, n: int, present: int, *, resident: bool) -> Need:
        return Need(self._library.msm_scratch_bytes(curve, Group(group), n, self._threads))

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
        return Need(0)

    def lease(self, sources: Sequence[Bytes]) -> Nothing:
        return Nothing(len(sources))

    def evict(self, sources: Sequence[Bytes]) -> int:
        return 0

    def staging(self, nbytes: int, purpose: Purpose, owner: Owner, *, pinned: bool) -> StagingBuffer:
        return self._host.staging(nbytes, purpose, owner)

    @property
    def host(self) -> HostBudget:
        return self._host

    def table_bytes(self, curve: Curve, log_n: int) -> int:
        return self._library.ntt_table_bytes(curve, log_n)

    def compute_lock(self, owner: Owner, cancel: CancelToken) -> AbstractContextManager[None]:
        return self._lock.hold(owner, cancel)

    def close(self) -> None:
        self._closed = True

    # ---- inside ----

    def _run(self, operation: Operation, owner: Owner, call: native.Call) -> None:
        library = self._library
        match operation:
            case Evaluate(curve, coefficients, order, witness, a, b, c, domain):
                library.evaluate(
                    curve,
                    coefficients,
                    len(coefficients),
                    order,
                    _data(witness),
                    domain,
                    _data(a, domain * _FR_BYTES),
                    _data(b, domain * _FR_BYTES),
                    _data(c, domain * _FR_BYTES),
                    call,
                )
            case NttTable(curve, log_n, table):
                library.ntt_table(curve, log_n, _data(table, library.ntt_table_bytes(curve, log_n)), call)
            case CosetExtend(curve, data, log_n, table):
                library.coset_extend(curve, _data(data, _FR_BYTES << log_n), log_n, _data(table), call)
            case HJoin(curve, a, b, c, n):
                library.h_join(
                    curve, _data(a, n * _FR_BYTES), _data(b, n * _FR_BYTES), _data(c, n * _FR_BYTES), n, call
                )
            case Quotient(curve, a, b, c, log_n, table):
                x, y, z = (_data(vector, _FR_BYTES << log_n) for vector in (a, b, c))
                library.quotient(curve, x, y, z, log_n, _data(table), call)
            case Msm():
                self._run_msm(operation, owner, call)

    def _run_msm(self, operation: Msm, owner: Owner, call: native.Call) -> None:
        curve, group, n = operation.curve, Group(operation.group), operation.n
        if len(operation.points) != n:
            raise ValueError(f"{len(operation.points)} points for {n} scalars")
        first = operation.offset * _FR_BYTES
        scalars = _data(operation.scalars, first + n * _FR_BYTES)[first:]
        point_bytes = curve.g2_bytes if group is Group.G2 else curve.g1_bytes
        result = _data(operation.result, point_bytes)
        nbytes = self._library.msm_scratch_bytes(curve, group, n, self._threads)
        with HostBuffer.allocate(self._ledger, nbytes, Purpose.MSM, owner, spare=self._scratch) as scratch:
            self._library.msm(curve, group, operation.points, scalars, n, result, scratch.data, nbytes, call)

    def _emit_spans(self, call: native.Call, owner: Owner) -> None:
        if self._sink is None:
            return
        for span in call.spans():
            kind = _KINDS.get(span.kind)
            if kind is not None:
                self._sink(
                    Span(
                        span.start_ns,
                        span.end_ns,
                        DEVICE_ID,
                        Lane.COMPUTE,
                        kind,
                        owner.job,
                        owner.partition,
                        owner.worker,
                    )
                )

    def _emit_copy(self, start: int, lane: Lane, kind: str, owner: Owner, nbytes: int) -> None:
        if self._sink is not None:
            end = time.monotonic_ns()
            self._sink(
                Span(start, end, DEVICE_ID, lane, kind, owner.job, owner.partition, owner.worker, nbytes, pinned=False)
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the device was closed")


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as the kernel names it, without the marks and the clock that vendors put in."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "CPU"
    for field in ("model name", "Model", "Hardware", "cpu model"):
        found = re.search(rf"^{field}\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            name = re.sub(r"\((?:R|TM|tm)\)|\bCPU\b|@.*$", " ", found[1])
            return " ".join(name.split()) or "CPU"
    return "CPU"


def _data(buffer: base.Buffer, nbytes: int = 0) -> Bytes:
    """The memory of a buffer of this device, which must have at least ``nbytes``."""
    if not isinstance(buffer, HostBuffer):
        raise TypeError("a buffer of another kind of device")
    if buffer.nbytes < nbytes:
        raise ValueError(f"a buffer of {buffer.nbytes} bytes, the operation needs {nbytes}")
    return buffer.data
