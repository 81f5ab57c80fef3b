"""The jobs: accepting, scheduling, following, ending. Everything runs on the supervisor's event loop.

A job is QUEUED, RUNNING, then COMPLETED, FAILED or CANCELLED, and every change is in the store before anybody hears
of it. When a device process dies, what ran in it is queued once more, to run alone then: if the process dies again,
the job was the cause.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from cuzk_engine.client.types import JobInfo, JobState, PhaseTime
from cuzk_engine.daemon.queue import JobQueue, Waiting
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.store import CIRCUIT_KIND, JobRecord, Store

log = logging.getLogger("cuzk")

MAX_ATTEMPTS: Final = 2
LIST_LIMIT: Final = 1000
_MAX_ID: Final = 4096


class DeviceSlot(Protocol):
    """What the scheduler needs of a device."""

    @property
    def id(self) -> str: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def workers(self) -> int: ...

    def start(self, job: JobRecord, worker: int) -> None: ...
    def cancel(self, job_id: str) -> None: ...


@dataclass(slots=True)
class Totals:
    """Since the daemon started, by kind of job."""

    completed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class _Running:
    job: JobRecord
    device: str
    worker: int


class JobManager:
    """See the module's text. ``changed`` is called with each job that changed; ``settle`` with one that ended."""

    def __init__(
        self,
        store: Store,
        *,
        aging_ns: int,
        changed: Callable[[JobRecord], None],
        settle: Callable[[JobRecord], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._changed = changed
        self._settle = settle
        self._clock = clock
        self._queue = JobQueue(aging_ns)
        self._active: dict[str, JobRecord] = {}
        self._unsaved: dict[str, tuple[JobRecord, str | None, str | None]] = {}
        self._running: dict[str, _Running] = {}
        self._devices: dict[str, DeviceSlot] = {}
        self._events: dict[str, asyncio.Event] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._positions: dict[str, int] | None = None
        self.totals = Totals()
        self.draining = False

    # ---- accepting ----

    def recover(self) -> None:
        """Takes over what the store holds from before: jobs that ran when the daemon died are queued once more."""
        for job in self._store.unfinished():
            if job.state is JobState.RUNNING:
                if job.cancelling:
                    self._active[job.id] = job
                    self._end(job, JobState.CANCELLED)
                    continue
                if job.attempts >= MAX_ATTEMPTS:
                    self._active[job.id] = job
                    self._end(job, JobState.FAILED, f"the engine died {job.attempts} times while this job ran")
                    continue
                job.state, job.phase, job.progress = JobState.QUEUED, "", 0.0
                job.suspect = job.alone = True
                self._store.update(job)
            if job.kind != CIRCUIT_KIND:
                self._active[job.id] = job
                self._end(job, JobState.FAILED, no_synthesiser(job.kind))
                continue
            self._active[job.id] = job
            self._enqueue(job)

    def find_request(self, request_id: str) -> JobRecord | None:
        """The job of an idempotency key."""
        job = self._store.by_request(request_id) if request_id else None
        return self._active.get(job.id, job) if job else None

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
        try:
            self._store.insert(job)
        except sqlite3.Error as error:
            raise RefusedError(
                Reason.INTERNAL, f"the job store cannot take the job: {error}; it was not accepted"
            ) from error
        self._active[job.id] = job
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
        job = self._active.get(job_id) or self._pending_save(job_id) or self._store.get(job_id)
        if job is None:
            if self._store.is_expired(job_id):
                raise RefusedError(
                    Reason.NOT_FOUND, f"job {job_id} has expired: finished jobs are kept for jobs.retention"
                )
            raise RefusedError(Reason.NOT_FOUND, f"job {job_id[:80]!r} is unknown")
        return job

    def proof(self, job: JobRecord) -> tuple[str, str]:
        """proof.json and public.json. Raises RefusedError FAILED_PRECONDITION unless the job is completed."""
        if job.state is not JobState.COMPLETED:
            detail = f": {job.error}" if job.error else ""
            raise RefusedError(Reason.FAILED_PRECONDITION, f"job {job.id} has no proof: it is {job.state}{detail}")
        unsaved = self._unsaved.get(job.id)
        if unsaved is not None and unsaved[1] is not None and unsaved[2] is not None:
            return unsaved[1], unsaved[2]
        return self._store.proof(job.id)

    def newest(self, limit: int) -> list[JobRecord]:
        """The newest jobs first; what runs is among them, however many came after it."""
        stored = self._store.newest(min(limit or LIST_LIMIT, LIST_LIMIT))
        jobs = [self._active.get(job.id) or self._pending_save(job.id) or job for job in stored]
        listed = {job.id for job in jobs}
        older = [run.job for run in self._running.values() if run.job.id not in listed]
        older.sort(key=lambda job: -job.order)
        return jobs[: max(0, len(jobs) - len(older))] + older

    def info(self, job: JobRecord) -> JobInfo:
        """A job as clients see it."""
        return JobInfo(
            id=job.id,
            request_id=job.request_id,
            circuit_id=job.circuit_id,
            circuit_name=job.circuit_name,
            curve=job.curve,
            label=job.label,
            state=job.state,
            priority=job.priority,
            queue_position=self.position(job.id),
            phase=job.phase,
            progress=job.progress,
            device=job.device,
            partitions=job.partitions,
            partitions_done=job.partitions_done,
            error=job.error,
            submitted_unix_ns=job.submitted_unix_ns,
            started_unix_ns=job.started_unix_ns,
            finished_unix_ns=job.finished_unix_ns,
            last_activity_unix_ns=job.last_activity_unix_ns,
            phases=tuple(job.phases),
            attempts=job.attempts,
        )

    def position(self, job_id: str) -> int:
        """1 for the job that is next; 0 for one that does not wait."""
        if job_id not in self._queue:
            return 0
        if self._positions is None:
            self._positions = self._queue.positions(self._clock())
        return self._positions.get(job_id, 0)

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
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._running)

    def running_on(self, device: str) -> dict[int, JobRecord]:
        """Worker → job."""
        return {run.worker: run.job for run in self._running.values() if run.device == device}

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Kind → (waiting, running)."""
        counts: dict[str, tuple[int, int]] = {}
        for job in self._active.values():
            waiting, running = counts.get(job.kind, (0, 0))
            is_running = job.state is JobState.RUNNING
            counts[job.kind] = (waiting + (not is_running), running + is_running)
        return counts

    def users_of(self, key_path: str) -> int:
        """Running jobs that use a key."""
        return sum(run.job.key_path == key_path for run in self._running.values())

    def spooled(self) -> set[str]:
        """Files of the spool that jobs still need."""
        return {job.witness_path for job in self._active.values() if job.spooled}

    # ---- ending ----

    def cancel(self, job_id: str) -> bool:
        """True when the job was running. Raises RefusedError NOT_FOUND."""
        job = self.get(job_id)
        if job.state is JobState.QUEUED and self._queue.remove(job.id):
            self._positions = None
            self._end(job, JobState.CANCELLED)
            return False
        run = self._running.get(job.id)
        if run is None:
            return False
        if not job.cancelling:
            job.cancelling = True
            self._save(job)
            self._devices[run.device].cancel(job.id)
        return True

    def set_aging(self, aging_ns: int) -> None:
        self._queue.aging_ns = aging_ns
        self._positions = None

    async def drained(self) -> None:
        """Waits until nothing runs."""
        await self._idle.wait()

    def housekeeping(self, retention_ns: int, keep: int) -> None:
        """Drops old jobs, and writes what a full disk had refused. Raises sqlite3.Error."""
        for job_id, (job, proof, public) in list(self._unsaved.items()):
            self._store.update(job, proof, public)
            del self._unsaved[job_id]
        self._store.drop_finished(self._clock() - retention_ns, keep)

    # ---- devices ----

    def add_device(self, device: DeviceSlot) -> None:
        self._devices[device.id] = device

    def pump(self) -> None:
        """Gives waiting jobs to workers that have nothing to do."""
        if self.draining:
            return
        for device in self._devices.values():
            while device.is_ready and self._start_next(device):
                pass

    def progress(self, job_id: str, phase: str, fraction: float) -> None:
        run = self._running.get(job_id)
        if run is not None:
            run.job.phase = phase
            run.job.progress = min(1.0, max(run.job.progress, fraction))
            run.job.last_activity_unix_ns = self._clock()
            self._tell(run.job)

    def completed(self, job_id: str, proof_json: str, public_json: str, phases: Iterable[tuple[str, int]]) -> None:
        run = self._running.get(job_id)
        if run is not None:
            run.job.phases = [PhaseTime(name, nanoseconds) for name, nanoseconds in phases]
            run.job.partitions_done = run.job.partitions
            self._end(run.job, JobState.COMPLETED, "", proof_json, public_json)

    def failed(self, job_id: str, error: str, *, memory: bool = False) -> None:
        """``memory``: the device's memory was short, and may not be when the job runs alone."""
        run = self._running.get(job_id)
        if run is None:
            return
        if memory and run.job.cancelling:
            self._end(run.job, JobState.CANCELLED)
            return
        others = len(self.running_on(run.device)) > 1
        if memory and others and not run.job.alone:
            log.warning("job %s: %s; it will be tried once more, alone", job_id, error)
            run.job.alone = True
            self._requeue(run)
            self.pump()
            return
        self._end(run.job, JobState.FAILED, error)

    def cancelled(self, job_id: str) -> None:
        run = self._running.get(job_id)
        if run is not None:
            self._end(run.job, JobState.CANCELLED)

    def device_died(self, device: str, reason: str) -> None:
        """Jobs that ran there are queued once more, or failed with ``reason``."""
        runs = sorted((run for run in self._running.values() if run.device == device), key=lambda run: run.job.order)
        for run in runs:
            if run.job.cancelling:
                self._end(run.job, JobState.CANCELLED)
            elif run.job.attempts >= MAX_ATTEMPTS:
                part = f"partition 1 of {run.job.partitions}, phase {run.job.phase or 'start'}"
                self._end(run.job, JobState.FAILED, f"{reason} while it ran {part}, twice; it is not tried again")
            else:
                run.job.suspect = run.job.alone = True
                self._requeue(run)

    def put_back(self) -> None:
        """At the end of the daemon: what still runs is queued for the next start, and this attempt does not count."""
        for run in list(self._running.values()):
            if run.job.cancelling:
                self._end(run.job, JobState.CANCELLED)
                continue
            run.job.attempts -= 1
            self._requeue(run)

    def fail_wanting(self, device: str, reason: str) -> None:
        """Jobs that can run on one device only do not wait for one that has failed."""
        usable = any(item.is_ready for item in self._devices.values())
        for job_id in list(self._queue.wanting(device)) + ([] if usable else list(self._queue.wanting(""))):
            job = self._active[job_id]
            self._queue.remove(job_id)
            self._positions = None
            self._end(job, JobState.FAILED, reason)

    def _start_next(self, device: DeviceSlot) -> bool:
        busy = self.running_on(device.id)
        free = next((worker for worker in range(device.workers) if worker not in busy), None)
        if free is None or any(job.alone for job in busy.values()):
            return False
        waiting = self._queue.next(device.id, self._clock())
        if waiting is None:
            return False
        job = self._active[waiting.id]
        if job.alone and busy:
            return False  # nothing else starts there until it can have the device to itself
        job.state = JobState.RUNNING
        job.device = device.id
        job.started_unix_ns = job.last_activity_unix_ns = self._clock()
        job.attempts += 1
        self._save(job)
        self._queue.remove(job.id)
        self._positions = None
        self._running[job.id] = _Running(job, device.id, free)
        self._idle.clear()
        device.start(job, free)
        self._tell(job)
        return True

    def _save(self, job: JobRecord) -> None:
        """Where it does not work the job goes on; only what changed is not known after a crash."""
        try:
            self._store.update(job)
        except sqlite3.Error as error:
            log.warning("the job store cannot be written: %s", error)

    def _enqueue(self, job: JobRecord) -> None:
        self._queue.add(Waiting(job.id, job.priority, job.order, job.submitted_unix_ns, job.wanted_device))
        self._positions = None

    def _requeue(self, run: _Running) -> None:
        job = run.job
        self._forget_run(job.id)
        job.state, job.phase, job.progress, job.cancelling = JobState.QUEUED, "", 0.0, False
        self._save(job)
        self._enqueue(job)
        self._tell(job)

    def _end(
        self,
        job: JobRecord,
        state: JobState,
        error: str = "",
        proof_json: str | None = None,
        public_json: str | None = None,
    ) -> None:
        if job.state.ended:
            return
        self._forget_run(job.id)
        job.state, job.phase = state, ""
        job.error = error.encode(errors="backslashreplace").decode()  # a name in it may be no UTF-8
        job.progress = 1.0 if state is JobState.COMPLETED else job.progress
        job.finished_unix_ns = job.last_activity_unix_ns = self._clock()
        try:
            self._store.update(job, proof_json, public_json)
        except sqlite3.Error as fault:
            log.error("the job store cannot be written: %s; job %s is kept in memory until it can", fault, job.id)
            self._unsaved[job.id] = (job, proof_json, public_json)
        self._active.pop(job.id, None)
        self._count(job)
        self._settle(job)
        self._tell(job)
        self._events.pop(job.id, None)
        self.pump()

    def _count(self, job: JobRecord) -> None:
        if job.state is JobState.COMPLETED:
            self.totals.completed[job.kind] += 1
            self.totals.seconds[job.kind] += (job.finished_unix_ns - job.started_unix_ns) / 1e9
        elif job.state is JobState.FAILED:
            self.totals.failed[job.kind] += 1
        else:
            self.totals.cancelled[job.kind] += 1

    def _forget_run(self, job_id: str) -> None:
        self._running.pop(job_id, None)
        if not self._running:
            self._idle.set()

    def _tell(self, job: JobRecord) -> None:
        event = self._events.pop(job.id, None)
        if event is not None:
            event.set()
        self._changed(job)

    def _pending_save(self, job_id: str) -> JobRecord | None:
        found = self._unsaved.get(job_id)
        return found[0] if found else None


def new_job_id() -> str:
    return str(uuid.uuid4())


def no_synthesiser(kind: str) -> str:
    """Why a job of a cuzk.v1 kind fails."""
    return (
        f"no synthesiser for {kind} is installed: this engine proves registered circom circuits, "
        "through cuzk.engine.v1; the request was understood, but nothing here can make its witness"
    )
