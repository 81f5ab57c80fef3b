"""When there was something to prove: from what the engine says of its jobs, on the clock of its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cuzk_engine.diagnosis.intervals import EMPTY, IntervalSet, normalise

FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Monotonic nanoseconds; ``started`` and ``finished`` None where that has not happened. ``device`` "" until it
    runs; ``partitions_left``: how many have not been taken by a worker; ``taken``: when the last one was, None where it
    is the one that was taken at ``started``."""

    submitted: int
    started: int | None
    finished: int | None
    device: str = ""
    partitions_left: int = 0
    taken: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """``waiting``: some job was accepted and not yet taken; ``running``: some job ran on the device. ``is_known`` is
    False where nobody told of jobs: then what a worker does says that there was a job."""

    waiting: IntervalSet = field(default_factory=lambda: EMPTY)
    running: IntervalSet = field(default_factory=lambda: EMPTY)
    is_known: bool = False

    @classmethod
    def of(cls, jobs: Iterable[JobTimes], device: str) -> Queue:
        """What was to do for ``device``. A waiting job counts for every device that could take it."""
        wait: list[tuple[int, int]] = []
        run: list[tuple[int, int]] = []
        for job in jobs:
            finished = FOREVER if job.finished is None else job.finished
            started = finished if job.started is None else job.started
            taken = started if job.taken is None else max(job.taken, started)
            wait.append((job.submitted, finished if job.partitions_left else min(taken, finished)))
            if job.started is not None and job.device == device:
                run.append((job.started, finished))
        return cls(_set(wait), _set(run), True)


def _set(pairs: list[tuple[int, int]]) -> IntervalSet:
    return normalise([start for start, _ in pairs], [end for _, end in pairs])
