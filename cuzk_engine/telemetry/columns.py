"""Events as columns: ``EventBatch`` ↔ the column sets of ``cuzk.engine.v1.TelemetryBatch``.

Columns are little-endian without gaps (int64 times and bytes, uint32 string indexes, int32 partition and worker, int8
pinned); strings are kept once a batch. A reader trusts no length: columns of one set that differ in rows, or an index
without a string, raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.events import Allocation, EventBatch, Incident, LogLine, Mark, Sample, Span
from cuzk_engine.proto import engine_v1_pb2 as pb

_I64: Final = np.dtype("<i8")
_I32: Final = np.dtype("<i4")
_U32: Final = np.dtype("<u4")
_I8: Final = np.dtype("<i1")

_PINNED: Final = {0: False, 1: True}  # anything else: no transfer

_SAMPLE_FIELDS: Final = (
    "memory_used",
    "memory_reserved",
    "memory_other",
    "memory_capacity",
    "pcie_rx",
    "pcie_tx",
    "utilisation",
    "power",
    "clock",
    "temperature",
    "throttle",
)


class StringTable:
    """Numbers strings in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    @property
    def strings(self) -> list[str]:
        return list(self._index)


def encode_events(events: EventBatch) -> pb.TelemetryBatch:
    """A batch with the events' columns and rows; times, jobs and the rest are the caller's to fill in."""
    table = StringTable()
    batch = pb.TelemetryBatch(dropped=events.dropped)
    if events.spans:
        batch.spans.CopyFrom(_encode_spans(events.spans, table))
    if events.allocations:
        batch.allocations.CopyFrom(_encode_allocations(events.allocations, table))
    batch.samples.extend(map(sample_to_wire, events.samples))
    batch.marks.extend(pb.Mark(time_ns=m.time_ns, kind=m.kind, text=m.text, device=m.device) for m in events.marks)
    batch.incidents.extend(
        pb.Incident(
            time_ns=i.time_ns,
            device=i.device,
            kind=i.kind,
            job=i.job,
            message=i.message,
            requested=i.requested,
            free=i.free,
        )
        for i in events.incidents
    )
    batch.logs.extend(
        pb.LogLine(time_ns=log.time_ns, wall_ns=log.wall_ns, level=log.level, message=log.message)
        for log in events.logs
    )
    batch.strings.extend(table.strings)
    return batch


def decode_events(batch: pb.TelemetryBatch) -> EventBatch:
    """The rows of a batch. Raises ValueError for columns that do not fit together."""
    strings = list(batch.strings)
    return EventBatch(
        spans=decode_spans(batch.spans, strings),
        samples=[sample_from_wire(sample) for sample in batch.samples],
        allocations=decode_allocations(batch.allocations, strings),
        marks=[Mark(m.time_ns, m.kind, m.text, m.device) for m in batch.marks],
        incidents=[
            Incident(
                i.time_ns,
                i.device,
                i.kind,
                i.job,
                i.message,
                i.requested if i.HasField("requested") else None,
                i.free if i.HasField("free") else None,
            )
            for i in batch.incidents
        ],
        logs=[LogLine(line.time_ns, line.wall_ns, line.level, line.message) for line in batch.logs],
        dropped=batch.dropped,
    )


def decode_allocations(columns: pb.AllocationColumns, strings: list[str]) -> list[Allocation]:
    times = _column(columns.time_ns, _I64)
    rows = len(times)
    device = _names(columns.device, strings, rows)
    purpose = _names(columns.purpose, strings, rows)
    job = _names(columns.job, strings, rows)
    delta = _column(columns.delta, _I64, rows)
    worker = _column(columns.worker, _I32, rows)
    rows_ = zip(times.tolist(), device, delta.tolist(), purpose, worker.tolist(), job, strict=True)
    return [Allocation(*row) for row in rows_]


def decode_spans(columns: pb.SpanColumns, strings: list[str]) -> list[Span]:
    start = _column(columns.start_ns, _I64)
    rows = len(start)
    values = zip(
        start.tolist(),
        _column(columns.end_ns, _I64, rows).tolist(),
        _names(columns.device, strings, rows),
        _names(columns.lane, strings, rows),
        _names(columns.kind, strings, rows),
        _names(columns.job, strings, rows),
        _column(columns.partition, _I32, rows).tolist(),
        _column(columns.worker, _I32, rows).tolist(),
        _column(columns.size, _I64, rows).tolist(),
        map(_PINNED.get, _column(columns.pinned, _I8, rows).tolist()),
        strict=True,
    )
    return [Span(*row) for row in values]


def count_events(batch: pb.TelemetryBatch) -> int:
    """Events in a batch, without decoding it."""
    return (
        len(batch.spans.start_ns) // 8
        + len(batch.allocations.time_ns) // 8
        + len(batch.samples)
        + len(batch.marks)
        + len(batch.incidents)
        + len(batch.logs)
    )


def sample_to_wire(sample: Sample) -> pb.Sample:
    return pb.Sample(
        time_ns=sample.time_ns, device=sample.device, **{name: getattr(sample, name) for name in _SAMPLE_FIELDS}
    )


def sample_from_wire(sample: pb.Sample) -> Sample:
    values: dict[str, Any] = {name: getattr(sample, name) for name in _SAMPLE_FIELDS if sample.HasField(name)}
    return Sample(sample.time_ns, sample.device, **values)


def _encode_spans(spans: list[Span], table: StringTable) -> pb.SpanColumns:
    return pb.SpanColumns(
        start_ns=_pack((s.start_ns for s in spans), _I64),
        end_ns=_pack((s.end_ns for s in spans), _I64),
        device=_pack((table(s.device) for s in spans), _U32),
        lane=_pack((table(s.lane) for s in spans), _U32),
        kind=_pack((table(s.kind) for s in spans), _U32),
        job=_pack((table(s.job) for s in spans), _U32),
        partition=_pack((s.partition for s in spans), _I32),
        worker=_pack((s.worker for s in spans), _I32),
        size=_pack((s.bytes for s in spans), _I64),
        pinned=_pack((-1 if s.pinned is None else int(s.pinned) for s in spans), _I8),
    )


def _encode_allocations(rows: list[Allocation], table: StringTable) -> pb.AllocationColumns:
    return pb.AllocationColumns(
        time_ns=_pack((a.time_ns for a in rows), _I64),
        device=_pack((table(a.device) for a in rows), _U32),
        delta=_pack((a.delta for a in rows), _I64),
        purpose=_pack((table(a.purpose) for a in rows), _U32),
        worker=_pack((a.worker for a in rows), _I32),
        job=_pack((table(a.job) for a in rows), _U32),
    )


def _pack(values: Iterable[int], dtype: np.dtype[Any]) -> bytes:
    return np.fromiter(values, dtype=dtype).tobytes()


def _column(data: bytes, dtype: np.dtype[Any], rows: int | None = None) -> npt.NDArray[Any]:
    if len(data) % dtype.itemsize or (rows is not None and len(data) != rows * dtype.itemsize):
        raise ValueError(f"a telemetry column has {len(data)} bytes, expected rows of {dtype.itemsize}, {rows} of them")
    return np.frombuffer(data, dtype=dtype)


def _names(data: bytes, strings: list[str], rows: int) -> list[str]:
    indexes = _column(data, _U32, rows)
    if rows and int(indexes.max()) >= len(strings):
        raise ValueError(f"a telemetry column names string {int(indexes.max())}, the batch has {len(strings)}")
    return [strings[index] for index in indexes.tolist()]
