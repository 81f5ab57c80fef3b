"""Log lines of a device process: it tells them to the supervisor as events, which writes them into the daemon's log.

They are bounded where they are made: what repeats is told a few times and then counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from cuzk_engine.daemon.log import Coalescer, TelemetryHandler
from cuzk_engine.events import LogLine

_PACKAGE: Final = "cuzk_engine"
MOST_LINES: Final = 200  # of one batch: a process that says more at once says nothing more


class DeviceLog:
    """The device process's side: what the engine logs in it, from INFO on, goes to ``sink``. The lines of libraries do
    not: what they quote is not known."""

    def __init__(self, sink: Callable[[LogLine], None]) -> None:
        self._logger = logging.getLogger(_PACKAGE)
        self._coalescer = Coalescer()
        self._handler = TelemetryHandler(sink)
        self._handler.addFilter(self._coalescer)
        self._logger.addHandler(self._handler)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False

    def tick(self) -> None:
        """Tells how often something was repeated; called now and then."""
        self._coalescer.flush(self._logger)

    def close(self) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = True


def write_lines(logger: logging.Logger, device: str, lines: Iterable[LogLine]) -> None:
    """The supervisor's side: the lines at their levels and times, with the device's name where they do not begin with
    it."""
    for number, line in enumerate(lines):
        if number == MOST_LINES:
            logger.warning("device %s: more lines in its log than can be kept", device)
            return
        level = logging.getLevelNamesMapping().get(line.level, logging.INFO)
        if not logger.isEnabledFor(level):
            continue
        name = "" if line.message.startswith(f"{device}:") else f"device {device}: "
        record = logger.makeRecord(
            logger.name, level, "", 0, "%s%s", (name, line.message), None, extra={"is_bounded": True}
        )
        record.created, record.msecs = line.wall_ns / 1e9, line.wall_ns // 10**6 % 1000
        logger.handle(record)
