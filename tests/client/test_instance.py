"""The trace a daemon leaves: always readable, and a full disk is an error in one line."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cuzk_engine.client.instance import Instance, InstanceLock, lock_path, read_lock
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
