"""A recorder that runs for days holds as much after hours as after its first minutes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cuzk_engine.events import Allocation, EventBatch, Kind, Lane, Sample, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.layout import BUCKETS, LEVELS
from cuzk_engine.recording.levels import Levels
from cuzk_engine.recording.writer import RecordingWriter
from cuzk_engine.telemetry.columns import encode_events
from tests.recording.streams import WALL, S, head


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def of_many_jobs(number: int, jobs: int = 200) -> pb.TelemetryBatch:
    """A chunk of jobs that no other chunk has."""
    end = (number + 6) * 2 * S
    events = EventBatch.empty()
    events.spans += [
        Span(end - S, end, "cpu", Lane.COMPUTE, Kind.NTT, f"job {number} {job}", 0, 0) for job in range(jobs)
    ]
    found = encode_events(events)
    found.time_ns, found.wall_ns = end, WALL + end
    return found


def test_jobs_that_were_written_are_forgotten(tmp_path: Path) -> None:
    with traced(), RecordingWriter(tmp_path / "r.cuzkrec") as writer:
        writer.add(head(10 * S))
        sizes = []
        for number in range(40):
            writer.add(of_many_jobs(number))
            sizes.append(tracemalloc.get_traced_memory()[0])
    assert writer.events > 38 * 200
    assert max(sizes[-10:]) < max(sizes[5:15]) + 20_000  # the names alone of 25 chunks are 400 KB


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_a_coarse_level_has_its_memory_from_the_first_bucket_on(level: int) -> None:
    levels, sizes = Levels(), {}
    begin, end = 2 * BUCKETS + 3, 3 * BUCKETS - 1  # of a row
    with traced():
        for at in range(end + 1):
            time_ns, size = at * LEVELS[level], (1 << 40) + at
            allocations = [Allocation(time_ns, "cpu", size, purpose) for purpose in ("abc", "srs", "msm")]
            levels.memory({}, allocations, time_ns, time_ns)
            levels.sample(Sample(time_ns, "cpu", memory_other=size, utilisation=1 / (2 + at)))
            if at % 4 == 3:
                assert (level, at // BUCKETS) in [(its, number) for its, number, _ in levels.changed()]
            if at in (begin, end):
                sizes[at] = tracemalloc.get_traced_memory()[0]
    assert sizes[end] < sizes[begin] + 2_000
