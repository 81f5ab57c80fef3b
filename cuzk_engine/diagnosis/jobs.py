"""Jobs as the engine tells of them, on the clock of its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cuzk_engine.client.types import JobInfo, JobState
from cuzk_engine.diagnosis.queue import FOREVER, JobTimes, Queue

MOST_JOBS: Final = 10_000


class JobTable:
    """The newest state of each job. Bounded: of the ended ones the oldest are forgotten first."""

    def __init__(self, most: int = MOST_JOBS) -> None:
        self._most = most
        self._jobs: dict[str, JobTimes] = {}
        self._last_end = 0  # of those that were forgotten
        self.is_known = False  # whether anybody told of jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def update(self, jobs: Iterable[JobInfo], wall_offset_ns: int) -> None:
        """``wall_offset_ns``: the wall clock minus the events' clock."""
        self.is_known = True
        for job in jobs:
            before = self._jobs.pop(job.id, None)  # to the end: the most lately changed
            self._jobs[job.id] = _with_past(before, times_of(job, wall_offset_ns), job, wall_offset_ns)
        if len(self._jobs) > self._most:
            ended = [job for job, times in self._jobs.items() if times.finished is not None]
            self._drop(ended[: len(self._jobs) - self._most])

    def forget(self, before_ns: int) -> None:
        """The jobs that had ended by then."""
        self._drop([job for job, t in self._jobs.items() if t.finished is not None and t.finished < before_ns])

    def queue(self, device: str) -> Queue:
        return Queue.of(self._jobs.values(), device) if self.is_known else Queue()

    def idle_since(self, device: str) -> int | None:
        """When the last job ended that ran on the device or could have; None while there is one, and where nobody
        told of jobs."""
        if not self.is_known:
            return None
        last = self._last_end
        for times in self._jobs.values():
            if times.finished is not None:
                last = max(last, times.finished)
            elif times.started is None or times.device in (device, ""):
                return None
        return last

    def _drop(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._last_end = max(self._last_end, self._jobs.pop(job).finished or 0)


def _with_past(before: JobTimes | None, now: JobTimes, job: JobInfo, wall_offset_ns: int) -> JobTimes:
    """A job's present state does not tell how long its partitions waited."""
    if before is None or now.started is None or now.partitions_left:
        return now
    taken = before.taken
    if taken is None and before.partitions_left:
        taken = _on_clock(job.last_activity_unix_ns, wall_offset_ns)
    return replace(now, taken=taken)


def times_of(job: JobInfo, wall_offset_ns: int) -> JobTimes:
    started = _on_clock(job.started_unix_ns, wall_offset_ns) if job.started_unix_ns else None
    finished = _on_clock(job.finished_unix_ns, wall_offset_ns) if job.finished_unix_ns else None
    if job.state is JobState.QUEUED:  # put back: a worker had it, and lost it
        started = None
    # A job of several partitions waits until its last one was taken.
    left = max(0, job.partitions - job.partitions_done - 1) if job.state is JobState.RUNNING else 0
    return JobTimes(_on_clock(job.submitted_unix_ns, wall_offset_ns), started, finished, job.device, left)


def _on_clock(unix_ns: int, wall_offset_ns: int) -> int:
    """A time on the events' clock, in the range of an event's, whatever was sent."""
    return max(-FOREVER, min(FOREVER, unix_ns - wall_offset_ns))
