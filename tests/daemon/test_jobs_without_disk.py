"""The job manager with a store whose disk is full, and with devices that only note what they are told."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuzk_engine.client import JobState
from cuzk_engine.client.convert import job_to_wire
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.records import Failure, Fault, JobRecord, Partition
from cuzk_engine.daemon.refusal import RefusedError
from cuzk_engine.daemon.repetition import Repetition
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.services import JobsService
from cuzk_engine.daemon.store import Store
from cuzk_engine.proto.engine_v1_pb2 import JobRequest
from tests.conftest import ExpectedLogs


class FullStore(Store):
    full = False

    def insert(self, job: JobRecord) -> None:
        self._write()
        super().insert(job)

    def update(self, job: JobRecord, parts: Iterable[Partition] = ()) -> None:
        self._write()
        super().update(job, parts)

    def _write(self) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")


class Device:
    id = "cpu"
    is_ready = True
    has_failed = False
    workers = 1
    keys = ()

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []

    def start(self, job: JobRecord, part: Partition, worker: int) -> None:
        self.started.append(job.id)

    def cancel(self, job_id: str, number: int) -> None:
        self.cancelled.append(job_id)


def with_manager(
    tmp_path: Path, check: Callable[[JobManager, FullStore, Device], Awaitable[None]], draining: bool = False
) -> None:
    async def run() -> None:
        store = FullStore(tmp_path / "jobs.sqlite")
        try:
            manager = JobManager(store, policy=Policy(), changed=lambda job: None, settle=lambda job: None)
            device = Device()
            manager.dispatcher.add_device(device)
            manager.dispatcher.draining = draining
            await check(manager, store, device)
        finally:
            store.close()

    asyncio.run(run())


def test_a_job_that_cannot_be_stored_is_not_accepted(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        store.full = True
        with pytest.raises(RefusedError, match="disk is full; it was not accepted"):
            manager.accept(JobRecord("a"))
        assert device.started == []
        with pytest.raises(RefusedError, match="unknown"):
            manager.get("a")

    with_manager(tmp_path, check)


def test_a_job_is_completed_once_its_proof_is_stored(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("job a is proved and waits for room on the disk", level=logging.ERROR)

    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        job = manager.accept(JobRecord("a", request_id="r"))
        assert device.started == ["a"]
        store.full = True
        manager.dispatcher.completed("cpu", ("a", 0), ("proof", "public"), [("msm", 1)])
        for _ in range(2):
            assert (job.state, job.phase, job.finished_unix_ns) == (JobState.RUNNING, "waits for room on the disk", 0)
            assert [found.phase for found in manager.newest(10)] == ["waits for room on the disk"]
            with pytest.raises(RefusedError, match="job a has no proof: it is running"):
                manager.proofs(job)
            with pytest.raises(sqlite3.OperationalError):
                manager.housekeeping(10**18, 100)
        store.full = False
        manager.housekeeping(10**18, 100)
        assert (job.state, job.phase) == (JobState.COMPLETED, "")
        assert manager.totals.completed.total() == manager.totals.partitions == 1
        assert store.proofs(job) == {0: ("proof", "public")}
        assert manager.proofs(manager.get("a")) == [("proof", "public")]

    with_manager(tmp_path, check)


def test_what_was_seen_completed_is_not_run_again(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("job b is proved and waits for room on the disk", level=logging.ERROR)

    async def full(manager: JobManager, store: FullStore, device: Device) -> None:
        for name in ("a", "b"):
            manager.accept(JobRecord(name))
            store.full = name == "b"
            manager.dispatcher.completed("cpu", (name, 0), ("proof", "public"), [])
        assert [manager.get(name).state for name in "ab"] == [JobState.COMPLETED, JobState.RUNNING]

    async def started(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.recover()
        manager.dispatcher.pump()
        assert device.started == ["b"]
        manager.dispatcher.completed("cpu", ("b", 0), ("again", "public"), [])
        assert [manager.proofs(manager.get(name)) for name in "ab"] == [[("proof", "public")], [("again", "public")]]

    with_manager(tmp_path, full)
    with_manager(tmp_path, started)


def test_a_proof_that_waits_for_the_disk_is_stored_at_the_end(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("job a is proved and waits for room on the disk", level=logging.ERROR)

    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("a"))
        store.full = True
        manager.dispatcher.completed("cpu", ("a", 0), ("proof", "public"), [])
        assert manager.dispatcher.is_idle
        store.full = False
        manager.put_back()
        assert manager.get("a").state is JobState.COMPLETED

    with_manager(tmp_path, check)


def test_a_job_that_waits_for_the_disk_can_be_cancelled(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("job a is proved and waits for room on the disk", level=logging.ERROR)

    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("a"))
        store.full = True
        manager.dispatcher.completed("cpu", ("a", 0), ("proof", "public"), [])
        store.full = False
        assert manager.cancel("a") is False
        manager.housekeeping(10**18, 100)
        assert manager.get("a").state is JobState.CANCELLED

    with_manager(tmp_path, check)


def test_a_draining_engine_takes_and_starts_nothing(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        with pytest.raises(RefusedError, match="draining"):
            manager.accept(JobRecord("a"))
        manager.dispatcher.pump()
        assert device.started == []
        await asyncio.wait_for(manager.dispatcher.drained(), 1)

    with_manager(tmp_path, check, draining=True)


def test_cancelling_twice_tells_the_device_once(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("a"))
        assert manager.cancel("a") is True
        assert manager.cancel("a") is True
        assert device.cancelled == ["a"]
        manager.dispatcher.cancelled("cpu", ("a", 0))
        manager.dispatcher.completed("cpu", ("a", 0), ("late", "late"), [])
        assert manager.get("a").state is JobState.CANCELLED
        assert manager.totals.completed.total() == 0

    with_manager(tmp_path, check)


def test_a_cancelled_job_is_not_tried_again_when_its_process_dies(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("a"))
        manager.cancel("a")
        manager.dispatcher.device_died("cpu", "it died")
        assert manager.get("a").state is JobState.CANCELLED
        assert device.started == ["a"]

    with_manager(tmp_path, check)


def test_what_runs_is_listed_however_many_came_after_it(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        jobs = [manager.accept(JobRecord(f"j{number}")) for number in range(6)]
        assert jobs[0].state is JobState.RUNNING
        assert [job.id for job in manager.newest(3)] == ["j5", "j4", "j0"]
        assert [job.id for job in manager.newest(0)] == ["j5", "j4", "j3", "j2", "j1", "j0"]
        manager.dispatcher.completed("cpu", ("j0", 0), ("proof", "public"), [])
        assert [job.id for job in manager.newest(2)] == ["j5", "j1"]

    with_manager(tmp_path, check)


def test_a_cancelled_job_does_not_come_back_at_the_next_start(tmp_path: Path) -> None:
    async def stopped(manager: JobManager, store: FullStore, device: Device) -> None:
        for name in ("a", "b"):
            manager.accept(JobRecord(name))
            if name == "a":
                manager.cancel("a")  # and the device does not get to it
                manager.put_back()
        assert manager.get("a").state is JobState.CANCELLED
        assert store.get("a").state is JobState.CANCELLED

    async def killed(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("c"))
        manager.cancel("c")

    async def started(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.recover()
        assert manager.get("c").state is JobState.CANCELLED
        assert device.started == []

    with_manager(tmp_path, stopped)
    with_manager(tmp_path / "other", killed)
    with_manager(tmp_path / "other", started)


def test_a_cancelled_job_is_not_tried_again_when_memory_was_short(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        device.workers = 2
        for name in ("a", "b"):
            manager.accept(JobRecord(name))
        manager.cancel("b")
        manager.dispatcher.failed("cpu", ("b", 0), Failure("short of memory", Fault.MEMORY, reduced=1))
        assert manager.get("b").state is JobState.CANCELLED
        assert device.started == ["a", "b"]

    with_manager(tmp_path, check)


def test_an_error_can_be_sent_whatever_it_names(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        job = manager.accept(JobRecord("a"))
        manager.dispatcher.failed("cpu", ("a", 0), Failure("k\udcff.zkey: no such file"))
        assert job_to_wire(manager.info(job)).error == "k\\udcff.zkey: no such file"

    with_manager(tmp_path, check)


def test_a_watcher_that_is_busy_misses_no_change(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        job = manager.accept(JobRecord("a"))
        supervisor = SimpleNamespace(jobs=manager, repetition=Repetition())
        watching = JobsService(supervisor).Watch(JobRequest(id="a"), None)  # type: ignore[arg-type]
        assert (await anext(watching)).phase == ""
        manager.dispatcher.progress("cpu", ("a", 0), "msm", 0.5)  # while the first answer is being sent
        assert (await asyncio.wait_for(anext(watching), 5)).phase == "msm"
        manager.dispatcher.completed("cpu", ("a", 0), ("proof", "public"), [])
        assert (await asyncio.wait_for(anext(watching), 5)).progress == 1.0
        assert [info async for info in watching] == []
        assert manager.next_change(job).is_set()

    with_manager(tmp_path, check)


def test_no_second_try_where_there_is_no_smaller_mode(tmp_path: Path) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        manager.accept(JobRecord("a"))
        manager.dispatcher.failed("cpu", ("a", 0), Failure("no room", Fault.MEMORY))
        assert (manager.get("a").state, manager.get("a").error) == (JobState.FAILED, "no room")
        assert device.started == ["a"]

    with_manager(tmp_path, check)


@pytest.mark.parametrize("answer", ["cancelled", "failed", "completed"])
def test_a_late_answer_frees_the_worker_for_what_waits(tmp_path: Path, answer: str) -> None:
    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        device.workers = 2
        manager.accept(JobRecord("a", parts=[Partition(0), Partition(1)]))
        manager.dispatcher.failed("cpu", ("a", 0), Failure("no luck"))
        assert (manager.get("a").state, device.cancelled) == (JobState.FAILED, ["a"])
        for name in ("b", "c"):
            manager.accept(JobRecord(name))
        assert device.started == ["a", "a", "b"]
        assert (manager.running, manager.queued) == (1, 1)
        match answer:
            case "cancelled":
                manager.dispatcher.cancelled("cpu", ("a", 1))
            case "failed":
                manager.dispatcher.failed("cpu", ("a", 1), Failure("no luck either"))
            case "completed":
                manager.dispatcher.completed("cpu", ("a", 1), ("proof", "public"), [])
        assert device.started[3:] == ["c"]
        assert manager.get("a").error == "partition 1 of 2: no luck"
        assert store.proofs(manager.get("a")) == {}

    with_manager(tmp_path, check)


def test_a_proof_of_a_partition_that_cannot_be_stored_is_kept(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("the job store cannot be written: database or disk is full")

    async def check(manager: JobManager, store: FullStore, device: Device) -> None:
        job = manager.accept(JobRecord("a", parts=[Partition(0), Partition(1)]))
        store.full = True
        manager.dispatcher.completed("cpu", ("a", 0), ("first", "public"), [])
        store.full = False
        assert store.proofs(job) == {}
        manager.housekeeping(10**18, 100)
        assert store.proofs(job) == {0: ("first", "public")}
        manager.dispatcher.completed("cpu", ("a", 1), ("second", "public"), [])
        assert manager.proofs(manager.get("a")) == [("first", "public"), ("second", "public")]

    with_manager(tmp_path, check)
