"""Results of sums on their way to the host: rows of page-locked memory that the device copies them into behind each
sum, so that nobody has to ask for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from cupy.cuda import runtime

from cuzk_engine.devices.base import StagingBuffer
from cuzk_engine.devices.cuda.moments import Moment
from cuzk_engine.errors import CuzkError, OutOfDeviceMemoryError

ROW_BYTES: Final = 192  # the largest result: a point in G2 of BLS12-381
_ROWS: Final = 64  # that are fetched or not yet read at a time; others are downloaded


class Row:
    """For ``nbytes`` of a result. Who launches the copy into it says that they come from ``source`` and are in it when
    ``there`` has happened, and keeps it until then: its place serves again when nobody knows this object any more."""

    __slots__ = ("_free", "_number", "address", "nbytes", "source", "there", "view")

    source: int
    there: Moment

    def __init__(self, free: list[int], number: int, nbytes: int, address: int, view: memoryview) -> None:
        self._free, self._number, self.nbytes, self.address, self.view = free, number, nbytes, address, view

    def __del__(self) -> None:
        self._free.append(self._number)

    def read(self, nbytes: int) -> bytes:
        return bytes(self.view[:nbytes])


class Rows:
    """Of one device, as long as it is open. ``staging`` gives their page-locked memory, once: where it is refused or
    pageable there are none. ``guard`` makes the device the current one. Any thread may call."""

    def __init__(self, guard: AbstractContextManager[None], staging: Callable[[int], StagingBuffer]) -> None:
        self._guard = guard
        self._block: StagingBuffer | None = None
        self._places: list[tuple[int, memoryview]] = []  # addresses and bytes of the rows
        self._free: list[int] = []
        with contextlib.suppress(OutOfDeviceMemoryError):  # the host's memory is needed for more than that
            self._block = staging(_ROWS * ROW_BYTES)
        if self._block is not None and self._block.pinned:
            block = self._block.data
            data, address = memoryview(block.data), int(block.ctypes.data)
            starts = range(0, _ROWS * ROW_BYTES, ROW_BYTES)
            self._places = [(address + start, data[start : start + ROW_BYTES]) for start in starts]
            self._free = list(range(_ROWS))

    def take(self, nbytes: int) -> Row | None:
        """None where there is none that the device could write to behind its other work."""
        if nbytes > ROW_BYTES:
            return None
        try:
            number = self._free.pop()
        except IndexError:
            return None
        return Row(self._free, number, nbytes, *self._places[number])

    def close(self) -> None:
        """Waits until nothing is on its way to them any more."""
        with contextlib.suppress(CuzkError), self._guard:  # a lost device writes to no row
            runtime.deviceSynchronize()
        block, self._block, self._places, self._free = self._block, None, [], []
        if block is not None:
            block.free()
