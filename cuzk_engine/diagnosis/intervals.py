"""Sets of time as arrays: n rows of [start, end), int64 nanoseconds, sorted, disjoint, not touching, not empty.

``normalise`` makes one of any rows; all other functions take and give sets of that form.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

IntervalSet = npt.NDArray[np.int64]

EMPTY: Final[IntervalSet] = np.empty((0, 2), np.int64)
EMPTY.flags.writeable = False


def normalise(start: npt.ArrayLike, end: npt.ArrayLike) -> IntervalSet:
    """The union of the rows [start[i], end[i]); rows that end before they start count for nothing."""
    starts, ends = np.asarray(start, np.int64).ravel(), np.asarray(end, np.int64).ravel()
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.append(True, starts[1:] > reach[:-1])  # a row that neither overlaps nor touches what was before
    last = np.append(first[1:], True)
    return np.column_stack((starts[first], reach[last]))


def union(*sets: IntervalSet) -> IntervalSet:
    if not sets:
        return EMPTY
    rows = np.concatenate(sets)
    return normalise(rows[:, 0], rows[:, 1])


def intersection(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    if not len(a) or not len(b):
        return EMPTY
    _, pieces = clipped(a[:, 0], a[:, 1], b)
    return pieces[np.argsort(pieces[:, 0], kind="stable")]


def complement(a: IntervalSet, start: int, end: int) -> IntervalSet:
    """What of [start, end) is not in ``a``."""
    inside = clip(a, start, end)
    starts = np.append(np.int64(start), inside[:, 1])
    ends = np.append(inside[:, 0], np.int64(end))
    kept = ends > starts
    return np.column_stack((starts[kept], ends[kept]))


def difference(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    if not len(a) or not len(b):
        return a
    return intersection(a, complement(b, int(a[0, 0]), int(a[-1, 1])))


def clip(a: IntervalSet, start: int, end: int) -> IntervalSet:
    """What of ``a`` lies in [start, end)."""
    if not len(a):
        return EMPTY
    low, high = np.maximum(a[:, 0], start), np.minimum(a[:, 1], end)
    kept = high > low
    return np.column_stack((low[kept], high[kept]))


def total(a: IntervalSet) -> int:
    """Nanoseconds in all."""
    return int((a[:, 1] - a[:, 0]).sum())


def covers(a: IntervalSet, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which of ``times`` lie in the set."""
    moments = np.asarray(times, np.int64)
    if not len(a):
        return np.zeros(moments.shape, np.bool_)
    found = np.searchsorted(a[:, 0], moments, side="right") - 1
    inside: npt.NDArray[np.bool_] = (found >= 0) & (moments < a[np.maximum(found, 0), 1])
    return inside


def clipped(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], a: IntervalSet
) -> tuple[npt.NDArray[np.intp], IntervalSet]:
    """Every piece of the rows [start[i], end[i]) that lies in ``a``: the rows' numbers, and the pieces themselves.

    The rows may overlap; the pieces of one row come in order.
    """
    first = np.searchsorted(a[:, 1], start, side="right")
    last = np.searchsorted(a[:, 0], end, side="left")
    count = np.maximum(last - first, 0)
    rows: npt.NDArray[np.intp] = np.repeat(np.arange(len(start)), count)
    # 0, 1, 2, … within each row
    inner: Any = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    parts = a[first[rows] + inner]
    pieces = np.column_stack((np.maximum(start[rows], parts[:, 0]), np.minimum(end[rows], parts[:, 1])))
    kept = pieces[:, 1] > pieces[:, 0]
    return rows[kept], pieces[kept]
