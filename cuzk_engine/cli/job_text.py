"""Jobs in words: what ``cuzk jobs`` prints of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cuzk_engine.cli.table import lines, plain
from cuzk_engine.client import JobInfo, JobState
from cuzk_engine.curves import curve_title

SHORT: Final = 8
"""Digits of an id that the list shows."""

_HEADER: Final = ("id", "circuit", "state", "done", "device", "submitted", "waited", "took", "label")


def table(jobs: Sequence[JobInfo]) -> list[str]:
    """Without the date where all of them are of today."""
    now = time.time_ns()
    days = {_local(ns).date() for ns in (now, *(job.submitted_unix_ns for job in jobs))}
    form = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S"
    rows = [
        (
            job.id[:SHORT],
            _cut(job.circuit_name),
            state(job),
            _done(job),
            job.device or "-",
            _local(job.submitted_unix_ns).strftime(form),
            seconds(_waited(job, now)),
            seconds(_took(job, now)) if job.started_unix_ns else "-",
            _cut(job.label or job.request_id),
        )
        for job in jobs
    ]
    return lines(_HEADER, rows)


def details(job: JobInfo) -> list[str]:
    now = time.time_ns()
    rows = [
        ("state", state(job)),
        ("error", job.error),
        ("circuit", f"{job.circuit_name} ({job.circuit_id}), {curve_title(job.curve)}"),
        ("label", job.label),
        ("request", job.request_id),
        ("priority", job.priority),
        ("done", _done(job)),
        ("phase", job.phase),
        ("device", job.device),
        ("tried again", job.retried),
        ("submitted", _time(job.submitted_unix_ns)),
        ("waited", seconds(_waited(job, now))),
        ("started", _time(job.started_unix_ns)),
        ("ended", _time(job.finished_unix_ns)),
        ("took", seconds(_took(job, now)) if job.started_unix_ns else ""),
        ("last change", _time(job.last_activity_unix_ns)),
        ("phases", ", ".join(f"{phase.name} {seconds(phase.nanoseconds)}" for phase in job.phases)),
    ]
    return [f"job {job.id}", *(f"  {name:<11}  {plain(text)}" for name, text in rows if text)]


def summary(job: JobInfo) -> str:
    """How a job ended, in one line."""
    text = f"job {job.id}: {job.state}"
    if job.state is JobState.COMPLETED:
        proofs = f"{job.partitions} proofs" if job.partitions > 1 else "1 proof"
        return f"{text}, {proofs}, {seconds(_took(job, 0))} on {job.device}"
    return plain(f"{text}: {job.error}") if job.error else text


def seconds(nanoseconds: int) -> str:
    value = nanoseconds / 1e9
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def state(job: JobInfo) -> str:
    """With the place in the queue."""
    return f"queued, number {job.queue_position}" if job.queue_position else str(job.state)


def _done(job: JobInfo) -> str:
    share = "" if job.state.ended else f", {100 * job.progress:.0f} %"
    return f"{job.partitions_done} of {job.partitions}{share}"


def _waited(job: JobInfo, now: int) -> int:
    return max(0, (job.started_unix_ns or job.finished_unix_ns or now) - job.submitted_unix_ns)


def _took(job: JobInfo, now: int) -> int:
    return max(0, (job.finished_unix_ns or now) - job.started_unix_ns)


def _cut(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _time(unix_ns: int) -> str:
    return _local(unix_ns).isoformat(" ", "seconds") if unix_ns else ""


def _local(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns / 1e9).astimezone()
