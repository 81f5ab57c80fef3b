"""A disk that is full, or becomes it, and a journal that was left beside the file."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client.recording import Recording
from cuzk_engine.errors import CuzkError
from cuzk_engine.recording.reader import RecordingReader
from cuzk_engine.recording.writer import RecordingWriter
from tests.cli.conftest import ROOT, command
from tests.recording.streams import S, stream
from tests.support.daemons import running


def small_disk(kibibytes: int) -> list[str]:
    """What comes before a command that shall find such a disk at /mnt; it ends with it."""
    return ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size={kibibytes}k none /mnt && exec "$0" "$@"']


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*small_disk(100), "true"], capture_output=True, timeout=20, check=False).returncode == 0


needs_a_small_disk = pytest.mark.skipif(not can_mount(), reason="this system lets no user mount a small disk")


def on_a_small_disk(kibibytes: int, folder: Path) -> tuple[str, list[str]]:
    """What a recorder says on a disk that becomes full, and what is then on it; ``folder`` gets the recording."""
    script = (
        "import os, sys, shutil\nfrom pathlib import Path\nfrom tests.recording.streams import stream\n"
        "from cuzk_engine.errors import CuzkError\nfrom cuzk_engine.recording.writer import RecordingWriter\n"
        "path = Path('/mnt/r.cuzkrec')\nwriter = RecordingWriter(path)\n"
        "try:\n"
        "    with writer:\n"
        "        for message in stream(300, 40):\n"
        "            message.logs.add(time_ns=message.time_ns, message=os.urandom(300).hex())\n"
        "            writer.add(message)\n"
        "except CuzkError as error:\n"
        "    print(f'{error}; {writer.remains}')\n"
        "    print(writer.events)\n"
        "print(*sorted(os.listdir('/mnt')), flush=True)\n"
        "if path.exists(): shutil.copy(path, sys.argv[1])\n"
    )
    arguments = [*small_disk(kibibytes), sys.executable, "-c", script, str(folder)]
    run = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    message, events, names = run.stdout.splitlines()
    return message, [events, *names.split()]


@needs_a_small_disk
@pytest.mark.parametrize("kibibytes", [112, 200])
def test_a_disk_that_is_full_from_the_start_gets_no_file(tmp_path: Path, kibibytes: int) -> None:
    message, found = on_a_small_disk(kibibytes, tmp_path)
    assert message.startswith("/mnt/r.cuzkrec: cannot be written: ")
    assert message.endswith("; nothing was recorded, and no file is left")
    assert found == ["0"]


@needs_a_small_disk
def test_the_command_on_a_full_disk_says_it_in_one_line(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cuzk-r-") as home, running(Path(home)) as engine:
        recorder = command("record", "/mnt/r.cuzkrec", "--daemon", engine.address, "--seconds", "600")
        script = '"$@"; code=$?; ls -A /mnt; exit $code'
        arguments = [*small_disk(112), "sh", "-c", script, "sh", *recorder]
        run = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("cuzk: error: /mnt/r.cuzkrec: cannot be written: ")
    assert run.stderr.endswith("; nothing was recorded, and no file is left\n")
    assert run.stderr.count("\n") == 1


@needs_a_small_disk
@pytest.mark.parametrize("kibibytes", [400, 700, 2000])
def test_a_disk_that_becomes_full_keeps_one_whole_file(tmp_path: Path, kibibytes: int) -> None:
    message, (events, *names) = on_a_small_disk(kibibytes, tmp_path)
    assert names == ["r.cuzkrec"]
    assert int(events) > 2000
    assert f"; {int(events):,} events of " in message
    assert message.endswith(" s are kept in it")
    with Recording.open(tmp_path / "r.cuzkrec") as recording:
        updates = list(recording.updates())
        assert recording.damage is None
        assert sum(len(update.events) for update in updates) == recording.info.events == int(events)


def test_a_journal_that_cannot_be_written_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.cuzkrec"
    writer = RecordingWriter(path)
    for message in stream(10):
        writer.add(message)
    writer.flush()
    writer._database.execute("BEGIN IMMEDIATE")  # what is begun keeps the journal from being written back
    with pytest.raises(CuzkError, match=f"{path}: cannot be written: "):
        writer.close()
    with RecordingReader(path) as reader:
        assert reader.readable()[0] == writer.events
    assert writer.remains == f"{writer.events:,} events of 10.0 s are kept in it"  # SQLite did it when it was closed
    Path(f"{path}-wal").write_bytes(b"frames")
    assert writer.remains.endswith(f", in it and in {path}-wal: the two belong together")


def test_a_journal_that_cannot_be_used_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, copy, other = tmp_path / "r.cuzkrec", tmp_path / "copy.cuzkrec", tmp_path / "other"
    other.write_text("no database")
    with RecordingWriter(path) as writer:
        for message in stream(10):
            writer.add(message)
        writer._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for message in stream(10, start=20 * S):
            writer.add(message)
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    connect = sqlite3.connect

    def without_shared_memory(name: str, **options: Any) -> sqlite3.Connection:
        found: sqlite3.Connection = connect(name if "immutable" in name else f"file:{other}?mode=ro", **options)
        return found

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    with Recording.open(copy) as recording:
        assert list(recording.updates())[-1].time_ns < 16 * S
        assert f"{copy}-wal, which belongs to it, cannot be used here" in (recording.damage or "")
