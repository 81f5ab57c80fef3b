"""The most memory that was in use, by purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cuzk_engine.events import Allocation


@dataclass(slots=True)
class Peak:
    """``bytes`` at the moment when a device's sum was largest, and what it was made of."""

    bytes: int = 0
    time_ns: int = 0
    by_purpose: dict[str, int] = field(default_factory=dict)


class PeakMeter:
    """Adds up allocations, in the order in which they are given; those before ``since_ns`` change only what is in use.

    ``peaks``: device → peak; ``most``: (device, purpose) → the most of that purpose alone."""

    def __init__(self, since_ns: int = 0) -> None:
        self.peaks: dict[str, Peak] = {}
        self.most: dict[tuple[str, str], int] = {}
        self._since = since_ns
        self._looked = False
        self._used: dict[tuple[str, str], int] = {}
        self._sums: dict[str, int] = {}

    def start(self, ledger: Mapping[tuple[str, str], int]) -> None:
        """What is in use before the allocations that follow."""
        self._used = dict(ledger)
        self._sums = {}
        for (device, _), nbytes in ledger.items():
            self._sums[device] = self._sums.get(device, 0) + nbytes

    def add(self, allocations: Iterable[Allocation]) -> None:
        for row in allocations:
            if row.time_ns >= self._since and not self._looked:
                self.look()
            key = (row.device, row.purpose)
            self._used[key] = self._used.get(key, 0) + row.delta
            self._sums[row.device] = self._sums.get(row.device, 0) + row.delta
            if row.delta > 0 and row.time_ns >= self._since:
                self._look(row.device, row.purpose, row.time_ns)

    def look(self) -> None:
        """What is in use now counts, whether or not it changes."""
        self._looked = True
        for device, purpose in self._used:
            self._look(device, purpose, self._since)

    def _look(self, device: str, purpose: str, time_ns: int) -> None:
        key = (device, purpose)
        self.most[key] = max(self.most.get(key, 0), self._used[key])
        peak = self.peaks.setdefault(device, Peak())
        if self._sums[device] > peak.bytes:
            peak.bytes, peak.time_ns = self._sums[device], time_ns
            peak.by_purpose = {name: n for (of, name), n in self._used.items() if of == device and n}
