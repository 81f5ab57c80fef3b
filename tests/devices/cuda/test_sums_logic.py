"""MSMs side by side on the CUDA device, points that stay and points that travel, without kernels: that the order of
streams is right is checked by the fake at every access."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.base import CancelToken, Evaluate, Msm, Owner
from cuzk_engine.devices.cuda.limit import read_limit
from cuzk_engine.devices.cuda.need import evaluate_need, msm_budget, msm_form, msm_need
from cuzk_engine.devices.cuda.shape import aligned_size, shape
from cuzk_engine.errors import CancelledError, SettingError
from cuzk_engine.events import Allocation, Kind, Lane, Purpose, Span
from cuzk_engine.native import Group
from tests.devices.cuda.conftest import Bench

ME, OTHER = Owner("job", 0, 0), Owner("other", 0, 1)
TOKEN = CancelToken()


def some_points(curve: Curve, n: int, every: int = 1, *, fixed: bool = True) -> np.ndarray:
    """The generator, and infinity for all but each ``every``-th."""
    one = pow(2, 8 * curve.n8q, curve.q)
    x, y = (1, 2) if curve is BN254 else curve.g1
    point = b"".join((v * one % curve.q).to_bytes(curve.n8q, "little") for v in (x, y))
    rows = [point if i % every == 0 else bytes(len(point)) for i in range(n)]
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(n, -1)
    return data if fixed else data.copy()


def expected(curve: Curve, points: np.ndarray, scalars: np.ndarray) -> bytes:
    library, n, size = native.library(), len(points), points.shape[1]
    out, nbytes = native.aligned(size), native.library().msm_scratch_bytes(curve, Group.G1, n, 1)
    library.msm(curve, Group.G1, points, scalars, n, out, native.aligned(nbytes), nbytes, native.Call(1))
    return out.tobytes()


class Sums:
    """MSMs of one device with scalars of their own; checks the results."""

    def __init__(self, bench: Bench, **options: Any) -> None:
        self.bench, self.device = bench, bench.open(**options)
        self.running: list[tuple[Any, Any, bytes]] = []
        self.scalars = np.random.default_rng(1).integers(0, 200, (64, 32), np.uint8)
        self.scalars[:, 16:] = 0
        self.values = self.device.allocate(self.scalars.nbytes, Purpose.WITNESS, ME)
        self.ready = self.device.upload(self.values, self.scalars, Kind.UPLOAD_WITNESS, ME)

    def launch(self, points: np.ndarray, owner: Owner = ME, **options: Any) -> Any:
        n = len(points)
        result = self.device.allocate(BN254.g1_bytes, Purpose.RESULT, owner)
        operation = Msm(BN254, 1, points, self.values, 64 - n, n, result, **options)
        event = self.device.launch(operation, owner, TOKEN, self.ready)
        self.running.append((event, result, expected(BN254, points, self.scalars[64 - n :])))
        return event

    def check(self) -> None:
        for event, result, right in self.running:
            event.wait()
            assert self.device.download(result, BN254.g1_bytes, Kind.DOWNLOAD_RESULT, ME) == right
            result.free()
        self.running.clear()

    def close(self) -> None:
        self.values.free()
        self.device.release_residents()
        assert self.device.memory().by_purpose == {"context": self.device.context_bytes}
        self.device.close()


@pytest.mark.parametrize("parallel", [1, 2, 3])
@pytest.mark.parametrize("resident", [True, False])
def test_side_by_side(bench: Bench, parallel: int, resident: bool) -> None:
    """So many are under way as the device says, their scratch is counted until they are over, and no longer."""
    sums = Sums(bench, parallel=parallel)
    assert sums.device.info.parallel_launches == parallel
    points = [some_points(BN254, n) for n in (60, 10, 64, 33, 50)]
    need = max(sums.device.msm_need(BN254, 1, len(p), len(p), resident=resident).scratch for p in points)
    for number, each in enumerate(points):
        sums.launch(each, resident=resident)
        held = sums.device.memory().by_purpose
        assert 0 < held["msm"] <= min(number + 1, parallel) * need
    if resident:  # else the blocks that points travel through make the host wait
        assert not sums.running[0][0].done()
    sums.check()
    assert "msm" not in sums.device.memory().by_purpose
    sums.close()


def test_later_ones_give_way(bench: Bench) -> None:
    sums = Sums(bench)
    streams, before = bench.runtime.streams, set(bench.runtime.streams)
    with sums.device._guard:
        places = []
        for _ in range(3):
            slot, place = sums.device._slots.take()
            places.append(place)
            slot.last = bench.fake.cuda.Stream().record()
            bench.runtime.put(streams[max(streams)], lambda: None)
            slot.last.record(streams[max(streams)])
            sums.device._slots.put(slot)
    assert [place.streams.filling[0].priority for place in places] == [-4, -3, -2]
    assert {place.stream.priority for place in places} == {-5}
    assert before < set(streams)
    sums.close()


@pytest.mark.parametrize("ahead", [True, False])
def test_points_travel_for_a_launch(bench: Bench, ahead: bool) -> None:
    """Sent before it, or brought by it: they go with it."""
    sums = Sums(bench)
    device = sums.device
    points = some_points(BN254, 64)
    need = device.msm_need(BN254, 1, 64, 64, resident=False)
    device.ledger.reset_peak()
    before = device.memory().used
    results = 0
    for _ in range(5):
        if ahead:
            with device.allocate(points.nbytes, Purpose.SRS, ME) as sent:
                device.upload(sent, points, Kind.UPLOAD_SRS, ME)
                sums.launch(points, resident=False, sent=sent)
        else:
            sums.launch(points, resident=False)
            assert device.memory().by_purpose["srs"] <= 2 * need.transit
        results += BN254.g1_bytes
    assert need.transit == points.nbytes
    most = before + results + 2 * (need.scratch + need.transit)
    assert device.memory().peak == most if not ahead else most - 2 * need.transit <= device.memory().peak < most
    sums.check()
    uploads = [e for e in bench.events if isinstance(e, Span) and e.kind == Kind.UPLOAD_SRS]
    assert [(e.lane, e.bytes, e.pinned) for e in uploads] == [(Lane.H2D, points.nbytes, False)] * 5
    sums.close()


def test_points_that_are_locked_already_travel_as_they_are(bench: Bench) -> None:
    sums = Sums(bench)
    points = some_points(BN254, 64)
    bench.runtime.locked[points.ctypes.data] = points.nbytes
    sums.launch(points, resident=False)
    sums.check()
    (upload,) = [e for e in bench.events if isinstance(e, Span) and e.kind == Kind.UPLOAD_SRS]
    assert upload.pinned
    del bench.runtime.locked[points.ctypes.data]
    sums.close()


@pytest.mark.parametrize(("every", "present"), [(1, 64), (2, 32), (64, 1)])
def test_what_stays_is_what_was_planned(bench: Bench, every: int, present: int) -> None:
    """It leaves the reservation that was made for it, and points at infinity do not come along."""
    sums = Sums(bench)
    need = sums.device.msm_need(BN254, 1, 64, present, resident=True)
    with sums.device.reserve(need.stay, 0, OTHER, TOKEN) as room:
        committed = sums.device.ledger.committed
        sums.launch(some_points(BN254, 64, every), resident=True, room=room)
        sums.check()
        assert sums.device.memory().by_purpose["srs"] == need.stay
        assert sums.device.ledger.committed == committed
    assert sums.device.ledger.committed == committed
    sums.close()


def test_bytes_that_may_change_travel(bench: Bench) -> None:
    """As those that are converted part by part into one buffer do."""
    sums = Sums(bench)
    for factor in (1, 2):
        points = some_points(BN254, 32 * factor, fixed=False)
        sums.launch(points, resident=True)
        points[:] = 0
        sums.check()
        assert "srs" not in sums.device.memory().by_purpose
    sums.close()


def test_a_lease_holds(bench: Bench) -> None:
    sums = Sums(bench)
    device, first, second = sums.device, some_points(BN254, 20), some_points(BN254, 30)
    sums.launch(first)
    sums.check()
    with device.lease([first, second]) as lease:
        assert lease.nbytes == first.nbytes
        sums.launch(second)
        sums.check()
        device.release_residents()
        assert device.memory().by_purpose["srs"] == first.nbytes + second.nbytes
        assert device.room().idle == 0
    assert device.room().idle == first.nbytes + second.nbytes
    device.release_residents()
    assert "srs" not in device.memory().by_purpose
    assert [e.kind for e in bench.events if isinstance(e, Span)].count(Kind.POOL_TRIM) == bench.runtime.trims == 2
    sums.close()


def _three_and_cancel(sums: Sums, cancel: CancelToken) -> None:
    for _ in range(3):
        sums.launch(some_points(BN254, 64), resident=False)
    cancel.set()
    cancel.check()


def test_the_lock_is_let_go_with_work_under_way(bench: Bench) -> None:
    """Its memory counts until somebody waits for it."""
    sums = Sums(bench)
    cancel = CancelToken()
    with pytest.raises(CancelledError), sums.device.compute_lock(ME, cancel):
        _three_and_cancel(sums, cancel)
    assert {"msm", "srs"} <= set(sums.device.memory().by_purpose)
    sums.check()
    assert not {"msm", "srs"} & set(sums.device.memory().by_purpose)
    sums.close()


def test_the_peak_is_what_was_allocated(bench: Bench) -> None:
    sums = Sums(bench)
    bench.runtime.peak = 0
    sums.device.ledger.reset_peak()
    for n in (64, 30, 50):
        sums.launch(some_points(BN254, n), resident=n != 50)
    sums.check()
    fixed = sums.device._context.nbytes
    assert bench.runtime.peak == sums.device.memory().peak - fixed
    total = 0
    for event in bench.events:
        if isinstance(event, Allocation) and event.device == "cuda:0":
            total += event.delta
            assert total >= 0
    assert total == sums.device.memory().used
    sums.close()


def test_room_sees_other_programs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.module, "_READ_NS", 10**12)
    device = bench.open()
    whole = device.room()
    assert whole.capacity == device.info.capacity
    assert (whole.used, whole.idle) == (device.context_bytes, 0)
    bench.runtime.limit -= 1 << 30
    assert device.room().capacity == whole.capacity  # one reading serves all of an admission
    monkeypatch.setattr(bench.module, "_READ_NS", 0)
    less = device.room()
    assert whole.capacity - less.capacity == 1 << 30
    device.close()


def test_staging_is_page_locked(bench: Bench) -> None:
    device = bench.open()
    rows = list(bench.runtime.locked.values())  # that results are fetched into
    with device.staging(1 << 16, Purpose.ABC, ME, pinned=True) as buffer:
        assert buffer.pinned
        assert list(bench.runtime.locked.values()) == [*rows, 1 << 16]
        buffer.data[:] = 7
        with device.allocate(1 << 16, Purpose.ABC, ME) as target:
            device.upload(target, buffer.data, Kind.UPLOAD_ABC, ME).wait()
            assert device.download(target, 1 << 16, Kind.DOWNLOAD_RESULT, ME) == bytes([7]) * (1 << 16)
    assert list(bench.runtime.locked.values()) == [*rows, 1 << 16]  # for the next one
    assert [e.pinned for e in bench.events if isinstance(e, Span) and e.lane == Lane.H2D] == [True]
    with device.staging(100, Purpose.ABC, ME, pinned=False) as buffer:
        assert not buffer.pinned
    device.close()
    assert not bench.runtime.locked


def test_memory_that_cannot_be_locked(bench: Bench, expected_logs: Callable[[str], None]) -> None:
    expected_logs("65,536 bytes could not be page-locked")
    device = bench.open()
    bench.runtime.most_locked = 1 << 10
    with device.staging(1 << 16, Purpose.ABC, ME, pinned=True) as buffer:
        assert not buffer.pinned
        buffer.data[:] = 1
    device.close()


@pytest.mark.parametrize("n", [1, 700, 5000])
def test_the_plan_of_the_rows(bench: Bench, n: int) -> None:
    """Matrices that cannot stay, since their bytes may change, take no more than planned."""
    device = bench.open()
    section = np.zeros((n, 44), np.uint8)
    section.view(np.uint32)[:, 1] = np.arange(n) % 64
    witness = np.zeros(32 * 10, np.uint8)
    need = evaluate_need(n, 10, 64)
    with device.allocate(witness.nbytes, Purpose.WITNESS, ME) as w:
        device.upload(w, witness, Kind.UPLOAD_WITNESS, ME)
        a, b, c = (device.allocate(64 * 32, Purpose.ABC, ME) for _ in "abc")
        device.ledger.reset_peak()
        before = device.memory().used
        device.launch(Evaluate(BN254, section, None, w, a, b, c, 64), ME, TOKEN).wait()
        assert device.memory().used == before
        assert device.memory().peak - before <= need.scratch + need.stay
        for vector in (a, b, c):
            vector.free()
    device.close()


def test_needs() -> None:
    budget = 1 << 30
    whole = msm_need(BLS12_381, 2, 1000, 1000, budget, resident=True)
    half = msm_need(BLS12_381, 2, 1000, 500, budget, resident=True)
    assert (whole.stay, whole.transit) == (192_000, 0)
    assert half.stay == 500 * 196
    assert half.scratch < whole.scratch
    travelling = msm_need(BLS12_381, 2, 1000, 500, budget, resident=False)
    assert (travelling.stay, travelling.transit) == (0, 192_000)
    assert travelling.scratch == whole.scratch + aligned_size(32_000)  # scalars that are picked
    assert msm_need(BN254, 1, 0, 0, budget, resident=False).scratch == 0
    first, later = evaluate_need(10**6, 10**5, 1 << 18), evaluate_need(10**6, 10**5, 1 << 18, prepared=True)
    assert later.stay == 0
    assert 0 < later.scratch <= first.scratch
    assert 40 * 10**6 < first.stay < 45 * 10**6


@pytest.mark.parametrize("capacity", [1 << 30, 8 << 30, 24 << 30, 139 << 30])
def test_scratch_keeps_to_its_share_of_a_card(capacity: int) -> None:
    """Two at a time take a quarter, where that is possible at all; what there is room for is used."""
    budget = msm_budget(capacity, 2)
    assert budget == capacity // 8
    last = None
    for log_n in range(14, 27):
        form = msm_form(BLS12_381, 1, 1 << log_n, budget)
        nbytes = msm_need(BLS12_381, 1, 1 << log_n, 1 << log_n, budget, resident=True).scratch
        least = shape(BLS12_381, 1 << log_n, 1, budget=1)
        assert nbytes <= budget or form == least
        if form.parts == 1:
            assert last is None or last.parts == 1
        last = form
    assert (msm_form(BLS12_381, 1, 1 << 22, budget).parts == 1) == (capacity > 100 << 30)


@pytest.mark.parametrize(("text", "limit"), [("2GiB", 2 << 30), ("auto", None), (None, None)])
def test_limit(text: str | None, limit: int | None) -> None:
    assert read_limit({} if text is None else {"CUZK_CUDA_LIMIT": text}) == limit


@pytest.mark.parametrize("text", ["", "2", "1KiB", "much"])
def test_a_limit_that_is_none(text: str) -> None:
    with pytest.raises(SettingError, match='CUZK_CUDA_LIMIT is "'):
        read_limit({"CUZK_CUDA_LIMIT": text})


def test_a_slot_is_one_launchs_at_a_time(bench: Bench) -> None:
    """Another thread's launch must not take away what this one brought into its slot."""
    sums = Sums(bench, parallel=1)
    slots, order = sums.device._slots, []

    def launch() -> None:
        with sums.device._guard:
            slot, _ = slots.take()
            order.append("other")
            slots.put(slot)

    other = threading.Thread(target=launch)
    slot, _ = slots.take()
    points = slot.scratch(512, ME)
    other.start()
    other.join(0.2)
    order.append("this")
    assert points.address
    slots.put(slot)
    other.join()
    assert order == ["this", "other"]
    sums.close()
