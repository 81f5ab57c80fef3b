"""Readings of the machine's state, taken now and then. What cannot be read is absent, not zero."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from cuzk_engine.events import Sample


class HostSampler:
    """Readings for the CPU device. Its memory limit is the engine's own account, so that no other program uses it."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._times: tuple[float, float] | None = None  # busy and total seconds at the last reading

    def sample(self, device: str, *, used: int | None, capacity: int | None) -> Sample:
        """``used``: bytes of the device's ledger."""
        return Sample(
            time_ns=self._clock(),
            device=device,
            memory_used=used,
            memory_capacity=capacity,
            utilisation=self._utilisation(),
            clock=_clock_mhz(),
        )

    def _utilisation(self) -> float | None:
        """Share of all cores' time since the last reading; None the first time."""
        try:
            times = psutil.cpu_times()
        except (psutil.Error, OSError):
            return None
        # A guest's time is part of the user's already.
        guests = float(getattr(times, "guest", 0.0)) + float(getattr(times, "guest_nice", 0.0))
        total = float(sum(times)) - guests
        busy = total - float(times.idle) - float(getattr(times, "iowait", 0.0))
        before, self._times = self._times, (busy, total)
        if before is None or total <= before[1]:
            return None
        return min(1.0, max(0.0, (busy - before[0]) / (total - before[1])))


def _clock_mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (psutil.Error, OSError, NotImplementedError):
        return None
    return float(frequency.current) if frequency and frequency.current else None
