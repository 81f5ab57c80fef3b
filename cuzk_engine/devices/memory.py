"""Host memory under a ledger: the buffers of the CPU device, and the vectors that a GPU's host threads prepare."""

from __future__ import annotations

from typing import Final

from cuzk_engine.devices.base import Bytes, Owner
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Purpose
from cuzk_engine.native import aligned

HOST: Final = "host"  # the name of the host's memory in events


class HostBuffer:
    """A 64-byte aligned block of uninitialised memory, counted in a ledger until ``free``. Not page-locked."""

    pinned = False

    def __init__(self, ledger: Ledger, grant: Grant, data: Bytes) -> None:
        self._ledger = ledger
        self._grant = grant
        self._data: Bytes | None = data

    @classmethod
    def allocate(
        cls, ledger: Ledger, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None = None
    ) -> HostBuffer:
        """Raises OutOfDeviceMemoryError; nothing is counted then."""
        grant = ledger.take(nbytes, purpose, owner, out_of)
        try:
            data = aligned(nbytes)
        except MemoryError as error:
            ledger.give_back(grant)
            raise OutOfDeviceMemoryError(ledger.device, purpose, nbytes, 0, ledger.capacity) from error
        return cls(ledger, grant, data)

    def __enter__(self) -> HostBuffer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        return self._grant.nbytes

    @property
    def purpose(self) -> Purpose:
        return self._grant.purpose

    @property
    def data(self) -> Bytes:
        """The bytes; raises ValueError once the buffer was freed."""
        if self._data is None:
            raise ValueError(f"use of a freed buffer ({self.purpose})")
        return self._data

    def free(self) -> None:
        self._data = None
        self._ledger.give_back(self._grant)
