"""Shares of time in buckets of coarser and coarser width, for stretches in which spans are too many to be drawn."""

from __future__ import annotations

from typing import Final

import numpy as np

from cuzk_gui.models.columns import Array, zeros
from cuzk_gui.models.groups import Group

LEVEL_NS: Final = tuple(4_000_000 * 4**k for k in range(6))  # 4 ms … 4.1 s a bucket
LEVEL_BUCKETS: Final = 4096  # 16 s … 4.6 h
_GROUPS: Final = len(Group)
_WIDTHS: Final = np.array(LEVEL_NS, np.int64)


class Buckets:
    """Busy nanoseconds by group and bytes by group, in consecutive buckets of ``width`` ns; a ring over bucket
    numbers."""

    def __init__(self, width: int, busy: Array, nbytes: Array) -> None:
        self.width = width
        self.size = len(busy)
        self._busy = busy
        self._bytes = nbytes
        self.first: int | None = None  # number of the oldest bucket kept
        self.last = -1

    def view(self, start_ns: int, end_ns: int) -> tuple[Array, Array, Array]:
        """(bucket starts in ns, busy (n, groups), bytes (n, groups)) of the buckets that touch [start, end)."""
        if self.first is None:
            empty = np.zeros((0, _GROUPS), dtype=np.float32)
            return np.zeros(0, dtype=np.int64), empty, empty
        low = max(self.first, start_ns // self.width)
        high = min(self.last, (end_ns - 1) // self.width)
        numbers = np.arange(low, max(high + 1, low), dtype=np.int64)
        index = numbers % self.size
        return numbers * self.width, self._busy[index], self._bytes[index]

    def advance(self, low: int, high: int) -> int:
        """Makes room for the buckets from ``low`` to ``high``; the number of the oldest one that is kept."""
        if self.first is None:
            self.first, self.last = max(low, high - self.size + 1), high
        if high > self.last:
            fresh = np.arange(max(self.last + 1, high - self.size + 1), high + 1) % self.size
            self._busy[fresh] = 0
            self._bytes[fresh] = 0
            self.last = high
            self.first = max(self.first, high - self.size + 1)
        if low < self.first:  # late spans: room in front of the first bucket is still zero
            self.first = max(low, self.last - self.size + 1)
        return self.first


class Levels:
    """Six levels of ``size`` buckets each, filled together: with few spans at a time, a call costs more than its
    work."""

    def __init__(self, size: int = LEVEL_BUCKETS) -> None:
        self._size = size
        self._busy, self._bytes = (zeros((len(LEVEL_NS), size, _GROUPS), np.float32) for _ in range(2))
        self.levels = tuple(map(Buckets, LEVEL_NS, self._busy, self._bytes))

    @property
    def nbytes(self) -> int:
        return self._busy.nbytes + self._bytes.nbytes

    def add(self, start: Array, end: Array, group: Array, size: Array) -> None:
        """Spreads spans over the buckets that they cover, in every level."""
        end = np.maximum(end, start + 1)
        first, last = start // _WIDTHS[:, None], (end - 1) // _WIDTHS[:, None]
        reach = zip(self.levels, first.min(axis=1).tolist(), last.max(axis=1).tolist(), strict=True)
        oldest = np.array([level.advance(low, high) for level, low, high in reach], np.int64)
        first = np.maximum(first, oldest[:, None])
        counts = np.maximum(last - first + 1, 0).ravel()
        pair = np.repeat(np.arange(len(counts)), counts)  # of a level and a span
        level, span = pair // len(start), pair % len(start)
        number = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + first.ravel()[pair]
        width, begin, finish = _WIDTHS[level], start[span], end[span]
        low = number * width
        overlap = np.minimum(finish, low + width) - np.maximum(begin, low)
        index = (level * self._size + number % self._size) * _GROUPS + group[span]
        np.add.at(self._busy.reshape(-1), index, overlap.astype(np.float32))
        if size.any():
            moved = overlap / (finish - begin) * size[span]
            np.add.at(self._bytes.reshape(-1), index, moved.astype(np.float32))
