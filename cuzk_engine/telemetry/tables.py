"""Columns of the wire as the diagnosis reads them, without a row in between."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from cuzk_engine.diagnosis.table import Names, SpanTable
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import I8, I32, I64, U32, column


def span_table(columns: pb.SpanColumns, strings: Iterable[str], names: Names) -> SpanTable:
    """The spans of a batch. Raises ValueError for columns that do not fit together."""
    texts = list(strings)
    start = column(columns.start_ns, I64)
    rows = len(start)

    def named(data: bytes) -> npt.NDArray[np.int32]:
        indexes = column(data, U32, rows)
        if rows and int(indexes.max()) >= len(texts):
            raise ValueError(f"a telemetry column names string {int(indexes.max())}, the batch has {len(texts)}")
        used, where = np.unique(indexes, return_inverse=True)
        return names.numbers(texts[number] for number in used.tolist())[where]

    return SpanTable.from_columns(
        names,
        start=start,
        end=column(columns.end_ns, I64, rows),
        device=named(columns.device),
        lane=named(columns.lane),
        kind=named(columns.kind),
        job=named(columns.job),
        partition=column(columns.partition, I32, rows),
        worker=column(columns.worker, I32, rows),
        size=column(columns.size, I64, rows),
        pinned=column(columns.pinned, I8, rows),
    )
