"""Several batches of a stream as one: columns joined, strings kept once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import U32, StringTable, column

_SPANS: Final = ("start_ns", "end_ns", "device", "lane", "kind", "job", "partition", "worker", "size", "pinned")
_ALLOCATIONS: Final = ("time_ns", "device", "delta", "purpose", "worker", "job")
_INDEXES: Final = frozenset({"device", "lane", "kind", "job", "purpose"})
_ROWS: Final = ("samples", "marks", "incidents", "logs", "gaps", "findings")


def merged(batches: Sequence[pb.TelemetryBatch]) -> pb.TelemetryBatch:
    """One batch with the events of all, in order, and the last one's times. Of a job that changed several times the
    last of its states with as many partitions done: what they tell is how long partitions waited. Identity, settings
    and memory of the last batch that has them.

    Raises ValueError for columns that do not fit together.
    """
    table = StringTable()
    numbers = [np.array([table(text) for text in batch.strings], U32) for batch in batches]
    found = pb.TelemetryBatch(dropped=sum(batch.dropped for batch in batches))
    _join(found.spans, [batch.spans for batch in batches], _SPANS, numbers)
    _join(found.allocations, [batch.allocations for batch in batches], _ALLOCATIONS, numbers)
    jobs: dict[tuple[str, int, int], pb.Job] = {}
    for batch in batches:
        found.time_ns, found.wall_ns = batch.time_ns, batch.wall_ns
        for name in _ROWS:
            getattr(found, name).extend(getattr(batch, name))
        for job in batch.jobs:
            state = job.id, job.state, job.partitions_done
            jobs.pop(state, None)  # to the end: a retry comes back to where it was
            jobs[state] = job
        if batch.HasField("identity"):
            found.identity.CopyFrom(batch.identity)
        if batch.settings:
            del found.settings[:]
            found.settings.extend(batch.settings)
        if batch.memory_is_set:
            del found.memory[:]
            found.memory.extend(batch.memory)
            found.memory_is_set = True
    found.jobs.extend(jobs.values())
    found.strings.extend(table.strings)
    return found


def _join(target: Any, sets: Sequence[Any], names: Sequence[str], numbers: Sequence[npt.NDArray[Any]]) -> None:
    """Joins columns of one kind of set. A set without rows stays absent."""
    for name in names:
        if name in _INDEXES:
            parts = [_renumbered(getattr(one, name), known) for one, known in zip(sets, numbers, strict=True)]
        else:
            parts = [getattr(one, name) for one in sets]
        data = b"".join(parts)
        if data:
            setattr(target, name, data)


def _renumbered(data: bytes, numbers: npt.NDArray[Any]) -> bytes:
    indexes = column(data, U32)
    if len(indexes) and int(indexes.max()) >= len(numbers):
        raise ValueError(f"a telemetry column names string {int(indexes.max())}, the batch has {len(numbers)}")
    return bytes(numbers[indexes].tobytes())
