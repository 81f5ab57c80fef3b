"""The CUDA device without its kernels: memory under the ledger, order of vectors, spans, errors, whole proofs.

CuPy's calls are faked on host memory, and the operations are the CPU's on the same bytes. What the kernels compute is
tested on a GPU, in tests/gpu.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzk_engine import native
from cuzk_engine.devices.base import CancelToken, Evaluate, Msm, Owner
from cuzk_engine.devices.cuda.shape import scratch_bytes, shape, table_rows
from cuzk_engine.errors import CancelledError, DeviceLostError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Event, Incident, Kind, Lane, Purpose, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.native import Group
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Runner
from tests.devices.cuda import fake_cupy
from tests.support.cases import TINY_CASES, case

ME = Owner("job", 0, 0)
MIB = 1 << 20
_DEPENDENT = ("device", "memory", "operations", "timeline", "msm", "tree", "ntt", "vectors", "fields", "module")


class CpuOperations:
    """``Operations`` with the native library; a vector that stays on the device keeps the order it has."""

    def __init__(self, allocations: list[tuple[str, int]]) -> None:
        self._library, self._call = native.library(), native.Call
        self._allocations = allocations

    def prepare(self, curve: Any) -> None: ...

    def fill_table(self, operation: Any, table: Any) -> None:
        nbytes = self._library.ntt_table_bytes(operation.curve, operation.log_n)
        self._tables = getattr(self, "_tables", {})
        self._tables[table.address] = data = native.aligned(nbytes)
        self._library.ntt_table(operation.curve, operation.log_n, data, self._call(1))
        table.array((table_rows(operation.log_n), 4), np.uint64)

    def coset_extend(self, operation: Any, data: Any, table: Any) -> None:
        n = 32 << operation.log_n
        work = native.aligned(n)
        view = data.array((n,), np.uint8)
        work[:] = view
        self._library.coset_extend(operation.curve, work, operation.log_n, self._tables[table.address], self._call(1))
        view[:] = work

    def join(self, operation: Any, a: Any, b: Any, c: Any) -> None:
        n = 32 * operation.n
        views = [x.array((n,), np.uint8) for x in (a, b, c)]
        work = [native.aligned(n) for _ in views]
        for x, view in zip(work, views, strict=True):
            x[:] = view
        self._library.h_join(operation.curve, *work, operation.n, self._call(1))
        views[0][:] = work[0]

    def msm(self, operation: Any, points: Any, scalars: Any, result: Any, marks: list[Any]) -> None:
        curve, group, n = operation.curve, Group(operation.group), operation.n
        size = curve.g2_bytes if group is Group.G2 else curve.g1_bytes
        out, work = native.aligned(size), native.aligned(32 * n)
        work[:] = scalars.array((32 * n,), np.uint8, 32 * operation.offset)
        table = native.aligned(n * size)
        if n:
            table[:] = points.array
        nbytes = self._library.msm_scratch_bytes(curve, group, n, 1)
        scratch = native.aligned(nbytes)
        self._library.msm(curve, group, table.reshape(n, size), work, n, out, scratch, nbytes, self._call(1))
        result.array((size,), np.uint8)[:] = out

    def prepare_matrices(self, curve: Any, section: Any, domain: int, n_vars: int) -> Any:
        return SimpleNamespace(section=np.array(section), domain=domain)

    def evaluate(self, curve: Any, matrices: Any, witness: Any, out: Any) -> None:
        section = np.ascontiguousarray(matrices.section)
        rows = section.view(np.uint32).reshape(-1, 11)[:, 1]
        order = np.argsort(rows, kind="stable").astype(np.uint32)
        n = 32 * matrices.domain
        work = [native.aligned(n) for _ in out]
        values = native.aligned(witness.nbytes)
        values[:] = witness.array((witness.nbytes,), np.uint8)
        self._library.evaluate(curve, section, len(section), order, values, matrices.domain, *work, self._call(1))
        for x, buffer in zip(work, out, strict=True):
            buffer.array((n,), np.uint8)[:] = x


class Bench:
    def __init__(self, module: Any, runtime: Any) -> None:
        self.module, self.runtime = module, runtime
        self.events: list[Event] = []

    def open(self, limit: int | None = None) -> Any:
        device = self.module.CudaDevice(0, Path("/nonexistent"), self.events.append, limit)
        device._operations = CpuOperations([])
        return device


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    fake, modules = fake_cupy.make()
    names = [f"cuzk_engine.devices.cuda.{name}" for name in _DEPENDENT]
    before = {name: sys.modules.pop(name, None) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    device = importlib.import_module("cuzk_engine.devices.cuda.device")
    monkeypatch.setattr(device, "free_bytes", lambda bus_id: fake.cuda.runtime.limit)
    monkeypatch.setattr(
        device.operations,
        "copy_matrices",
        lambda matrices, allocate: (allocate(int(matrices.section.nbytes)), matrices),
    )
    monkeypatch.setattr(device.operations, "present_points", lambda block, n, size: None)
    yield Bench(device, fake.cuda.runtime)
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


def prove(runner: Runner, item: Any, settings: PipelineSettings | None = None, owner: Owner = ME) -> Any:
    files = item.path("circuit.zkey"), item.path("witness.wtns")
    return runner.prove(*files, owner, settings or PipelineSettings())


@pytest.mark.parametrize("prestage", Prestage)
@pytest.mark.parametrize("evaluate", Evaluation)
@pytest.mark.parametrize("item", [*TINY_CASES[:1], case("bls12381", "mul_pub"), case("bn128", "merkle10")], ids=str)
def test_proofs(bench: Bench, item: Any, prestage: Prestage, evaluate: Evaluation) -> None:
    device = bench.open()
    runner = Runner(device, KeyCache(), bench.events.append)
    for number in range(2):
        del bench.events[:]
        device.ledger.reset_peak()
        outcome = prove(runner, item, PipelineSettings(prestage=prestage, evaluate=evaluate))
        assert outcome.device == "cuda:0"
        held = device.memory().by_purpose
        assert set(held) == {"context", "ntt", "srs"} | (set() if evaluate is Evaluation.HOST else {"matrices"})
        residents = held["srs"] + held.get("matrices", 0)
        assert device.memory().peak <= outcome.peak_bytes + residents + device.context_bytes
        uploads = [e.kind for e in bench.events if isinstance(e, Span) and e.lane == Lane.H2D]
        assert (Kind.UPLOAD_SRS in uploads) == (number == 0)
    runner.release_caches()
    device.release_residents()
    assert device.memory().by_purpose == {"context": device.context_bytes}
    device.close()
    assert device.memory().used == 0
    assert not bench.runtime.blocks


def test_what_is_allocated_is_what_the_ledger_says(bench: Bench) -> None:
    device = bench.open()
    runner = Runner(device, KeyCache())
    prove(runner, case("bn128", "merkle10"))
    fixed = device.context_bytes - device._factors.nbytes
    assert bench.runtime.used == device.memory().used - fixed
    deltas = [event.delta for event in bench.events if isinstance(event, Allocation) and event.device == "cuda:0"]
    assert sum(deltas) == device.memory().used
    device.close()
    runner.release_caches()
    assert not bench.runtime.blocks


def test_workers_take_turns(bench: Bench) -> None:
    device = bench.open()
    runner = Runner(device, KeyCache())
    faults: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for k in range(3):
                prove(runner, case("bn128", ("mul_out", "merkle10")[k % 2]), owner=Owner(f"{worker}.{k}", 0, worker))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    runner.release_caches()
    device.release_residents()
    assert device.ledger.committed == device.context_bytes
    device.close()


def test_the_plan_is_enough_where_nothing_stays(bench: Bench) -> None:
    item = case("bn128", "merkle10")
    peak = Runner(bench.open(), KeyCache()).plan(KeyCache().get(item.path("circuit.zkey")).sizes).peak
    device = bench.open(limit=peak + 64)
    prove(Runner(device, KeyCache()), item)
    assert device.memory().peak <= device.info.capacity
    small = bench.open(limit=peak // 2)
    with pytest.raises(MemoryPlanError) as refusal:
        prove(Runner(small, KeyCache()), item)
    assert refusal.value.requested == peak
    assert small.memory().by_purpose == {"context": small.context_bytes}


def test_a_driver_that_has_less_than_the_ledger(bench: Bench) -> None:
    """Another process took memory meanwhile: the numbers are the driver's, and nothing stays counted."""
    device = bench.open()
    bench.runtime.limit = bench.runtime.used + MIB
    with pytest.raises(OutOfDeviceMemoryError) as refusal:
        device.allocate(2 * MIB, Purpose.ABC, ME)
    assert (refusal.value.requested, refusal.value.free) == (2 * MIB, MIB)
    assert device.memory().by_purpose == {"context": device.context_bytes}
    device.allocate(MIB, Purpose.ABC, ME).free()


def test_a_lost_device_says_so_to_everybody(bench: Bench) -> None:
    device = bench.open()
    buffer = device.allocate(64, Purpose.ABC, ME)
    bench.runtime.fault = fake_cupy.CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access")
    for _ in range(2):
        with pytest.raises(DeviceLostError, match=r"lost after cudaErrorIllegalAddress \(700\)"):
            device.download(buffer, 64, Kind.DOWNLOAD_RESULT, ME)
    with pytest.raises(DeviceLostError):
        device.allocate(64, Purpose.ABC, ME)
    buffer.free()
    device.close()
    assert [event.kind for event in bench.events if isinstance(event, Incident)] == ["device-lost"]
    assert device.memory().used == 0


def test_a_span_whose_end_comes_first(bench: Bench) -> None:
    """On two streams, as groups of windows are: it is told when both are over, and never lasts less than nothing."""
    module = importlib.import_module("cuzk_engine.devices.cuda.timeline")
    timeline = module.Timeline("cuda:0", bench.events.append)
    event = sys.modules["cupy.cuda"].Event
    begin, end = event(), event()
    timeline.add(begin, end, Lane.COMPUTE, Kind.MSM_REDUCE, ME)
    end.record()
    timeline.collect()
    assert not bench.events
    begin.record()
    timeline.collect()
    (span,) = bench.events
    assert isinstance(span, Span)
    assert span.start_ns == span.end_ns


def test_what_was_not_freed_goes_with_the_device(bench: Bench) -> None:
    device = bench.open()
    buffer = device.allocate(64, Purpose.ABC, ME)
    device.close()
    assert device.memory().used == 0
    assert not bench.runtime.blocks
    bench.runtime.fault = fake_cupy.CUDARuntimeError(700, "cudaErrorIllegalAddress: nothing may be called any more")
    buffer.free()


def test_scratch_and_tables_as_planned(bench: Bench) -> None:
    device = bench.open()
    curve = KeyCache().get(case("bls12381", "mul_out").path("circuit.zkey")).sizes.curve
    assert device.scratch_bytes(Msm, curve, 2, 1000) == scratch_bytes(shape(curve, 1000, 2), 384) + 1000 * 192
    assert device.scratch_bytes(Evaluate, curve, 0, 1000) > 1000 * 100
    assert device.table_bytes(curve, 10) == 32 * (1024 + 64)


def test_buffers_are_checked(bench: Bench) -> None:
    device, token = bench.open(), CancelToken()
    curve = KeyCache().get(case("bls12381", "mul_out").path("circuit.zkey")).sizes.curve
    buffer = device.allocate(64, Purpose.ABC, ME)
    with pytest.raises(ValueError, match="65 bytes do not fit into a buffer of 64"):
        device.upload(buffer, np.zeros(65, np.uint8), Kind.UPLOAD_ABC, ME)
    points = np.zeros((3, 96), np.uint8)
    with pytest.raises(ValueError, match="a buffer of 64 bytes, the operation needs 96"):
        device.launch(Msm(curve, 1, points, buffer, 0, 3, buffer), ME, token)
    buffer.is_reversed = True
    with pytest.raises(ValueError, match="not in natural order"):
        device.download(buffer, 64, Kind.DOWNLOAD_RESULT, ME)
    buffer.free()
    buffer.free()
    with pytest.raises(ValueError, match="use of a freed buffer"):
        device.upload(buffer, np.zeros(1, np.uint8), Kind.UPLOAD_ABC, ME)
    token.set()
    with pytest.raises(CancelledError):
        device.launch(Msm(curve, 1, points, buffer, 0, 3, buffer), ME, token)
    device.close()
    with pytest.raises(ValueError, match="closed"):
        device.allocate(64, Purpose.ABC, ME)
