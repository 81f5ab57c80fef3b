"""What stays on a device between proofs: points of keys, and their matrices.

A block is known by the host bytes it was made from: a read-only view of a key's file. It goes when the key is forgotten
or when memory is short and no launch uses it, least recently used first.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzk_engine.devices.base import Buffer, Bytes
from cuzk_engine.errors import OutOfDeviceMemoryError

Key = tuple[str, int, int]


@dataclass(eq=False, slots=True)
class _Entry:
    buffer: Buffer
    value: Any
    source: weakref.ref[Any]
    users: int = 0


def source_of(data: Bytes) -> Any | None:
    """The array that lives as long as ``data``'s bytes stay what they are; None where they may change."""
    owner: Any = data
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return None if data.flags.writeable or owner.flags.writeable else owner


class Residents:
    """The blocks of one device; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # least recently used first

    @contextmanager
    def use(self, kind: str, data: Bytes, make: Callable[[], tuple[Buffer, Any]]) -> Iterator[Any | None]:
        """The value for ``data``, made by ``make`` where it is not there; None where there is no room for it, or
        where the bytes may change. It stays for the block."""
        source = source_of(data)
        if source is None or data.size == 0:
            yield None
            return
        key = (kind, int(data.ctypes.data), int(data.nbytes))
        entry = self._find(key, source)
        if entry is None:
            try:
                buffer, value = make()
            except OutOfDeviceMemoryError:
                yield None
                return
            entry = self._add(key, _Entry(buffer, value, weakref.ref(source), users=1))
        try:
            yield entry.value
        finally:
            with self._lock:
                entry.users -= 1

    def reclaim(self, nbytes: int) -> int:
        """Frees about so many bytes of what nobody uses; returns how many."""
        freed = self._purge()
        with self._lock:
            for key, entry in list(self._entries.items()):
                if freed >= nbytes:
                    break
                if entry.users == 0:
                    freed += self._drop(key)
        return freed

    def clear(self) -> None:
        """Frees all that nobody uses."""
        self.reclaim(1 << 62)

    def _find(self, key: Key, source: Any) -> _Entry | None:
        self._purge()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.source() is not source:
                return None
            entry.users += 1
            self._entries.move_to_end(key)
            return entry

    def _add(self, key: Key, entry: _Entry) -> _Entry:
        with self._lock:
            if key in self._entries:
                self._drop(key)
            self._entries[key] = entry
            return entry

    def _purge(self) -> int:
        """Frees what was made from keys that are gone."""
        with self._lock:
            gone = [key for key, entry in self._entries.items() if entry.source() is None and entry.users == 0]
            return sum(self._drop(key) for key in gone)

    def _drop(self, key: Key) -> int:
        entry = self._entries.pop(key)
        entry.value = None
        entry.buffer.free()
        return entry.buffer.nbytes
