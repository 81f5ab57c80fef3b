"""Which jobs there are: those that have not ended, in memory and in the store, and the others in the store alone.

Where the store cannot be written, a job with all its proofs is not completed until it can: nobody is told of a proof
that a crash could lose. What has ended without one stays in memory.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from cuzk_engine.client.types import JobState
from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.store import Store

log = logging.getLogger("cuzk")

LIST_LIMIT: Final = 1000
FOR_ROOM: Final = "waits for room on the disk"
FOR_STORE: Final = "waits until the job store can be written"


class JobBook:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._active: dict[str, JobRecord] = {}
        self._unsaved: dict[str, JobRecord] = {}

    def __iter__(self) -> Iterator[JobRecord]:
        """The jobs that have not ended."""
        return iter(self._active.values())

    def recover(self) -> list[JobRecord]:
        """What had not ended when the daemon did."""
        self._active = {job.id: job for job in self._store.unfinished()}
        return list(self._active.values())

    def add(self, job: JobRecord) -> None:
        """Raises RefusedError for a job that cannot be stored; it is not accepted then."""
        try:
            self._store.insert(job)
        except sqlite3.Error as error:
            raise RefusedError(
                Reason.INTERNAL, f"the job store cannot take the job: {error}; it was not accepted"
            ) from error
        self._active[job.id] = job

    def active(self, job_id: str) -> JobRecord | None:
        return self._active.get(job_id)

    def find_request(self, request_id: str) -> JobRecord | None:
        """The job of a request id that was seen before."""
        job = self._store.by_request(request_id) if request_id else None
        return self._active.get(job.id, job) if job else None

    def get(self, job_id: str) -> JobRecord:
        """Raises RefusedError NOT_FOUND, which tells expired jobs from unknown ones."""
        job = self._active.get(job_id) or self._unsaved.get(job_id) or self._store.get(job_id)
        if job is None:
            if self._store.is_expired(job_id):
                raise RefusedError(
                    Reason.NOT_FOUND, f"job {job_id} has expired: finished jobs are kept for jobs.retention"
                )
            raise RefusedError(Reason.NOT_FOUND, f"job {job_id[:80]!r} is unknown")
        return job

    def newest(self, limit: int, always: Iterable[JobRecord]) -> list[JobRecord]:
        """The newest jobs first; those of ``always`` are among them, however many came after them."""
        stored = self._store.newest(min(limit or LIST_LIMIT, LIST_LIMIT))
        jobs = [self._active.get(job.id) or self._unsaved.get(job.id) or job for job in stored]
        listed = {job.id for job in jobs}
        older = sorted((job for job in always if job.id not in listed), key=lambda job: -job.order)
        return jobs[: max(0, len(jobs) - len(older))] + older

    def parts(self, job: JobRecord) -> list[Partition]:
        """The partitions of any job."""
        return job.parts or self._store.partitions(job)

    def proofs(self, job: JobRecord) -> list[tuple[str, str]]:
        """proof.json and public.json of each partition, in order. Raises RefusedError as ``check_proved``."""
        self.check_proved(job)
        found = self._store.proofs(job)
        return [found[number] for number in range(job.partitions)]

    def check_proved(self, job: JobRecord) -> None:
        """Raises RefusedError FAILED_PRECONDITION unless the job is completed. All its results are stored then."""
        if job.state is not JobState.COMPLETED:
            detail = f": {job.error}" if job.error else ""
            what = "it failed" if job.state is JobState.FAILED else f"it is {job.state}"
            raise RefusedError(Reason.FAILED_PRECONDITION, f"job {job.id} has no proof: {what}{detail}")

    def save(self, job: JobRecord, *parts: Partition) -> None:
        """Where it does not work the job goes on; only what changed is not known after a crash, and proofs stay in
        memory until they are stored."""
        try:
            self._store.update(job, parts)
            _forget_proofs(parts)
        except sqlite3.Error as error:
            log.warning("the job store cannot be written: %s", error)

    def close(self, job: JobRecord) -> str:
        """A job has ended; for a completed one that cannot be stored, what it waits for, and it has not ended."""
        try:
            self._store.update(job, job.parts)
            _forget_proofs(job.parts)
        except sqlite3.Error as fault:
            if job.state is JobState.COMPLETED:
                return FOR_ROOM if "full" in str(fault) else FOR_STORE
            log.error("the job store cannot be written: %s; job %s is kept in memory until it can", fault, job.id)
            self._unsaved[job.id] = job
        self._active.pop(job.id, None)
        return ""

    def housekeeping(self, before_unix_ns: int, keep: int) -> None:
        """Drops old jobs, and writes what a full disk had refused. Raises sqlite3.Error."""
        late = [job for job in self._active.values() if any(part.proof for part in job.parts)]
        for job in [*self._unsaved.values(), *late]:
            self._store.update(job, job.parts)
            _forget_proofs(job.parts)
            self._unsaved.pop(job.id, None)
        self._store.drop_finished(before_unix_ns, keep)


def _forget_proofs(parts: Iterable[Partition]) -> None:
    for part in parts:
        part.proof = None
