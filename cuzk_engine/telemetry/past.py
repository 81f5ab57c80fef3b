"""The last of what was sent, within bounds.

As bytes a batch takes a third of what it takes as a message. The bytes lie one after another in blocks of pages, each
of which goes with its last batch: batches are of all sizes and are kept for minutes, and kept one by one in the heap,
among what lives for a moment, they would leave holes everywhere.
"""

from __future__ import annotations

import mmap
from collections import deque
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES: Final = 256 << 10
_MOST_BATCHES: Final = 100_000


class _Block:
    """Pages of its own to append to."""

    __slots__ = ("_pages", "_used")

    def __init__(self, nbytes: int) -> None:
        self._pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._used = 0

    def has_room(self, nbytes: int) -> bool:
        return self._used + nbytes <= len(self._pages)

    def append(self, data: bytes) -> int:
        """Where it starts."""
        start, self._used = self._used, self._used + len(data)
        self._pages[start : self._used] = data
        return start

    def read(self, start: int, nbytes: int) -> bytes:
        return self._pages[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class _Batch:
    time_ns: int
    block: _Block
    start: int
    nbytes: int
    events: int


class Past:
    """At most ``most_events`` and ``most_bytes``, but the last batch in any case."""

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self._most_events, self._most_bytes = most_events, most_bytes
        self._batches: deque[_Batch] = deque()
        self._block = _Block(BLOCK_BYTES)
        self._bytes = 0
        self.events = 0
        self.dropped_until_ns = 0  # when the last batch was sent that is not here any more

    def append(self, time_ns: int, data: bytes, events: int) -> None:
        nbytes = len(data)
        if not self._block.has_room(nbytes):
            self._block = _Block(max(BLOCK_BYTES, nbytes))
        self._batches.append(_Batch(time_ns, self._block, self._block.append(data), nbytes, events))
        self.events += events
        self._bytes += nbytes
        while len(self._batches) > 1 and self._is_too_much():
            old = self._batches.popleft()
            self.events -= old.events
            self.dropped_until_ns = old.time_ns
            self._bytes -= old.nbytes

    def since(self, time_ns: int) -> list[bytes]:
        """What was sent since then, oldest first."""
        return [one.block.read(one.start, one.nbytes) for one in self._batches if one.time_ns >= time_ns]

    def _is_too_much(self) -> bool:
        return self.events > self._most_events or self._bytes > self._most_bytes or len(self._batches) > _MOST_BATCHES
