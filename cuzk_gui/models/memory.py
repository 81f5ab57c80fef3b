"""Device memory by purpose as step series, rebuilt from allocations with a start value; and readings of a device
over time.

A stretch for which nothing is known (the stream was down) is marked so and never read as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from cuzk_engine.events import Purpose
from cuzk_gui.models.columns import Array, Columns

PURPOSES: Final = (*(p.value for p in Purpose), "other")
"""Columns of a series; "other" takes purposes that this version does not know."""
PURPOSE_INDEX: Final = {name: index for index, name in enumerate(PURPOSES)}
_WIDE: Final = (np.int64, (len(PURPOSES),))
LARGEST: Final = 2**58  # bytes a purpose; a sum over all purposes still fits an int64
_LEVEL_NS: Final = (8_000_000, 64_000_000, 512_000_000, 4_096_000_000)
SAMPLE_FIELDS: Final = (
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
)


def purpose_index(name: str) -> int:
    return PURPOSE_INDEX.get(name, len(PURPOSES) - 1)


class _Level:
    """One row a bucket in which something changed: the fullest moment in it and the values at its end."""

    def __init__(self, width: int, capacity: int) -> None:
        self.width = width
        self.rows = Columns(capacity, {"time": np.int64, "peak": _WIDE, "last": _WIDE, "known": np.bool_})

    def add(self, times: Array, values: Array, known: Array) -> None:
        """Rows in order of time, none of which lies before those that are there."""
        bucket = times // self.width
        edges = np.flatnonzero(np.diff(bucket)) + 1
        first, after = np.append(0, edges), np.append(edges, len(times))
        totals = values.sum(axis=1)
        fullest = np.maximum.reduceat(totals, first)
        highest = np.flatnonzero(totals == np.repeat(fullest, after - first))
        best = highest[np.searchsorted(highest, first)]  # the first such moment of each bucket
        start, peak, last, seen = bucket[first] * self.width, values[best], values[after - 1], known[after - 1]
        before, held = last[:-1], known[after[:-1] - 1]  # what was there when the next bucket began
        skip = 0
        if len(self.rows) and int(self.rows["time"][-1]) >= int(start[0]):
            self._merge(int(fullest[0]), peak[0], last[0], bool(seen[0]))
            skip = 1
        elif len(self.rows):
            before = np.concatenate((self.rows["last"][-1:], before))
            held = np.concatenate((self.rows["known"][-1:], held))
        into = len(start) - len(before)  # the very first row has nothing before it
        fuller = held & (before.sum(axis=1) > fullest[into:])
        peak[into:][fuller] = before[fuller]
        columns = {"time": start[skip:], "peak": peak[skip:], "last": last[skip:], "known": seen[skip:]}
        self.rows.append(columns, len(start) - skip)

    def _merge(self, total: int, peak: Array, last: Array, known: bool) -> None:
        """More of the newest bucket."""
        if total > self.rows["peak"][-1].sum():
            self.rows["peak"][-1] = peak
        self.rows["last"][-1] = last
        self.rows["known"][-1] = known


class MemorySeries:
    """Bytes by purpose of one device over time."""

    def __init__(self, capacity: int = 16384) -> None:
        self.rows = Columns(capacity, {"time": np.int64, "value": _WIDE, "known": np.bool_})
        self._levels = tuple(_Level(width, capacity // 4) for width in _LEVEL_NS)
        self.current = np.zeros(len(PURPOSES), dtype=np.int64)
        self.known = False
        self.seen = np.zeros(len(PURPOSES), dtype=bool)  # purposes that ever held a byte
        self.version = 0

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + sum(level.rows.nbytes for level in self._levels)

    @property
    def total(self) -> int:
        return int(self.current.sum())

    def by_purpose(self) -> dict[str, int]:
        return {name: int(v) for name, v in zip(PURPOSES, self.current, strict=True) if v}

    def set_state(self, time_ns: int, values: Mapping[str, int]) -> None:
        """The ledger as it is at ``time_ns``: the start value for what follows."""
        self.current = _vector(values)
        self.known = True
        self._push(np.array([time_ns]), self.current[None, :].copy())

    def restore(self, times: Array, values: Array, known: Array) -> None:
        """Rows as ``steps`` gave them, into a series that has none."""
        edges = np.flatnonzero(np.diff(known)) + 1
        for low, high in zip((0, *edges), (*edges, len(times)), strict=True):
            if high > low:
                self.known = bool(known[low])
                self._push(times[low:high], values[low:high].astype(np.int64))
                self.current = values[high - 1].astype(np.int64)

    def skip(self, purpose: Array, delta: Array) -> None:
        """Allocations that were drawn before: they count, without rows of their own."""
        if self.known and len(purpose):
            np.add.at(self.current, purpose, delta)
            np.clip(self.current, 0, LARGEST, out=self.current)
            self._push(self.rows["time"][-1:].copy(), self.current[None, :].copy())

    def add(self, times: Array, purpose: Array, delta: Array) -> None:
        """Allocations in order of time. Before any start value they say nothing about totals and are left out."""
        if not self.known or not len(times):
            return
        steps = np.zeros((len(times), len(PURPOSES)), dtype=np.int64)
        steps[np.arange(len(times)), purpose] = delta
        values = np.clip(self.current + np.cumsum(steps, axis=0), 0, LARGEST)
        self.current = values[-1].copy()
        self._push(times, values)

    def forget(self, time_ns: int) -> None:
        """Nothing is known from ``time_ns`` on, until the next start value."""
        if not self.known:
            return
        self.known = False
        self._push(np.array([time_ns]), self.current[None, :].copy())

    def steps(self, start_ns: int, end_ns: int, pixel_ns: float) -> tuple[Array, Array, Array]:
        """(times, values, known) to draw [start, end): each row holds until the next one; the first may lie before
        ``start``.

        Where rows are closer than pixels, the fullest moment of each bucket is kept, so that a peak never disappears.
        """
        low, high = _window(self.rows["time"], start_ns, end_ns)
        covered = not self.rows.dropped or (len(self.rows) and start_ns >= int(self.rows["time"][0]))
        if covered and high - low <= 4096:
            part = slice(low, high)
            return self.rows["time"][part], self.rows["value"][part], self.rows["known"][part]
        for level in self._levels:
            rows = level.rows
            reaches = not rows.dropped or (len(rows) and int(rows["time"][0]) <= start_ns)
            if (level.width >= pixel_ns and reaches) or level is self._levels[-1]:
                low, high = _window(rows["time"], start_ns, end_ns)
                time = np.repeat(rows["time"][low:high], 2)
                time[1::2] += level.width
                value = np.repeat(rows["peak"][low:high], 2, axis=0)
                value[1::2] = rows["last"][low:high]
                return time, value, np.repeat(rows["known"][low:high], 2)
        raise AssertionError("a level is always found")

    def at(self, time_ns: int) -> dict[str, int] | None:
        """Bytes by purpose at a moment; None where nothing is known."""
        index = int(np.searchsorted(self.rows["time"], time_ns, side="right")) - 1
        if index < 0 or not self.rows["known"][index]:
            return None
        return {name: int(v) for name, v in zip(PURPOSES, self.rows["value"][index], strict=True) if v}

    def _push(self, times: Array, values: Array) -> None:
        if len(self.rows):  # a late row may not lie before the ones there
            times = np.maximum(times, self.rows["time"][-1])
        times = np.maximum.accumulate(times)
        known = np.full(len(times), self.known)
        self.rows.append({"time": times, "value": values, "known": known}, len(times))
        for level in self._levels:
            level.add(times, values, known)
        self.seen |= (values > 0).any(axis=0)
        self.version += 1


class SampleSeries:
    """Readings of one device; a value that could not be read is NaN."""

    def __init__(self, capacity: int = 20480) -> None:
        self.rows = Columns(capacity, {"time": np.int64, **dict.fromkeys(SAMPLE_FIELDS, np.float64)})

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def append(self, rows: Mapping[str, Array]) -> None:
        self.rows.append(rows, len(rows["time"]))

    def latest(self, name: str, now_ns: int | None = None, max_age_ns: int = 5_000_000_000) -> float | None:
        """The newest reading, None if there is none, it could not be read, or it is older than ``max_age_ns``."""
        if not len(self.rows):
            return None
        value = float(self.rows[name][-1])
        too_old = now_ns is not None and now_ns - int(self.rows["time"][-1]) > max_age_ns
        return None if np.isnan(value) or too_old else value

    def steps(self, name: str, start_ns: int, end_ns: int, hold_ns: int = 3_000_000_000) -> tuple[Array, Array, Array]:
        """(starts, ends, values): each reading until the next one, but no longer than ``hold_ns``; unread ones left
        out."""
        low, high = _window(self.rows["time"], start_ns, end_ns)
        start = self.rows["time"][low:high]
        end = np.minimum(np.append(start[1:], np.iinfo(np.int64).max), start + hold_ns)
        value = self.rows[name][low:high]
        seen = ~np.isnan(value)
        return start[seen], end[seen], value[seen]

    def averages(
        self, name: str, start_ns: int, end_ns: int, hold_ns: int = 3_000_000_000
    ) -> tuple[Array, Array, Array]:
        """(starts, ends, values) of readings that are means over the time since the reading before, at most
        ``hold_ns``; unread ones left out."""
        low, high = _window(self.rows["time"], start_ns, end_ns)
        high = min(high + 1, len(self.rows))
        first = max(low - 1, 0)
        time, value = self.rows["time"][first:high], self.rows[name][first:high]
        if len(time) < 2:
            return time[:0], time[:0], value[:0]
        start, end, value = np.maximum(time[:-1], time[1:] - hold_ns), time[1:], value[1:]
        seen = ~np.isnan(value) & (end > start) & (end > start_ns) & (start < end_ns)
        return start[seen], end[seen], value[seen]

    def ever(self, name: str) -> bool:
        """Whether a value was ever read; looks at the newest rows."""
        return bool(len(self.rows)) and not bool(np.isnan(self.rows[name][-200:]).all())


def _vector(values: Mapping[str, int]) -> Array:
    vector = np.zeros(len(PURPOSES), dtype=np.int64)
    for name, amount in values.items():
        vector[purpose_index(name)] += min(max(int(amount), 0), LARGEST)
    return vector


def _window(times: Array, start_ns: int, end_ns: int) -> tuple[int, int]:
    low = max(0, int(np.searchsorted(times, start_ns, side="right")) - 1)
    return low, max(low, int(np.searchsorted(times, end_ns, side="left")))
