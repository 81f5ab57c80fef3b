"""From messages of the telemetry stream to columns. Runs in the telemetry thread, so that the window only appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cuzk_engine.client import EngineIdentity, JobInfo, SettingInfo, TelemetryUpdate
from cuzk_engine.events import Allocation, Finding, Gap, Incident, Kind, LogLine, Mark, Sample, Span, host_lane
from cuzk_gui.models import causes
from cuzk_gui.models.columns import Array
from cuzk_gui.models.groups import group_of
from cuzk_gui.models.memory import LARGEST, SAMPLE_FIELDS, purpose_index
from cuzk_gui.models.span_rows import rows_by_lane
from cuzk_gui.models.tracks import SpanRows

CHUNK: Final = 1500  # events in one digest: what the window applies between two frames
_INT64_MAX: Final = 2**63 - 1


class Interner:
    """Strings by small number, the newest ``limit`` of them. One thread adds; any thread reads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._next = 0

    def number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is not None:
            return found
        number = self._next
        self._next += 1
        self._texts[number] = text
        self._numbers[text] = number
        if len(self._numbers) > self._limit:
            oldest = next(iter(self._numbers))
            self._texts.pop(self._numbers.pop(oldest), None)
        return number

    def text(self, number: int) -> str:
        return self._texts.get(number, "")


@dataclass(slots=True)
class Names:
    """Intern tables of a session."""

    kinds: Interner = field(default_factory=lambda: Interner(512))
    jobs: Interner = field(default_factory=lambda: Interner(20_000))
    evidence: Interner = field(default_factory=lambda: Interner(20_000))


@dataclass(slots=True)
class AllocationRows:
    time: Array
    purpose: Array
    delta: Array


@dataclass(slots=True)
class Digest:
    """Part of one message of the stream; ``last`` is set on its last part, which alone carries the message's other
    fields."""

    time_ns: int
    wall_ns: int
    spans: dict[tuple[str, str], SpanRows]
    allocations: dict[str, AllocationRows]
    samples: dict[str, dict[str, Array]]
    marks: Sequence[Mark] = ()
    incidents: Sequence[Incident] = ()
    gaps: dict[str, SpanRows] = field(default_factory=dict)  # by device
    findings: Sequence[Finding] = ()
    logs: Sequence[LogLine] = ()
    jobs: Sequence[JobInfo] = ()
    identity: EngineIdentity | None = None
    settings: Sequence[SettingInfo] | None = None
    memory: dict[tuple[str, str], int] | None = None
    dropped: int = 0
    since_ns: int = 0
    last: bool = True


def digests(update: TelemetryUpdate, names: Names, chunk: int = CHUNK) -> Iterator[Digest]:
    """The message in parts of at most ``chunk`` spans, gaps and allocations each, in order.

    ``memory`` is the ledger before the message's own allocations and all that follow.
    """
    events = update.events
    allocations = sorted(events.allocations, key=lambda a: a.time_ns)
    spans = events.spans if update.spans is None else update.spans
    parts = max(1, *(-(-len(rows) // chunk) for rows in (spans, events.gaps, allocations)))
    for part in range(parts):
        low, high = part * chunk, (part + 1) * chunk
        last = part == parts - 1
        yield Digest(
            update.time_ns,
            update.wall_ns,
            _span_rows(events.spans[low:high], names)
            if update.spans is None
            else dict(rows_by_lane(update.spans, slice(low, high), names)),
            _allocation_rows(allocations[low:high]),
            _sample_rows(events.samples) if last else {},
            events.marks if last else (),
            events.incidents if last else (),
            _gap_rows(events.gaps[low:high], names),
            events.findings if last else (),
            events.logs if last else (),
            update.jobs if last else (),
            update.identity if part == 0 else None,
            update.settings if last else None,
            update.memory if part == 0 else None,
            events.dropped if last else 0,
            update.since_ns,
            last,
        )


def _span_rows(spans: Sequence[Span], names: Names) -> dict[tuple[str, str], SpanRows]:
    lanes: dict[tuple[str, str], list[Span]] = {}
    for s in spans:
        # A wait for the lock is the worker's: in the lock's own lane it would lie over whoever holds it.
        lane = host_lane(s.worker) if s.kind == Kind.LOCK_WAIT and s.worker >= 0 else s.lane
        lanes.setdefault((s.device, lane), []).append(s)
    return {key: _rows_of_lane(key[1], rows, names) for key, rows in lanes.items()}


def _rows_of_lane(lane: str, spans: list[Span], names: Names) -> SpanRows:
    n = len(spans)
    kind, job = names.kinds.number, names.jobs.number
    return SpanRows(
        start=np.fromiter((s.start_ns for s in spans), np.int64, n),
        end=np.fromiter((s.end_ns for s in spans), np.int64, n),
        group=np.fromiter((group_of(s.kind, lane, _clip(s.worker, 2**31 - 1), s.pinned) for s in spans), np.int8, n),
        kind=np.fromiter((kind(s.kind) for s in spans), np.int32, n),
        job=np.fromiter((job(s.job) for s in spans), np.int32, n),
        partition=np.fromiter((_clip(s.partition, 2**31 - 1) for s in spans), np.int32, n),
        worker=np.fromiter((_clip(s.worker, 2**31 - 1) for s in spans), np.int32, n),
        bytes=np.fromiter((_clip(s.bytes, _INT64_MAX) for s in spans), np.int64, n),
        pinned=np.fromiter((-1 if s.pinned is None else int(s.pinned) for s in spans), np.int8, n),
    )


def _gap_rows(gaps: Sequence[Gap], names: Names) -> dict[str, SpanRows]:
    """Gaps as spans: the number of the cause stands for the group, that of the evidence for the kind."""
    devices: dict[str, list[Gap]] = {}
    for gap in gaps:
        devices.setdefault(gap.device, []).append(gap)
    return {device: _rows_of_gaps(rows, names) for device, rows in devices.items()}


def _rows_of_gaps(gaps: list[Gap], names: Names) -> SpanRows:
    n = len(gaps)
    zero = np.zeros(n, np.int64)
    return SpanRows(
        start=np.fromiter((g.start_ns for g in gaps), np.int64, n),
        end=np.fromiter((g.end_ns for g in gaps), np.int64, n),
        group=np.fromiter((causes.number(g.cause) for g in gaps), np.int8, n),
        kind=np.fromiter((names.evidence.number(g.evidence) for g in gaps), np.int32, n),
        job=np.fromiter((names.jobs.number(g.job) for g in gaps), np.int32, n),
        partition=np.full(n, -1, np.int32),
        worker=np.fromiter((_clip(g.worker, 2**31 - 1) for g in gaps), np.int32, n),
        bytes=zero,
        pinned=np.full(n, -1, np.int8),
    )


def _allocation_rows(allocations: Sequence[Allocation]) -> dict[str, AllocationRows]:
    devices: dict[str, list[Allocation]] = {}
    for a in allocations:
        devices.setdefault(a.device, []).append(a)
    return {
        device: AllocationRows(
            np.fromiter((a.time_ns for a in rows), np.int64, len(rows)),
            np.fromiter((purpose_index(a.purpose) for a in rows), np.int64, len(rows)),
            np.fromiter((_clip(a.delta, LARGEST) for a in rows), np.int64, len(rows)),
        )
        for device, rows in devices.items()
    }


def _sample_rows(samples: Sequence[Sample]) -> dict[str, dict[str, Array]]:
    devices: dict[str, list[Sample]] = {}
    for s in samples:
        devices.setdefault(s.device, []).append(s)
    return {
        device: {
            "time": np.fromiter((s.time_ns for s in rows), np.int64, len(rows)),
            **{name: np.fromiter(map(_reading(name), rows), np.float64, len(rows)) for name in SAMPLE_FIELDS},
        }
        for device, rows in devices.items()
    }


def _reading(name: str) -> Callable[[Sample], float]:
    def read(sample: Sample) -> float:
        value = getattr(sample, name)
        return float("nan") if value is None else float(value)

    return read


def _clip(value: int, limit: int) -> int:
    return min(max(value, -limit), limit)
