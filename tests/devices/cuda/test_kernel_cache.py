"""The folder of compiled kernels: shared, bounded, and no matter of life."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuzk_engine.devices.cuda.kernel_cache import Entry, KernelCache
from tests.conftest import ExpectedLogs

ENTRY = Entry(b"\x7fELF" + bytes(range(256)), "ptxas info: é")


def test_an_entry_comes_back(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "a" / "kernels")
    assert cache.get("k") is None
    assert not cache.has("k")
    cache.put("k", ENTRY)
    assert cache.has("k")
    assert cache.get("k") == ENTRY
    cache.put("empty", Entry(b"", ""))
    assert cache.get("empty") == Entry(b"", "")
    assert cache.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("length", [0, 7, 39, 40, 43, 100])
def test_what_is_left_of_an_entry_is_none(tmp_path: Path, length: int) -> None:
    cache = KernelCache(tmp_path)
    cache.put("k", ENTRY)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    assert cache.get("k") is None
    path.write_bytes(whole[:-1] + b"x")
    assert cache.get("k") is None


def test_nothing_half_written_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectedLogs
) -> None:
    expected_logs(r"kernel cache .* cannot be written \(no space left on device\): kernels are compiled at every start")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache = KernelCache(tmp_path / "full")
    cache.put("k", ENTRY)
    assert list(cache.folder.iterdir()) == []
    assert cache.get("k") is None


def test_a_folder_that_cannot_be_used_is_told_once(
    tmp_path: Path, expected_logs: ExpectedLogs, caplog: pytest.LogCaptureFixture
) -> None:
    expected_logs(r"kernel cache .*/file/kernels cannot be (read|written) \(not a directory\)")
    (tmp_path / "file").write_text("")
    for key in ("a", "b"):
        cache = KernelCache(tmp_path / "file" / "kernels")
        assert cache.get(key) is None
        cache.put(key, ENTRY)
        assert not cache.has(key)
    assert len(caplog.records) == 1


def test_the_least_recently_used_go(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    cache.put("k0", ENTRY)
    most = 5 * (tmp_path / "k0.kernel").stat().st_size
    cache = KernelCache(tmp_path, most)
    for number in range(5):
        cache.put(f"k{number}", ENTRY)
        os.utime(tmp_path / f"k{number}.kernel", (1_000_000 + number, 1_000_000 + number))
    assert cache.get("k0") == ENTRY  # used now
    cache.put("k5", ENTRY)
    cache.put("k6", ENTRY)
    assert {path.stem for path in tmp_path.iterdir()} == {"k0", "k3", "k4", "k5", "k6"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == most
    KernelCache(tmp_path, most_bytes=1).put("last", ENTRY)
    assert [path.stem for path in tmp_path.iterdir()] == ["last"]


def test_what_a_killed_process_left_goes_after_an_hour(tmp_path: Path) -> None:
    old, new, foreign = tmp_path / "x.tmp", tmp_path / "y.tmp", tmp_path / "notes.txt"
    for path in (old, new, foreign):
        path.write_bytes(b"half")
    os.utime(old, (1_000_000, 1_000_000))
    KernelCache(tmp_path, most_bytes=1).put("k", ENTRY)
    assert {path.name for path in tmp_path.iterdir()} == {"y.tmp", "notes.txt", "k.kernel"}


WRITER = """
import sys
from pathlib import Path
from cuzk_engine.devices.cuda.kernel_cache import Entry, KernelCache
cache = KernelCache(Path(sys.argv[1]), most_bytes=30_000)
for number in range(200):
    key = f"k{number % 20}"
    found = cache.get(key)
    assert found is None or found == Entry(key.encode() * 500, key), found
    cache.put(key, Entry(key.encode() * 500, key))
"""


def test_several_processes_at_a_time(tmp_path: Path) -> None:
    """None of them ever reads what another one has half written or removed."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(3)
    ]
    for writer in writers:
        _, error = writer.communicate()
        assert writer.returncode == 0, error.decode()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 30_000


def test_several_threads_at_a_time(tmp_path: Path) -> None:
    cache, faults = KernelCache(tmp_path), []

    def work() -> None:
        for _ in range(50):
            cache.put("k", ENTRY)
            if cache.get("k") != ENTRY:
                faults.append("half an entry")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
