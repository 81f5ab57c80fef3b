"""What a call of the driver that fails leaves behind: nothing that is still under way may be freed or lent again, and
nothing later fails for it. The fake checks every access, free and copy against the order of streams."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzk_engine.devices.base import CancelToken, Msm, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.errors import CuzkError, DeviceFaultError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Kind, Lane, Purpose, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Runner
from tests.devices.cuda import fake_cupy
from tests.devices.cuda.conftest import Bench
from tests.devices.cuda.test_replay_logic import Sums as Replayed
from tests.devices.cuda.test_replay_logic import some_points as points_of
from tests.devices.cuda.test_replay_logic import with_bytes_that_stay
from tests.devices.cuda.test_sums_logic import BN254, Sums, expected, some_points
from tests.support.cases import case
from tests.support.fake_driver import INVALID_HANDLE

ME, TOKEN = Owner("job", 0, 0), CancelToken()
SIZE = 1 << 12


def failing(number: int) -> Callable[..., Any]:
    """A call of CuPy's that fails like this."""

    def call(*_: Any) -> Any:
        raise fake_cupy.CUDARuntimeError(number, f"cudaError{number}: words of the driver")

    return call


def after(count: int, call: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """The first ``count`` calls are ``call``, the one after them is ``then``, and so on from there."""
    state = SimpleNamespace(left=count)

    def choose(*arguments: Any) -> Any:
        state.left -= 1
        return (then if state.left == -1 else call)(*arguments)

    return choose


def many_points() -> np.ndarray:
    """More than a block takes; most are at infinity where every second one is left out."""
    data = np.ones((400_000, 64), np.uint8)
    return np.frombuffer(data.tobytes(), np.uint8).reshape(data.shape)


def test_a_second_block_that_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one travels then, to memory that is given back."""
    device = bench.open()
    loader, points = device._loader, many_points()
    feeder = loader._feeder

    def refuse(nbytes: int) -> Any:
        raise OutOfDeviceMemoryError("host", Purpose.SRS, nbytes, 0, 0)

    monkeypatch.setattr(feeder, "_staging", after(1, feeder._staging, refuse))
    with device.allocate(64, Purpose.RESULT, ME) as result, device.allocate(64, Purpose.WITNESS, ME) as witness:
        operation = Msm(BN254, 1, points, witness, 0, len(points), result)
        assert device._residents.acquire("points", points, lambda: loader.make(operation, ME)) is None
    assert device.memory().by_purpose == {"context": device.context_bytes}
    device._loader.load(target := device.allocate(points.nbytes, Purpose.SRS, ME), points, ME).synchronize()
    assert target.array((points.nbytes,), np.uint8)[-64:].tolist() == [1] * 64
    target.free()


def test_numbers_that_cannot_follow_their_points(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    device = bench.open()
    loader, points = device._loader, some_points(BN254, 64, every=2)
    feeder = loader._feeder
    monkeypatch.setattr(feeder, "feed", after(1, feeder.feed, failing(1)))
    with device.allocate(64, Purpose.RESULT, ME) as result, device.allocate(64, Purpose.WITNESS, ME) as witness:
        operation = Msm(BN254, 1, points, witness, 0, 64, result)
        with pytest.raises(DeviceFaultError), device._guard:
            loader.make(operation, ME)
    assert device.memory().by_purpose == {"context": device.context_bytes}


def test_a_part_that_is_still_read(bench: Bench) -> None:
    """Of coefficients, when what reads it does not come to its end."""
    device = bench.open()
    stream = bench.fake.cuda.Stream()
    rows = np.zeros((100, 44), np.uint8)

    def read_one() -> None:
        with device._loader.parts(rows, stream, ME) as parts:
            for _, part in parts():
                bench.runtime.put(stream, lambda: None, (part.ctypes.data,))
                raise CuzkError("enough")

    with pytest.raises(CuzkError, match="enough"):
        read_one()
    assert device.memory().by_purpose == {"context": device.context_bytes}


@pytest.mark.parametrize("pinned", [True, False])
def test_an_upload_without_an_end(bench: Bench, pinned: bool) -> None:
    """Neither its target nor its source may go while the copy is under way."""
    device = bench.open()
    with device.staging(SIZE, Purpose.ABC, ME, pinned=pinned) as source:
        buffer = device.allocate(SIZE, Purpose.ABC, ME)
        spoil_the_next_end(device)
        with pytest.raises(DeviceFaultError):
            device.upload(buffer, source.data, Kind.UPLOAD_ABC, ME)
        assert not bench.runtime.copies
        buffer.free()
    device._host.release(device._locker)


def test_a_download_without_an_end(bench: Bench) -> None:
    device = bench.open()
    buffer = device.allocate(SIZE, Purpose.ABC, ME)
    device.upload(buffer, np.zeros(SIZE, np.uint8), Kind.UPLOAD_ABC, ME)
    spoil_the_next_end(device)
    with pytest.raises(DeviceFaultError):
        device.download(buffer, SIZE, Kind.DOWNLOAD_RESULT, ME)
    assert not bench.runtime.copies
    buffer.free()


def test_no_points_and_no_end(bench: Bench) -> None:
    sums = Sums(bench)
    result = sums.device.allocate(BN254.g1_bytes, Purpose.RESULT, ME)
    spoil_the_next_end(sums.device)
    operation = Msm(BN254, 1, np.zeros((0, BN254.g1_bytes), np.uint8), sums.values, 64, 0, result)
    with pytest.raises(DeviceFaultError):
        sums.device.launch(operation, ME, TOKEN, sums.ready)
    result.free()
    sums.close()


@pytest.mark.parametrize("played", [True, False])
def test_vectors_that_are_half_done(bench: Bench, played: bool) -> None:
    """What has begun is over before anybody may have their memory."""
    device = bench.open()
    vector = device.allocate(SIZE, Purpose.ABC, ME)

    def begin(stream: Any, frame: Any) -> None:
        if frame is not None:
            frame.open(stream)
        bench.runtime.put(stream, lambda: None, (), (vector.address,))
        raise fake_cupy.CUDARuntimeError(1, "cudaErrorInvalidValue: words")

    launcher, stream = device._vectors, device._compute
    module = importlib.import_module("cuzk_engine.devices.cuda.vector_launcher")
    steps = [module.Step([], [vector], Kind.POINTWISE, work) for work in (lambda *_: None, begin)]

    def launch() -> None:
        if played:
            launcher.play(steps, ME, None)
        else:
            launcher.launch([], [vector], Kind.POINTWISE, ME, None, lambda: begin(stream, None))

    with pytest.raises(DeviceFaultError):
        launch()
    vector.free()
    assert device.memory().by_purpose == {"context": device.context_bytes}


def test_a_fault_at_every_operation_of_a_sum(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two sums after it use its slot's memory, its row and its events, and are right; nothing is lost."""
    sums = Faulty(bench, monkeypatch)
    points = with_bytes_that_stay(points_of())
    sums.launch(points).wait()
    total, rows = sums.count, len(sums.device._rows._free)
    assert total > 20
    for k in range(total):
        sums.count, sums.at = 0, k
        with pytest.raises(DeviceFaultError):
            sums.launch(points)
        sums.at = -1
        gc.collect()
        events = [sums.launch(points) for _ in range(2)]
        for event in events:
            event.wait()
        del event, events
        gc.collect()
        assert len(sums.device._rows._free) == rows
        assert not sums.device._timeline.pending
    sums.close()


class Faulty(Replayed):
    """The call number ``at`` of the driver, of those that do something, is refused."""

    at = -1
    count = 0

    def _hear(self, *call: Any) -> int:
        if call[0] != "context":
            self.count += 1
            if self.count - 1 == self.at:
                return 1
        return super()._hear(*call)


def spoil_the_next_end(device: Any) -> None:
    """The next event that is recorded behind some work is not."""
    moments = device._timeline.moments
    made = moments.end

    def end() -> Any:
        moments.end = made
        moment = made()
        event = moment.event
        event.record = after(0, event.record, failing(1))
        return moment

    moments.end = end


# ---- events ----


def test_an_event_that_the_driver_does_not_know(bench: Bench) -> None:
    """One call hears of it; the others' spans are told, and their sums are right."""
    sums = Sums(bench)
    first = sums.launch(some_points(BN254, 20))
    (*_, one) = sums.device._timeline.pending
    second = sums.launch(some_points(BN254, 33))
    bench.unknown.add(one.handles[0])
    with pytest.raises(DeviceFaultError, match="400"):
        first.wait()
    second.wait()
    assert not sums.device._timeline.pending
    spans = [e for e in bench.events if isinstance(e, Span) and e.lane == Lane.D2H]
    assert len(spans) == 1
    sums.check()
    sums.close()


def test_what_is_dropped_is_not_on_its_way(bench: Bench) -> None:
    """A result's row is another's as soon as nobody knows it."""
    sums = Sums(bench)
    sums.launch(some_points(BN254, 20))
    sums.running.pop()[1].free()
    (*_, one) = sums.device._timeline.pending
    bench.unknown.add(one.handles[-1])
    del one
    with pytest.raises(DeviceFaultError), sums.device._guard:
        sums.device._timeline.collect()
    assert not bench.runtime.copies
    sums.device._slots.settle()
    sums.close()


def test_a_base_that_the_driver_does_not_know(bench: Bench) -> None:
    """Nothing is lost with it: times are told after another one."""
    sums = Sums(bench)
    timeline = sums.device._timeline
    event = sums.launch(some_points(BN254, 20))
    bench.unknown.add(timeline._base[0].ptr)
    with pytest.raises(DeviceFaultError, match=str(INVALID_HANDLE)):
        event.wait()
    assert timeline.pending
    event.wait()
    assert not timeline.pending
    sums.check()
    sums.close()


def test_the_base_is_renewed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As elapsed times lose their digits with the years."""
    sums = Sums(bench)
    timeline = sums.device._timeline
    old = timeline._base
    sums.launch(some_points(BN254, 20)).wait()
    assert timeline._base is old
    event, at = old
    event.at -= 10**15  # days ago, on both clocks
    timeline._base = event, at - 10**15
    sums.launch(some_points(BN254, 20)).wait()
    assert timeline._base[0] is not event
    begins = [e.start_ns for e in bench.events if isinstance(e, Span) and e.lane == Lane.COMPUTE]
    assert all(0 <= begin - at < 60 * 10**9 for begin in begins)
    sums.check()
    sums.close()


@pytest.mark.parametrize("vectors", [False, True])
def test_what_comes_after_an_event(bench: Bench, vectors: bool) -> None:
    """Whatever it is of."""
    sums = Sums(bench)
    device, other = sums.device, sums.device.allocate(SIZE, Purpose.ABC, ME)
    before, stream = device._h2d, device._compute if vectors else device._slots._places[0].stream
    sums.ready = device.upload(other, np.zeros(SIZE, np.uint8), Kind.UPLOAD_ABC, ME)
    if vectors:
        device._vectors.launch([], [sums.values], Kind.POINTWISE, ME, sums.ready, lambda: None)
    else:
        sums.launch(some_points(BN254, 20))
    assert stream.clock[before.ptr] == before.clock[before.ptr]
    sums.check()
    other.free()
    sums.close()


# ---- results on their way ----


def test_a_row_is_nobodys_while_a_copy_to_it_is_on_its_way(bench: Bench) -> None:
    """Also where nobody wants the result any more."""
    sums = Sums(bench)
    for _ in range(3):
        sums.launch(some_points(BN254, 20))
        sums.running.pop()[1].free()
    gc.collect()
    rows = {address for address, _ in sums.device._rows._places}
    assert len(rows & {copy[2] for copy in bench.runtime.copies}) == 3
    sums.device._slots.settle()
    sums.close()


def test_settling_waits_for_all_results(bench: Bench) -> None:
    sums = Sums(bench)
    for n in (20, 33, 40, 20, 64):
        sums.launch(some_points(BN254, n))
    assert bench.runtime.copies
    sums.device._slots.settle()
    assert not bench.runtime.copies
    sums.check()
    sums.close()


def test_rows_wait_for_what_is_on_its_way(bench: Bench) -> None:
    sums = Sums(bench)
    sums.launch(some_points(BN254, 20))
    sums.device._rows.close()
    assert not bench.runtime.copies
    ((event, result, right),) = sums.running
    event.wait()
    assert right == expected(BN254, some_points(BN254, 20), sums.scalars[44:])
    result.free()
    sums.running.clear()
    sums.close()


@pytest.mark.parametrize("refused", [False, True])
def test_a_device_that_is_closed_with_work_under_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """``refused``: the driver does not even wait for it as it should."""
    sums = Sums(bench)
    for n in (20, 33, 40, 20, 64):
        sums.launch(some_points(BN254, n))
    runtime, device = bench.runtime, sums.device
    if refused:
        monkeypatch.setattr(runtime, "deviceSynchronize", after(0, runtime.deviceSynchronize, failing(1)))
        with pytest.raises(DeviceFaultError):
            device.close()
    else:
        device.close()
    assert not runtime.locked
    assert not runtime.copies
    assert not device.host.memory().by_purpose


# ---- the host's budget ----


def test_the_rows_are_the_devices_from_its_start_to_its_end(bench: Bench) -> None:
    """So that a second proof finds as much of the host's memory as the first one did."""
    sums = Sums(bench)
    held = sums.device.host.memory().by_purpose
    assert held == {"context": 12_288}
    sums.launch(some_points(BN254, 20))
    sums.check()
    assert {purpose: held[purpose] for purpose in held if purpose != "srs"} == {"context": 12_288}
    sums.close()
    assert not sums.device.host.memory().by_purpose


def test_without_rows_results_are_downloaded(bench: Bench) -> None:
    """And nobody asks for rows again."""
    host = HostMemory(1 << 13, device="cuda:0", threads=1)
    sums = Sums(bench, host=host)
    points = some_points(BN254, 64, fixed=False)
    bench.runtime.locked[points.ctypes.data] = points.nbytes
    for _ in range(3):
        sums.launch(points, resident=False)
    sums.check()
    assert host.memory().peak == 0
    spans = [e for e in bench.events if isinstance(e, Span) and e.lane == Lane.D2H]
    assert [(e.kind, e.pinned) for e in spans] == [(Kind.DOWNLOAD_RESULT, False)] * 3
    sums.close()
    del bench.runtime.locked[points.ctypes.data]
    host.close()


@pytest.mark.parametrize("short", [0, 1])
def test_a_second_proof_finds_the_hosts_memory_that_the_first_one_found(bench: Bench, short: int) -> None:
    """Where no way but one is left: both go, or none."""
    item = case("bn128", "merkle10")
    files = item.path("circuit.zkey"), item.path("witness.wtns")
    settings = PipelineSettings(evaluate=Evaluation.HOST, prestage=Prestage.OFF)
    keys = KeyCache()
    needed = 3 * keys.get(files[0]).sizes.vector_bytes + 12_288
    host = HostMemory(needed - short, device="cuda:0", threads=1)
    device = bench.open(host=host)

    def feed(rows: Any, address: int, stream: Any, numbers: Any = None) -> int:
        """Without blocks, which are the host's memory, too."""
        chosen = np.ascontiguousarray(rows if numbers is None else rows[numbers])
        bench.runtime.memcpyAsync(address, chosen.ctypes.data, chosen.nbytes, fake_cupy.TO_DEVICE, stream.ptr)
        return chosen.nbytes

    device._loader._feeder = SimpleNamespace(feed=feed, close=lambda: None)
    runner = Runner(device, keys)
    for _ in range(2):
        if short:
            with pytest.raises(MemoryPlanError):
                runner.prove(*files, ME, settings)
        else:
            runner.prove(*files, ME, settings)
    runner.release_caches()
    device.close()
    host.close()
