"""Idle gaps of a device's compute lane, each with one cause and the figures that speak for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from cuzk_engine.diagnosis.causes import ORDER, Pieces, Stretches, explain, stretches
from cuzk_engine.diagnosis.evidence import Around, evidence, reconsidered
from cuzk_engine.diagnosis.intervals import IntervalSet, complement, total
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.diagnosis.shares import busy_set
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Cause, Gap, Lane, Sample

THRESHOLDS: Final = {"cuda": 1_000_000, "cpu": 5_000_000}


def threshold_of(device: str) -> int:
    """Nanoseconds below which idleness of such a device is the ordinary time between two kernels."""
    return THRESHOLDS["cpu" if device == "cpu" else "cuda"]


@dataclass(frozen=True, slots=True)
class Idleness:
    """``gaps`` in order; ``short_ns``: idle time in stretches below the threshold. Together all idle time of the
    window."""

    gaps: list[Gap]
    short_ns: int

    def by_cause(self) -> dict[str, int]:
        """Nanoseconds, most first."""
        sums: dict[str, int] = {}
        for gap in self.gaps:
            sums[gap.cause] = sums.get(gap.cause, 0) + gap.end_ns - gap.start_ns
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def find_gaps(
    spans: SpanTable,
    start: int,
    end: int,
    *,
    device: str,
    queue: Queue | None = None,
    samples: Sequence[Sample] = (),
    threshold_ns: int | None = None,
) -> Idleness:
    """The idle time of ``device`` in [start, end). ``spans`` and ``samples``: those of the device, which may reach
    beyond the window."""
    threshold = threshold_of(device) if threshold_ns is None else threshold_ns
    compute = spans.where(spans.in_lane(Lane.COMPUTE))
    idle = complement(busy_set(spans, start, end), start, end)
    long = idle[idle[:, 1] - idle[:, 0] >= threshold]
    found = stretches(long, compute)
    pieces = explain(found, spans, queue or Queue())
    around = Around(spans, found, device, sorted(samples, key=lambda sample: sample.time_ns))
    gaps = [
        _gap(around, stretch, begin, finish, cause)
        for stretch, begin, finish, cause in _merged(pieces, found, threshold)
    ]
    return Idleness(gaps, total(idle) - total(long))


def _gap(around: Around, stretch: int, start: int, end: int, cause: Cause) -> Gap:
    cause = reconsidered(cause, around, stretch, start, end)
    owner = around.ended_by(stretch) if cause is not Cause.QUEUE_EMPTY else None
    text = evidence(cause, around, stretch, start, end)
    job, worker = owner or ("", -1)
    return Gap(start, end, around.device, cause, text, job, worker)


def _merged(pieces: Pieces, idle: Stretches, threshold: int) -> Iterator[tuple[int, int, int, Cause]]:
    """(stretch, start, end, cause) of the gaps: no piece below the threshold is one of its own."""
    bounds = np.searchsorted(pieces.stretch, np.arange(len(idle.rows) + 1))
    rows, causes = pieces.rows.tolist(), pieces.cause.tolist()
    for stretch, (first, last) in enumerate(pairwise(bounds.tolist())):
        parts = [(rows[i][0], rows[i][1], causes[i]) for i in range(first, last)]
        for start, end, cause in _without_slivers(parts, threshold):
            yield stretch, start, end, ORDER[cause]


def _without_slivers(parts: list[tuple[int, int, int]], threshold: int) -> list[tuple[int, int, int]]:
    """Neighbours of one cause joined; then short pieces to their longer neighbour, the shortest first. Where all are
    short, the cause of most time takes the whole."""
    parts = _same_joined(parts)
    if len(parts) > 1 and all(end - start < threshold for start, end, _ in parts):
        sums: dict[int, int] = {}
        for start, end, cause in parts:
            sums[cause] = sums.get(cause, 0) + end - start
        most = max(sums, key=lambda cause: (sums[cause], -cause))
        return [(parts[0][0], parts[-1][1], most)]
    while len(parts) > 1:
        at = min(range(len(parts)), key=lambda i: parts[i][1] - parts[i][0])
        if parts[at][1] - parts[at][0] >= threshold:
            break
        sides = [i for i in (at - 1, at + 1) if 0 <= i < len(parts)]
        to = max(sides, key=lambda i: parts[i][1] - parts[i][0])
        low, high = min(at, to), max(at, to)
        parts[low : high + 1] = [(parts[low][0], parts[high][1], parts[to][2])]
        parts = _same_joined(parts)
    return parts


def _same_joined(parts: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for start, end, cause in parts:
        if found and found[-1][2] == cause and found[-1][1] == start:
            found[-1] = (found[-1][0], end, cause)
        else:
            found.append((start, end, cause))
    return found


def idle_set(gaps: Sequence[Gap]) -> IntervalSet:
    """The gaps as rows."""
    return np.array([(gap.start_ns, gap.end_ns) for gap in gaps], np.int64).reshape(-1, 2)
