"""How far the partitions of a device process are. A phase lasts a millisecond or minutes; short ones nobody reads."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from cuzk_engine.daemon.channel import BlockingChannel
from cuzk_engine.daemon.records import PartitionState
from cuzk_engine.daemon.runtime import Order, Progress

_FIRST: Final = PartitionState.SYNTHESIZING
_SECONDS: Final = 0.1  # between two reports of a partition


class Report:
    """The progress of one partition; a block in which the thread that proves calls what it gives."""

    __slots__ = ("_order", "_preparing", "_reports", "due", "fraction", "is_new", "phase")

    def __init__(self, reports: Reports, order: Order) -> None:
        self._reports, self._order = reports, order
        self._preparing = True
        self.phase, self.fraction, self.is_new = "", 0.0, False
        self.due = time.monotonic() + _SECONDS  # that it has begun is known

    def __enter__(self) -> Progress:
        self._reports.running.append(self)
        return self._note

    def __exit__(self, *exc: object) -> None:
        self._reports.ended(self)

    def _note(self, phase: str, fraction: float) -> None:
        if self._preparing and phase != self.phase and _FIRST.after(phase) is not _FIRST:
            self._preparing = False
            self.phase, self.fraction = phase, fraction
            self._reports.tell(self)  # another one may be waiting to be prepared
            return
        self.phase, self.fraction, self.is_new = phase, fraction, True

    def row(self, now: float) -> tuple[str, int, str, float]:
        """As it is told, now."""
        self.is_new, self.due = False, now + _SECONDS
        return self._order.job, self._order.partition, self.phase, self.fraction


class Reports:
    """Of all partitions that run. The supervisor hears at once when one has been prepared, of all else with `send`, and
    of none that has ended: one message, whose ``parts`` are (job, partition, phase, share) each."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self.running: list[Report] = []

    def of(self, order: Order) -> Report:
        """Runs for the block."""
        return Report(self, order)

    def ended(self, report: Report) -> None:
        with self._lock:
            self.running.remove(report)

    def send(self) -> None:
        """Tells where each has come to that was not told of just now; raises OSError when the supervisor has gone."""
        now = time.monotonic()
        with self._lock:
            rows = [report.row(now) for report in self.running if report.is_new and report.due <= now]
            if rows:
                self._channel.send({"type": "progress", "parts": rows})

    def tell(self, report: Report) -> None:
        """At once."""
        with self._lock, contextlib.suppress(OSError):
            self._channel.send({"type": "progress", "parts": [report.row(time.monotonic())]})
