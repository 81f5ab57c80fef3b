"""How far the partitions of a device process are. A phase lasts a millisecond or minutes; short ones nobody reads."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from cuzk_engine.daemon.channel import BlockingChannel
from cuzk_engine.daemon.records import PartitionState
from cuzk_engine.daemon.runtime import Order

_FIRST: Final = PartitionState.SYNTHESIZING


class Report:
    """The progress of one partition; called by the thread that proves."""

    __slots__ = ("_order", "_preparing", "_reports", "fraction", "is_new", "phase")

    def __init__(self, reports: Reports, order: Order) -> None:
        self._reports, self._order = reports, order
        self._preparing = True
        self.phase, self.fraction, self.is_new = "", 0.0, False

    def __enter__(self) -> Report:
        self._reports.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._reports.remove(self)

    def __call__(self, phase: str, fraction: float) -> None:
        if self._preparing and phase != self.phase and _FIRST.after(phase) is not _FIRST:
            self._preparing = False
            self.phase, self.fraction = phase, fraction
            self._reports.tell(self)  # another one may be waiting to be prepared
            return
        self.phase, self.fraction, self.is_new = phase, fraction, True

    @property
    def message(self) -> dict[str, object]:
        order = self._order
        return {
            "type": "progress",
            "job": order.job,
            "partition": order.partition,
            "phase": self.phase,
            "fraction": self.fraction,
        }


class Reports:
    """Of all partitions that run. The supervisor hears at once when one has been prepared, of all else with `send`, and
    of none that has ended."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._running: list[Report] = []

    def of(self, order: Order) -> Report:
        """Runs for the block."""
        return Report(self, order)

    def add(self, report: Report) -> None:
        with self._lock:
            self._running.append(report)

    def remove(self, report: Report) -> None:
        with self._lock:
            self._running.remove(report)

    def send(self) -> None:
        """Tells of each where it has come to since it was told last; raises OSError when the supervisor has gone."""
        with self._lock:
            for report in self._running:
                if report.is_new:
                    report.is_new = False
                    self._channel.send(report.message)

    def tell(self, report: Report) -> None:
        """At once."""
        with self._lock, contextlib.suppress(OSError):
            report.is_new = False
            self._channel.send(report.message)
