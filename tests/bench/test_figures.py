"""The meter and the statistics, against plain definitions."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.bench.meter import Meter
from cuzk_engine.bench.report import table
from cuzk_engine.bench.results import ProofTime, Round, Series, Spread, Use
from cuzk_engine.bench.variations import Variation
from cuzk_engine.events import Allocation, Cause, Kind, Lane, Purpose, Span, host_lane


def span(start: int, end: int, lane: Lane = Lane.COMPUTE, device: str = "cpu") -> Span:
    return Span(start, end, device, lane, Kind.NTT)


def taken(delta: int, device: str = "cpu") -> Allocation:
    return Allocation(0, device, delta, Purpose.MSM)


def use(meter: Meter, start: int, end: int, *devices: str) -> Use:
    found = meter.use(start, end, devices)
    assert found is not None
    return found


def test_busy_is_the_union_of_compute_spans_within_the_round() -> None:
    meter = Meter()
    meter.begin()
    for event in (span(0, 20), span(10, 30), span(50, 60), span(0, 100, Lane.H2D), span(20, 90, device="cuda:1")):
        meter(event)
    assert use(meter, 10, 60, "cpu").busy == pytest.approx(30 / 50)
    assert use(meter, 10, 60, "cpu", "cuda:1").busy == pytest.approx((30 + 40) / 100)
    assert use(meter, 10, 60, "cpu", "idle").busy == pytest.approx(30 / 100)
    meter.begin()
    assert use(meter, 10, 60, "cpu").busy == 0.0


def test_idleness_has_causes_and_partitions_have_kernels() -> None:
    """Two partitions of 20 ms with 12 and 16 ms of kernels; between the second one's kernels, an upload."""
    ms = 1_000_000
    meter = Meter()
    meter.begin()
    host = host_lane(0)
    for start, end, lane, kind, job in (
        (0, 6, host, Kind.EVALUATE, "a"),
        (6, 18, Lane.COMPUTE, Kind.NTT, "a"),
        (18, 20, host, Kind.VERIFY, "a"),
        (20, 28, Lane.COMPUTE, Kind.NTT, "b"),
        (20, 40, Lane.LOCK, Kind.LOCK_HELD, "b"),
        (28, 34, Lane.H2D, Kind.UPLOAD_ABC, "b"),
        (34, 40, Lane.COMPUTE, Kind.NTT, "b"),
    ):
        meter(Span(start * ms, end * ms, "cpu", lane, kind, job, 0, 0, pinned=False if lane == Lane.H2D else None))
    found = use(meter, 0, 40 * ms, "cpu")
    assert found.busy == pytest.approx(26 / 40)
    assert found.idle == {
        Cause.HOST_STARVED: pytest.approx(6 / 40),
        Cause.PAGEABLE_UPLOAD: pytest.approx(6 / 40),
        "short": pytest.approx(2 / 40),
    }
    assert found.busy + sum(found.idle.values()) == pytest.approx(1)
    assert found.kernels == pytest.approx(0.013)
    both = use(meter, 0, 40 * ms, "cpu", "cuda:1")
    assert (both.busy, both.kernels) == (pytest.approx(13 / 40), pytest.approx(0.013))
    assert both.idle[Cause.QUEUE_EMPTY] == pytest.approx(1 / 2)


def test_many_spans_are_kept_and_too_many_are_told() -> None:
    meter = Meter(most_spans=10_000)
    meter.begin()
    for number in range(9_999):
        meter(span(2 * number, 2 * number + 1))
    assert use(meter, 0, 2 * 9_999, "cpu").busy == pytest.approx(1 / 2)
    for number in range(5_000):
        meter(span(2 * number, 2 * number + 1))
    assert meter.use(0, 10, ("cpu",)) is None


def test_the_peak_starts_from_what_is_held() -> None:
    meter = Meter()
    meter.set_used({"cpu": 100})
    meter.begin()
    for delta in (50, -20, 10, -40):
        meter(taken(delta))
    meter(taken(1 << 40, "host"))
    assert meter.peak(("cpu",)) == 150
    meter.begin()
    assert meter.peak(("cpu",)) == 100
    assert meter.peak(("cuda:0",)) is None


def test_lost_events_leave_nothing_known_until_the_next_round() -> None:
    meter = Meter()
    meter.begin()
    meter(span(0, 10))
    meter(taken(5))
    meter.lose()
    assert meter.use(0, 10, ("cpu",)) is None
    assert meter.peak(("cpu",)) is None
    meter.begin()
    assert use(meter, 0, 10, "cpu").busy == 0.0
    assert meter.peak(("cpu",)) == 5


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_spread_is_ordered_and_its_median_the_median(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread is not None
    assert spread.median == pytest.approx(statistics.median(values))
    assert (spread.low, spread.high, spread.count) == (min(values), max(values), len(values))
    assert spread.low <= spread.quartiles[0] <= spread.quartiles[1] <= spread.high


def test_nothing_has_no_spread() -> None:
    assert Spread.of([]) is None


def series() -> Series:
    made = Series(Variation("workers=2", (("gpus.gpu_workers_per_device", "2"),)))
    uses = Use(0.5, {"host-starved": 0.375, "short": 0.125}, 0.25), Use(0.75, {"short": 0.25}, 0.75)
    for seconds, used in zip(((1.0, 3.0), (2.0, 4.0)), uses, strict=True):
        proofs = tuple(ProofTime(each, {"ntt": 0.25, "msm": each / 2}, "ahead") for each in seconds)
        made.rounds.append(Round(proofs, sum(seconds), used, 1 << 20, None))
    return made


def test_the_sums_of_a_series() -> None:
    document = series().document()
    assert document["seconds"]["median"] == 2.5
    minutes = {"median": 25.0, "min": 20.0, "max": 30.0, "quartiles": [22.5, 27.5], "count": 2}
    assert document["proofs_a_minute"] == minutes
    assert document["busy"]["median"] == 0.625
    assert document["kernels"]["median"] == 0.5
    idle = {cause: (each["min"], each["median"]) for cause, each in document["idle"].items()}
    assert idle == {"host-starved": (0.0, 0.1875), "short": (0.125, 0.1875)}
    assert {name: each["median"] for name, each in document["phases"].items()} == {"ntt": 0.25, "msm": 1.25}
    assert (document["device_peak_bytes"], document["resident_peak_bytes"]) == (1 << 20, None)
    assert document["staged_otherwise"] == {}
    assert [each["seconds"] for each in document["rounds"]] == [[1.0, 3.0], [2.0, 4.0]]


def test_what_was_staged_otherwise_is_counted() -> None:
    made = series()
    proof = ProofTime(1.0, {}, "locked")
    made.rounds.append(Round((proof, proof), 1.0, None, None, None))
    assert made.staged_otherwise == {"locked": 2}


def test_the_table_says_what_is_not_known() -> None:
    unknown = Series(Variation("as configured"), [Round((ProofTime(1.0, {}),), 2.0, None, None, None)])
    lines = table([series(), unknown])
    assert [" ".join(line.split()) for line in lines] == [
        "s a proof (min–max) proofs/min (min–max) % busy (min–max) kernels, ms device peak resident peak",
        "workers=2 2.500 (1.000–4.000) 25.0 (20.0–30.0) 62.5 (50.0–75.0) 500.0 1 MiB n/a",
        "as configured 1.000 30.0 n/a n/a n/a n/a",
        "",
        "median % idle by host-starved short",
        "workers=2 18.8 18.8",
        "as configured – –",
        "",
        "median ms of ntt msm",
        "workers=2 250.0 1250.0",
        "as configured – –",
    ]
