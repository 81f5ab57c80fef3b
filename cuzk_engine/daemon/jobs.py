"""The jobs: accepting, following, ending. Everything runs on the supervisor's event loop.

A job is QUEUED, RUNNING, then COMPLETED, FAILED or CANCELLED; each of its partitions is an order of its own to a
worker. Every change is in the store before anybody hears of it, so what is done is never done again. Where memory was
short, a proof did not verify or a process died, the partition is tried once more; the first that fails for good ends
its job.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol

from cuzk_engine.client.types import JobInfo, JobState, PhaseTime
from cuzk_engine.daemon.book import JobBook
from cuzk_engine.daemon.queue import PartId, waiting
from cuzk_engine.daemon.records import (
    CIRCUIT_KIND,
    MAX_DEATHS,
    Failure,
    Fault,
    JobRecord,
    Partition,
    PartitionState,
    Totals,
    no_synthesiser,
)
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.scheduler import Choice, Policy, Scheduler, Slot
from cuzk_engine.daemon.store import Store

log = logging.getLogger("cuzk")

_MAX_ID: Final = 4096


class DeviceSlot(Slot, Protocol):
    """What the jobs need of a device."""

    def start(self, job: JobRecord, part: Partition, worker: int) -> None: ...
    def cancel(self, job_id: str, number: int) -> None: ...


def _soon(nanoseconds: int, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(nanoseconds / 1e9, call)


class JobManager:
    """See the module's text. ``changed`` is called with each job that changed; ``settle`` with one that ended;
    ``clock`` gives the times that people see, ``ticks`` those by which jobs wait, since the other clock may be set;
    ``later`` calls something after so many nanoseconds and can be cancelled."""

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy,
        changed: Callable[[JobRecord], None],
        settle: Callable[[JobRecord], None],
        clock: Callable[[], int] = time.time_ns,
        ticks: Callable[[], int] = time.monotonic_ns,
        later: Callable[[int, Callable[[], None]], Any] = _soon,
    ) -> None:
        self._changed = changed
        self._settle = settle
        self._clock = clock
        self._ticks = ticks
        self._later = later
        self._scheduler = Scheduler(policy)
        self._book = JobBook(store)
        self._devices: dict[str, DeviceSlot] = {}
        self._events: dict[str, asyncio.Event] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._positions: dict[str, int] | None = None
        self._waking: Any = None
        self.totals = Totals()
        self.draining = False

    # ---- accepting ----

    def recover(self) -> None:
        """Takes over what the store holds from before: what ran when the daemon died is queued once more."""
        for job in self._book.recover():
            job.since_ns = self._ticks() - max(0, self._clock() - job.submitted_unix_ns)
            interrupted = [part for part in job.parts if part.state.runs]
            again = [part.died() for part in interrupted]
            for part in job.parts:
                part.avoid = ""
                part.refused.clear()
            if job.kind != CIRCUIT_KIND:
                self._end(job, JobState.FAILED, no_synthesiser(job.kind))
            elif job.cancelling:
                self._end(job, JobState.CANCELLED)
            elif not all(again):
                self._end(job, JobState.FAILED, f"the engine died {MAX_DEATHS} times while this job ran")
            elif all(part.state is PartitionState.DONE for part in job.parts):
                self._end(job, JobState.COMPLETED)
            else:
                for part in interrupted:
                    part.wait_again()
                job.state, job.phase = JobState.QUEUED, ""
                job.summarise()
                if interrupted:
                    self._book.save(job, *interrupted)
                self._enqueue(job)

    def find_request(self, request_id: str) -> JobRecord | None:
        """The job of a request id that was seen before."""
        return self._book.find_request(request_id)

    def accept(self, job: JobRecord) -> JobRecord:
        """Stores a new job and queues it; returns the job that already has its ``request_id`` where there is one."""
        if self.draining:
            raise RefusedError(Reason.FAILED_PRECONDITION, "the engine is draining: it takes no new jobs")
        if len(job.request_id) > _MAX_ID:
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"request_id has {len(job.request_id)} characters, may have {_MAX_ID}"
            )
        known = self.find_request(job.request_id)
        if known is not None:
            return known
        job.submitted_unix_ns = job.last_activity_unix_ns = self._clock()
        job.since_ns = self._ticks()
        job.summarise()
        self._book.add(job)
        if job.kind == CIRCUIT_KIND:
            self._enqueue(job)
        else:
            asyncio.get_running_loop().call_soon(self._end, job, JobState.FAILED, no_synthesiser(job.kind))
        self._tell(job)
        self.pump()
        return job

    # ---- looking ----

    def get(self, job_id: str) -> JobRecord:
        """Raises RefusedError NOT_FOUND, which tells expired jobs from unknown ones."""
        return self._book.get(job_id)

    def parts(self, job: JobRecord) -> list[Partition]:
        """The partitions of any job."""
        return self._book.parts(job)

    def proofs(self, job: JobRecord) -> list[tuple[str, str]]:
        """proof.json and public.json of each partition, in order. Raises RefusedError FAILED_PRECONDITION unless the
        job is completed."""
        return self._book.proofs(job)

    def newest(self, limit: int) -> list[JobRecord]:
        """The newest jobs first; what runs is among them, however many came after it."""
        return self._book.newest(limit, self._running_jobs())

    def info(self, job: JobRecord) -> JobInfo:
        """A job as clients see it."""
        return job.info(self.position(job))

    def position(self, job: JobRecord) -> int:
        """1 for the job that is next; 0 for one that does not wait."""
        if job.state is not JobState.QUEUED or not self._scheduler.queue.has_job(job.id):
            return 0
        if self._positions is None:
            self._positions = self._scheduler.positions(self._ticks())
        return self._positions.get(job.id, 0)

    def next_change(self, job: JobRecord) -> asyncio.Event:
        """What the next change of an active job sets; set already for one that has ended.

        Ask for it before looking at the job: a change while what was seen is being sent is not missed then.
        """
        if job.state.ended:
            ended = asyncio.Event()
            ended.set()
            return ended
        return self._events.setdefault(job.id, asyncio.Event())

    async def changes(self, job: JobRecord) -> None:
        """Waits for the next change of an active job; returns at once for one that has ended."""
        await self.next_change(job).wait()

    @property
    def queued(self) -> int:
        """Jobs of which nothing runs."""
        return sum(job.state is JobState.QUEUED for job in self._book)

    @property
    def running(self) -> int:
        """Jobs of which something runs."""
        return len(self._running_jobs())

    @property
    def is_idle(self) -> bool:
        """Whether no worker has anything to do, not even for a job that has ended."""
        return not self._scheduler.running

    def running_on(self, device: str) -> dict[int, tuple[JobRecord, Partition]]:
        """Worker → what it does; without what is being cancelled for a job that has ended."""
        found = {worker: self._find(part) for worker, part in self._scheduler.on(device).items()}
        return {worker: work for worker, work in found.items() if work is not None}

    def is_busy(self, device: str) -> bool:
        return bool(self._scheduler.on(device))

    def stopping(self, device: str) -> list[PartId]:
        """What was told to stop there, and has not."""
        found = {part: self._book.active(part[0]) for part in self._scheduler.on(device).values()}
        return [part for part, job in found.items() if job is None or job.cancelling]

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Kind → (waiting, running)."""
        counts: dict[str, tuple[int, int]] = {}
        for job in self._book:
            waiting, running = counts.get(job.kind, (0, 0))
            is_running = job.state is JobState.RUNNING
            counts[job.kind] = (waiting + (not is_running), running + is_running)
        return counts

    def users_of(self, key_path: str) -> int:
        """Running partitions that use a key."""
        return sum(place.circuit == key_path for place in self._scheduler.running.values())

    def spooled(self) -> set[str]:
        """Files of the spool that jobs still need."""
        return {part.witness_path for job in self._book if job.spooled for part in job.parts}

    # ---- ending ----

    def cancel(self, job_id: str) -> bool:
        """True when the job was running. Raises RefusedError NOT_FOUND."""
        job = self.get(job_id)
        if job.state.ended:
            return False
        self._unqueue(job)
        if not self._runs(job):
            self._end(job, JobState.CANCELLED)
            self.pump()
            return False
        if not job.cancelling:
            job.cancelling = True
            self._book.save(job)
            self._stop(job)
        return True

    def set_policy(self, policy: Policy) -> None:
        self._scheduler.policy = policy
        self._positions = None
        self.pump()

    def forget_fits(self, device: str = "") -> None:
        """What fits on a device, or on all, may be another thing now."""
        self._scheduler.forget_fits(device)

    async def drained(self) -> None:
        """Waits until nothing runs."""
        await self._idle.wait()

    def housekeeping(self, retention_ns: int, keep: int) -> None:
        """Drops old jobs, and writes what a full disk had refused. Raises sqlite3.Error."""
        self._end_late()
        self._book.housekeeping(self._clock() - retention_ns, keep)

    # ---- devices ----

    def add_device(self, device: DeviceSlot) -> None:
        self._devices[device.id] = device
        self._scheduler.add_device(device)

    def pump(self) -> None:
        """Gives waiting partitions to workers that have nothing to do."""
        if self.draining:
            return
        now = self._ticks()
        while (choice := self._scheduler.choose(now)) is not None:
            self._start(choice)
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        if self._scheduler.wake_ns is not None:
            self._waking = self._later(max(0, self._scheduler.wake_ns - now), self.pump)

    def progress(self, device: str, part_id: PartId, phase: str, fraction: float) -> None:
        place, found = self._scheduler.running.get(part_id), self._find(part_id)
        if place is None or place.device != device or found is None:
            return
        job, part = found
        part.phase = job.phase = phase
        part.state = part.state.after(phase)
        reached = min(1.0, max(part.progress, fraction))
        job.progress = min(1.0, job.progress + (reached - part.progress) / job.partitions)
        part.progress = reached
        job.last_activity_unix_ns = self._clock()
        self._tell(job)
        if place.preparing and part.state is not PartitionState.SYNTHESIZING:
            place.preparing = False
            self.pump()

    def completed(
        self, device: str, part_id: PartId, proof: tuple[str, str], phases: Iterable[tuple[str, int]]
    ) -> None:
        """``proof``: proof.json and public.json."""
        found = self._stopped(device, part_id)
        if found is not None:
            self._completed(*found, proof, [PhaseTime(name, nanoseconds) for name, nanoseconds in phases])
        self.pump()

    def failed(self, device: str, part_id: PartId, failure: Failure) -> None:
        found = self._stopped(device, part_id)
        if found is not None:
            if failure.never:
                self._scheduler.does_not_fit(device, found[0].key_path)
            self._failed(*found, failure)
        self.pump()

    def cancelled(self, device: str, part_id: PartId) -> None:
        found = self._stopped(device, part_id)
        if found is not None:
            self._settle_partition(*found)
        self.pump()

    def device_died(self, device: str, reason: str, blamed: Collection[PartId] | None = None) -> None:
        """What ran there is queued once more, or its job failed with ``reason``. ``blamed``: the process was ended for
        these; for what else ran there, the attempt does not count."""
        self._scheduler.forget_fits(device)
        for part_id in sorted(self._scheduler.on(device).values(), key=self._order_of):
            found = self._stopped(device, part_id)
            if found is None:
                continue
            job, part = found
            if blamed is not None and part_id not in blamed:
                self._take_back(job, part)
                continue
            again = part.died()
            if job.cancelling:
                self._settle_partition(job, part)
            elif again:
                self.totals.retried["died"] += 1
                self._requeue(job, part)
            else:
                where = f"partition {part.number + 1} of {job.partitions}, phase {part.phase or 'start'}"
                self._end(job, JobState.FAILED, f"{reason} while it ran {where}, twice; it is not tried again")
        self.pump()

    def put_back(self) -> None:
        """At the end of the daemon: what still runs is queued for the next start, and this attempt does not count."""
        self._end_late()
        for part_id, place in list(self._scheduler.running.items()):
            found = self._stopped(place.device, part_id)
            if found is not None:
                self._take_back(*found)

    def fail_impossible(self, reason: str) -> None:
        """Jobs do not wait for devices that have failed, where no other may take them."""
        for item in list(self._scheduler.queue.all()):
            job = self._book.active(item.job)
            if job is not None and not self._scheduler.can_run(item):
                self._end(job, JobState.FAILED, reason)
        self.pump()

    # ---- inside: partitions ----

    def _find(self, part_id: PartId) -> tuple[JobRecord, Partition] | None:
        job = self._book.active(part_id[0])
        return (job, job.parts[part_id[1]]) if job is not None else None

    def _order_of(self, part_id: PartId) -> tuple[int, int]:
        job = self._book.active(part_id[0])
        return (job.order if job else 0), part_id[1]

    def _runs(self, job: JobRecord) -> list[tuple[PartId, str]]:
        """Partitions of a job that run, and where."""
        return [(part, place.device) for part, place in self._scheduler.running.items() if part[0] == job.id]

    def _running_jobs(self) -> list[JobRecord]:
        found = map(self._book.active, dict.fromkeys(job for job, _ in self._scheduler.running))
        return [job for job in found if job is not None]

    def _start(self, choice: Choice) -> None:
        now = self._clock()
        job = self._book.get(choice.part.job)
        part = job.parts[choice.part.number]
        if job.state is JobState.QUEUED and not job.partitions_done:
            job.started_unix_ns = now
        job.state = JobState.RUNNING
        job.last_activity_unix_ns = now
        part.state, part.phase, part.device = PartitionState.SYNTHESIZING, "", choice.device
        part.started_unix_ns = now
        part.attempts += 1
        job.summarise()
        self._book.save(job, part)
        self._scheduler.started(choice)
        self._positions = None
        self._idle.clear()
        self._devices[choice.device].start(job, part, choice.worker)
        self._tell(job)

    def _stopped(self, device: str, part_id: PartId) -> tuple[JobRecord, Partition] | None:
        """A partition that was running there does not any more; None where it was not, or its job has ended."""
        place = self._scheduler.running.get(part_id)
        if place is None or place.device != device:
            return None
        self._scheduler.ended(part_id)
        if self.is_idle:
            self._idle.set()
        return self._find(part_id)

    def _completed(self, job: JobRecord, part: Partition, proof: tuple[str, str], phases: list[PhaseTime]) -> None:
        part.state, part.phase, part.progress, part.proof = PartitionState.DONE, "", 1.0, proof
        part.phases = phases
        self.totals.partitions += 1
        if all(other.state is PartitionState.DONE for other in job.parts):
            self._end(job, JobState.COMPLETED)
        else:
            self._settle_partition(job, part)

    def _failed(self, job: JobRecord, part: Partition, failure: Failure) -> None:
        again = part.failed(failure)
        if job.cancelling:
            self._settle_partition(job, part)
        elif again and self._scheduler.can_run(waiting(job, part)):
            log.warning("job %s, partition %d: %s; it is tried again", job.id, part.number, failure.error)
            self.totals.retried[failure.fault] += 1
            self._requeue(job, part)
        else:
            reasons = part.refused.values() if failure.fault is Fault.PLAN else [failure.error]
            self._fail_partition(job, part, "; ".join(reasons))

    def _settle_partition(self, job: JobRecord, part: Partition) -> None:
        """A partition has ended, and its job has not for that; unless it is cancelled, and this was the last that
        ran."""
        if job.cancelling and not self._runs(job):
            self._end(job, JobState.CANCELLED)
        elif part.state is PartitionState.DONE:
            self._after_partition(job, part)
        elif job.cancelling:
            part.state = PartitionState.FAILED
            self._after_partition(job, part)
        else:  # nobody had asked for that
            self._requeue(job, part)

    def _requeue(self, job: JobRecord, part: Partition) -> None:
        part.wait_again()
        self._scheduler.queue.add(waiting(job, part))
        self._after_partition(job, part)

    def _take_back(self, job: JobRecord, part: Partition) -> None:
        """Something else ended the attempt, which does not count."""
        part.attempts -= 1
        if job.cancelling:
            self._settle_partition(job, part)
        else:
            self._requeue(job, part)

    def _after_partition(self, job: JobRecord, part: Partition) -> None:
        self._positions = None
        job.state = JobState.RUNNING if self._runs(job) else JobState.QUEUED
        job.phase = job.phase if job.state is JobState.RUNNING else ""
        job.last_activity_unix_ns = self._clock()
        job.summarise()
        self._book.save(job, part)
        self._tell(job)

    def _fail_partition(self, job: JobRecord, part: Partition, error: str) -> None:
        where = f"partition {part.number + 1} of {job.partitions}: " if job.partitions > 1 else ""
        self._end(job, JobState.FAILED, where + error)

    # ---- inside: jobs ----

    def _enqueue(self, job: JobRecord) -> None:
        for part in job.parts:
            if part.state is PartitionState.PENDING:
                self._scheduler.queue.add(waiting(job, part))
        self._positions = None

    def _unqueue(self, job: JobRecord) -> None:
        for part in job.parts:
            self._scheduler.queue.remove((job.id, part.number))
        self._positions = None

    def _stop(self, job: JobRecord) -> None:
        for (_, number), device in self._runs(job):
            self._devices[device].cancel(job.id, number)

    def _end(self, job: JobRecord, state: JobState, error: str = "") -> None:
        if job.state.ended:
            return
        self._unqueue(job)
        before, job.state, job.phase = job.phase, state, ""
        job.error = error.encode(errors="backslashreplace").decode()  # a name in it may be no UTF-8
        for part in job.parts:
            if part.state is not PartitionState.DONE:
                part.state, part.phase = PartitionState.FAILED, ""
        job.summarise()
        job.finished_unix_ns = job.last_activity_unix_ns = self._clock()
        if waits := self._book.close(job):
            job.state, job.phase, job.finished_unix_ns = JobState.RUNNING, waits, 0
            if waits != before:
                log.error("job %s is proved and %s", job.id, waits)
                self._tell(job)
            return
        if not job.cancelling:
            self._stop(job)  # after a failure, what else runs of it is of no use
        self.totals.count(job)
        self._settle(job)
        self._tell(job)
        self._events.pop(job.id, None)

    def _end_late(self) -> None:
        """Completes the jobs whose proofs wait for the store."""
        for job in list(self._book):
            if all(part.state is PartitionState.DONE for part in job.parts):
                self._end(job, JobState.COMPLETED)

    def _tell(self, job: JobRecord) -> None:
        event = self._events.pop(job.id, None)
        if event is not None:
            event.set()
        self._changed(job)


def new_job_id() -> str:
    return str(uuid.uuid4())
