"""The last of what was sent, within bounds.

As bytes a batch takes a third of what it takes as a message. The bytes lie one after another in blocks of pages, each
of which goes with its last batch: batches are of all sizes and are kept for minutes, and kept one by one in the heap,
among what lives for a moment, they would leave holes everywhere. What is known of a batch lies before it and counts as
its own bytes: an idle engine sends small ones for hours.

Each block has with it the sums that its owner had reached before its first batch. So they are known before any batch by
reading one block at most, however long the past is.
"""

from __future__ import annotations

import mmap
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

BLOCK_BYTES: Final = 256 << 10
_HEAD: Final = struct.Struct("<qII")  # when it was sent, bytes, events
HEAD_BYTES: Final = _HEAD.size

T = TypeVar("T")  # an owner's sums


class _Block(Generic[T]):
    """Pages of its own: appended to at the end, dropped from at the start. What was dropped can be read for as long as
    the block is there."""

    __slots__ = ("_end", "_pages", "_start", "last_ns", "sums")

    def __init__(self, nbytes: int, sums: T) -> None:
        self._pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = self._end = 0
        self.last_ns = 0
        self.sums = sums

    def has_room(self, nbytes: int) -> bool:
        return self._end + nbytes <= len(self._pages)

    def append(self, time_ns: int, data: bytes, events: int) -> None:
        _HEAD.pack_into(self._pages, self._end, time_ns, len(data), events)
        start = self._end + HEAD_BYTES
        self._end = start + len(data)
        self._pages[start : self._end] = data
        self.last_ns = time_ns

    def drop_first(self) -> tuple[int, int, int]:
        """When it was sent, the bytes that it took, its events."""
        time_ns, nbytes, events = _HEAD.unpack_from(self._pages, self._start)
        self._start += HEAD_BYTES + nbytes
        return time_ns, HEAD_BYTES + nbytes, events

    @property
    def is_empty(self) -> bool:
        return self._start == self._end

    def since(self, time_ns: int) -> tuple[int, int]:
        """Where the batches lie that were sent since then."""
        start = self._start
        while start < self._end:
            sent_ns, nbytes, _ = _HEAD.unpack_from(self._pages, start)
            if sent_ns >= time_ns:
                break
            start += HEAD_BYTES + nbytes
        return start, self._end

    def read(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            _, nbytes, _ = _HEAD.unpack_from(self._pages, start)
            start += HEAD_BYTES + nbytes
            yield self._pages[start - nbytes : start]

    def time_at(self, start: int) -> int:
        """When the batch there was sent."""
        time_ns, _, _ = _HEAD.unpack_from(self._pages, start)
        return int(time_ns)


class Stretch(Generic[T]):
    """Batches of the past, oldest first, read where they lie, from any thread: a copy of all would be as large as the
    past. They stay there until they are taken, whatever is dropped meanwhile."""

    def __init__(self, parts: Iterable[tuple[_Block[T], int, int]]) -> None:
        self._parts = deque(parts)

    @property
    def first_ns(self) -> int | None:
        """When the first of them was sent; None where there is none."""
        if not self._parts:
            return None
        block, start, _ = self._parts[0]
        return block.time_at(start)

    def lead(self) -> tuple[T, Iterator[bytes]] | None:
        """The sums as they were at the beginning of a block, and the batches from then to the first of the stretch.
        None where there is none."""
        if not self._parts:
            return None
        block, start, _ = self._parts[0]
        return block.sums, block.read(0, start)

    def __iter__(self) -> Iterator[bytes]:
        for block, start, end in self._parts:
            yield from block.read(start, end)

    def take(self) -> Iterator[bytes]:
        """Each of them once."""
        while self._parts:
            block, start, end = self._parts.popleft()
            yield from block.read(start, end)


class Past(Generic[T]):
    """At most ``most_events`` and ``most_bytes``, but the last batch in any case. Times do not fall. ``sums`` gives the
    owner's sums as they are before the batch that is appended; it is asked once a block."""

    def __init__(self, most_events: int, most_bytes: int, sums: Callable[[], T]) -> None:
        self._most_events, self._most_bytes, self._sums = most_events, most_bytes, sums
        self._blocks: deque[_Block[T]] = deque()
        self._batches = 0
        self.bytes = 0
        self.events = 0
        self.dropped_until_ns = 0  # when the last batch was sent that is not here any more

    def append(self, time_ns: int, data: bytes, events: int) -> None:
        nbytes = HEAD_BYTES + len(data)
        if not (self._blocks and self._blocks[-1].has_room(nbytes)):
            self._blocks.append(_Block(max(BLOCK_BYTES, nbytes), self._sums()))
        self._blocks[-1].append(time_ns, data, events)
        self.events += events
        self.bytes += nbytes
        self._batches += 1
        while self._batches > 1 and (self.events > self._most_events or self.bytes > self._most_bytes):
            self._drop_first()

    def since(self, time_ns: int) -> Stretch[T]:
        """What was sent since then."""
        return Stretch((block, *block.since(time_ns)) for block in self._blocks if block.last_ns >= time_ns)

    def _drop_first(self) -> None:
        first = self._blocks[0]
        self.dropped_until_ns, nbytes, events = first.drop_first()
        self._batches -= 1
        self.bytes -= nbytes
        self.events -= events
        if first.is_empty:
            self._blocks.popleft()
