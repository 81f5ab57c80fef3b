"""One daemon with the fake device for all tests of a module that do not harm it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.client import EngineClient
from tests.support.daemons import Daemon, Witnesses, running_alone


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[Daemon]:
    with running_alone() as daemon:
        yield daemon


@pytest.fixture
def client(shared_daemon: Daemon) -> Iterator[EngineClient]:
    with shared_daemon.client() as connection:
        yield connection


@pytest.fixture
def witnesses(tmp_path: Path) -> Witnesses:
    return Witnesses(tmp_path)
