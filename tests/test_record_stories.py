"""tools/record_stories.py with a small circuit on the CPU: a real engine, a real recording."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cuzk_engine.client import daemon_status
from cuzk_engine.client.recording import Recording
from cuzk_engine.recording.contents import Contents
from tests.support.stories import wait_for
from tools import record_stories

TOOL = Path(record_stories.__file__)
SMALL = ("--device", "cpu", "--profile", "porep:2^9")


@pytest.fixture
def temporary(cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tool puts what it needs for a while. A short path, for the engine's socket."""
    folder = cuzk_home / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)  # asked for again
    return folder


def load(file: Path) -> Contents:
    with Recording.open(file) as recording:
        return Contents.load(recording)


def has_ended(pid: int) -> bool:
    """One that nobody has collected yet counts too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_both_recordings_show_the_trouble_and_the_change(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert record_stories.main([*SMALL, "--out", str(out)]) == 0, capsys.readouterr().err
    assert sorted(file.name for file in out.iterdir()) == ["idle.cuzkrec", "memory.cuzkrec"]
    assert not list(temporary.iterdir())

    memory, idle = load(out / "memory.cuzkrec"), load(out / "idle.cuzkrec")
    (change,) = [mark for mark in memory.marks if mark.kind == "setting"]
    assert memory.incidents
    assert all(incident.time_ns < change.time_ns for incident in memory.incidents)
    assert not idle.incidents
    assert any(mark.text == "workers per device → 2" for mark in idle.marks)

    said = capsys.readouterr().out
    assert f"allocations failed: {len(memory.incidents)}" in said
    assert f"  {change.text}: 10 partitions" in said


def test_a_step_that_does_not_happen_is_one_line(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With so much memory no allocation fails."""
    monkeypatch.setattr(record_stories, "room_for_one", lambda *_: 1 << 30)
    assert record_stories.main([*SMALL, "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "cuzk: error: story memory: no allocation failed\n"
    assert not list(tmp_path.glob("*.cuzkrec"))
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(number: signal.Signals, tmp_path: Path, temporary: Path) -> None:
    command = [sys.executable, str(TOOL), *SMALL, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: list(temporary.glob("*/run/engine.sock")), "the engine's socket", 60)
            (socket,) = temporary.glob("*/run/engine.sock")
            wait_for(lambda: daemon_status(f"unix://{socket}").pid, "the engine", 60)
            engine = daemon_status(f"unix://{socket}").pid
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (128 + number, "")
    assert engine
    assert has_ended(engine)
    assert not list(temporary.iterdir())
    assert not list(tmp_path.glob("*.cuzkrec"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "gpu"), 'device "gpu" is not known, expected auto, cpu or cuda:N'),
        (("--device", "cuda:9999"), "device cuda:9999 cannot be used"),
        (("--device", "cpu", "--profile", "porep"), "porep"),
        (("--device", "cpu", "--out", os.devnull), os.devnull),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: tuple[str, ...], words: str, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record_stories.main(list(arguments)) == 1
    error = capsys.readouterr().err
    assert error.startswith("cuzk: error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not list(temporary.iterdir())


def test_a_variable_is_what_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_A", "1")
    with record_stories.environment(CUZK_A="2", CUZK_B="3"):
        assert (os.environ["CUZK_A"], os.environ["CUZK_B"]) == ("2", "3")
    assert os.environ["CUZK_A"] == "1"
    assert "CUZK_B" not in os.environ
