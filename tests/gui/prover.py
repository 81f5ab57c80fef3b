"""Proofs that nobody computes: their spans, allocations, gaps and log lines, once or in real time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from cuzk_engine.client import (
    JobState,
    PhaseTime,
)
from cuzk_engine.events import Allocation, Cause, EventBatch, Finding, Gap, LogLine, Sample, Span
from tests.gui.fakes import GIB, MIB, PHASES, FakeEngine, job, update


def proof_events(
    start_ns: int, length_ns: int, worker: int, job_id: str, device_id: str = "cpu", scale: int = 1
) -> EventBatch:
    """Spans and allocations of one partition, as the pipeline makes them; ``scale`` multiplies the number of
    kernels."""
    events = EventBatch.empty()
    host = f"host:{worker}"

    def at(share: float) -> int:
        return start_ns + round(length_ns * share)

    def span(a: float, b: float, lane: str, kind: str, size: int = 0, pinned: bool | None = None) -> None:
        events.spans.append(Span(at(a), at(b), device_id, lane, kind, job_id, 0, worker, size, pinned))

    def allocation(a: float, delta: int, purpose: str) -> None:
        events.allocations.append(Allocation(at(a), device_id, delta, purpose, worker, job_id))

    span(0.0, 0.05, host, "host.read_witness")
    span(0.05, 0.19, host, "host.evaluate")
    allocation(0.05, 180 * MIB, "witness")
    allocation(0.18, 420 * MIB, "abc")
    span(0.19, 0.24, "h2d", "upload.abc", 420 * MIB, worker % 2 == 0)
    span(0.19, 0.2, host, "lock.wait")
    span(0.2, 0.93, "lock", "lock.held")
    allocation(0.24, 300 * MIB, "ntt")
    kernels = 6 * scale
    for i in range(kernels):
        a = 0.24 + 0.2 * i / kernels
        span(a, a + 0.18 / kernels, "compute", "ntt.coset" if i % 2 else "ntt")
    span(0.44, 0.46, "compute", "pointwise")
    waited = Gap(at(0.2), at(0.24), device_id, Cause.PAGEABLE_UPLOAD, "a, b, c at 6.61 GB/s", job_id, worker)
    handed = Gap(at(0.9), at(1.0), device_id, Cause.LOCK_HANDOVER, "the lock changed hands", job_id, worker)
    events.gaps += [waited, handed]
    allocation(0.46, -300 * MIB, "ntt")
    allocation(0.46, 640 * MIB, "msm")
    span(0.46, 0.48, "h2d", "upload.srs", 96 * MIB, None)
    kernels = 10 * scale
    for i in range(kernels):
        a = 0.46 + 0.44 * i / kernels
        kind = ("msm.digits", "msm.accumulate", "msm.accumulate", "msm.reduce")[i % 4]
        span(a, a + 0.4 / kernels, "compute", kind)
        if i % 4 == 3:
            span(a + 0.4 / kernels, a + 0.42 / kernels, "d2h", "download.result", 3 * MIB, True)
    allocation(0.9, -640 * MIB, "msm")
    allocation(0.9, -420 * MIB, "abc")
    allocation(0.93, -180 * MIB, "witness")
    span(0.93, 0.95, host, "host.assemble")
    span(0.95, 0.99, host, "host.verify")
    span(0.99, 1.0, host, "host.deliver")
    return events


def merge(target: EventBatch, source: EventBatch) -> None:
    target.spans += source.spans
    target.allocations += source.allocations
    target.samples += source.samples
    target.marks += source.marks
    target.logs += source.logs
    target.gaps += source.gaps
    target.findings += source.findings
    target.incidents += source.incidents


class Prover(threading.Thread):
    """Sends telemetry of proofs that follow each other on two workers, in real time, until ``stop``."""

    def __init__(
        self, engine: FakeEngine, *, proof_s: float = 1.2, period_s: float = 0.1, scale: int = 1, back_s: float = 0.0
    ) -> None:
        super().__init__(name="fake-prover", daemon=True)
        self._engine = engine
        self._proof_ns = round(proof_s * 1e9)
        self._period_s = period_s
        self._scale = scale
        self._begin = time.monotonic_ns() - round(back_s * 1e9)
        self._halt = threading.Event()

    def stop(self) -> None:
        self._halt.set()
        self.join()

    def run(self) -> None:
        planned = EventBatch.empty()
        proof, sample_at = 0, self._begin
        while not self._halt.wait(self._period_s):
            now = time.monotonic_ns()
            while self._begin + proof * self._proof_ns * 8 // 10 < now:
                start = self._begin + proof * self._proof_ns * 8 // 10
                merge(planned, proof_events(start, self._proof_ns, proof % 2, f"job-{proof}", scale=self._scale))
                wall = start + time.time_ns() - now
                planned.logs.append(LogLine(start, wall, "INFO", f"proof {proof} proved in 412 ms, verified in 4 ms"))
                if proof % 5 == 4:
                    planned.logs.append(
                        LogLine(start + 1, wall, "WARNING", "pid 50211 (python3 train.py) took 1.1 GiB of memory")
                    )
                proof += 1
            ready = EventBatch.empty()
            ready.spans = [s for s in planned.spans if s.end_ns <= now]
            planned.spans = [s for s in planned.spans if s.end_ns > now]
            ready.allocations = sorted((a for a in planned.allocations if a.time_ns <= now), key=lambda a: a.time_ns)
            planned.allocations = [a for a in planned.allocations if a.time_ns > now]
            ready.logs, planned.logs = planned.logs, []
            ready.gaps = [g for g in planned.gaps if g.end_ns <= now]
            planned.gaps = [g for g in planned.gaps if g.end_ns > now]
            if ready.gaps:
                last = ready.gaps[-1]
                said = (f"{len(ready.gaps)} gaps",)
                title = "Uploads from pageable memory inside the lock"
                ready.findings.append(Finding(now, "cpu", Cause.PAGEABLE_UPLOAD, title, said, last.start_ns, now))
            while sample_at < now:
                ready.samples.append(
                    Sample(sample_at, "cpu", memory_other=round(1.1 * GIB), memory_capacity=8 * GIB, utilisation=0.9)
                )
                sample_at += 500_000_000
            progress = (now - self._begin) % self._proof_ns / self._proof_ns
            name = next((n for n, s in _cumulative() if progress <= s), "msm")
            running = job(f"job-{proof}", label=f"porep-2^20 · {proof % 10 + 1} of 10", phase=name, progress=progress)
            ended = replace(
                job(f"job-{proof - 1}", label=f"porep-2^20 · {(proof - 1) % 10 + 1} of 10"),
                state=JobState.COMPLETED,
                progress=1.0,
                finished_unix_ns=time.time_ns(),
                phases=tuple(PhaseTime(n, round(s * self._proof_ns)) for n, s in PHASES),
            )
            self._engine.push(update(now, ready, jobs=[ended, running]))


def _cumulative() -> list[tuple[str, float]]:
    total, found = 0.0, []
    for name, share in PHASES:
        total += share
        found.append((name, total))
    return found
