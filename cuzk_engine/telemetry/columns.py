"""Events as columns: ``EventBatch`` ↔ the column sets of ``cuzk.engine.v1.TelemetryBatch``.

Columns are little-endian without gaps (int64 times and bytes, uint32 string indexes, int32 partition and worker, int8
pinned); strings are kept once a batch. A reader trusts no length: columns of one set that differ in rows, or an index
without a string, raise ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from itertools import chain, count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.events import Allocation, EventBatch, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry import rows

I64: Final = np.dtype("<i8")
I32: Final = np.dtype("<i4")
U32: Final = np.dtype("<u4")
I8: Final = np.dtype("<i1")

_PINNED: Final = {0: False, 1: True}  # anything else: no transfer
_PINS: Final = {None: -1, False: 0, True: 1}


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
    spans, allocations = tuple(zip(*events.spans, strict=True)), tuple(zip(*events.allocations, strict=True))
    # Device, lane, kind, job; and device, purpose, job: each text once, in the order in which they come.
    texts = dict.fromkeys(chain(*spans[2:6], *allocations[1:2], *allocations[3:4], *allocations[5:]))
    number = dict(zip(texts, count(), strict=False)).__getitem__
    batch = pb.TelemetryBatch(dropped=events.dropped, strings=texts)
    if spans:
        _encode_spans(batch.spans, spans, number)
    if allocations:
        _encode_allocations(batch.allocations, allocations, number)
    if len(events) > len(events.spans) + len(events.allocations):
        batch.samples.extend(map(rows.sample_to_wire, events.samples))
        batch.marks.extend(map(rows.mark_to_wire, events.marks))
        batch.incidents.extend(map(rows.incident_to_wire, events.incidents))
        batch.logs.extend(map(rows.log_to_wire, events.logs))
        batch.gaps.extend(map(rows.gap_to_wire, events.gaps))
        batch.findings.extend(map(rows.finding_to_wire, events.findings))
    return batch


def decode_events(batch: pb.TelemetryBatch, *, spans: bool = True) -> EventBatch:
    """The rows of a batch, without its spans if they are not wanted. Raises ValueError for columns that do not fit
    together."""
    strings = list(batch.strings)
    return EventBatch(
        spans=decode_spans(batch.spans, strings) if spans else [],
        samples=list(map(rows.sample_from_wire, batch.samples)),
        allocations=decode_allocations(batch.allocations, strings),
        marks=list(map(rows.mark_from_wire, batch.marks)),
        incidents=list(map(rows.incident_from_wire, batch.incidents)),
        logs=list(map(rows.log_from_wire, batch.logs)),
        gaps=list(map(rows.gap_from_wire, batch.gaps)),
        findings=list(map(rows.finding_from_wire, batch.findings)),
        dropped=batch.dropped,
    )


def decode_allocations(columns: pb.AllocationColumns, strings: list[str]) -> list[Allocation]:
    times = column(columns.time_ns, I64)
    n = len(times)
    device = _names(columns.device, strings, n)
    purpose = _names(columns.purpose, strings, n)
    job = _names(columns.job, strings, n)
    delta = column(columns.delta, I64, n)
    worker = column(columns.worker, I32, n)
    values = zip(times.tolist(), device, delta.tolist(), purpose, worker.tolist(), job, strict=True)
    return [Allocation(*row) for row in values]


def decode_spans(columns: pb.SpanColumns, strings: list[str]) -> list[Span]:
    start = column(columns.start_ns, I64)
    n = len(start)
    values = zip(
        start.tolist(),
        column(columns.end_ns, I64, n).tolist(),
        _names(columns.device, strings, n),
        _names(columns.lane, strings, n),
        _names(columns.kind, strings, n),
        _names(columns.job, strings, n),
        column(columns.partition, I32, n).tolist(),
        column(columns.worker, I32, n).tolist(),
        column(columns.size, I64, n).tolist(),
        map(_PINNED.get, column(columns.pinned, I8, n).tolist()),
        strict=True,
    )
    return [Span(*row) for row in values]


def span_columns(columns: pb.SpanColumns, strings: int) -> tuple[npt.NDArray[Any], ...]:
    """Start, end, device, lane, kind, job, partition, worker, size, pinned as they came, checked: of one length, and no
    index beyond the ``strings`` of the batch. Raises ValueError."""
    start = column(columns.start_ns, I64)
    n = len(start)
    indexes = [column(data, U32, n) for data in (columns.device, columns.lane, columns.kind, columns.job)]
    for one in indexes:
        if n and int(one.max()) >= strings:
            raise ValueError(f"a telemetry column names string {int(one.max())}, the batch has {strings}")
    rest = (columns.partition, I32), (columns.worker, I32), (columns.size, I64), (columns.pinned, I8)
    return (start, column(columns.end_ns, I64, n), *indexes, *(column(data, dtype, n) for data, dtype in rest))


def count_events(batch: pb.TelemetryBatch) -> int:
    """Events in a batch, without decoding it."""
    return (
        len(batch.spans.start_ns) // 8
        + len(batch.allocations.time_ns) // 8
        + len(batch.samples)
        + len(batch.marks)
        + len(batch.incidents)
        + len(batch.logs)
        + len(batch.gaps)
        + len(batch.findings)
    )


def _encode_spans(columns: pb.SpanColumns, fields: Sequence[tuple[Any, ...]], number: Callable[[str], int]) -> None:
    start, end, device, lane, kind, job, partition, worker, size, pinned = fields
    columns.start_ns = _pack("q", start)
    columns.end_ns = _pack("q", end)
    columns.device = _pack_texts(device, number)
    columns.lane = _pack_texts(lane, number)
    columns.kind = _pack_texts(kind, number)
    columns.job = _pack_texts(job, number)
    columns.partition = _pack("i", partition)
    columns.worker = _pack("i", worker)
    columns.size = _pack("q", size)
    columns.pinned = _pack("b", [*map(_PINS.__getitem__, pinned)])


def _encode_allocations(
    columns: pb.AllocationColumns, fields: Sequence[tuple[Any, ...]], number: Callable[[str], int]
) -> None:
    time_ns, device, delta, purpose, worker, job = fields
    columns.time_ns = _pack("q", time_ns)
    columns.device = _pack_texts(device, number)
    columns.delta = _pack("q", delta)
    columns.purpose = _pack_texts(purpose, number)
    columns.worker = _pack("i", worker)
    columns.job = _pack_texts(job, number)


def _pack(code: str, values: Collection[int]) -> bytes:
    """Columns are short and of all lengths: numpy would take longer, and keep some memory of each length."""
    return struct.pack(f"<{len(values)}{code}", *values)


def _pack_texts(texts: Sequence[str], number: Callable[[str], int]) -> bytes:
    if texts.count(texts[0]) == len(texts):  # one device, and mostly one job
        return struct.pack("<I", number(texts[0])) * len(texts)
    return struct.pack(f"<{len(texts)}I", *map(number, texts))


def column(data: bytes, dtype: np.dtype[Any], rows: int | None = None) -> npt.NDArray[Any]:
    if len(data) % dtype.itemsize or (rows is not None and len(data) != rows * dtype.itemsize):
        raise ValueError(f"a telemetry column has {len(data)} bytes, expected rows of {dtype.itemsize}, {rows} of them")
    return np.frombuffer(data, dtype=dtype)


def _names(data: bytes, strings: list[str], rows: int) -> list[str]:
    indexes = column(data, U32, rows)
    if rows and int(indexes.max()) >= len(strings):
        raise ValueError(f"a telemetry column names string {int(indexes.max())}, the batch has {len(strings)}")
    return [strings[index] for index in indexes.tolist()]
