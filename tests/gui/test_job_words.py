"""Jobs, log lines and figures in words, as the window lists them."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cuzk_engine.client import JobState, Priority, ProofResult
from cuzk_engine.events import LogLine
from cuzk_gui.files import names, save_proof
from cuzk_gui.models import jobs, words
from cuzk_gui.models.log import LogRing, short_ids, tail_of_file
from tests.gui import fakes

SECOND = 1_000_000_000


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
        assert (job.retried, replace(job, attempts=2, partitions=1).retried) == ("", "once")
        assert replace(job, attempts=2).retried == "partitions, each at most once"
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

    def test_a_folder_in_the_place_of_one_leaves_the_other_as_it_was(self, tmp_path: Path) -> None:
        (tmp_path / "proof.json").write_text("old")
        (tmp_path / "public.json").mkdir()
        with pytest.raises(OSError, match=r"cannot be written: is a folder.*public\.json"):
            save_proof(tmp_path, ProofResult("p", "u", "bn128"))
        assert (tmp_path / "proof.json").read_text() == "old"
        assert len(list(tmp_path.iterdir())) == 2
