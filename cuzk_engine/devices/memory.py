"""Memory that a ledger granted; and the host's: the CPU device's buffers, and what a GPU's host threads prepare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Self

from cuzk_engine.devices.base import Bytes, Owner
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Purpose
from cuzk_engine.native import aligned

HOST: Final = "host"  # the name of the host's memory in events


class GrantedBuffer(ABC):
    """Memory that a ledger granted, until ``free``; a context manager that frees."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __enter__(self) -> Self:
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
    def owner(self) -> Owner:
        return self._grant.owner

    @abstractmethod
    def free(self) -> None:
        """Gives the memory back; calling it twice does nothing."""


class HostBuffer(GrantedBuffer):
    """A 64-byte aligned block of uninitialised memory, counted in a ledger until ``free``. Not page-locked."""

    pinned = False

    def __init__(self, ledger: Ledger, grant: Grant, data: Bytes) -> None:
        super().__init__(grant)
        self._ledger = ledger
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

    @property
    def data(self) -> Bytes:
        """The bytes; raises ValueError once the buffer was freed."""
        if self._data is None:
            raise ValueError(f"use of a freed buffer ({self.purpose})")
        return self._data

    def free(self) -> None:
        self._data = None
        self._ledger.give_back(self._grant)
