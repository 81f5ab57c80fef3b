"""Bounded columnar storage: named numpy columns allocated once, oldest rows dropped when full, always readable as
plain slices."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_LARGE: Final = 1 << 20


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Zeros that take memory and time only as they are written. numpy asks for huge pages where an array is large; to
    clear one takes as long as a part of a frame may, and the first row of a track begins dozens of them."""
    count = math.prod(shape)
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes < _LARGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, count).reshape(shape)


class Columns:
    """Rows of equal length columns, at most ``capacity`` of them.

    The arrays are a quarter longer than the capacity; when they are full the newest rows move to the front in one
    copy, so every
    column is one contiguous slice and the cost of a row stays constant.
    """

    def __init__(self, capacity: int, dtypes: Mapping[str, Any]) -> None:
        self.capacity = capacity
        self._physical = capacity + max(capacity // 4, 16)
        self._arrays = {
            name: zeros((self._physical, *shape), dtype)
            for name, (dtype, shape) in ((n, d if isinstance(d, tuple) else (d, ())) for n, d in dtypes.items())
        }
        self._start = 0
        self._end = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._end - self._start

    def __getitem__(self, name: str) -> Array:
        """The live rows of a column, oldest first; a view."""
        return self._arrays[name][self._start : self._end]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def append(self, rows: Mapping[str, Any], count: int) -> None:
        """Adds ``count`` rows; ``rows`` names every column. More rows than the capacity: the newest are kept."""
        if count <= 0:
            return
        skip = max(0, count - self.capacity)
        count -= skip
        self.dropped += skip
        if self._end + count > self._physical:
            keep = min(len(self), self.capacity - count)
            self.dropped += len(self) - keep
            for array in self._arrays.values():
                array[:keep] = array[self._end - keep : self._end].copy()
            self._start, self._end = 0, keep
        for name, array in self._arrays.items():
            value = rows[name]
            array[self._end : self._end + count] = value[skip:] if skip and np.ndim(value) else value
        self._end += count
        if len(self) > self.capacity:
            self.dropped += len(self) - self.capacity
            self._start = self._end - self.capacity

    def reorder_tail(self, begin: int, order: Array) -> None:
        """Permutes the rows from ``begin`` on."""
        for name in self._arrays:
            tail = self[name][begin:]
            tail[:] = tail[order]

    def keep_of_tail(self, begin: int, kept: Array) -> None:
        """Drops the rows from ``begin`` on but those at ``kept``, ascending, counted from there."""
        for name in self._arrays:
            tail = self[name][begin:]
            tail[: len(kept)] = tail[kept]
        self._end = self._start + begin + len(kept)

    def clear(self) -> None:
        self._start = self._end = 0
