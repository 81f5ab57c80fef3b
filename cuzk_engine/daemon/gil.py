"""How much of the time a process's interpreter lock is held.

While there is work, a thread sleeps in native code, without the lock, wakes at a time that has nothing to do with what
the other threads do, and finds there whether it has to wait for the lock. The share of its looks at which it has to
estimates the share of the time for which other threads hold it, however fast or busy the machine is.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import Final

from cuzk_engine.native import library

_PERIOD_US: Final = (8_000, 32_000)  # at random, so that no regular work is always or never met; a look holds it, too
RECENT: Final = 250  # looks


class GilCounts:
    """Looks at the lock, and those at which it was held. ``ratio`` is of the last reports that have ``RECENT`` looks
    together: five seconds with work."""

    def __init__(self) -> None:
        self.samples = self.held = 0
        self._reports: deque[tuple[int, int]] = deque(maxlen=RECENT)  # of a look at least

    def add(self, samples: int, held: int) -> None:
        self.samples += samples
        self.held += held
        self._reports.append((samples, held))

    @property
    def ratio(self) -> float:
        samples = held = 0
        for more, found in reversed(self._reports):
            samples += more
            held += found
            if samples >= RECENT:
                break
        return held / samples if samples else 0.0


class GilWatch:
    """Looks from a thread of its own, between ``resume`` and ``pause``; ``take`` gives the looks since the last
    call."""

    def __init__(self) -> None:
        self._found: list[bool] = []  # whether it was held, at each look
        self._is_active = self._is_stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._look, name="interpreter lock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def resume(self) -> None:
        if not self._is_active:
            self._is_active = True
            self._wake.set()

    def pause(self) -> None:
        self._is_active = False
        self._wake.clear()

    def stop(self) -> None:
        self._is_stopped, self._is_active = True, False
        self._wake.set()
        self._thread.join()

    def take(self) -> tuple[int, int]:
        """(looks, those at which the lock was held)."""
        taken = self._found[:]
        del self._found[: len(taken)]  # one may come meanwhile
        return len(taken), sum(taken)

    def _look(self) -> None:
        draw, (least, most) = random.Random().random, _PERIOD_US
        has_to_wait, found = library().has_to_wait, self._found.append
        while self._wake.wait() and not self._is_stopped:
            while self._is_active:
                found(has_to_wait(least + int((most - least) * draw())))
