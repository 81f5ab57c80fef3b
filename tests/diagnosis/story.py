"""Small timelines for the diagnosis, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuzk_engine.diagnosis.gaps import Idleness, find_gaps
from cuzk_engine.diagnosis.queue import JobTimes, Queue
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Gap, Kind, Lane, Sample, Span, host_lane

MS = 1_000_000
GPU = "cuda:0"
_LANES = {
    Kind.UPLOAD_WITNESS: Lane.H2D,
    Kind.UPLOAD_ABC: Lane.H2D,
    Kind.UPLOAD_SRS: Lane.H2D,
    Kind.DOWNLOAD_RESULT: Lane.D2H,
    Kind.LOCK_WAIT: Lane.LOCK,
    Kind.LOCK_HELD: Lane.LOCK,
    Kind.NTT: Lane.COMPUTE,
    Kind.MSM_ACCUMULATE: Lane.COMPUTE,
}


@dataclass
class Story:
    """What workers of one device did; jobs are told of with ``job``."""

    device: str = GPU
    spans: list[Span] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    jobs: list[JobTimes] | None = None

    def did(
        self,
        kind: Kind,
        start: float,
        end: float,
        job: str = "a",
        worker: int = 0,
        size: int = 0,
        pinned: bool | None = None,
    ) -> Story:
        lane = _LANES.get(kind, host_lane(worker))
        row = Span(round(start * MS), round(end * MS), self.device, lane, kind, job, 0, worker, size, pinned)
        self.spans.append(row)
        return self

    def kernel(self, start: float, end: float, job: str = "a", worker: int = 0) -> Story:
        return self.did(Kind.NTT, start, end, job, worker)

    def sample(self, at: float, **readings: float) -> Story:
        self.samples.append(Sample(round(at * MS), self.device, **readings))  # type: ignore[arg-type]
        return self

    def job(self, submitted: float, started: float | None, finished: float | None = None) -> Story:
        times = [None if t is None else round(t * MS) for t in (submitted, started, finished)]
        self.jobs = self.jobs or []
        self.jobs.append(JobTimes(times[0] or 0, times[1], times[2], self.device))
        return self

    @property
    def table(self) -> SpanTable:
        return SpanTable.of(self.spans)

    @property
    def queue(self) -> Queue:
        return Queue() if self.jobs is None else Queue.of(self.jobs, self.device)

    def idleness(self, start: float = 0, end: float = 100, threshold: float | None = None) -> Idleness:
        return find_gaps(
            self.table,
            round(start * MS),
            round(end * MS),
            device=self.device,
            queue=self.queue,
            samples=self.samples,
            threshold_ns=None if threshold is None else round(threshold * MS),
        )

    def gaps(self, start: float = 0, end: float = 100) -> list[tuple[float, float, str]]:
        return [(gap.start_ns / MS, gap.end_ns / MS, gap.cause) for gap in self.idleness(start, end).gaps]

    def gap(self, start: float = 0, end: float = 100) -> Gap:
        (found,) = self.idleness(start, end).gaps
        return found
