"""The trace a daemon leaves: always readable, and a full disk is an error in one line."""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cuzk_engine.client import stop_daemon
from cuzk_engine.client.instance import Instance, InstanceLock, LockState, lock_path, read_lock
from cuzk_engine.errors import DaemonError

INSTANCE = Instance(pid=7, address="127.0.0.1:9820", started_unix_ns=1, build="b", state="draining")


@contextmanager
def held_lock() -> Iterator[InstanceLock]:
    lock = InstanceLock.take()
    assert lock is not None
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def no_room() -> Iterator[None]:
    """Files of this process may not grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("cuzk_home")
def test_what_is_written_is_read_whatever_was_there_before() -> None:
    with held_lock() as lock:
        for instance in (INSTANCE, replace(INSTANCE, state="ready"), replace(INSTANCE, listen="x" * 100)):
            lock.write(instance)
            assert read_lock().instance == instance
        lock_path().write_bytes(lock_path().read_bytes() + b'"longer"}')  # as between writing and cutting off
        assert read_lock().instance == replace(INSTANCE, listen="x" * 100)
    assert not lock_path().exists()


@pytest.mark.usefixtures("cuzk_home")
def test_a_lock_that_cannot_be_written_is_an_error_that_names_it() -> None:
    with held_lock() as lock, no_room(), pytest.raises(DaemonError, match=r"daemon\.lock: cannot be written: file too"):
        lock.write(INSTANCE)


@pytest.mark.usefixtures("cuzk_home")
def test_a_folder_in_its_place_is_an_error_that_names_it(cuzk_home: Path) -> None:
    lock_path().mkdir(parents=True)
    with pytest.raises(DaemonError, match=r"daemon\.lock: cannot be read: is a directory"):
        read_lock()


def test_a_new_owner_removes_what_the_former_one_wrote() -> None:
    with held_lock() as lock:
        lock.write(INSTANCE)
        left = lock_path().read_bytes()
    lock_path().write_bytes(left)  # as after kill -9
    assert read_lock().instance == INSTANCE
    with held_lock():
        assert read_lock() == LockState(exists=True, held=True, instance=None)


@pytest.mark.usefixtures("cuzk_home")
def test_a_process_that_only_the_file_names_is_not_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        with held_lock() as lock:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                free = f"127.0.0.1:{probe.getsockname()[1]}"
            lock.write(replace(INSTANCE, pid=bystander.pid, address=free, state="ready"))
            with pytest.raises(DaemonError, match=rf"names pid {bystander.pid}, which does not have it open"):
                stop_daemon()
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0
