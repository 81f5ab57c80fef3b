"""Models without Qt: bounded, exact where they say so, nothing read as zero that was not measured."""

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client import JobState, Priority, ProofResult
from cuzk_engine.events import Allocation, EventBatch, Incident, LogLine, Mark, Sample, Span
from cuzk_gui.files import names, save_proof
from cuzk_gui.models import jobs, words
from cuzk_gui.models.columns import Columns
from cuzk_gui.models.digest import CHUNK, Interner, Names, digests
from cuzk_gui.models.groups import Group, group_of
from cuzk_gui.models.levels import LEVEL_NS
from cuzk_gui.models.loads import busy_ns
from cuzk_gui.models.log import LogRing, short_ids, tail_of_file
from cuzk_gui.models.memory import PURPOSES, MemorySeries, SampleSeries, purpose_index
from cuzk_gui.models.session import Session
from cuzk_gui.models.tracks import SpanRows, SpanTrack
from cuzk_gui.models.view import LONGEST_S, SHORTEST_S, TimeView, nice_step
from tests.gui import fakes

SECOND = 1_000_000_000


def rows(spans: list[tuple[int, int]], group: int = Group.MSM, size: int = 0) -> SpanRows:
    n = len(spans)
    zero = np.zeros(n, dtype=np.int64)
    return SpanRows(
        start=np.array([a for a, _ in spans], dtype=np.int64),
        end=np.array([b for _, b in spans], dtype=np.int64),
        group=np.full(n, group, dtype=np.int8),
        kind=zero,
        job=zero,
        partition=zero,
        worker=zero,
        bytes=np.full(n, size, dtype=np.int64),
        pinned=np.full(n, -1, dtype=np.int8),
    )


def feed(session: Session, *updates: object) -> None:
    for update in updates:
        for digest in digests(update, session.names):
            session.apply(digest)


class TestColumns:
    def test_keeps_the_newest_rows_in_order(self) -> None:
        columns = Columns(100, {"a": np.int64})
        for first in range(0, 1000, 7):
            columns.append({"a": np.arange(first, first + 7)}, 7)
            assert len(columns) <= 100
        assert columns["a"].tolist() == list(range(1001 - 100, 1001))
        assert columns.dropped == 1001 - 100

    def test_more_rows_than_fit(self) -> None:
        columns = Columns(10, {"a": np.int64, "b": (np.int64, (2,))})
        columns.append({"a": np.arange(25), "b": np.ones((25, 2))}, 25)
        assert columns["a"].tolist() == list(range(15, 25))
        assert columns["b"].shape == (10, 2)

    def test_bytes_do_not_grow(self) -> None:
        columns = Columns(64, {"a": np.int64})
        before = columns.nbytes
        for _ in range(500):
            columns.append({"a": np.arange(9)}, 9)
        assert columns.nbytes == before


class TestSpanTrack:
    def test_window_finds_long_spans_that_began_before(self) -> None:
        track = SpanTrack(100)
        track.append(rows([(0, 1000), (10, 20), (30, 40)]))
        part = track.window(500, 600)
        assert 0 in range(part.start, part.stop)

    def test_late_spans_are_put_in_order(self) -> None:
        track = SpanTrack(100)
        track.append(rows([(100, 110), (200, 210)]))
        track.append(rows([(150, 160), (50, 220), (300, 310)]))
        assert track.rows["start"].tolist() == [50, 100, 150, 200, 300]
        assert track.rows["reach"].tolist() == [220, 220, 220, 220, 310]

    @given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**9)), min_size=1, max_size=60))
    def test_buckets_hold_all_time(self, spans: list[tuple[int, int]]) -> None:
        track = SpanTrack(100)
        track.append(rows([(start, start + length) for start, length in spans]))
        total = sum(max(length, 1) for _, length in spans)
        coarsest = track.levels[-1]
        _, busy, _ = coarsest.view(0, 2 * 10**10)
        assert busy.sum() == pytest.approx(total, rel=1e-4)

    def test_bytes_are_spread_over_buckets(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(0, 4 * LEVEL_NS[0])], Group.UP_PINNED, size=4000))
        _, _, sizes = track.levels[0].view(0, 4 * LEVEL_NS[0])
        assert sizes[:, Group.UP_PINNED].tolist() == [1000.0] * 4

    def test_buckets_move_on_and_forget(self) -> None:
        track = SpanTrack(10)
        level = track.levels[0]
        track.append(rows([(0, LEVEL_NS[0])]))
        far = level.size * LEVEL_NS[0] * 3
        track.append(rows([(far, far + LEVEL_NS[0])]))
        _, busy, _ = level.view(0, far + LEVEL_NS[0])
        assert len(busy) == level.size
        assert busy.sum() == pytest.approx(LEVEL_NS[0])

    def test_nearest_span(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(0, 1000), (100, 200)]))
        assert track.at(150, 0) == 1  # the shorter of two
        assert track.at(500, 0) == 0
        assert track.at(1005, 10) == 0
        assert track.at(2000, 10) is None

    def test_negative_length_is_no_length(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(100, 50)]))
        assert track.rows["end"].tolist() == [100]


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
            events = fakes.proof_events(start, proof_ns, number % 2, f"job-{number}")
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
        events = fakes.proof_events(10 * SECOND, SECOND, 0, "a")
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
            fakes.update(31 * SECOND, fakes.proof_events(30 * SECOND, SECOND, 0, "b")),
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


class TestJobs:
    def test_order_and_counts(self) -> None:
        table = jobs.JobTable()
        state = fakes.JobState
        table.update(
            [
                fakes.job("old", state=state.COMPLETED, submitted_unix_ns=1),
                fakes.job("new", state=state.FAILED, submitted_unix_ns=2),
                fakes.job("second", state=state.QUEUED, queue_position=2),
                fakes.job("first", state=state.QUEUED, queue_position=1),
                fakes.job("runs"),
            ]
        )
        assert table.order == ["runs", "first", "second", "new", "old"]
        assert table.counts() == {"running": 1, "queued": 2, "completed": 1, "failed": 1}

    def test_places_move_up_when_the_queue_does(self) -> None:
        table = jobs.JobTable()
        queued = fakes.JobState.QUEUED
        table.update([fakes.job(f"q{i}", state=queued, queue_position=i) for i in (1, 2, 3)])
        table.update([fakes.job("q1")])  # runs now; the others are not sent again
        assert [table.place(f"q{i}") for i in (1, 2, 3)] == [0, 1, 2]
        second = table.get("q2")
        assert second is not None
        assert jobs.progress_text(second, place=table.place("q2")) == "queued, next"

    def test_ten_thousand_and_more(self) -> None:
        table = jobs.JobTable(limit=1000)
        ended = [fakes.job(f"e{i}", state=fakes.JobState.COMPLETED, finished_unix_ns=i + 1) for i in range(900)]
        table.update(ended)
        table.update([fakes.job(f"q{i}", state=fakes.JobState.QUEUED) for i in range(500)])
        assert len(table) == 1000
        assert table.get("e0") is None
        assert table.get("e899") is not None

    def test_unknown_state_is_shown_as_it_is(self) -> None:
        strange = fakes.job("x", state="meditating")
        table = jobs.JobTable()
        table.update([strange])
        assert jobs.progress_text(strange) == "meditating"
        assert table.active

    def test_a_job_that_does_not_move(self) -> None:
        job = fakes.job("x", last_activity_unix_ns=1, started_unix_ns=1)
        assert "no activity for 1 min 59 s" in jobs.progress_text(job, now_unix_ns=119 * SECOND + 1)
        assert jobs.progress_text(job, now_unix_ns=2 * SECOND).endswith("MSM")

    @pytest.mark.parametrize(("progress", "share"), [(-1.0, 0.0), (7.0, 1.0), (float("nan"), 0.0)])
    def test_progress_is_cut(self, progress: float, share: float) -> None:
        assert jobs.fraction(fakes.job("x", progress=progress)) == share


class TestLog:
    def test_ring(self) -> None:
        ring = LogRing(capacity=3)
        ring.extend(LogLine(i, i, "nonsense" if i else "WARN", f"line {i}\nsecond\x1b[0m") for i in range(5))
        assert [e.message.split()[1] for e in ring.entries] == ["2", "3", "4"]
        assert {e.level for e in ring.entries} == {"INFO"}
        assert ring.added == 5
        assert "\n" not in ring.entries[0].message

    def test_tail_of_a_wild_file(self, tmp_path) -> None:
        path = tmp_path / "daemon.log"
        rng = random.Random(1)
        noise = bytes(rng.randrange(256) for _ in range(5000))
        good = b"2026-11-30 09:41:08,201 ERROR device cpu: \x1b[31mout of memory\x1b[0m\r\n"
        path.write_bytes(b"a" * 2_000_000 + b"\n" + noise + b"\n" + good)
        entries = tail_of_file(str(path), lines=5)
        assert len(entries) <= 5
        assert (entries[-1].clock, entries[-1].level) == ("09:41:08.201", "ERROR")
        assert entries[-1].message == "device cpu: out of memory"

    def test_tail_in_local_time_without_lines_for_scripts(self, tmp_path, monkeypatch) -> None:
        path = tmp_path / "daemon.log"
        path.write_text("2026-11-30T07:21:01.397Z INFO job a: proved\nTIMELINE,60126,GPU_END,a,worker=0\n")
        monkeypatch.setenv("TZ", "UTC-2")
        time.tzset()
        try:
            entries = tail_of_file(str(path))
        finally:
            monkeypatch.undo()
            time.tzset()
        assert [(e.clock, e.level, e.message) for e in entries] == [("09:21:01.397", "INFO", "job a: proved")]

    def test_curves_by_their_usual_names(self) -> None:
        names = [words.curve(name) for name in ("bn128", "bn254", "bls12381", "bw6\n761")]
        assert names == ["BN254", "BN254", "BLS12-381", "bw6 761"]

    def test_ids_are_shortened(self) -> None:
        text = "job 78fa2c2e-9510-46e5-94db-057acb5b1bea: zk proved; 12345678-no-id"
        assert short_ids(text) == "job 78fa2c2e: zk proved; 12345678-no-id"


class TestWords:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (65_700_000_000, "61.2 GiB"),
            (2**64 - 1, "16.0 EiB"),
            (None, "–"),
        ],
    )
    def test_size(self, value: int | None, text: str) -> None:
        assert words.size(value) == text

    @pytest.mark.parametrize(
        ("used", "capacity", "text"),
        [
            (65_712_000_000, 150_100_000_000, "61.2 of 139.8 GiB"),
            (5, 0, "5 B used, capacity unknown"),
            (None, None, "capacity unknown"),
            (None, 2**30, "– of 1.00 GiB"),
            (3 * 2**20, 8 * 2**30, "3.00 MiB of 8.00 GiB"),
        ],
    )
    def test_size_of(self, used: int | None, capacity: int | None, text: str) -> None:
        assert words.size_of(used, capacity) == text

    @pytest.mark.parametrize(
        ("ns", "text"),
        [
            (0, "0 ns"),
            (999_600, "1 ms"),
            (412e6, "412 ms"),
            (3.2e9, "3.20 s"),
            (8_040e9, "2 h 14 min"),
            (-5e6, "-5 ms"),
        ],
    )
    def test_duration(self, ns: float, text: str) -> None:
        assert words.duration(ns) == text

    def test_plain(self) -> None:
        assert words.plain("a\nb\x00c" + "d" * 500, 10) == "a b cdddd…"
        assert words.clock(2**70) == "–"


class TestSeveralPartitions:
    def test_words(self) -> None:
        job = fakes.job(partitions=10, partitions_done=6, phase="msm", attempts=1)
        now = job.last_activity_unix_ns
        assert jobs.progress_text(job, now) == "6 of 10 · MSM"
        assert (jobs.retried(job), jobs.retried(replace(job, attempts=2, partitions=1))) == ("", "once")
        assert jobs.retried(replace(job, attempts=2)) == "partitions, each at most once"
        assert jobs.progress_text(replace(job, attempts=2), now) == "6 of 10 · MSM · partitions retried"
        queued = replace(job, state=JobState.QUEUED, queue_position=3, priority=Priority.CRITICAL, attempts=2)
        assert jobs.progress_text(queued, now) == "queued, no. 3 · critical · partitions retried"

    def test_files(self, tmp_path: Path) -> None:
        pairs = (("p1", "u1"), ("p2", "u2"))
        files = save_proof(tmp_path, ProofResult("p1", "u1", "bn128", pairs))
        assert [f.name for f in files] == ["proof_1.json", "public_1.json", "proof_2.json", "public_2.json"]
        assert [f.read_text() for f in files] == ["p1", "u1", "p2", "u2"]
        assert names(1) == ["proof.json", "public.json"]
        (only, _) = save_proof(tmp_path, ProofResult("p", "u", "bn128", (("p", "u"),)))
        assert only.name == "proof.json"


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
