"""Which waiting job runs next.

Rank is the priority, and within it the order of acceptance. A job that waits counts as one priority higher after
each ``aging``, up to HIGH, so LOW is overtaken for at most twice that long; CRITICAL is above all of that. A job
that has started is never interrupted for another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cuzk_engine.client.types import Priority

_LEVELS: Final = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2, Priority.CRITICAL: 3}
_AGED_UP_TO: Final = _LEVELS[Priority.HIGH]

ANY_DEVICE: Final = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue. ``since_ns``: when it was accepted, on the clock that ``next`` is asked with."""

    id: str
    priority: Priority
    order: int
    since_ns: int
    device: str = ANY_DEVICE


class JobQueue:
    """Jobs by (priority, wanted device), each in order of acceptance, so that only the heads need comparing."""

    def __init__(self, aging_ns: int) -> None:
        self.aging_ns = aging_ns
        self._lines: dict[tuple[Priority, str], OrderedDict[str, Waiting]] = {}
        self._where: dict[str, tuple[Priority, str]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._where

    def add(self, job: Waiting) -> None:
        key = (job.priority, job.device)
        line = self._lines.setdefault(key, OrderedDict())
        line[job.id] = job
        self._where[job.id] = key
        # One that comes back, after its device process died, has its old place.
        if len(line) > 1:
            before = next(islice(reversed(line.values()), 1, None))
            if before.order > job.order:
                self._lines[key] = OrderedDict(
                    (item.id, item) for item in sorted(line.values(), key=lambda item: item.order)
                )

    def remove(self, job_id: str) -> bool:
        """False when it was not waiting."""
        key = self._where.pop(job_id, None)
        if key is None:
            return False
        line = self._lines[key]
        del line[job_id]
        if not line:
            del self._lines[key]
        return True

    def next(self, device: str, now_ns: int) -> Waiting | None:
        """The job that ``device`` should take now; it stays in the queue."""
        heads = [
            next(iter(line.values())) for (_, wanted), line in self._lines.items() if wanted in (ANY_DEVICE, device)
        ]
        return min(heads, key=lambda job: self._rank(job, now_ns), default=None)

    def positions(self, now_ns: int) -> dict[str, int]:
        """1 for the job that is next, and so on."""
        jobs = [job for line in self._lines.values() for job in line.values()]
        jobs.sort(key=lambda job: self._rank(job, now_ns))
        return {job.id: number for number, job in enumerate(jobs, 1)}

    def wanting(self, device: str) -> Collection[str]:
        """Jobs that can run on ``device`` only."""
        return [job.id for (_, wanted), line in self._lines.items() if wanted == device for job in line.values()]

    def _rank(self, job: Waiting, now_ns: int) -> tuple[int, int]:
        level = _LEVELS[job.priority]
        if level < _AGED_UP_TO and self.aging_ns > 0:
            level = min(_AGED_UP_TO, level + max(0, now_ns - job.since_ns) // self.aging_ns)
        return -level, job.order
