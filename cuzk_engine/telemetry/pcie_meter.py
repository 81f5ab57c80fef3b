"""Bytes a second over PCIe from two 32-bit counters that wrap within a tenth of a second at full rate.

The difference of two readings is taken modulo 2^32, and only where the link cannot have carried more between them.
What was missed is missing: a rate is given when most of its time was covered, else None.
"""

from __future__ import annotations

import time
from typing import Final

from cuzk_engine.nvml import Counters

_WRAP: Final = 1 << 32
_SAFE: Final = 0.95  # of the time in which a counter can wrap
_PERIOD: Final = 0.35
_SHORTEST, _LONGEST = 0.010, 0.050  # seconds between two polls
_COVERED: Final = 0.5


class PcieMeter:
    """``link_bytes``: most bytes a second in one direction."""

    def __init__(self, link_bytes: float) -> None:
        self._longest_ns = int(_SAFE * _WRAP / link_bytes * 1e9)
        self.period = min(_LONGEST, max(_SHORTEST, _PERIOD * _WRAP / link_bytes))
        self.counts = True  # whether the last reading was one
        self._last: Counters | None = None
        self._rx = self._tx = self._covered_ns = 0
        self._since_ns = time.monotonic_ns()

    def add(self, now: Counters | None) -> None:
        """A reading; None: there was none."""
        last, self._last = self._last, now
        self.counts = now is not None
        if last is None or now is None:
            return
        if now.ended_ns - last.began_ns > self._longest_ns:
            return
        self._rx += (now.rx - last.rx) % _WRAP
        self._tx += (now.tx - last.tx) % _WRAP
        self._covered_ns += (now.began_ns + now.ended_ns - last.began_ns - last.ended_ns) // 2

    def rates(self) -> tuple[float | None, float | None]:
        """Received and sent bytes a second since the last call."""
        now = self._last.ended_ns if self._last is not None else time.monotonic_ns()
        span, self._since_ns = now - self._since_ns, now
        rx, tx, covered = self._rx, self._tx, self._covered_ns
        self._rx = self._tx = self._covered_ns = 0
        if covered <= 0 or covered < _COVERED * span:
            return None, None
        return rx * 1e9 / covered, tx * 1e9 / covered
