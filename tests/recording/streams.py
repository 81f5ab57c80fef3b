"""Streams as an engine would send them, without one."""

from __future__ import annotations

from collections.abc import Iterator

from cuzk_engine.events import Allocation, EventBatch, Kind, Lane, LogLine, Mark, Sample, Span, host_lane
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import encode_events

MS = 1_000_000
S = 1000 * MS
WALL = 1_700_000_000 * S
KINDS = (Kind.NTT, Kind.MSM_ACCUMULATE, Kind.MSM_REDUCE)


def head(time_ns: int) -> pb.TelemetryBatch:
    """The first message of a stream."""
    device = pb.DeviceInfo(id="cpu", name="A processor", kind="cpu", capacity=1 << 30, state="ready")
    setting = pb.Setting(key="pipeline.prestage", value="ahead", type="enum", live=True)
    memory = [pb.MemoryByPurpose(device="cpu", purpose="srs", bytes=100)]
    identity = pb.Identity(build="b" * 64, version="1", state="ready", devices=[device])
    return pb.TelemetryBatch(
        time_ns=time_ns,
        wall_ns=WALL + time_ns,
        identity=identity,
        settings=[setting],
        memory=memory,
        memory_is_set=True,
    )


def batch(time_ns: int, spans: int = 4, job: str = "job") -> pb.TelemetryBatch:
    """50 ms of one worker: an evaluation, kernels, an allocation that is given back."""
    events = EventBatch.empty()
    step = 40 * MS // max(1, spans)
    begin = time_ns - 50 * MS
    events.spans.append(Span(begin, begin + 10 * MS, "cpu", host_lane(0), Kind.EVALUATE, job, 0, 0))
    for i in range(spans):
        at = begin + 10 * MS + i * step
        events.spans.append(Span(at, at + step, "cpu", Lane.COMPUTE, KINDS[i % 3], job, 0, 0))
    events.allocations += [Allocation(begin, "cpu", 64, "abc", 0, job), Allocation(time_ns, "cpu", -64, "abc", 0, job)]
    events.samples.append(Sample(time_ns, "cpu", memory_used=164, utilisation=0.5))
    found = encode_events(events)
    found.time_ns, found.wall_ns = time_ns, WALL + time_ns
    found.jobs.add(id=job, state=pb.JOB_STATE_RUNNING, submitted_unix_ns=WALL + begin, started_unix_ns=WALL + begin)
    return found


def stream(seconds: float, spans: int = 4, start: int = 5 * S) -> Iterator[pb.TelemetryBatch]:
    yield head(start)
    for i in range(round(seconds * 20)):
        yield batch(start + (i + 1) * 50 * MS, spans, f"job {i // 20}")


def oddities(time_ns: int) -> pb.TelemetryBatch:
    """One of what is rare."""
    events = EventBatch.empty()
    events.marks.append(Mark(time_ns, "setting", "pre-staging → off"))
    events.logs.append(LogLine(time_ns, WALL + time_ns, "INFO", "a line"))
    found = encode_events(events)
    found.time_ns, found.wall_ns, found.dropped = time_ns, WALL + time_ns, 3
    return found
