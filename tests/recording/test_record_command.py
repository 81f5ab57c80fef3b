"""`cuzk record`: what an engine tells, in one file, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.cli.main import main
from cuzk_engine.client.recording import Recording
from cuzk_engine.client.types import TelemetryUpdate
from cuzk_engine.errors import CuzkError
from cuzk_engine.events import Cause, Gap, Kind
from cuzk_engine.recording.writer import RecordingWriter
from tests.cli.conftest import ROOT, Cuzk, command, cuzk  # noqa: F401 - a fixture
from tests.support.daemons import Daemon, Witnesses, finished, running, wait_for


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="cuzk-r-") as home, running(Path(home)) as found:
        yield found


def record(daemon: Daemon, path: Path, *options: str) -> subprocess.Popen[str]:
    arguments = command("record", path, "--daemon", daemon.address, *options)
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def has_begun(path: Path) -> None:
    def opens() -> bool:
        try:
            Recording.open(path).close()
        except CuzkError:
            return False
        return True

    wait_for(opens, 30)


def updates_of(path: Path) -> list[TelemetryUpdate]:
    """What a file holds by now; chunks are written about every two seconds."""
    with Recording.open(path) as recording:
        return list(recording.updates())


def ended_jobs_of(path: Path) -> set[str]:
    return {job.id for update in updates_of(path) for job in update.jobs if job.state.ended}


def gaps_of(path: Path) -> list[Gap]:
    return [gap for update in updates_of(path) for gap in update.events.gaps]


def test_recording_until_interrupted(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    process = record(daemon, path)
    has_begun(path)
    witnesses = Witnesses(tmp_path)
    with daemon.client() as client:
        job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.1))
        assert finished(client, job).state == "completed"
    wait_for(lambda: job.id in ended_jobs_of(path), 30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.startswith(f"{path}: ")
    assert {item.name for item in tmp_path.iterdir() if item.name.startswith("r.")} == {"r.cuzkrec"}
    with Recording.open(path) as recording:
        updates = list(recording.updates())
        info = recording.info
    assert info.identity.devices[0].name == "fake device"
    assert info.address == daemon.address
    kinds = {span.kind for update in updates for span in update.events.spans if span.job == job.id}
    assert kinds == {Kind.EVALUATE, Kind.LOCK_HELD}
    assert [j.state for u in updates for j in u.jobs if j.id == job.id][-1] == "completed"
    assert any(mark.kind == "recording" for update in updates for mark in update.events.marks)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_recorder_that_is_ended_says_what_it_recorded(daemon: Daemon, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "r.cuzkrec"
    process = record(daemon, path)
    has_begun(path)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, "")
    assert out.startswith(f"{path}: ")
    assert out.count("\n") == 1
    assert {item.name for item in tmp_path.iterdir() if item.name.startswith("r.")} == {"r.cuzkrec"}
    with Recording.open(path) as recording:
        list(recording.updates())
        assert recording.damage is None
        assert f" {recording.info.events:,} events of " in out


def test_a_recorder_whose_terminal_goes_leaves_one_file(daemon: Daemon, tmp_path: Path) -> None:
    """As when a connection is lost: everything on it is told, more than once, and nobody reads what is said."""
    path = tmp_path / "r.cuzkrec"
    ours, its = os.openpty()
    arguments = command("record", path, "--daemon", daemon.address)
    process = subprocess.Popen(arguments, stdin=its, stdout=its, stderr=its, cwd=ROOT, start_new_session=True)
    os.close(its)
    has_begun(path)
    os.close(ours)
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 128 + signal.SIGHUP
    assert [item.name for item in tmp_path.iterdir()] == ["r.cuzkrec"]


def test_under_nohup_the_recorder_goes_on(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    arguments = ["nohup", *command("record", path, "--daemon", daemon.address)]
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    has_begun(path)
    process.send_signal(signal.SIGHUP)
    before = len(updates_of(path))
    wait_for(lambda: len(updates_of(path)) > before, 30)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.startswith(f"{path}: ")


def test_recording_for_some_seconds(daemon: Daemon, tmp_path: Path) -> None:
    process = record(daemon, tmp_path / "r.cuzkrec", "--seconds", "0.5", "--json", "--history", "10m")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    document = json.loads(out)
    assert (document["end"], document["lost"]) == ("time", 0)
    assert document["events"] > 0  # of the history: the daemon's start is a mark


def test_an_interrupted_recording_of_some_seconds_is_130_and_whole(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    process = record(daemon, path, "--seconds", "600")
    has_begun(path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    with Recording.open(path) as recording:
        assert recording.info.address == daemon.address
        list(recording.updates())
        assert recording.damage is None


def test_an_interruption_while_the_file_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecordingWriter, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RecordingWriter(tmp_path / "r.cuzkrec")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_while_the_time_begins_to_run_leaves_no_timer(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = threading.Timer.start

    def interrupted(timer: threading.Timer) -> None:
        start(timer)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    before = set(threading.enumerate())
    try:
        path = tmp_path / "r.cuzkrec"
        assert main(["record", str(path), "--daemon", daemon.address, "--seconds", "600"]) == 130
        assert [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)] == []
        assert capsys.readouterr().out.startswith(f"{path}: ")
    finally:
        for thread in set(threading.enumerate()) - before:
            if isinstance(thread, threading.Timer):
                thread.cancel()


def test_the_engine_ends_while_it_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    with tempfile.TemporaryDirectory(prefix="cuzk-r-") as home, running(Path(home)) as engine:
        process = record(engine, path)
        has_begun(path)
        engine.stop()
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "the engine ended; what it told up to then is recorded" in out


def test_nobody_to_record(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "r.cuzkrec"
    result = cuzk("record", path, "--daemon", f"unix://{tmp_path}/none.sock")
    assert result.code == 1
    assert "no engine answers at" in result.error
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--limit", "10KiB"), "--limit is '10KiB': expected at least 1 MiB"),
        (("--limit", "much"), "--limit is 'much': expected a number and one of"),
        (("--history", "x"), "--history is 'x': expected a number and one of"),
        (("--seconds", "0"), "'0' is no number of seconds above 0"),
    ],
)
def test_wrong_usage(cuzk: Cuzk, tmp_path: Path, options: tuple[str, str], message: str) -> None:  # noqa: F811
    result = cuzk("record", tmp_path / "r", *options)
    assert result.code == 2
    assert message in result.error


def test_a_real_engine_says_why_it_was_idle(tmp_path: Path) -> None:
    """From kernels to gaps on the stream, to the file, to the report."""
    path = tmp_path / "r.cuzkrec"
    with tempfile.TemporaryDirectory(prefix="cuzk-r-") as home, running(Path(home), fake=False) as engine:
        process = record(engine, path)
        has_begun(path)
        witnesses = Witnesses(tmp_path)
        with engine.client() as client, client.telemetry() as stream:
            first = client.submit(key_path=witnesses.key, witness_path=witnesses())
            assert finished(client, first).state == "completed"
            idle: list[Gap] = []
            for update in stream:
                idle += [gap for gap in update.events.gaps if gap.cause == Cause.QUEUE_EMPTY]
                if idle:
                    break
        wait_for(lambda: idle[0] in gaps_of(path), 30)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert idle[0] in gaps_of(path)
