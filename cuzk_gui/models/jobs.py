"""Jobs as the window lists them: newest first among what runs, what waits, what has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from cuzk_engine.client import JobInfo, JobState
from cuzk_gui.models import words

KEPT: Final = 10_000
QUIET_NS: Final = 5_000_000_000
"""A running job without activity for longer is said to be so."""

_RANK: Final = {JobState.RUNNING: 0, JobState.QUEUED: 1}


def state_of(job: JobInfo) -> str:
    """The state as text; a state that this version does not know as it is."""
    return str(getattr(job.state, "value", job.state))


class JobTable:
    """Jobs by id, bounded: of more than ``KEPT``, those that ended first are forgotten."""

    def __init__(self, limit: int = KEPT) -> None:
        self.clock: Callable[[], int] = time.time_ns  # Unix nanoseconds: the present that durations count to
        self._limit = limit
        self._jobs: dict[str, JobInfo] = {}
        self._hidden: set[str] = set()
        self.order: list[str] = []
        self._places: dict[str, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self.order)

    def get(self, job_id: str) -> JobInfo | None:
        return self._jobs.get(job_id)

    def place(self, job_id: str) -> int:
        """Place in the queue, 1 for the next; the engine does not send a job again when only its place has changed."""
        return self._places.get(job_id, 0)

    def update(self, jobs: Iterable[JobInfo]) -> None:
        changed = False
        for job in jobs:
            changed = True
            self._jobs[job.id] = job
        if changed:
            self._sort()

    def replace(self, jobs: Iterable[JobInfo]) -> None:
        """The engine's whole list: jobs that it does not know any more go."""
        self._jobs = {job.id: job for job in jobs}
        self._hidden &= self._jobs.keys()
        self._sort()

    def hide(self, job_id: str) -> None:
        """Takes an ended job, or one that does not move any more, off the list."""
        self._hidden.add(job_id)
        self._sort()

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for job_id in self.order:
            state = state_of(self._jobs[job_id])
            found[state] = found.get(state, 0) + 1
        return found

    @property
    def active(self) -> bool:
        """Whether something runs or waits."""
        return any(not getattr(j.state, "ended", False) for i, j in self._jobs.items() if i not in self._hidden)

    def _sort(self) -> None:
        if len(self._jobs) > self._limit:
            ended = sorted(
                (j for j in self._jobs.values() if getattr(j.state, "ended", False)), key=lambda j: j.finished_unix_ns
            )
            for job in ended[: len(self._jobs) - self._limit]:
                del self._jobs[job.id]
            self._hidden &= self._jobs.keys()
        shown = [j for j in self._jobs.values() if j.id not in self._hidden]
        shown.sort(key=_sort_key)
        self.order = [job.id for job in shown]
        waiting = (job.id for job in shown if job.state == JobState.QUEUED)
        self._places = {job_id: place for place, job_id in enumerate(waiting, start=1)}
        self.version += 1


def _sort_key(job: JobInfo) -> tuple[int, int, int]:
    rank = _RANK.get(job.state, 2)
    if rank == 1:
        return rank, job.queue_position, job.submitted_unix_ns
    return rank, 0, -job.submitted_unix_ns


def title(job: JobInfo) -> str:
    """ "merkle10", or "label · merkle10"."""
    circuit = words.plain(job.circuit_name or job.circuit_id[:12] or "circuit", 80)
    return f"{words.plain(job.label, 80)} · {circuit}" if job.label and job.label != job.circuit_name else circuit


def priority_of(job: JobInfo) -> str:
    """The priority as text; one that this version does not know as it is."""
    return words.plain(str(getattr(job.priority, "value", job.priority)), 20)


def progress_text(job: JobInfo, now_unix_ns: int | None = None, place: int | None = None) -> str:
    """The right side of a job's line: its phase, its place in the queue, or how it ended."""
    state = state_of(job)
    now = time.time_ns() if now_unix_ns is None else now_unix_ns
    again = f"try {job.attempts}" if job.partitions <= 1 else "partitions retried"
    tail = f" · {again}" if job.attempts > 1 else ""
    if state == JobState.RUNNING:
        part = f"{min(job.partitions_done, job.partitions)} of {job.partitions} · " if job.partitions > 1 else ""
        quiet = quiet_ns(job, now)
        tail += f" · no activity for {words.span(quiet / 1e9)}" if quiet else ""
        return part + (words.phase(job.phase) or "running") + tail
    if state == JobState.QUEUED:
        number = place or job.queue_position
        text = f"queued, {_ordinal(number)}" if number > 0 else "queued"
        urgent = priority_of(job)
        return (text if urgent == "normal" else f"{text} · {urgent}") + tail
    if state == JobState.COMPLETED:
        verified = verified_ns(job)
        return f"verified in {words.duration(verified)}" if verified is not None else "verified"
    return words.plain(state, 40)


def quiet_ns(job: JobInfo, now_unix_ns: int) -> int:
    """How long a running job has shown no activity; 0 unless it is worth a word."""
    since = job.last_activity_unix_ns or job.started_unix_ns
    if state_of(job) != JobState.RUNNING or not since or now_unix_ns - since <= QUIET_NS:
        return 0
    return now_unix_ns - since


def verified_ns(job: JobInfo) -> int | None:
    """How long verifying took; None where the engine has not said."""
    for phase in job.phases:
        if phase.name.rpartition(".")[2] == "verify":
            return phase.nanoseconds
    return None


def elapsed_ns(job: JobInfo, now_unix_ns: int) -> int:
    """From start to end, or to now."""
    if not job.started_unix_ns:
        return 0
    return max(0, (job.finished_unix_ns or now_unix_ns) - job.started_unix_ns)


def fraction(job: JobInfo) -> float:
    """Progress 0…1; what an engine says beyond that is cut."""
    value = 1.0 if job.state == JobState.COMPLETED else job.progress
    return min(max(value, 0.0), 1.0) if value == value else 0.0


def _ordinal(place: int) -> str:
    return "next" if place == 1 else f"no. {place:,}"
