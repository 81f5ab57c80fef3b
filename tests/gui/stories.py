"""A minute of a GPU that does not exist: proofs from pageable memory, then pre-staged; gaps with causes, a finding, an
incident with its picture, readings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from cuzk_engine.client import DeviceDescription, JobInfo, JobState, TelemetryUpdate
from cuzk_engine.client.recording import RecordingInfo
from cuzk_engine.events import (
    Allocation,
    Cause,
    EventBatch,
    Finding,
    Gap,
    Holding,
    Incident,
    LogLine,
    Mark,
    OtherProcess,
    Picture,
    Remedy,
    Sample,
    Span,
)
from tests.gui import fakes, prover
from tests.gui.fakes import GIB, MIB

GPU = "cuda:0"
CAPACITY = 139 * GIB + 820 * MIB
SRS = 44 * GIB
PROOF_NS = 1_000_000_000
PRESTAGE_AHEAD = Remedy(
    "pipeline.prestage", "ahead", "uploads from page-locked memory before the lock is taken", peak=86 * GIB, gain=0.62
)


def gpu(device_id: str = GPU, **changes: object) -> DeviceDescription:
    made = fakes.device(
        device_id,
        name="NVIDIA H200",
        kind="cuda",
        capacity=CAPACITY,
        capacity_source="free when the device was opened",
        uuid="GPU-3f1a77c0-5b0e-4f6a-9c58-1d2e3f4a5b6c",
        bus_id="0000:1b:00.0",
        isa="sm_90",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def partition(start: int, worker: int, job: str, *, ahead: bool, device: str = GPU) -> EventBatch:
    """One partition that holds the lock from ``start`` on; without ``ahead`` its upload is pageable and inside the
    lock, and the kernels wait for it."""
    events = EventBatch.empty()
    idle = 0 if ahead else 220_000_000
    end = start + PROOF_NS + idle - 20_000_000
    host = f"host:{worker}"

    def span(a: int, b: int, lane: str, kind: str, size: int = 0, pinned: bool | None = None) -> None:
        events.spans.append(Span(a, b, device, lane, kind, job, 0, worker, size, pinned))

    def memory(at: int, delta: int, purpose: str) -> None:
        events.allocations.append(Allocation(at, device, delta, purpose, worker, job))

    before = start - 420_000_000
    span(before - 300_000_000, before, host, "host.evaluate")
    memory(before, 3 * GIB, "witness")
    if ahead:
        memory(before, 6 * GIB, "abc")
        span(before, before + 108_000_000, "h2d", "upload.abc", 6 * GIB, True)
        span(before + 108_000_000, start, host, "lock.wait")
    else:
        memory(start, 6 * GIB, "abc")
        span(start, start + idle, "h2d", "upload.abc", 1_450 * MIB, False)
        events.gaps.append(
            Gap(
                start,
                start + idle,
                device,
                Cause.PAGEABLE_UPLOAD,
                "220 ms without a kernel: 1.42 GiB of a, b, c at 6.61 GB/s, while the lock was held",
                job,
                worker,
            )
        )
    span(start, end, "lock", "lock.held")
    at = start + idle
    memory(at, 4 * GIB, "ntt")
    for i in range(7):
        span(at + i * 30_000_000, at + (i + 1) * 30_000_000 - 200_000, "compute", "ntt.coset" if i % 2 else "ntt")
    at += 210_000_000
    memory(at, -4 * GIB, "ntt")
    memory(at, 10 * GIB + 800 * MIB, "msm")
    for i in range(8):
        kind = "msm.accumulate" if i % 4 else "msm.digits"
        span(at + i * 92_000_000, at + (i + 1) * 92_000_000 - (6_000_000 if i % 3 == 2 else 300_000), "compute", kind)
        if i % 3 == 2:
            gone = at + (i + 1) * 92_000_000
            span(gone - 5_800_000, gone - 5_000_000, "d2h", "download.result", 40 * MIB, True)
            text = "6.0 ms without a kernel: worker 0 was waiting for results (5.1 ms)"
            events.gaps.append(Gap(gone - 6_000_000, gone, device, Cause.RESULT_SYNC, text, job, worker))
    memory(end, -(10 * GIB + 800 * MIB), "msm")
    memory(end, -6 * GIB, "abc")
    memory(end, -3 * GIB, "witness")
    span(end, end + 30_000_000, host, "host.assemble")
    span(end + 30_000_000, end + 60_000_000, host, "host.verify")
    text = f"19.0 ms without a kernel: the lock changed hands, from worker {worker} to worker {1 - worker}"
    events.gaps.append(Gap(end, end + 20_000_000, device, Cause.LOCK_HANDOVER, text, job, 1 - worker))
    return events


def picture(time_ns: int) -> Picture:
    holdings = (
        Holding("srs", -1, "", SRS),
        Holding("matrices", -1, "", 6 * GIB + 100 * MIB),
        Holding("msm", 0, "job-7", 10 * GIB + 800 * MIB),
        Holding("abc", 0, "job-7", 6 * GIB),
        Holding("witness", 0, "job-7", 3 * GIB),
        Holding("witness", 1, "job-8", 3 * GIB),
        Holding("context", -1, "", 512 * MIB),
    )
    others = (OtherProcess(50211, "train.py", 60 * GIB + 700 * MIB), OtherProcess(731, "", 320 * MIB))
    held = sum(h.bytes for h in holdings) + sum(o.bytes or 0 for o in others)
    return Picture(
        CAPACITY,
        CAPACITY - held,
        holdings,
        (Holding("srs", -1, "", SRS), Holding("abc", 1, "job-8", 6 * GIB)),
        others,
        "abc",
        1,
        (
            ("gpus.gpu_workers_per_device", "2"),
            ("pipeline.prestage", "ahead"),
            ("pipeline.double_buffer", "true"),
            ("pipeline.evaluate", "auto"),
            ("srs.residency", "auto"),
        ),
        (
            Remedy(
                "pipeline.prestage",
                "locked",
                "Upload only under the lock: one worker's a, b, c at a time",
                peak=75 * GIB,
            ),
            Remedy("gpus.gpu_workers_per_device", "1", "One worker alone", device=GPU, peak=71 * GIB),
            Remedy("srs.residency", "host", "Keep the key in the machine's memory and stream it", peak=40 * GIB),
        ),
        time_ns - 10_000_000_000,
    )


def incident(time_ns: int, job: str = "job-8") -> Incident:
    frozen = picture(time_ns)
    return Incident(
        time_ns,
        GPU,
        "out-of-memory",
        job,
        f"allocation of 6.00 GiB for abc failed with {frozen.free / GIB:.2f} GiB free",
        6 * GIB,
        frozen.free,
        frozen,
    )


def finding(time_ns: int, share: float = 0.181) -> Finding:
    return Finding(
        time_ns,
        GPU,
        Cause.PAGEABLE_UPLOAD,
        f"Uploads from pageable memory inside the lock: {share * 100:.1f} % of the time",
        (
            "6.38 s in 29 gaps, 81.2 % of the idle time",
            "the longest, before job 1a2b3c4d: 220 ms without a kernel: 1.42 GiB of a, b, c at 6.61 GB/s",
        ),
        time_ns - 60_000_000_000,
        time_ns,
        (PRESTAGE_AHEAD,),
    )


def handover_finding(time_ns: int) -> Finding:
    return Finding(
        time_ns,
        GPU,
        Cause.OTHER_PROCESS,
        "Another program had the device: 1.4 % of the time",
        ("812 ms in 12 gaps, 10.4 % of the idle time", "nvidia-smi names the programs that use the card"),
        time_ns - 60_000_000_000,
        time_ns,
    )


def samples(first: int, last: int, *, taken_from: int, taken_to: int) -> list[Sample]:
    """Two a second; the bus counters could not be read for a while; another program comes and goes."""
    found = []
    for at in range(first, last, 500_000_000):
        second = at // 500_000_000
        unread = second % 40 in (10, 11, 12, 13)
        taken = taken_from <= at < taken_to
        found.append(
            Sample(
                at,
                GPU,
                memory_used=60 * GIB,
                memory_reserved=68 * GIB,
                memory_other=61 * GIB if taken else 320 * MIB,
                memory_capacity=CAPACITY,
                pcie_rx=None if unread else 5.6e9 + 1e9 * (second % 5),
                pcie_tx=None if unread else 2e8,
                utilisation=0.82 + 0.02 * (second % 8),
                power=512.0 + second % 7,
                clock=1755.0,
                temperature=61.0,
            )
        )
    return found


def minute(
    now: int, *, switched: float = 0.55, length_s: int = 40, with_incident: bool = True, wall: int | None = None
) -> tuple[EventBatch, list[JobInfo]]:
    """Events of the last ``length_s`` seconds before ``now``, and the jobs of them."""
    begin = now - length_s * 1_000_000_000
    change = begin + round(length_s * switched * 1e9)
    taken_from, taken_to = now - 4_500_000_000, now - 1_500_000_000
    events = EventBatch.empty()
    wall = time.time_ns() - time.monotonic_ns() if wall is None else wall
    at, number, jobs = begin + 800_000_000, 0, []
    while at < now - PROOF_NS:
        ahead = at >= change
        prover.merge(events, partition(at, number % 2, f"job-{number}", ahead=ahead))
        length = PROOF_NS + (0 if ahead else 220_000_000)
        jobs.append(
            replace(
                fakes.job(f"job-{number}", label=f"sector {1200 + number // 10}", circuit_name="porep-2^24"),
                device=GPU,
                state=JobState.COMPLETED,
                progress=1.0,
                partitions=10,
                partitions_done=10,
                submitted_unix_ns=at + wall - 2_000_000_000,
                started_unix_ns=at + wall,
                finished_unix_ns=at + length + wall,
                phases=tuple(fakes.PhaseTime(n, round(s * length)) for n, s in fakes.PHASES),
            )
        )
        events.logs.append(LogLine(at, at + wall, "INFO", f"job-{number}: partition 7 of 10 proved in 0.98 s on {GPU}"))
        at += length
        number += 1
    events.gaps.append(
        Gap(begin, begin + 800_000_000, GPU, Cause.QUEUE_EMPTY, "800 ms without a kernel: no job ran or waited")
    )
    events.marks.append(Mark(change, "setting", "pre-staging → ahead"))
    events.samples = samples(begin, now, taken_from=taken_from, taken_to=taken_to)
    events.findings = [finding(change, 0.181), handover_finding(now - 2_000_000_000)]
    if with_incident:
        fault = incident(now - 4_000_000_000, f"job-{number - 2}")
        events.incidents.append(fault)
        events.logs.append(LogLine(fault.time_ns, fault.time_ns + wall, "ERROR", fault.message))
    events.allocations.sort(key=lambda a: a.time_ns)
    return events, jobs


def ledger() -> dict[tuple[str, str], int]:
    return {(GPU, "srs"): SRS, (GPU, "matrices"): 6 * GIB + 100 * MIB, (GPU, "context"): 512 * MIB}


class FakeRecording:
    """A recording of ``minute`` in messages of two seconds; ``broken`` after so many of them."""

    def __init__(self, *, length_s: int = 40, broken: int | None = None, wait: threading.Event | None = None) -> None:
        self.damage: str | None = None
        self.closed = False
        self._broken = broken
        self._wait = wait
        self._end = 10**15
        self._offset = 1_790_000_000 * 10**9 - self._end
        self.events, self.jobs = minute(self._end, length_s=length_s, wall=self._offset)
        begin = self._end - length_s * 10**9
        self._identity = fakes.identity(devices=(gpu(),), started_unix_ns=begin + self._offset - 10**12)
        self.info = RecordingInfo(
            path="run.cuzk",
            identity=self._identity,
            settings=tuple(fakes.settings()),
            address="gpu-node-07:9820",
            start_ns=begin,
            end_ns=self._end,
            wall_offset_ns=self._offset,
            events=len(self.events),
            lost=0,
            dropped_until_ns=None,
        )

    def updates(self, *, columns: bool = False) -> Iterator[TelemetryUpdate]:
        step = 2 * 10**9
        for number, at in enumerate(range(self.info.start_ns, self._end, step)):
            if self._wait is not None:
                self._wait.wait(30)
            if self._broken == number:
                self.damage = "run.cuzk: cannot be read from 16 s on"
                return
            events = EventBatch.empty()
            for name, moment in (
                ("spans", "end_ns"),
                ("allocations", "time_ns"),
                ("samples", "time_ns"),
                ("marks", "time_ns"),
                ("incidents", "time_ns"),
                ("logs", "time_ns"),
                ("gaps", "end_ns"),
                ("findings", "time_ns"),
            ):
                rows = getattr(self.events, name)
                setattr(events, name, [e for e in rows if at <= getattr(e, moment) < at + step])
            first = number == 0
            last = at + step >= self._end
            yield TelemetryUpdate(
                at + step,
                at + step + self._offset,
                events,
                [j for j in self.jobs if last or at <= j.finished_unix_ns - self._offset < at + step],
                self._identity if first else None,
                list(self.info.settings) if first else None,
                ledger() if first else None,
            )

    def diagnosis(self) -> EventBatch:
        found = EventBatch.empty()
        end = self._end if self._broken is None else self.info.start_ns + self._broken * 2 * 10**9
        found.gaps = [gap for gap in self.events.gaps if gap.end_ns < end]
        found.findings = [finding for finding in self.events.findings if finding.time_ns < end]
        return found

    def close(self) -> None:
        self.closed = True
