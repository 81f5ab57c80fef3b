"""Coarser levels: for every device and bucket of time how long its lanes were busy, what was moved and what was in use.

A row covers ``BUCKETS`` buckets: device → series → values, None where nothing is known. Series: ``busy.<lane>``
nanoseconds (compute, h2d, d2h, lock), ``bytes.pinned`` and ``bytes.pageable``, ``memory.<purpose>`` the most bytes in
use, ``other`` the most bytes of other programs, ``utilisation`` the last reading.
"""

from __future__ import annotations

import json
import math
import zlib
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.diagnosis.intervals import clipped
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Allocation, Kind, Lane, Sample
from cuzk_engine.recording.layout import BUCKETS, LEVELS, MAX_LEVEL_BYTES

Series = dict[str, list[float | None]]
Row = dict[str, Series]
_Open = dict[str, dict[str, "array[float]"]]
_UNKNOWN: Final = array("d", [math.nan]) * BUCKETS
_KEPT: Final = 2  # rows of a level that late spans may still change
_LANES: Final = (Lane.COMPUTE, Lane.H2D, Lane.D2H)
MOST_DEVICES: Final = 64
MOST_SERIES: Final = 64


class Levels:
    """Adds up events; ``changed`` gives the rows that have to be written again.

    A row has all its memory from its first value on: as objects, values would go on filling it for the 256 minutes of
    the coarsest level.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], _Open] = {}
        self._dirty: set[tuple[int, int]] = set()

    def spans(self, spans: SpanTable) -> None:
        for device in spans.devices():
            own = spans.of_device(device)
            for lane in _LANES:
                self._busy(device, f"busy.{lane}", own, own.in_lane(lane))
            self._busy(device, "busy.lock", own, own.of_kind(Kind.LOCK_HELD))
            for name, pinned in (("bytes.pinned", 1), ("bytes.pageable", 0)):
                copies = own.where(own.pinned == pinned)
                for level, length in enumerate(LEVELS):
                    for at, size in zip((copies.end // length).tolist(), copies.size.tolist(), strict=True):
                        self._add(level, at, device, name, size)

    def memory(
        self, ledger: Mapping[tuple[str, str], int], allocations: list[Allocation], start_ns: int, end_ns: int
    ) -> None:
        """What was in use in [start_ns, end_ns]; ``ledger``: before the allocations, which are in order."""
        used = {key: nbytes for key, nbytes in ledger.items() if nbytes}
        for key in used:
            self._in_use(start_ns, key, used)
        for row in allocations:
            key = (row.device, row.purpose)
            used[key] = used.get(key, 0) + row.delta
            self._in_use(row.time_ns, key, used)
        for key in used:
            self._in_use(end_ns, key, used)

    def sample(self, sample: Sample) -> None:
        if sample.memory_other is not None:
            self._most(sample.time_ns, sample.device, "other", sample.memory_other)
        if sample.utilisation is not None and math.isfinite(sample.utilisation):
            for level, length in enumerate(LEVELS):
                self._set(level, sample.time_ns // length, sample.device, "utilisation", sample.utilisation)

    def changed(self) -> Iterator[tuple[int, int, bytes]]:
        """(level, number, data) of rows that changed since the last call."""
        for level, number in sorted(self._dirty):
            yield level, number, pack(_closed(self._rows[level, number]))
        self._dirty.clear()
        for level in range(len(LEVELS)):
            numbers = sorted(number for its, number in self._rows if its == level)
            for number in numbers[:-_KEPT]:
                del self._rows[level, number]

    def _busy(self, device: str, name: str, spans: SpanTable, mask: npt.NDArray[np.bool_]) -> None:
        rows = spans.intervals(mask)
        if not len(rows):
            return
        for level, length in enumerate(LEVELS):
            first, last = int(rows[0, 0]) // length, int(rows[-1, 1]) // length
            first = max(first, last - _KEPT * BUCKETS)
            edges = np.arange(first, last + 1, dtype=np.int64) * length
            _, pieces = clipped(edges, edges + length, rows)
            busy = np.bincount(pieces[:, 0] // length - first, weights=pieces[:, 1] - pieces[:, 0])
            for at in np.flatnonzero(busy).tolist():
                now = self._get(level, first + at, device, name) or 0
                # Spans of one lane may come in several batches, and overlap.
                self._set(level, first + at, device, name, min(float(length), now + float(busy[at])))

    def _in_use(self, time_ns: int, key: tuple[str, str], used: Mapping[tuple[str, str], int]) -> None:
        self._most(time_ns, key[0], f"memory.{key[1]}", used[key])

    def _most(self, time_ns: int, device: str, name: str, value: float) -> None:
        for level, length in enumerate(LEVELS):
            now = self._get(level, time_ns // length, device, name)
            if now is None or value > now:
                self._set(level, time_ns // length, device, name, value)

    def _add(self, level: int, at: int, device: str, name: str, value: float) -> None:
        self._set(level, at, device, name, (self._get(level, at, device, name) or 0) + value)

    def _get(self, level: int, at: int, device: str, name: str) -> float | None:
        values = self._rows.get((level, at // BUCKETS), {}).get(device, {}).get(name)
        return None if values is None or math.isnan(values[at % BUCKETS]) else values[at % BUCKETS]

    def _set(self, level: int, at: int, device: str, name: str, value: float) -> None:
        key = (level, at // BUCKETS)
        newest = max((number for its, number in self._rows if its == level), default=key[1])
        if key[1] <= newest - _KEPT:
            return  # too late to be written
        series = self._rows.setdefault(key, {}).setdefault(device, {})
        if name not in series:
            series[name] = _UNKNOWN[:]
        series[name][at % BUCKETS] = value
        self._dirty.add(key)


def _closed(row: _Open) -> Row:
    return {device: {name: list(map(_value, values)) for name, values in row[device].items()} for device in row}


def _value(value: float) -> float | None:
    """As it is written: bytes and nanoseconds are whole numbers."""
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def pack(row: Row) -> bytes:
    return zlib.compress(json.dumps(row, separators=(",", ":")).encode())


def unpack(data: bytes) -> Row:
    """Raises ValueError for anything but what ``pack`` makes."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_LEVEL_BYTES)
    except zlib.error as error:
        raise ValueError("a coarse level is damaged") from error
    if not unpacker.eof:
        raise ValueError("a coarse level is too large")
    document: Any = json.loads(text)
    if not _is_row(document):
        raise ValueError("a coarse level is not what it should be")
    row: Row = document
    return row


def _is_row(document: Any) -> bool:
    if not isinstance(document, dict) or len(document) > MOST_DEVICES:
        return False
    for series in document.values():
        if not isinstance(series, dict) or len(series) > MOST_SERIES:
            return False
        for values in series.values():
            if not isinstance(values, list) or len(values) != BUCKETS:
                return False
            if not all(v is None or (isinstance(v, int | float) and math.isfinite(v)) for v in values):
                return False
    return True
