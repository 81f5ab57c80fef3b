"""Where the MSMs of a proof run: a few under way at a time, so that one is reduced while the next one fills the card.

Each launch takes a *slot*, the memory of one MSM, in turn: what comes next in a slot stands behind what runs in it. And
it takes a *place*, streams of one priority: those that were launched earlier fill the card first, and what they leave
free goes to the later ones. Places start again when nothing is under way.

    slot    0 1 0 1 0      memory, counted until its MSM is known to be over
    place   0 1 2 3 4      priority falls
"""

from __future__ import annotations

import threading
from typing import Any, Final

import cupy

from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.msm import Streams
from cuzk_engine.events import Purpose

PARALLEL: Final = 2
"""MSMs under way at a time."""
PLACES: Final = 5  # the MSMs of a proof
HIGHEST: Final = -5  # CUDA takes a priority out of its range as the nearest one in it


class Place:
    """Streams of an MSM. ``stream``: what it starts with and what joins it."""

    def __init__(self, number: int) -> None:
        # Sorts and reductions are short, and others wait for them: first everywhere.
        self.streams = Streams(HIGHEST, HIGHEST + 1 + number)
        self.stream: Any = self.streams.front
        self.handle: int = self.stream.ptr
        self.handles = self.streams.handles(self.stream)


class Slot:
    """The memory of one MSM at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._stream: Any = cupy.cuda.Stream(non_blocking=True)
        self._there = cupy.cuda.Event(disable_timing=True)  # behind the allocation of the scratch
        self.buffers: list[CudaBuffer] = []  # the MSM's own
        self.last: Any = None  # the end of what was launched
        self.taken = False

    @property
    def is_over(self) -> bool:
        return not self.taken and (self.last is None or bool(self.last.done))

    def scratch(self, nbytes: int, owner: Owner) -> CudaBuffer:
        self.buffers.append(block := self._memory.scratch(nbytes, Purpose.MSM, owner, self._stream, self._there))
        return block

    def keep(self, buffer: CudaBuffer) -> None:
        """It is the MSM's alone, and goes with it."""
        self.buffers.append(buffer)

    def give_back(self) -> None:
        for buffer in self.buffers:
            buffer.free()
        self.buffers.clear()


class Slots:
    """The slots and places of one device; the device must be the current one. Any thread may call."""

    def __init__(self, memory: Memory, parallel: int = PARALLEL) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._slots = [Slot(memory) for _ in range(parallel)]
        self._places = [Place(k) for k in range(PLACES if parallel > 1 else 1)]
        self._turn = self._place = 0

    def take(self) -> tuple[Slot, Place]:
        """The slot and the place of the next launch, until `put`. Waits for another thread's launch in that slot."""
        with self._lock:
            while (slot := self._slots[self._turn]).taken:
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
            slots, places = self._slots, self._places
            for one in slots:
                if not one.is_over:
                    break
            else:
                self._turn = self._place = 0
                slot = slots[0]
            place = places[self._place]
            self._turn = (self._turn + 1) % len(slots)
            self._place = (self._place + 1) % len(places)
            slot.taken = True
            if slot.buffers:
                slot.give_back()  # what comes stands behind what was there
        return slot, place

    def put(self, slot: Slot) -> None:
        """Everything is enqueued that runs in it, or was."""
        with self._lock:
            slot.taken = False
            if self._waiting:
                self._changed.notify_all()

    def reap(self) -> None:
        """Gives the memory of MSMs that are over back."""
        with self._lock:
            for slot in self._slots:
                if slot.buffers and slot.is_over:
                    slot.give_back()

    def settle(self) -> None:
        """The same after waiting for all of them, and for all that is fetched behind them: a slot knows only its last
        one, whose place is another one than those of the ones before."""
        for place in self._places:
            place.stream.synchronize()
        self.reap()

    def abandon(self) -> None:
        """Counts the memory as given back: the device is gone."""
        with self._lock:
            for slot in self._slots:
                slot.last = None
                slot.give_back()
