"""A stretch of time as one device spent it, and what to change: for ``cuzk diagnose`` and ``cuzk bench``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cuzk_engine.diagnosis.findings import find, of_incident
from cuzk_engine.diagnosis.gaps import Idleness, find_gaps
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.diagnosis.remedies import Situation
from cuzk_engine.diagnosis.shares import PHASES, PartitionTimes, Shares, Transfer, partitions, shares, transfers
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.diagnosis.words import ms
from cuzk_engine.events import Cause, Finding, Incident, Sample

WHOLE: Final = "whole"
KERNELS: Final = "kernels"


@dataclass(frozen=True, slots=True)
class Spread:
    """Nanoseconds of several partitions: median, tenth and ninetieth percentile."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, high = np.percentile(values, (10, 90)).tolist()
        return cls(statistics.median(values), low, high, len(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """``partitions``: part → spread, for the partitions that lie wholly in the stretch; ``whole`` from the first span
    to the last, ``kernels``, then ``PHASES``."""

    device: str
    start_ns: int
    end_ns: int
    shares: Shares
    idleness: Idleness
    partitions: dict[str, Spread]
    transfers: list[Transfer]
    findings: list[Finding] = field(default_factory=list)

    @property
    def busy_share(self) -> float:
        return self.shares.busy / self.shares.window if self.shares.window else 0.0

    @property
    def busy_share_with_work(self) -> float:
        """Of the time in which there was something to prove."""
        return self.shares.busy / self.work_ns if self.work_ns else 0.0

    @property
    def work_ns(self) -> int:
        """The time in which there was something to prove."""
        return self.shares.window - self.idleness.by_cause().get(Cause.QUEUE_EMPTY, 0)

    @property
    def partition_ns(self) -> float | None:
        """Time with work for each partition: what was recorded before and after the work is no part of it."""
        return self.work_ns / self.partitions[WHOLE].count if self.partitions else None

    def idle_by_cause(self) -> dict[str, float]:
        """Shares of the stretch, most first; ``short``: stretches below the threshold."""
        window = max(1, self.shares.window)
        return {
            **{cause: took / window for cause, took in self.idleness.by_cause().items()},
            "short": self.idleness.short_ns / window,
        }


def summarise(
    spans: SpanTable,
    start: int,
    end: int,
    *,
    device: str,
    queue: Queue | None = None,
    samples: Iterable[Sample] = (),
    incidents: Iterable[Incident] = (),
    situation: Situation | None = None,
) -> Summary:
    """What ``device`` did in [start, end). ``spans`` may be those of several devices and reach beyond the stretch.
    Without ``queue`` (when jobs ran and waited) a worker that only finished is taken to have kept another partition
    waiting; without ``situation`` (settings) there are findings but nothing to change."""
    own = spans.of_device(device)
    inside = own.within(start, end)
    situation = situation or Situation(device, device != "cpu")
    found = find_gaps(
        own,
        start,
        end,
        device=device,
        queue=queue,
        samples=[sample for sample in samples if sample.device == device],
    )
    findings = find(found, own, start, end, situation, queue)
    findings += _of_incidents([one for one in incidents if one.device == device and start <= one.time_ns <= end])
    whole = [part for part in partitions(own) if part.start >= start and part.end <= end and part.kernels]
    return Summary(device, start, end, shares(own, start, end), found, spreads(whole), transfers(inside), findings)


def _of_incidents(incidents: Sequence[Incident]) -> list[Finding]:
    """One finding for those that tell the same, with the evidence of the first."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for incident in incidents:
        finding = of_incident(incident)
        changes = tuple((remedy.key, remedy.value) for remedy in finding.remedies)
        groups.setdefault((finding.kind, finding.title, changes), []).append(finding)
    found = []
    for first, *more in groups.values():
        again = (
            f"{len(more):,} more like this one, the last {ms(more[-1].time_ns - first.time_ns)} later" if more else ""
        )
        found.append(replace(first, evidence=(*first.evidence, again)) if again else first)
    return found


def spreads(rows: Sequence[PartitionTimes]) -> dict[str, Spread]:
    """Part → spread over the partitions that have it."""
    if not rows:
        return {}
    found = {
        WHOLE: Spread.of([row.end - row.start for row in rows]),
        KERNELS: Spread.of([row.kernels for row in rows]),
    }
    for name in PHASES:
        values = [row.parts[name] for row in rows if name in row.parts]
        if values:
            found[name] = Spread.of(values)
    return found


def document(summary: Summary) -> dict[str, Any]:
    """For JSON: seconds, shares, bytes."""
    times = summary.shares
    return {
        "device": summary.device,
        "seconds": times.window / 1e9,
        "busy": summary.busy_share,
        "busy_with_work": summary.busy_share_with_work,
        "partition_seconds": None if summary.partition_ns is None else summary.partition_ns / 1e9,
        "busy_seconds": times.busy / 1e9,
        "idle_seconds": times.idle / 1e9,
        "copying_seconds": times.copying / 1e9,
        "held_seconds": times.held / 1e9,
        "held_without_kernel_seconds": times.held_idle / 1e9,
        "kernels_seconds": {kind: took / 1e9 for kind, took in times.by_kind.items()},
        "idle_by_cause": summary.idle_by_cause(),
        "gaps": len(summary.idleness.gaps),
        "partitions": {
            name: {
                "median_ms": spread.median / 1e6,
                "p10_ms": spread.low / 1e6,
                "p90_ms": spread.high / 1e6,
                "count": spread.count,
            }
            for name, spread in summary.partitions.items()
        },
        "transfers": [
            {
                "lane": row.lane,
                "kind": row.kind,
                "page_locked": row.pinned,
                "count": row.count,
                "bytes": row.bytes,
                "seconds": row.nanoseconds / 1e9,
                "bytes_per_second": row.rate,
            }
            for row in summary.transfers
        ],
        "findings": list(map(finding_document, summary.findings)),
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "device": finding.device,
        "kind": finding.kind,
        "title": finding.title,
        "evidence": list(finding.evidence),
        "remedies": [
            {
                "key": remedy.key,
                "value": remedy.value,
                "device": remedy.device,
                "text": remedy.text,
                "gain": remedy.gain,
                "peak": remedy.peak,
            }
            for remedy in finding.remedies
        ],
    }
