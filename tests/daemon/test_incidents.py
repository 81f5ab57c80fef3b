"""Incidents outlive the telemetry of their time."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import EngineClient
from cuzk_engine.daemon.incidents import Incidents, since_of
from cuzk_engine.events import Allocation, EventBatch, Holding, Incident, Mark, OtherProcess, Picture, Remedy, Span
from cuzk_engine.telemetry.columns import encode_events
from tests.conftest import ExpectedLogs
from tests.support.daemons import Witnesses, finished, running, wait_for

SECOND = 10**9


def incident(at: int, kind: str = "out-of-memory", picture: Picture | None = None) -> Incident:
    return Incident(at, "cuda:0", kind, "job", "no room", 100, 50, picture)


def picture(since: int = 0) -> Picture:
    return Picture(
        capacity=1000,
        free=10,
        holdings=(Holding("abc", 1, "job", 990),),
        host=(Holding("abc", 1, "job", 5),),
        others=(OtherProcess(7, "", None),),
        purpose="msm",
        worker=1,
        settings=(("pipeline.prestage", "ahead"),),
        remedies=(Remedy("pipeline.prestage", "off", "uploads inside the lock", peak=900),),
        since_ns=since,
    )


def test_a_file_has_the_picture_and_the_events_of_its_time(tmp_path: Path) -> None:
    now = time.monotonic_ns()
    past = EventBatch.empty()
    past.spans += [
        Span(now - 12 * SECOND, now - 11 * SECOND, "cuda:0", "compute", "ntt"),
        Span(now - 11 * SECOND, now - 9 * SECOND, "cuda:0", "compute", "msm.accumulate", "job", 3, 1),
    ]
    past.allocations += [Allocation(now - k * SECOND, "cuda:0", k, "abc", 1, "job") for k in (20, 2)]
    past.marks.append(Mark(now - SECOND, "setting", "workers → 2"))
    kept = Incidents(tmp_path / "incidents")
    one = incident(now, picture=picture())
    assert kept.note(one, 0)
    kept.write(one, [encode_events(past)])
    (path,) = (tmp_path / "incidents").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    document = json.loads(path.read_text())
    assert document["incident"]["picture"]["holdings"] == [{"purpose": "abc", "worker": 1, "job": "job", "bytes": 990}]
    assert abs(document["wall_ns"] - time.time_ns()) < 60 * SECOND
    events = document["events"]
    assert [dict(zip(events["spans"]["fields"], row, strict=True))["kind"] for row in events["spans"]["rows"]] == [
        "msm.accumulate"
    ]
    assert len(events["allocations"]["rows"]) == len(events["marks"]["rows"]) == 1
    again = Incidents(tmp_path / "incidents")
    again.load()
    assert list(again.recent) == [one]


def test_the_picture_says_since_when() -> None:
    assert since_of(incident(50 * SECOND)) == 40 * SECOND
    assert since_of(incident(50 * SECOND, picture=picture(since=45 * SECOND))) == 45 * SECOND


def test_a_bounded_number_is_kept(tmp_path: Path) -> None:
    kept = Incidents(tmp_path, kept=3)
    now = time.monotonic_ns()
    for k in range(6):
        one = incident(now + 2 * k * SECOND)
        assert kept.note(one, 0)
        kept.write(one, [])
    assert [found.time_ns for found in kept.recent] == [now + 2 * k * SECOND for k in (3, 4, 5)]
    assert len(list(tmp_path.iterdir())) == 3
    again = Incidents(tmp_path, kept=3)
    again.load()
    assert again.recent == kept.recent


def test_many_of_one_moment_get_one_file(tmp_path: Path) -> None:
    kept = Incidents(tmp_path)
    assert kept.note(incident(SECOND), 0)
    assert not kept.note(incident(SECOND + 1), 0)
    assert kept.note(incident(SECOND + 1, kind="worker-died"), 0)
    assert kept.note(incident(3 * SECOND), 0)
    assert len(kept.recent) == 4


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"boot": "", "incident": {}}', '{"boot": 1, "incident": 2}', "[" * 100_000, "9" * 5000]
)
def test_files_that_are_none_of_ours_are_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1-cpu-x.json"
    path.write_text(text)
    kept = Incidents(tmp_path)
    kept.load()
    assert kept.recent == ()
    assert path.read_text() == text


@pytest.mark.parametrize("change", [{"time_ns": "x"}, {"time_ns": 2**70}, {"message": 5}, {"picture": []}])
def test_incidents_that_could_not_be_sent_are_not_shown(tmp_path: Path, change: dict[str, Any]) -> None:
    kept = Incidents(tmp_path)
    kept.write(incident(time.monotonic_ns(), picture=picture()), [])
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "incident": {**document["incident"], **change}}))
    kept.load()
    assert kept.recent == ()


def test_files_of_other_names_are_neither_read_nor_removed(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("2026_notes.json", "0-plan.json", "00.json")]
    for path in others:
        path.write_text("{}")
    (tmp_path / "0-cpu-folder.json").mkdir()
    os.mkfifo(tmp_path / "0-cpu-pipe.json")
    kept = Incidents(tmp_path, kept=1)
    kept.load()
    for second in (1, 3):
        kept.write(incident(second * SECOND), [])
    assert all(path.exists() for path in others)
    assert len(list(tmp_path.iterdir())) == len(others) + 3


def test_incidents_of_another_boot_are_not_shown(tmp_path: Path) -> None:
    kept = Incidents(tmp_path)
    kept.write(incident(time.monotonic_ns()), [])
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "boot": "another"}))
    kept.load()
    assert kept.recent == ()


def test_a_folder_that_cannot_be_written_costs_the_file_only(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("the incident cannot be kept: ")
    (tmp_path / "incidents").write_text("a file")
    kept = Incidents(tmp_path / "incidents")
    kept.write(incident(time.monotonic_ns()), [])
    kept.load()


def test_new_readers_hear_of_earlier_incidents_once(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home) as daemon:
        with daemon.client() as client:
            finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses(memory=True)))
            folder = cuzk_home / "data" / "incidents"
            wait_for(lambda: folder.is_dir() and len(list(folder.glob("[0-9]*.json"))) == 1)
            (path,) = folder.glob("[0-9]*.json")
            spans = json.loads(path.read_text())["events"].get("allocations", {"rows": []})["rows"]
            assert len(spans) >= 1
            assert _kinds(client, 0) == ["out-of-memory"] * 2  # the partition was tried twice
            assert _kinds(client, 3600 * SECOND) == ["out-of-memory"] * 2
            os.kill(daemon.device_pid(), signal.SIGKILL)
            wait_for(lambda: len(_kinds(client, 0)) == 3)
        daemon.stop()
        daemon.start()
        with daemon.client() as client:
            assert sorted(_kinds(client, 0)) == ["out-of-memory", "worker-died"]  # those that have a file


def _kinds(client: EngineClient, history_ns: int) -> list[str]:
    """Of what a reader hears before anything new happens."""
    with client.telemetry(history_ns=history_ns) as stream:
        first = next(stream)
        found = [one.kind for one in first.events.incidents]
        for update in stream:
            found += [one.kind for one in update.events.incidents]
            if update.wall_ns >= first.wall_ns:
                return found
    raise AssertionError("the stream ended")
