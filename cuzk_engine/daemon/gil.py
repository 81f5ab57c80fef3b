"""How much of the time a process's interpreter lock is held.

While there is work, a thread sleeps in native code, without the lock, wakes at a time that has nothing to do with what
the other threads do, and finds there whether it has to wait for the lock. The share of its looks at which it has to
estimates the share of the time for which other threads hold it, however fast or busy the machine is.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import Final

from cuzk_engine.native import library

_PERIOD_US: Final = (4_000, 16_000)  # at random, so that no regular work is always or never met; a look holds it, too


@dataclass(slots=True)
class GilCounts:
    """Looks at the lock, and those at which it was held. ``ratio`` is of the last report."""

    samples: int = 0
    held: int = 0
    ratio: float = 0.0

    def add(self, samples: int, held: int) -> None:
        self.samples += samples
        self.held += held
        self.ratio = held / samples if samples else 0.0


class GilWatch:
    """Looks from a thread of its own, between ``resume`` and ``pause``; ``take`` gives the looks since the last
    call."""

    def __init__(self) -> None:
        self._samples = 0
        self._held = 0
        self._active = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._look, name="interpreter lock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        self._active.set()

    def pause(self) -> None:
        self._active.clear()

    def stop(self) -> None:
        self._stop.set()
        self._active.set()
        self._thread.join()

    def take(self) -> tuple[int, int]:
        """(looks, those at which the lock was held)."""
        with self._lock:
            taken = self._samples, self._held
            self._samples = self._held = 0
        return taken

    def _look(self) -> None:
        draw, (least, most) = random.Random().random, _PERIOD_US
        has_to_wait = library().has_to_wait
        while self._active.wait() and not self._stop.is_set():
            held = has_to_wait(least + int((most - least) * draw()))
            with self._lock:
                self._samples += 1
                self._held += held
