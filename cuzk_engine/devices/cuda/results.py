"""Results of sums on their way to the host: rows of page-locked memory that the device copies them into behind each
sum, so that nobody has to ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from cuzk_engine.devices.base import StagingBuffer
from cuzk_engine.devices.cuda.moments import Moment
from cuzk_engine.errors import OutOfDeviceMemoryError

ROW_BYTES: Final = 192  # the largest result: a point in G2 of BLS12-381
_ROWS: Final = 64  # that are fetched or not yet read at a time; others are downloaded


class Row:
    """Its place serves again when nobody knows this object any more: who launches a copy into it keeps it until that is
    over."""

    __slots__ = ("_free", "_number", "address", "view")

    def __init__(self, free: list[int], number: int, address: int, view: memoryview) -> None:
        self._free, self._number, self.address, self.view = free, number, address, view

    def __del__(self) -> None:
        self._free.append(self._number)


class Fetched:
    """``nbytes`` of a result that are in ``row`` when ``there`` has happened."""

    __slots__ = ("nbytes", "row", "there")

    def __init__(self, row: Row, nbytes: int, there: Moment) -> None:
        self.row, self.nbytes, self.there = row, nbytes, there

    def read(self, nbytes: int) -> bytes:
        return bytes(self.row.view[:nbytes])


class Rows:
    """Of one device. ``staging`` gives page-locked memory that stays until ``close``. Any thread may call."""

    def __init__(self, staging: Callable[[int], StagingBuffer]) -> None:
        self._staging = staging
        self._lock = threading.Lock()
        self._block: StagingBuffer | None = None
        self._places: list[tuple[int, memoryview]] = []  # addresses and bytes of the rows; none where they are pageable
        self._free = list(range(_ROWS))

    def take(self, nbytes: int) -> Row | None:
        """None where there is none that the device could write to behind its other work."""
        if self._block is None:
            self._make()
        if nbytes > ROW_BYTES or not self._places:
            return None
        try:
            number = self._free.pop()
        except IndexError:
            return None
        return Row(self._free, number, *self._places[number])

    def close(self) -> None:
        """Nothing may be on its way any more."""
        with self._lock:
            block, self._block, self._places = self._block, None, []
        if block is not None:
            block.free()

    def _make(self) -> None:
        with self._lock:
            if self._block is not None:
                return
            try:
                block = self._staging(_ROWS * ROW_BYTES)
            except OutOfDeviceMemoryError:  # the host's memory is needed for more than that
                return
            if block.pinned:
                data, address = memoryview(block.data.data), int(block.data.ctypes.data)
                starts = range(0, _ROWS * ROW_BYTES, ROW_BYTES)
                self._places = [(address + start, data[start : start + ROW_BYTES]) for start in starts]
            self._block = block
