"""Spreads telemetry: a bounded past, and a bounded queue for each reader. One thread (the event loop) uses it.

Batches travel as they came, in columns; nothing is decoded but the allocations, whose sum is the ledger that a new
reader starts from. A reader that is too slow loses whole batches and is told how many events they held.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final

from cuzk_engine.events import Allocation, EventBatch
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import count_events, decode_allocations, encode_events
from cuzk_engine.telemetry.past import Past, Stretch

MAX_PAST_EVENTS: Final = 200_000
MAX_PAST_BYTES: Final = 8 << 20  # what is reached first by all that engines send, so that the size is always the same
MAX_QUEUED_EVENTS: Final = 50_000
MAX_QUEUED_BATCHES: Final = 2_000

Ledger = dict[tuple[str, str], int]


class Reader:
    """One stream's queue. ``batch`` waits for the next batch."""

    def __init__(self, max_events: int, max_batches: int) -> None:
        self._max_events = max_events
        self._max_batches = max_batches
        self._queue: deque[tuple[pb.TelemetryBatch, int]] = deque()
        self._events = 0
        self._dropped = 0
        self._filled = asyncio.Event()

    @property
    def dropped(self) -> int:
        """Events lost since the last batch that was taken."""
        return self._dropped

    def put(self, batch: pb.TelemetryBatch, events: int) -> None:
        if self._events + events > self._max_events or len(self._queue) >= self._max_batches:
            self._dropped += max(1, events)
            return
        self._queue.append((batch, events))
        self._events += events
        self._filled.set()

    async def batch(self) -> pb.TelemetryBatch:
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        batch, events = self._queue.popleft()
        self._events -= events
        if self._dropped:
            marked = pb.TelemetryBatch()
            marked.CopyFrom(batch)  # the batch itself is shared with other readers
            marked.dropped += self._dropped
            self._dropped = 0
            return marked
        return batch


class Hub:
    """``publish`` takes a batch; ``subscribe`` gives a reader and the batches of the past that it asked for."""

    def __init__(
        self,
        *,
        max_past_events: int = MAX_PAST_EVENTS,
        max_queued_events: int = MAX_QUEUED_EVENTS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._max_queued_events = max_queued_events
        self._clock = clock
        self._past: Past[Ledger] = Past(max_past_events, MAX_PAST_BYTES, self._in_use)
        self._readers: set[Reader] = set()
        self._ledger: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.sent_ns = 0  # when the last batch was sent

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def past_events(self) -> int:
        return self._past.events

    @property
    def past_bytes(self) -> int:
        return self._past.bytes

    @property
    def past_since_ns(self) -> int:
        """From then on all is kept; 0: nothing was dropped yet."""
        return self._past.dropped_until_ns

    def memory(self, device: str) -> int:
        """Bytes in use on a device, as its allocations add up."""
        return sum(nbytes for (name, _), nbytes in self._ledger.items() if name == device)

    def by_purpose(self, device: str) -> dict[str, int]:
        """The same by purpose."""
        return {purpose: nbytes for (name, purpose), nbytes in self._ledger.items() if name == device and nbytes}

    def past(self, since_ns: int) -> Iterator[pb.TelemetryBatch]:
        """Batches that were sent since then and until now, oldest first; any thread may read them."""
        return map(pb.TelemetryBatch.FromString, self._past.since(since_ns))

    def publish(self, batch: pb.TelemetryBatch) -> None:
        """Stamps the batch and gives it to every reader. Raises ValueError for columns that do not fit together."""
        allocations = _allocations(batch)
        self.sent_ns = self._clock()
        stamp(batch, self.sent_ns)
        events = count_events(batch)
        self._past.append(batch.time_ns, batch.SerializeToString(), events)
        for allocation in allocations:
            self._ledger[allocation.device, allocation.purpose] += allocation.delta
        for reader in self._readers:
            reader.put(batch, events)

    def subscribe(self, history_ns: int) -> tuple[Reader, Stretch[Ledger], Ledger]:
        """A reader; the batches of the last ``history_ns``, as bytes; and the ledger as it was before those."""
        history = self._past.since(self._clock() - history_ns) if history_ns > 0 else Stretch[Ledger](())
        lead = history.lead()
        before = defaultdict(int, self._ledger if lead is None else lead[0])
        for batch in map(pb.TelemetryBatch.FromString, () if lead is None else lead[1]):
            for allocation in _allocations(batch):
                before[allocation.device, allocation.purpose] += allocation.delta
        reader = Reader(self._max_queued_events, MAX_QUEUED_BATCHES)
        self._readers.add(reader)
        return reader, history, {key: nbytes for key, nbytes in before.items() if nbytes}

    def unsubscribe(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def forget_device(self, device: str) -> None:
        """A device process has gone and with it all that it held: publishes the allocations that say so."""
        now = self._clock()
        gone = [
            Allocation(now, device, -nbytes, purpose)
            for (name, purpose), nbytes in self._ledger.items()
            if name == device and nbytes
        ]
        if gone:
            batch = EventBatch.empty()
            batch.allocations.extend(gone)
            self.publish(encode_events(batch))

    def _in_use(self) -> Ledger:
        return {key: nbytes for key, nbytes in self._ledger.items() if nbytes}


def _allocations(batch: pb.TelemetryBatch) -> list[Allocation]:
    return decode_allocations(batch.allocations, list(batch.strings)) if batch.HasField("allocations") else []


def stamp(batch: pb.TelemetryBatch, now_ns: int) -> None:
    """The moment of sending, on both clocks."""
    batch.time_ns = now_ns
    batch.wall_ns = time.time_ns()
