"""Intervals, the meter and the statistics, against plain definitions."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.bench.meter import Intervals, Meter
from cuzk_engine.bench.report import table
from cuzk_engine.bench.results import ProofTime, Round, Series, Spread
from cuzk_engine.bench.variations import Variation
from cuzk_engine.events import Allocation, Kind, Lane, Purpose, Span

times = st.integers(0, 60)


@given(st.lists(st.tuples(times, times)), times, times)
def test_a_union_is_the_set_of_its_moments(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    union = Intervals()
    for first, last in pairs:
        union.add(first, last)
    moments = {moment for first, last in pairs for moment in range(first, last)}
    assert union.within(start, end) == len(moments & set(range(start, end)))
    runs = sum(moment - 1 not in moments for moment in moments)
    assert len(union) == runs


def span(start: int, end: int, lane: Lane = Lane.COMPUTE, device: str = "cpu") -> Span:
    return Span(start, end, device, lane, Kind.NTT)


def taken(delta: int, device: str = "cpu") -> Allocation:
    return Allocation(0, device, delta, Purpose.MSM)


def test_busy_is_the_union_of_compute_spans_within_the_round() -> None:
    meter = Meter()
    meter.begin()
    for event in (span(0, 20), span(10, 30), span(50, 60), span(0, 100, Lane.H2D), span(20, 90, device="cuda:1")):
        meter(event)
    assert meter.busy(10, 60, ("cpu",)) == pytest.approx(30 / 50)
    assert meter.busy(10, 60, ("cpu", "cuda:1")) == pytest.approx((30 + 40) / 100)
    assert meter.busy(10, 60, ("cpu", "idle")) == pytest.approx(30 / 100)
    meter.begin()
    assert meter.busy(10, 60, ("cpu",)) == 0.0


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
    assert meter.busy(0, 10, ("cpu",)) is None
    assert meter.peak(("cpu",)) is None
    meter.begin()
    assert meter.busy(0, 10, ("cpu",)) == 0.0
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
    for seconds in ((1.0, 3.0), (2.0, 4.0)):
        proofs = tuple(ProofTime(each, {"ntt": 0.25, "msm": each / 2}, "ahead") for each in seconds)
        made.rounds.append(Round(proofs, sum(seconds), 0.5, 1 << 20, None))
    return made


def test_the_sums_of_a_series() -> None:
    document = series().document()
    assert document["seconds"]["median"] == 2.5
    minutes = {"median": 25.0, "min": 20.0, "max": 30.0, "quartiles": [22.5, 27.5], "count": 2}
    assert document["proofs_a_minute"] == minutes
    assert document["busy"]["median"] == 0.5
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
    lines = table([series()])
    assert [" ".join(line.split()) for line in lines] == [
        "s a proof (min–max) proofs/min (min–max) device busy device peak resident peak",
        "workers=2 2.500 (1.000–4.000) 25.0 (20.0–30.0) 50 % 1 MiB n/a",
        "",
        "median ms of ntt msm",
        "workers=2 250.0 1250.0",
    ]
