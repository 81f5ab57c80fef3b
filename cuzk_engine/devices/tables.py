"""NTT tables that stay on a device between proofs: one a curve and size, given up when memory is short and nobody uses
them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import Buffer, CancelToken, Device, NttTable, Owner, Reservation
from cuzk_engine.events import Purpose

_NOBODY = Owner()  # a table belongs to no job


@dataclass(eq=False, slots=True)
class _Entry:
    buffer: Buffer
    users: int = 0


class TableLease:
    """Keeps a table, where there is one; see `base.Lease`."""

    def __init__(self, nbytes: int, release: Callable[[], None]) -> None:
        self.nbytes = nbytes
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> TableLease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class TableUse:
    """See `TableCache.use`."""

    __slots__ = ("_arguments", "_entry", "_tables")

    def __init__(self, tables: TableCache, *arguments: Any) -> None:
        self._tables, self._arguments = tables, arguments

    def __enter__(self) -> Buffer:
        self._entry = self._tables.acquire(*self._arguments)
        return self._entry.buffer

    def __exit__(self, *exc: object) -> None:
        self._tables.let_go(self._entry)


class TableCache:
    """The tables of one device. ``use`` is called with the compute lock held, since a missing table is computed
    then."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], _Entry] = OrderedDict()  # least recently used first
        device.add_reclaimer(self._reclaim, self._idle)

    def use(self, curve: Curve, log_n: int, room: Reservation | None, owner: Owner, cancel: CancelToken) -> TableUse:
        """The table for size 2^log_n, for which ``room`` has bytes in its held part (None: no room was made).

        A table that is there already gives that room back; a new one takes it along. The table stays for the block.
        """
        return TableUse(self, curve, log_n, room, owner, cancel)

    def acquire(self, curve: Curve, log_n: int, room: Reservation | None, owner: Owner, cancel: CancelToken) -> _Entry:
        """What `use` begins with."""
        key = (curve.id, log_n)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.users += 1
                self._entries.move_to_end(key)
        if entry is None:
            return self._compute(curve, log_n, room, owner, cancel)
        if room is not None:
            room.shrink(entry.buffer.nbytes)
        return entry

    def let_go(self, entry: _Entry) -> None:
        """What it ends with."""
        with self._lock:
            entry.users -= 1

    def clear(self) -> None:
        """Frees all tables that nobody uses."""
        self._reclaim(1 << 62)

    def _compute(self, curve: Curve, log_n: int, room: Reservation | None, owner: Owner, cancel: CancelToken) -> _Entry:
        nbytes = self._device.table_bytes(curve, log_n)
        buffer = self._device.allocate(nbytes, Purpose.NTT, _NOBODY, out_of=room)
        try:
            self._device.launch(NttTable(curve, log_n, buffer), owner, cancel)
        except BaseException:
            buffer.free()
            raise
        entry = _Entry(buffer, users=1)
        with self._lock:
            self._entries[curve.id, log_n] = entry
        return entry

    def lease(self, curve: Curve, log_n: int) -> TableLease:
        """Keeps the table that is there, if one is."""
        with self._lock:
            entry = self._entries.get((curve.id, log_n))
            if entry is None:
                return TableLease(0, lambda: None)
            entry.users += 1

        def release() -> None:
            with self._lock:
                entry.users -= 1

        return TableLease(entry.buffer.nbytes, release)

    def _idle(self) -> int:
        with self._lock:
            return sum(entry.buffer.nbytes for entry in self._entries.values() if entry.users == 0)

    def _reclaim(self, nbytes: int) -> int:
        freed = 0
        with self._lock:
            for key, entry in list(self._entries.items()):
                if freed >= nbytes:
                    break
                if entry.users == 0:
                    del self._entries[key]
                    entry.buffer.free()
                    freed += entry.buffer.nbytes
        return freed
