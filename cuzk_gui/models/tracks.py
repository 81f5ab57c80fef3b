"""Spans of one lane of one device: exact rows, and shares of time in buckets of coarser and coarser width. Gaps of a
device are kept the same way, with the number of their cause in the place of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cuzk_gui.models.columns import Array, Columns
from cuzk_gui.models.groups import Group

LEVEL_NS: Final = tuple(4_000_000 * 4**k for k in range(6))  # 4 ms … 4.1 s a bucket
LEVEL_BUCKETS: Final = 4096  # 16 s … 4.6 h
EXACT_LIMIT: Final = 8192  # more exact rows than this in view and the coarser levels are drawn

_SPAN_DTYPES: Final = {
    "start": np.int64,
    "end": np.int64,
    "reach": np.int64,  # running maximum of "end": finds the first row that can be in view
    "group": np.int8,
    "kind": np.int32,
    "job": np.int32,
    "partition": np.int32,
    "worker": np.int32,
    "bytes": np.int64,
    "pinned": np.int8,
}


@dataclass(slots=True)
class SpanRows:
    """Spans of one lane as columns; ``kind`` and ``job`` index the intern tables of the session."""

    start: Array
    end: Array
    group: Array
    kind: Array
    job: Array
    partition: Array
    worker: Array
    bytes: Array
    pinned: Array

    def __len__(self) -> int:
        return len(self.start)


class Buckets:
    """Busy nanoseconds by group and bytes by group, in consecutive buckets of ``width`` ns; a ring over bucket
    numbers."""

    def __init__(self, width: int, size: int = LEVEL_BUCKETS) -> None:
        self.width = width
        self.size = size
        self._busy = np.zeros((size, len(Group)), dtype=np.float32)
        self._bytes = np.zeros((size, len(Group)), dtype=np.float32)
        self.first: int | None = None  # number of the oldest bucket kept
        self.last = -1

    @property
    def nbytes(self) -> int:
        return self._busy.nbytes + self._bytes.nbytes

    def add(self, start: Array, end: Array, group: Array, size: Array) -> None:
        """Spreads spans over the buckets they cover."""
        end = np.maximum(end, start + 1)
        first, last = start // self.width, (end - 1) // self.width
        self._advance(int(first.min()), int(last.max()))
        assert self.first is not None
        keep = last >= self.first
        if not keep.all():
            start, end, group, size, first, last = (v[keep] for v in (start, end, group, size, first, last))
        if not len(start):
            return
        first = np.maximum(first, self.first)
        counts = last - first + 1
        row = np.repeat(np.arange(len(start)), counts)
        number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + first[row]
        overlap = np.minimum(end[row], (number + 1) * self.width) - np.maximum(start[row], number * self.width)
        share = overlap / (end - start)[row]
        index = (number % self.size, group[row])
        np.add.at(self._busy, index, overlap.astype(np.float32))
        if size.any():
            np.add.at(self._bytes, index, (share * size[row]).astype(np.float32))

    def view(self, start_ns: int, end_ns: int) -> tuple[Array, Array, Array]:
        """(bucket starts in ns, busy (n, groups), bytes (n, groups)) of the buckets that touch [start, end)."""
        if self.first is None:
            empty = np.zeros((0, len(Group)), dtype=np.float32)
            return np.zeros(0, dtype=np.int64), empty, empty
        low = max(self.first, start_ns // self.width)
        high = min(self.last, (end_ns - 1) // self.width)
        numbers = np.arange(low, max(high + 1, low), dtype=np.int64)
        index = numbers % self.size
        return numbers * self.width, self._busy[index], self._bytes[index]

    def _advance(self, low: int, high: int) -> None:
        if self.first is None:
            self.first, self.last = max(low, high - self.size + 1), high
            return
        if high > self.last:
            fresh = np.arange(max(self.last + 1, high - self.size + 1), high + 1) % self.size
            self._busy[fresh] = 0
            self._bytes[fresh] = 0
            self.last = high
            self.first = max(self.first, high - self.size + 1)
        if low < self.first:  # late spans: room in front of the first bucket is still zero
            self.first = max(low, self.last - self.size + 1)


class SpanTrack:
    """Spans of a lane in order of their start, at most ``capacity`` exactly, and six coarser levels."""

    def __init__(self, capacity: int, buckets: int = LEVEL_BUCKETS) -> None:
        self.rows = Columns(capacity, _SPAN_DTYPES)
        self.levels = tuple(Buckets(width, buckets) for width in LEVEL_NS)
        self.version = 0
        self.newest_end = -1
        self.resume_end = -1  # spans up to here were seen before the stream was lost

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + sum(level.nbytes for level in self.levels)

    def append(self, new: SpanRows) -> None:
        if not len(new):
            return
        values = {name: getattr(new, name) for name in _SPAN_DTYPES if name != "reach"}
        values["end"] = np.maximum(new.end, new.start)
        previous = int(self.rows["start"][-1]) if len(self.rows) else None
        self.rows.append({**values, "reach": values["end"]}, len(new))
        self._restore_order(len(new), previous)
        for level in self.levels:
            level.add(values["start"], values["end"], values["group"], values["bytes"])
        self.newest_end = max(self.newest_end, int(values["end"].max()))
        self.version += 1

    def window(self, start_ns: int, end_ns: int) -> slice:
        """The exact rows that can touch [start, end); some rows at its beginning may not."""
        low = int(np.searchsorted(self.rows["reach"], start_ns, side="right"))
        high = int(np.searchsorted(self.rows["start"], end_ns, side="left"))
        return slice(low, max(low, high))

    def exact_covers(self, start_ns: int) -> bool:
        """Whether no row that reaches past ``start_ns`` has been dropped."""
        return not self.rows.dropped or (len(self.rows) > 0 and start_ns >= int(self.rows["start"][0]))

    def crowded(self, part: slice, pixel_ns: float, width: float) -> bool:
        """Whether exact rows would claim more than they are: more of them than pixels, and shorter ones."""
        count = part.stop - part.start
        if count <= width:
            return False
        return float((self.rows["end"][part] - self.rows["start"][part]).mean()) < pixel_ns / 2

    def level_for(self, start_ns: int, pixel_ns: float) -> Buckets:
        """The level whose buckets are at least a pixel wide and which reaches back far enough, else the coarsest."""
        for level in self.levels:
            if (
                level.width >= pixel_ns
                and level.first is not None
                and (level.first * level.width <= start_ns or level.last - level.first + 1 < level.size)
            ):
                return level
        return self.levels[-1]

    def at(self, time_ns: int, tolerance_ns: int) -> int | None:
        """Index of the shortest span at ``time_ns``, or the nearest one within the tolerance."""
        rows = self.window(time_ns - tolerance_ns, time_ns + tolerance_ns + 1)
        start, end = self.rows["start"][rows], self.rows["end"][rows]
        if not len(start):
            return None
        outside = np.maximum(np.maximum(start - time_ns, time_ns - end), 0)
        if int(outside.min()) > tolerance_ns:
            return None
        candidates = np.flatnonzero(outside == outside.min())
        return rows.start + int(candidates[np.argmin((end - start)[candidates])])

    def _restore_order(self, added: int, previous: int | None) -> None:
        start = self.rows["start"]
        begin = max(0, len(start) - added)
        fresh = start[begin:]
        lowest = int(fresh.min())
        if previous is not None and lowest < previous:
            begin = int(np.searchsorted(start[:begin], lowest, side="right"))
        if begin < len(start) - 1 and (np.diff(start[begin:]) < 0).any():
            self.rows.reorder_tail(begin, np.argsort(start[begin:], kind="stable"))
        reach, end = self.rows["reach"], self.rows["end"]
        reach[begin:] = np.maximum.accumulate(end[begin:])
        if begin:
            np.maximum(reach[begin:], reach[begin - 1], out=reach[begin:])
