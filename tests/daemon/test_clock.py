"""Somebody sets the machine's clock while jobs wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cuzk_engine.client import JobState
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.store import Store

SECOND, HOUR = 10**9, 3600 * 10**9


class World:
    """One device, and two clocks: ``wall``, which people set, and ``ticks``, which nobody does."""

    id, is_ready, has_failed, workers, keys = "cpu", True, False, 1, ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wall, self.ticks = 100 * HOUR, HOUR
        self.started: list[str] = []
        self.alarm: tuple[int, Callable[[], None]] = 0, self.ignored

    def ignored(self) -> None: ...

    def start(self, job: JobRecord, part: Partition, worker: int) -> None:
        self.started.append(job.id)

    def cancel(self, *arguments: object) -> None: ...

    def later(self, nanoseconds: int, call: Callable[[], None]) -> World:
        self.alarm = nanoseconds, call
        return self

    def open(self) -> tuple[Store, JobManager]:
        """As a start of the daemon. Jobs of one circuit wait 10 s for each other."""
        store = Store(self.path)
        manager = JobManager(
            store,
            policy=Policy(batch_size=2, batch_wait_ns=10 * SECOND),
            changed=lambda job: None,
            settle=lambda job: None,
            clock=lambda: self.wall,
            ticks=lambda: self.ticks,
            later=self.later,
        )
        manager.recover()
        manager.dispatcher.add_device(self)
        manager.dispatcher.pump()
        return store, manager


def test_a_clock_that_is_set_back_holds_nobody_up_and_lowers_no_sum(tmp_path: Path) -> None:
    world = World(tmp_path / "jobs.sqlite")
    store, manager = world.open()
    job = manager.accept(JobRecord("a", key_path="k"))
    assert world.started == []  # it waits for a second one
    world.wall -= 5 * HOUR
    manager.dispatcher.pump()
    assert world.alarm[0] == 10 * SECOND
    world.ticks += 10 * SECOND
    world.alarm[1]()
    assert world.started == ["a"]
    world.wall -= HOUR
    manager.dispatcher.completed("cpu", ("a", 0), ("proof", "public"), [])
    assert job.state is JobState.COMPLETED
    assert manager.totals.seconds == {"circom": 0.0}
    store.close()


def test_a_job_that_waited_before_a_restart_has_waited(tmp_path: Path) -> None:
    world = World(tmp_path / "jobs.sqlite")
    store, manager = world.open()
    manager.accept(JobRecord("a", key_path="k"))
    store.close()
    world.wall, world.ticks = world.wall + 20 * SECOND, 0  # the machine was started anew
    store, manager = world.open()
    assert world.started == ["a"]
    store.close()
