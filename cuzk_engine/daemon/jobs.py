"""The jobs: accepting, following, ending. Everything runs on the supervisor's event loop.

A job is QUEUED, RUNNING, then COMPLETED, FAILED or CANCELLED; each of its partitions is an order of its own to a
worker, and the dispatcher's business. Every change is in the store before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from cuzk_engine.client.types import JobInfo, JobState
from cuzk_engine.daemon.book import JobBook
from cuzk_engine.daemon.dispatcher import Clocks, Dispatcher
from cuzk_engine.daemon.records import (
    CIRCUIT_KIND,
    MAX_DEATHS,
    JobRecord,
    Partition,
    PartitionState,
    Totals,
    no_synthesiser,
)
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.repetition import check_circuit, check_kind
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.store import Store

log = logging.getLogger("cuzk")

_MAX_ID: Final = 4096


def _soon(nanoseconds: int, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(nanoseconds / 1e9, call)


class JobManager:
    """See the module's text. ``changed`` is called with each job that changed; ``settle`` with one that ended; the rest
    are ``Clocks``. ``dispatcher`` has what devices do for the jobs."""

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
        self._clocks = Clocks(clock, ticks, later)
        self._book = JobBook(store)
        self._events: dict[str, asyncio.Event] = {}
        self.totals = Totals()
        self.dispatcher = Dispatcher(self._book, self.totals, policy, self._clocks, self)

    # ---- accepting ----

    def recover(self) -> None:
        """Takes over what the store holds from before: what ran when the daemon died is queued once more."""
        for job in self._book.recover():
            job.since_ns = self._clocks.ticks() - max(0, self._clocks.wall() - job.submitted_unix_ns)
            interrupted = [part for part in job.parts if part.state.runs]
            again = [part.died() for part in interrupted]
            for part in job.parts:
                part.avoid = ""
                part.refused.clear()
            if job.kind != CIRCUIT_KIND:
                self.end(job, JobState.FAILED, no_synthesiser(job.kind))
            elif job.cancelling:
                self.end(job, JobState.CANCELLED)
            elif not all(again):
                self.end(job, JobState.FAILED, f"the engine died {MAX_DEATHS} times while this job ran")
            elif all(part.state is PartitionState.DONE for part in job.parts):
                self.end(job, JobState.COMPLETED)
            else:
                for part in interrupted:
                    part.wait_again()
                job.state, job.phase = JobState.QUEUED, ""
                job.summarise()
                if interrupted:
                    self._book.save(job, *interrupted)
                self.dispatcher.enqueue(job)

    def find_request(self, request_id: str) -> JobRecord | None:
        """The job of a request id that was seen before."""
        return self._book.find_request(request_id)

    def accept(self, job: JobRecord) -> JobRecord:
        """Stores a new job and queues it; returns the job that already has its ``request_id`` where there is one, which
        is of the same kind and circuit then. Raises RefusedError."""
        if self.draining:
            raise RefusedError(Reason.FAILED_PRECONDITION, "the engine is draining: it takes no new jobs")
        if len(job.request_id) > _MAX_ID:
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"request_id has {len(job.request_id)} characters, may have {_MAX_ID}"
            )
        known = self.find_request(job.request_id)
        if known is not None:
            check_kind(known, job.kind)
            check_circuit(known, job.circuit_id, job.key_path)
            return known
        job.submitted_unix_ns = job.last_activity_unix_ns = self._clocks.wall()
        job.since_ns = self._clocks.ticks()
        job.summarise()
        self._book.add(job)
        if job.kind == CIRCUIT_KIND:
            self.dispatcher.enqueue(job)
        else:
            asyncio.get_running_loop().call_soon(self.end, job, JobState.FAILED, no_synthesiser(job.kind))
        self.changed(job)
        self.dispatcher.pump()
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

    def check_proved(self, job: JobRecord) -> None:
        """Raises RefusedError FAILED_PRECONDITION unless the job is completed."""
        self._book.check_proved(job)

    def active(self, job_id: str) -> JobRecord | None:
        """A job that has not ended."""
        return self._book.active(job_id)

    def newest(self, limit: int) -> list[JobRecord]:
        """The newest jobs first; what runs is among them, however many came after it."""
        return self._book.newest(limit, self.dispatcher.running_jobs())

    def info(self, job: JobRecord) -> JobInfo:
        """A job as clients see it."""
        return job.info(self.dispatcher.position(job))

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
        return len(self.dispatcher.running_jobs())

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Kind → (waiting, running)."""
        counts: dict[str, tuple[int, int]] = {}
        for job in self._book:
            waiting, running = counts.get(job.kind, (0, 0))
            is_running = job.state is JobState.RUNNING
            counts[job.kind] = (waiting + (not is_running), running + is_running)
        return counts

    def spooled(self) -> set[str]:
        """Files of the spool that jobs still need."""
        return {part.witness_path for job in self._book if job.spooled for part in job.parts}

    # ---- ending ----

    def cancel(self, job_id: str) -> bool:
        """True when the job was running. Raises RefusedError NOT_FOUND."""
        job = self.get(job_id)
        if job.state.ended:
            return False
        self.dispatcher.withdraw(job)
        if not self.dispatcher.runs(job):
            self.end(job, JobState.CANCELLED)
            self.dispatcher.pump()
            return False
        if not job.cancelling:
            job.cancelling = True
            self._book.save(job)
            self.dispatcher.stop(job)
        return True

    @property
    def draining(self) -> bool:
        """No job is accepted and none started any more."""
        return self.dispatcher.draining

    def drain(self) -> None:
        self.dispatcher.draining = True

    def put_back(self) -> None:
        """At the end of the daemon: what still runs is queued for the next start."""
        self._end_late()
        self.dispatcher.put_back()

    def housekeeping(self, retention_ns: int, keep: int) -> None:
        """Drops old jobs, and writes what a full disk had refused. Raises sqlite3.Error."""
        self._end_late()
        self._book.housekeeping(self._clocks.wall() - retention_ns, keep)

    # ---- what partitions mean for a job ----

    def changed(self, job: JobRecord) -> None:
        """Tells everybody who follows it."""
        event = self._events.pop(job.id, None)
        if event is not None:
            event.set()
        self._changed(job)

    def end(self, job: JobRecord, state: JobState, error: str = "") -> None:
        """Ends a job that has not ended yet: nothing of it waits or runs from now on."""
        if job.state.ended:
            return
        self.dispatcher.withdraw(job)
        before, job.state, job.phase = job.phase, state, ""
        job.error = error.encode(errors="backslashreplace").decode()  # a name in it may be no UTF-8
        for part in job.parts:
            if part.state is not PartitionState.DONE:
                part.state, part.phase = PartitionState.FAILED, ""
        job.summarise()
        job.finished_unix_ns = job.last_activity_unix_ns = self._clocks.wall()
        if waits := self._book.close(job):
            job.state, job.phase, job.finished_unix_ns = JobState.RUNNING, waits, 0
            if waits != before:
                log.error("job %s is proved and %s", job.id, waits)
                self.changed(job)
            return
        if not job.cancelling:
            self.dispatcher.stop(job)  # after a failure, what else runs of it is of no use
        self.totals.count(job)
        self._settle(job)
        self.changed(job)
        self._events.pop(job.id, None)

    def _end_late(self) -> None:
        """Completes the jobs whose proofs wait for the store."""
        for job in list(self._book):
            if all(part.state is PartitionState.DONE for part in job.parts):
                self.end(job, JobState.COMPLETED)


def new_job_id() -> str:
    return str(uuid.uuid4())
