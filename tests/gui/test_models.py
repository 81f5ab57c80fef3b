"""Models without Qt: bounded, exact where they say so, nothing read as zero that was not measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.events import Allocation, EventBatch, Incident, LogLine, Mark, Sample, Span
from cuzk_gui.models import jobs, words
from cuzk_gui.models.digest import CHUNK, Interner, Names, digests
from cuzk_gui.models.groups import Group, group_of
from cuzk_gui.models.loads import busy_ns
from cuzk_gui.models.memory import PURPOSES, MemorySeries, SampleSeries, purpose_index
from cuzk_gui.models.session import Session
from cuzk_gui.models.view import LONGEST_S, SHORTEST_S, TimeView, nice_step
from tests.gui import fakes, prover

SECOND = 1_000_000_000


def feed(session: Session, *updates: object) -> None:
    for update in updates:
        for digest in digests(update, session.names):
            session.apply(digest)


class TestMemory:
    def test_start_value_and_allocations(self) -> None:
        series = MemorySeries()
        series.set_state(0, {"srs": 100})
        series.add(np.array([10, 20]), np.array([purpose_index("abc")] * 2), np.array([50, -50]))
        assert series.at(5) == {"srs": 100}
        assert series.at(15) == {"srs": 100, "abc": 50}
        assert series.at(25) == {"srs": 100}

    def test_nothing_known_is_not_zero(self) -> None:
        series = MemorySeries()
        assert series.at(0) is None
        series.add(np.array([10]), np.array([0]), np.array([50]))  # no start value yet
        assert series.at(20) is None
        series.set_state(30, {})
        assert series.at(31) == {}
        series.forget(40)
        assert series.at(41) is None
        _, _, known = series.steps(0, 100, 1)
        assert known.tolist() == [True, False]

    def test_unknown_purpose_counts(self) -> None:
        series = MemorySeries()
        series.set_state(0, {"tomorrow's purpose": 7})
        assert series.at(1) == {"other": 7}

    def test_a_peak_survives_coarse_levels(self) -> None:
        series = MemorySeries(capacity=256)
        series.set_state(0, {"srs": 10})
        index = purpose_index("msm")
        for second in range(2000):
            base = second * SECOND // 100
            delta = 10**6 if second == 1500 else 100
            times = np.array([base + 1000, base + 2000])
            series.add(times, np.array([index] * 2), np.array([delta, -delta]))
        _, values, known = series.steps(0, 20 * SECOND, 20 * SECOND / 900)
        assert values[known].sum(axis=1).max() == 10**6 + 10

    def test_extreme_bytes(self) -> None:
        series = MemorySeries()
        series.set_state(0, dict.fromkeys(PURPOSES, 2**64 - 1))
        assert series.total > 0
        series.add(np.array([1]), np.array([0]), np.array([2**58]))
        assert series.total > 0

    def test_samples_absent_is_nan_not_zero(self) -> None:
        session = Session()
        events = EventBatch.empty()
        events.samples += [Sample(1, "cpu", memory_other=5), Sample(2, "cpu")]
        feed(session, fakes.update(3, events))
        samples = session.devices["cpu"].samples
        assert samples.latest("memory_other") is None
        starts, ends, values = samples.steps("memory_other", 0, 10)
        assert (starts.tolist(), ends.tolist(), values.tolist()) == ([1], [2], [5.0])

    def test_an_old_reading_does_not_last(self) -> None:
        series = SampleSeries()
        row = dict.fromkeys(
            (
                "memory_used",
                "memory_reserved",
                "memory_capacity",
                "pcie_rx",
                "pcie_tx",
                "utilisation",
                "power",
                "clock",
                "temperature",
            ),
            np.array([np.nan]),
        )
        series.append({"time": np.array([0]), "memory_other": np.array([5.0]), **row})
        _, ends, _ = series.steps("memory_other", 0, 100 * SECOND)
        assert ends.tolist() == [3 * SECOND]
        assert series.latest("memory_other", now_ns=60 * SECOND) is None


class TestSession:
    def test_an_hour_stays_bounded(self) -> None:
        session = Session()
        feed(session, fakes.update(0, identity=fakes.identity(devices=(fakes.device(),)), memory={("cpu", "srs"): 1}))
        sizes = []
        proof_ns = 4 * SECOND
        for number in range(900):
            start = number * proof_ns
            events = prover.proof_events(start, proof_ns, number % 2, f"job-{number}")
            events.logs.append(LogLine(start, start, "INFO", "x"))
            events.marks.append(Mark(start, "setting", "x"))
            events.samples.append(Sample(start, "cpu", memory_other=1))
            events.allocations.sort(key=lambda a: a.time_ns)
            feed(session, fakes.update(start + proof_ns, events, jobs=[fakes.job(f"job-{number}")]))
            if number in (100, 899):
                sizes.append(session.nbytes)
        assert sizes[0] == sizes[1] < 40 * 2**20
        assert len(session.log.entries) == 900
        assert len(session.marks) == 900
        assert len(session.jobs) <= jobs.KEPT
        compute = session.devices["cpu"].tracks["compute"]
        coarse = compute.level_for(0, 3600 * SECOND / 900)
        _, busy, _ = coarse.view(0, 3600 * SECOND)
        assert busy.sum() > 1000 * SECOND  # the whole hour is still there

    def test_history_after_a_lost_stream_is_not_taken_twice(self) -> None:
        session = Session()
        engine = fakes.identity(started_unix_ns=0)  # older than its events, however long this machine runs
        events = prover.proof_events(10 * SECOND, SECOND, 0, "a")
        session.begin_stream(60 * SECOND)
        first = fakes.update(9 * SECOND, identity=engine, memory={("cpu", "srs"): 100})
        feed(session, first, fakes.update(11 * SECOND, events))
        count = len(session.devices["cpu"].tracks["compute"].rows)
        total = session.devices["cpu"].memory.total
        session.disconnected()
        session.begin_stream(20 * SECOND)
        feed(
            session,
            fakes.update(30 * SECOND, identity=engine, memory={("cpu", "srs"): 100}),
            fakes.update(11 * SECOND, events),
            fakes.update(31 * SECOND, prover.proof_events(30 * SECOND, SECOND, 0, "b")),
        )
        memory = session.devices["cpu"].memory
        assert len(session.devices["cpu"].tracks["compute"].rows) == 2 * count
        assert memory.total == total == 100
        assert memory.at(20 * SECOND) == {"srs": 100}

    def test_it_begins_where_the_engine_still_has_its_past(self) -> None:
        session = Session()
        session.begin_stream(3600 * SECOND)
        engine = fakes.identity(started_unix_ns=0)
        first = fakes.update(4000 * SECOND, identity=engine, memory={("cpu", "srs"): 100}, since_ns=3900 * SECOND)
        feed(session, first, fakes.update(3901 * SECOND))
        assert session.seconds(session.latest_ns) == 100.0
        assert session.devices["cpu"].memory.at(3899 * SECOND) is None
        assert session.devices["cpu"].memory.at(3950 * SECOND) == {"srs": 100}

    def test_between_two_engines_memory_is_unknown(self) -> None:
        session = Session()
        feed(session, fakes.update(SECOND, memory={("cpu", "srs"): 100}))
        session.disconnected()
        assert session.devices["cpu"].memory.at(5 * SECOND) is None

    def test_unknown_lanes_kinds_and_devices(self) -> None:
        session = Session()
        events = EventBatch.empty()
        events.spans.append(Span(0, 10, "tpu:7", "teleport", "quantum.fold", bytes=2**70, worker=2**40))
        events.allocations.append(Allocation(5, "tpu:7", 2**70, "flux"))
        events.incidents.append(Incident(5, "tpu:7", "melted", "", "x"))
        feed(session, fakes.update(10, events, memory={}))
        timeline = session.devices["tpu:7"]
        assert "teleport" in timeline.lanes()
        assert words.kind("quantum.fold") == "quantum.fold"
        assert group_of("quantum.fold", "teleport", 0, None) is Group.OTHER

    def test_many_devices_and_lanes_have_an_end(self) -> None:
        session = Session()
        events = EventBatch.empty()
        events.spans += [Span(0, 1, f"cuda:{d}", "compute", "ntt") for d in range(100)]
        events.spans += [Span(0, 1, "cuda:0", f"host:{w}", "host.verify") for w in range(100)]
        feed(session, fakes.update(10, events))
        assert len(session.devices) == 64
        assert len(session.devices["cuda:0"].tracks) == 24
        assert session.left_out > 0

    def test_a_large_message_comes_in_parts(self) -> None:
        events = EventBatch.empty()
        events.spans += [Span(i, i + 1, "cpu", "compute", "ntt") for i in range(2 * CHUNK + 1)]
        parts = list(digests(fakes.update(9, events, memory={}), Names()))
        assert [len(p.spans[("cpu", "compute")]) for p in parts] == [CHUNK, CHUNK, 1]
        assert [p.memory is not None for p in parts] == [True, False, False]
        assert [p.last for p in parts] == [False, False, True]

    def test_busy_share_counts_overlap_once(self) -> None:
        session = Session()
        events = EventBatch.empty()
        events.spans += [Span(0, 60, "cpu", "compute", "ntt"), Span(30, 50, "cpu", "compute", "ntt")]
        feed(session, fakes.update(100, events))
        assert busy_ns(session.devices["cpu"].tracks["compute"], 0, 100) == 60

    def test_interned_texts_are_bounded(self) -> None:
        interner = Interner(10)
        numbers = [interner.number(f"job {i}") for i in range(100)]
        assert interner.text(numbers[-1]) == "job 99"
        assert interner.text(numbers[0]) == ""


class TestView:
    def test_follows_until_somebody_looks_back(self) -> None:
        view = TimeView(10)
        view.set_now(100)
        assert (view.start, view.end) == (90, 100)
        view.zoom(0.5)
        assert view.following
        assert (view.start, view.end) == (95, 100)
        view.pan(-20)
        view.set_now(200)
        assert not view.following
        assert (view.start, view.end) == (75, 80)
        view.follow()
        assert view.end == 200

    def test_zoom_keeps_the_point_under_the_mouse(self) -> None:
        view = TimeView(10)
        view.set_now(100)
        view.show(40, 50)
        view.zoom(0.5, at=42)
        assert (42 - view.start) / view.width == pytest.approx(0.2)

    def test_limits(self) -> None:
        view = TimeView(10)
        for _ in range(200):
            view.zoom(0.5)
        assert view.width == SHORTEST_S
        for _ in range(200):
            view.zoom(2)
        assert view.width == LONGEST_S
        view.pan(-1e9)
        assert view.start < 0
        view.pan(1e12)
        assert view.start <= max(view.now, 0)

    @given(st.floats(1e-6, 1e6), st.integers(2, 12))
    def test_steps(self, width: float, most: int) -> None:
        step = nice_step(width, most)
        assert most / 3 <= width / step <= most * 1.0001


def test_a_crowd_of_short_spans_is_not_drawn_one_by_one() -> None:
    """Each would get a pixel, and 5 % of the time would look like all of it."""
    session = Session()
    events = EventBatch.empty()
    events.spans += [Span(i * SECOND, i * SECOND + 50_000_000, "cpu", "h2d", "upload.abc") for i in range(2000)]
    feed(session, fakes.update(2000 * SECOND, events))
    track = session.devices["cpu"].tracks["h2d"]
    whole = track.window(0, 2000 * SECOND)
    assert track.crowded(whole, 2 * SECOND, 1000)
    assert not track.crowded(track.window(0, 10 * SECOND), SECOND / 100, 1000)
