"""What sums are written to on a device: rows of its own, since a result is small and each proof needs two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cuzk_engine.devices.cuda.memory import CudaBuffer
from cuzk_engine.devices.cuda.results import ROW_BYTES

ROWS: Final = 8  # of proofs that are made at a time; others take memory of their own
ALL_BYTES: Final = ROWS * ROW_BYTES


class ResultRow(CudaBuffer):
    """A row until ``free``: what uses it stands behind what used it before."""

    def __init__(self, rows: list[CudaBuffer], before: CudaBuffer, address: int) -> None:
        super().__init__(before._memory, before._grant, address, before._home, before.last)
        self._rows, self._where, self.reads = rows, before._where, before.reads

    def free(self) -> None:
        address = self.__dict__.pop("address", None)
        if address is not None:
            self._rows.append(ResultRow(self._rows, self, address))


class ResultRows:
    """Made of ``blocks`` of ROW_BYTES, which stay. Any thread may call."""

    def __init__(self, blocks: Iterable[CudaBuffer]) -> None:
        self._free: list[CudaBuffer] = []
        self._free += [ResultRow(self._free, block, block.address) for block in blocks]

    def take(self, nbytes: int) -> CudaBuffer | None:
        """A row, where one is free and large enough."""
        if nbytes > ROW_BYTES:
            return None
        try:
            return self._free.pop()
        except IndexError:
            return None
