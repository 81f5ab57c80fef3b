"""Rates from counters of 32 bits: exact across a wrap, absent where one may have been missed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.nvml import Counters
from cuzk_engine.telemetry.pcie_meter import PcieMeter

GEN5_X16 = 63e9
MS = 1_000_000
WRAP = 1 << 32


def meter_at(start_ns: int, link: float = GEN5_X16) -> PcieMeter:
    meter = PcieMeter(link)
    meter._since_ns = start_ns
    return meter


def at(ms: float, rx: int, tx: int = 0) -> Counters:
    return Counters(int(ms * MS), int(ms * MS), rx % WRAP, tx % WRAP)


def test_a_full_link_wraps_between_polls() -> None:
    meter = meter_at(0)
    for k in range(11):
        meter.add(at(20 * k, int(55e9 * 0.020 * k) + WRAP - 5, int(1e9 * 0.020 * k)))
    rx, tx = meter.rates()
    assert rx is not None
    assert tx is not None
    assert abs(rx - 55e9) < 1e3
    assert abs(tx - 1e9) < 1e3
    meter.add(at(220, int(55e9 * 0.220) + WRAP - 5, int(1e9 * 0.220)))
    assert meter.rates() == (55e9, 1e9)


def test_too_far_apart_is_absent() -> None:
    meter = meter_at(0)
    meter.add(at(0, 0))
    meter.add(at(80, 100))  # 100 bytes, or 2^32 and 100
    assert meter.rates() == (None, None)
    meter.add(at(100, 200))
    assert meter.rates() == (5000.0, 0.0)


def test_a_slow_call_counts_with_its_whole_length() -> None:
    meter = meter_at(0)
    meter.add(at(0, 0))
    meter.add(Counters(20 * MS, 70 * MS, 10, 10))  # read at some time in between
    assert meter.rates() == (None, None)


def test_half_of_the_time_must_be_covered() -> None:
    meter = meter_at(0)
    meter.add(at(0, 0))
    meter.add(at(20, 1000))
    meter.add(None)
    assert not meter.counts
    meter.add(at(100, 2000))
    meter.add(at(110, 3000))
    assert meter.rates() == (None, None)
    for k in range(6):
        meter.add(at(110 + 10 * k, 1000 * k))
    meter.add(at(240, 9))
    meter.add(at(250, 9))
    assert meter.rates() == (None, None)  # 60 of 140 ms
    assert meter_at(0).rates() == (None, None)


def test_polls_follow_the_link() -> None:
    assert PcieMeter(8e9).period == 0.05
    assert 0.02 < PcieMeter(GEN5_X16).period < 0.03
    assert PcieMeter(250e9).period == 0.01


@given(st.lists(st.tuples(st.floats(1, 60), st.floats(0, 1)), min_size=1, max_size=30), st.integers(0, WRAP - 1))
def test_sums_are_exact_whatever_the_steps_are(steps: list[tuple[float, float]], start: int) -> None:
    """As long as the link carries no more than it can and polls come in time."""
    meter = meter_at(0)
    now_ns, total = 0, 0
    meter.add(Counters(0, 0, start, 0))
    for ms, share in steps:
        now_ns += int(ms * MS)
        total += int(share * GEN5_X16 * ms / 1e3)
        meter.add(Counters(now_ns, now_ns, (start + total) % WRAP, 0))
    rx, _ = meter.rates()
    assert rx is not None
    assert abs(rx * now_ns / 1e9 - total) < 1
