"""What follows from the gaps and incidents of a stretch of time, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cuzk_engine.diagnosis.gaps import Idleness, idle_set
from cuzk_engine.diagnosis.intervals import clipped, intersection, total
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.diagnosis.remedies import Idle, Situation, remedies
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.diagnosis.words import kind_words, ms, percent, short
from cuzk_engine.events import Cause, Finding, Gap, Holding, Incident, Kind, Lane, Remedy
from cuzk_engine.units import format_size

LEAST_SHARE: Final = 0.01  # of the window, below which idle time is no finding
_TITLES: Final[Mapping[Cause, str]] = {
    Cause.HOST_STARVED: "The next partition was not ready",
    Cause.SRS_COLD: "The key was not there yet",
    Cause.LOCK_HANDOVER: "The lock was held or changed hands without a kernel",
    Cause.PAGEABLE_UPLOAD: "Uploads from pageable memory inside the lock",
    Cause.RESULT_SYNC: "The host waited for results with nothing else enqueued",
    Cause.MEMORY_WAIT: "Partitions waited for device memory",
    Cause.POOL_TRIM: "Memory was given back to the driver",
    Cause.KERNEL_COMPILE: "Kernels were compiled",
    Cause.OTHER_PROCESS: "Another program had the device",
    Cause.THROTTLED: "The card was throttled",
    Cause.UNKNOWN: "No kernel ran, and nothing explains it",
}
_ADVICE: Final[Mapping[Cause, str]] = {
    Cause.SRS_COLD: "a key is loaded once; a first proof, or PreloadSRS, does it before it matters",
    Cause.PAGEABLE_UPLOAD: "it could not be page-locked: raise the memory lock limit (ulimit -l, see cuzk doctor)",
    Cause.KERNEL_COMPILE: "compiled kernels are kept in the cache folder: the next start finds them",
    Cause.POOL_TRIM: "memory is given back when it is short or when nothing runs",
    Cause.OTHER_PROCESS: "nvidia-smi names the programs that use the card",
    Cause.THROTTLED: "look at the card's cooling and power limit: nvidia-smi -q -d PERFORMANCE",
    Cause.UNKNOWN: "the host was late with its next kernel, as on a machine with busy processors, or spans are missing",
}


def find(
    idleness: Idleness, spans: SpanTable, start: int, end: int, situation: Situation, queue: Queue | None = None
) -> list[Finding]:
    """One finding for each cause of idle time that matters in [start, end), the largest first. Time without a job is
    none."""
    window = max(1, end - start)
    idle_ns = idleness.short_ns + sum(gap.end_ns - gap.start_ns for gap in idleness.gaps)
    found = []
    for cause, took in idleness.by_cause().items():
        if cause == Cause.QUEUE_EMPTY or took < LEAST_SHARE * window:
            continue
        gaps = [gap for gap in idleness.gaps if gap.cause == cause]
        idle = measure(gaps, spans, idle_ns, queue or Queue())
        changes = remedies(Cause(cause), idle, situation)
        title = f"{_TITLES[Cause(cause)]}: {percent(took / window)} of the time"
        lines = _evidence(Cause(cause), gaps, idle, idle_ns)
        advice = None if changes else _advice(Cause(cause), situation)
        lines += (advice,) if advice else ()
        found.append(Finding(end, situation.device, cause, title, lines, start, end, changes))
    return found


def of_incident(incident: Incident) -> Finding:
    """Who held what, which request failed, and what would have fitted then, whatever is set by now."""
    picture = incident.picture
    lines: list[str] = []
    if incident.requested is not None:
        by = f" by worker {picture.worker}" if picture and picture.worker >= 0 else ""
        purpose = f" for {picture.purpose}" if picture and picture.purpose else ""
        capacity = f" of {format_size(picture.capacity)}" if picture else ""
        free = f", {format_size(incident.free)}{capacity} were free" if incident.free is not None else ""
        lines.append(f"{format_size(incident.requested)}{purpose} were asked for{by}{free}")
    since = incident.time_ns
    if picture is not None:
        since = min(picture.since_ns or incident.time_ns, incident.time_ns)
        lines += filter(None, (_held("held on the device", picture.holdings), _held("held on the host", picture.host)))
        if picture.others:
            others = [
                f"{other.name or 'a program that is not visible here'} (pid {other.pid})"
                + (f" {format_size(other.bytes)}" if other.bytes is not None else "")
                for other in picture.others
            ]
            lines.append(f"other programs: {', '.join(others)}")
    return Finding(
        incident.time_ns,
        incident.device,
        incident.kind,
        incident.message,
        tuple(lines),
        since,
        incident.time_ns,
        picture.remedies if picture else (),
    )


def measure(gaps: Sequence[Gap], spans: SpanTable, idle_ns: int, queue: Queue) -> Idle:
    """What workers did during gaps of one cause, as shares of ``idle_ns``."""
    rows = idle_set(gaps)
    length = total(rows)
    others = spans.where(~spans.in_lane(Lane.COMPUTE) & ~spans.of_kind(Kind.LOCK_HELD, Kind.LOCK_WAIT))
    number, pieces = clipped(others.start, others.end, rows)
    sums = np.bincount(others.kind[number], weights=pieces[:, 1] - pieces[:, 0]) if len(number) else np.empty(0)
    with_work = total(intersection(rows, queue.waiting)) if queue.is_known else length
    waits = others.size[number][np.isin(number, np.flatnonzero(others.of_kind(Kind.MEMORY_WAIT)))]
    whole = max(1, idle_ns)
    return Idle(
        length / whole,
        with_work / whole,
        {spans.text(i): float(sums[i]) / whole for i in np.flatnonzero(sums).tolist()},
        int(waits.max()) if len(waits) else 0,
    )


def _evidence(cause: Cause, gaps: Sequence[Gap], idle: Idle, idle_ns: int) -> tuple[str, ...]:
    took = sum(gap.end_ns - gap.start_ns for gap in gaps)
    longest = max(gaps, key=lambda gap: gap.end_ns - gap.start_ns)
    count = f"{len(gaps):,} gaps" if len(gaps) != 1 else "1 gap"
    lines = [f"{ms(took)} in {count}, {percent(idle.share)} of the idle time"]
    kinds = [(share, kind_words(kind)) for kind, share in idle.by_kind.items() if share >= 0.1 * idle.share]
    if len(kinds) > 1:
        lines.append(
            "meanwhile: " + ", ".join(f"{words} {ms(share * idle_ns)}" for share, words in sorted(kinds, reverse=True))
        )
    job = f", before job {short(longest.job)}" if longest.job else ""
    lines.append(f"the longest{job}: {longest.evidence}")
    if cause is Cause.HOST_STARVED and idle.with_work < 0.5 * idle.share:
        alone = percent(1 - idle.with_work / idle.share)
        lines.append(f"for {alone} of it no other job waited: two or more proofs at a time fill such gaps")
    return tuple(lines)


def _advice(cause: Cause, situation: Situation) -> str | None:
    """What to do where no setting helps."""
    if cause is Cause.PAGEABLE_UPLOAD and situation.changed:
        return None  # the memory may have been pageable because pre-staging was off
    return _ADVICE.get(cause)


def _held(what: str, holdings: Sequence[Holding]) -> str:
    """ "held on the device: msm 1.2 GiB (worker 0, job 1a2b3c4d), srs 600 MiB", the largest first."""
    if not holdings:
        return ""
    words = []
    for row in sorted(holdings, key=lambda row: -row.bytes):
        owner = [f"worker {row.worker}"] if row.worker >= 0 else []
        owner += [f"job {short(row.job)}"] if row.job else []
        words.append(f"{row.purpose} {format_size(row.bytes)}" + (f" ({', '.join(owner)})" if owner else ""))
    return f"{what}: {', '.join(words)}"


def remedy_words(remedy: Remedy) -> str:
    """ "pipeline.prestage = ahead: uploads …; up to 12.3 % of the idle time"."""
    words = [f"{remedy.key} = {remedy.value}{f' on {remedy.device}' if remedy.device else ''}: {remedy.text}"]
    if remedy.gain is not None:
        words.append(f"up to {percent(remedy.gain)} of the idle time")
    if remedy.peak is not None:
        words.append(f"needs {format_size(remedy.peak)}")
    return "; ".join(words)
