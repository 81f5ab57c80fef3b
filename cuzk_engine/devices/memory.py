"""Memory that a ledger granted; and the host's: the CPU device's buffers, and what a GPU's host threads prepare."""

from __future__ import annotations

import threading
from typing import Final, Self

from cuzk_engine.devices.base import Bytes, Owner
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Purpose
from cuzk_engine.native import aligned

HOST: Final = "host"  # the name of the host's memory in events


class GrantedBuffer:
    """Memory that a ledger granted, until ``free``; a context manager that frees."""

    _grant: Grant
    nbytes: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    @property
    def purpose(self) -> Purpose:
        return self._grant.purpose

    @property
    def owner(self) -> Owner:
        return self._grant.owner

    def free(self) -> None:
        """Gives the memory back; calling it twice does nothing."""
        raise NotImplementedError


class Spare:
    """The block that was used last, for the next use: of what is needed again and again, by one user at a time. Without
    it workers' threads touch a block in each of malloc's heaps, and it stays resident until the heaps are trimmed.
    Blocks beyond ``most`` bytes are not kept. What is kept is counted in no ledger."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._block: Bytes | None = None

    def take(self, nbytes: int) -> Bytes:
        """At least ``nbytes``, uninitialised. Raises MemoryError."""
        with self._lock:
            block, self._block = self._block, None
        if block is None or block.size < nbytes:
            block = None  # gone before there is a larger one
            block = aligned(nbytes)
        return block

    def put(self, block: Bytes) -> None:
        """Nothing may use it any more."""
        with self._lock:
            if block.size <= self._most and (self._block is None or self._block.size < block.size):
                self._block = block


class HostBuffer(GrantedBuffer):
    """A 64-byte aligned block of uninitialised memory, counted in a ledger until ``free``. Not page-locked."""

    pinned = False

    def __init__(self, ledger: Ledger, grant: Grant, block: Bytes, spare: Spare | None = None) -> None:
        self._grant, self.nbytes = grant, grant.nbytes
        self._ledger = ledger
        self._block: Bytes | None = block
        self._spare = spare

    @classmethod
    def allocate(
        cls,
        ledger: Ledger,
        nbytes: int,
        purpose: Purpose,
        owner: Owner,
        out_of: Reservation | None = None,
        spare: Spare | None = None,
    ) -> HostBuffer:
        """``spare``: where the memory comes from and goes to. Raises OutOfDeviceMemoryError; nothing is counted
        then."""
        grant = ledger.take(nbytes, purpose, owner, out_of)
        try:
            block = aligned(nbytes) if spare is None else spare.take(nbytes)
        except MemoryError as error:
            ledger.give_back(grant)
            raise OutOfDeviceMemoryError(ledger.device, purpose, nbytes, 0, ledger.capacity) from error
        return cls(ledger, grant, block, spare)

    @property
    def data(self) -> Bytes:
        """The bytes; raises ValueError once the buffer was freed."""
        if self._block is None:
            raise ValueError(f"use of a freed buffer ({self.purpose})")
        return self._block[: self.nbytes]

    def free(self) -> None:
        block, self._block = self._block, None
        if block is not None and self._spare is not None:
            self._spare.put(block)
        del block
        self._ledger.give_back(self._grant)
