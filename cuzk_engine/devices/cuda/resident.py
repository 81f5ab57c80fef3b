"""What stays on a device between proofs: points of keys, and their matrices.

A block is known by the host bytes it was made from: a read-only view of a key's file. It goes when the key is forgotten
or when memory is short, no launch uses it and no lease holds it, least recently used first.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from cuzk_engine.devices.base import Buffer, Bytes
from cuzk_engine.errors import OutOfDeviceMemoryError

_KNOWN: Final = 1024  # arrays

Key = tuple[int, int]
"""Address and length of the host bytes."""


@dataclass(eq=False, slots=True)
class Resident:
    """A block, and what was made in it."""

    buffer: Buffer
    value: Any
    source: weakref.ref[Any]
    users: int = 0


class _Known(NamedTuple):
    """An array, its bytes, and the array that they belong to; see `source_of`."""

    data: weakref.ref[Any]
    key: Key
    source: weakref.ref[Any] | None


class Lease:
    """Keeps blocks from being given up, those too that come meanwhile; see the device protocol."""

    def __init__(self, residents: Residents, keys: list[Key], each: list[int]) -> None:
        self._residents, self._keys = residents, keys
        self.each = each

    @property
    def nbytes(self) -> int:
        return sum(self.each)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def release(self) -> None:
        keys, self._keys = self._keys, []
        self._residents._let_go(keys)


def source_of(data: Bytes) -> Any | None:
    """The array that lives as long as ``data``'s bytes stay what they are; None where they may change."""
    owner: Any = data
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return None if data.flags.writeable or owner.flags.writeable else owner


class Use:
    """See `Residents.use`."""

    __slots__ = ("_arguments", "_entry", "_residents")

    def __init__(self, residents: Residents, kind: str, data: Bytes, make: Callable[[], tuple[Buffer, Any]]) -> None:
        self._residents, self._arguments = residents, (kind, data, make)

    def __enter__(self) -> Any | None:
        self._entry = entry = self._residents.acquire(*self._arguments)
        return None if entry is None else entry.value

    def __exit__(self, *exc: object) -> None:
        if self._entry is not None:
            self._residents.let_go(self._entry)


class Residents:
    """The blocks of one device; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: OrderedDict[tuple[str, Key], Resident] = OrderedDict()  # least recently used first
        self._held: dict[Key, int] = {}  # how many leases hold it
        self._sizes: dict[Key, int] = {}  # bytes of the entries that were made from it
        self._known: dict[int, _Known] = {}  # arrays by their identity
        self._some_are_gone = False  # keys, since `purge` looked

    def use(self, kind: str, data: Bytes, make: Callable[[], tuple[Buffer, Any]]) -> Use:
        """The value for ``data``, made by ``make`` where it is not there; None where there is no room for it, or
        where the bytes may change: what an array is asked the first time. It stays for the block."""
        return Use(self, kind, data, make)

    def acquire(self, kind: str, data: Bytes, make: Callable[[], tuple[Buffer, Any]]) -> Resident | None:
        """What `use` begins with."""
        _, bytes_of, owner = self._know(data)
        source = None if owner is None else owner()
        if source is None or bytes_of[1] == 0:
            return None
        key = kind, bytes_of
        with self._lock:
            self.purge()
            entry = self._entries.get(key)
            if entry is not None and entry.source() is source:
                entry.users += 1
                self._entries.move_to_end(key)
                return entry
        try:
            buffer, value = make()
        except OutOfDeviceMemoryError:
            return None
        return self._add(key, Resident(buffer, value, weakref.ref(source, self._notice), users=1))

    def let_go(self, entry: Resident) -> None:
        """What it ends with."""
        with self._lock:
            entry.users -= 1

    def lease(self, sources: Iterable[Bytes]) -> Lease:
        """Holds what was made of these bytes, or will be."""
        keys, held = [self._know(data).key for data in sources], self._held
        with self._lock:
            self.purge()
            for key in keys:
                held[key] = held.get(key, 0) + 1
            each = list(map(self._sizes.get, keys, repeat(0)))
        return Lease(self, keys, each)

    def evict(self, sources: Iterable[Bytes]) -> int:
        """Frees what was made of these bytes, or of parts of them, and nobody uses; returns how many bytes."""
        ranges = [self._know(data).key for data in sources if data.size]
        with self._lock:
            chosen = [
                key
                for key in self._free_ones()
                if any(start <= key[1][0] and sum(key[1]) <= start + size for start, size in ranges)
            ]
            return self.purge() + sum(self._drop(key) for key in chosen if key in self._entries)

    def idle(self) -> int:
        """Bytes that ``reclaim`` could free."""
        with self._lock:
            return sum(self._entries[key].buffer.nbytes for key in self._free_ones())

    def reclaim(self, nbytes: int) -> int:
        """Frees about so many bytes of what nobody uses; returns how many."""
        freed = self.purge()
        with self._lock:
            for key in self._free_ones():
                if freed >= nbytes:
                    break
                freed += self._drop(key)
        return freed

    def clear(self) -> None:
        """Frees all that nobody uses."""
        self.reclaim(1 << 62)

    def _know(self, data: Bytes) -> _Known:
        """Asking an array for its address takes longer than all that is done with it."""
        known = self._known.get(id(data))
        if known is not None and known.data() is data:
            return known
        source = source_of(data)
        key = int(data.ctypes.data), int(data.nbytes)
        known = _Known(weakref.ref(data), key, None if source is None else weakref.ref(source))
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[id(data)] = known
        return known

    def _free_ones(self) -> list[tuple[str, Key]]:
        return [key for key, entry in self._entries.items() if entry.users == 0 and key[1] not in self._held]

    def _let_go(self, keys: list[Key]) -> None:
        with self._lock:
            for key in keys:
                leases = self._held.pop(key) - 1
                if leases:
                    self._held[key] = leases

    def _add(self, key: tuple[str, Key], entry: Resident) -> Resident | None:
        """The entry, or what another thread has made of the same bytes meanwhile. None where what was made of others,
        that are gone, is still in use in its place."""
        with self._lock:
            known = self._entries.get(key)
            if known is not None and known.source() is entry.source():
                entry.buffer.free()
                known.users += 1
                return known
            if known is not None and known.users:
                entry.buffer.free()
                return None
            if known is not None:
                self._drop(key)
            self._entries[key] = entry
            self._sizes[key[1]] = self._sizes.get(key[1], 0) + entry.buffer.nbytes
            return entry

    def purge(self) -> int:
        """Frees what was made from keys that are gone; returns how many bytes."""
        if not self._some_are_gone:
            return 0
        with self._lock:
            self._some_are_gone = False
            gone = [key for key, entry in self._entries.items() if entry.source() is None]
            unused = [key for key in gone if self._entries[key].users == 0]
            if len(unused) < len(gone):  # never back to False: there may have been another notice meanwhile
                self._some_are_gone = True
            return sum(self._drop(key) for key in unused)

    def _notice(self, _: Any) -> None:
        """From wherever the last array of a key went: nothing may be locked here."""
        self._some_are_gone = True

    def _drop(self, key: tuple[str, Key]) -> int:
        entry = self._entries.pop(key)
        nbytes = entry.buffer.nbytes
        left = self._sizes.pop(key[1], 0) - nbytes
        if left:
            self._sizes[key[1]] = left
        entry.value = None
        entry.buffer.free()
        return nbytes
