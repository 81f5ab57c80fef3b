"""The CUDA device without its kernels: memory under the ledger, order of vectors, spans, errors, whole proofs.

CuPy's calls are faked on host memory, and the operations are the CPU's on the same bytes. What the kernels compute is
tested on a GPU, in tests/gpu.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest

from cuzk_engine.devices.base import CancelToken, Msm, Owner
from cuzk_engine.errors import CancelledError, DeviceLostError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Incident, Kind, Lane, Purpose, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Runner
from tests.devices.cuda import fake_cupy
from tests.devices.cuda.conftest import Bench
from tests.support.cases import TINY_CASES, case

ME = Owner("job", 0, 0)
MIB = 1 << 20


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


@pytest.mark.parametrize("evaluate", [Evaluation.DEVICE, Evaluation.HOST])
def test_each_transform_is_a_span(bench: Bench, evaluate: Evaluation) -> None:
    """Enqueued at once or one by one, they follow each other on the same stream."""
    runner = Runner(bench.open(), KeyCache())
    for _ in range(2):
        del bench.events[:]
        prove(runner, case("bn128", "merkle10"), PipelineSettings(evaluate=evaluate))
    kinds = Kind.SPMV, Kind.NTT_COSET, Kind.POINTWISE
    spans = [e for e in bench.events if isinstance(e, Span) and e.lane == Lane.COMPUTE and e.kind in kinds]
    first = [Kind.SPMV] if evaluate is Evaluation.DEVICE else []
    assert [span.kind for span in spans] == [*first, *(3 * [Kind.NTT_COSET]), Kind.POINTWISE]
    assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(spans))
    assert {(span.job, span.worker, span.bytes, span.pinned) for span in spans} == {("job", 0, 0, None)}
    runner.release_caches()


def test_what_is_allocated_is_what_the_ledger_says(bench: Bench) -> None:
    device = bench.open()
    runner = Runner(device, KeyCache())
    prove(runner, case("bn128", "merkle10"))
    fixed = device._context.nbytes
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
    device = bench.open(limit=peak)
    prove(Runner(device, KeyCache()), item)
    assert device.memory().peak <= device.info.capacity
    small = bench.open(limit=1 << 16)
    with pytest.raises(MemoryPlanError) as refusal:
        prove(Runner(small, KeyCache()), item)
    assert refusal.value.requested > 1 << 16
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
    """Never lasts less than nothing; it is told when its end is over."""
    module = importlib.import_module("cuzk_engine.devices.cuda.timeline")
    timeline = module.Timeline("cuda:0", bench.events.append)
    marks, end = timeline.moments.marks(1), timeline.moments.end()
    stream = sys.modules["cupy.cuda"].Stream()
    timeline.add(marks, (end,), module.span_times(Lane.COMPUTE, Kind.MSM_REDUCE), ME)
    timeline.collect()
    assert not bench.events
    end.record(stream)
    marks.events[0].record(stream)
    timeline.collect()
    (span,) = bench.events
    assert isinstance(span, Span)
    assert span.start_ns == span.end_ns


@pytest.mark.parametrize("lately", [0, 1 << 62])
def test_spans_wait_for_the_last_of_their_owner(bench: Bench, monkeypatch: pytest.MonkeyPatch, lately: int) -> None:
    """Not for long: else they are told as soon as one of them is known to be over."""
    module = importlib.import_module("cuzk_engine.devices.cuda.timeline")
    monkeypatch.setattr(module, "_LATELY_NS", lately)
    timeline, stream = module.Timeline("cuda:0", bench.events.append), sys.modules["cupy.cuda"].Stream()

    def launch(owner: Owner) -> Any:
        marks, end = timeline.moments.marks(1), timeline.moments.end()
        marks.begin(stream)
        end.record(stream)
        timeline.add(marks, (end,), module.span_times(Lane.COMPUTE, Kind.NTT), owner)
        return end

    first, last, _ = launch(ME), launch(ME), launch(Owner("other", 0, 1))
    timeline.ended(first)
    assert [event.job for event in bench.events if isinstance(event, Span)] == (
        [] if lately else ["job", "job", "other"]
    )
    timeline.ended(last)
    assert [event.job for event in bench.events if isinstance(event, Span)] == ["job", "job", "other"]
    assert not timeline.pending


def test_what_was_not_freed_goes_with_the_device(bench: Bench) -> None:
    device = bench.open()
    buffer = device.allocate(64, Purpose.ABC, ME)
    device.close()
    assert device.memory().used == 0
    assert not bench.runtime.blocks
    bench.runtime.fault = fake_cupy.CUDARuntimeError(700, "cudaErrorIllegalAddress: nothing may be called any more")
    buffer.free()


def test_tables_as_planned(bench: Bench) -> None:
    device = bench.open()
    curve = KeyCache().get(case("bls12381", "mul_out").path("circuit.zkey")).sizes.curve
    assert device.table_bytes(curve, 10) == 32 * (1024 + 128)


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
