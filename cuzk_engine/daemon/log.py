"""The daemon's log: a file of bounded size, rotated; standard error in the foreground; lines for the telemetry stream.

Many messages from one place of the program within a short time are written a few times and then counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cuzk_engine.errors import DaemonError
from cuzk_engine.events import LogLine
from cuzk_engine.paths import ensure_private

LOGGER_NAME: Final = "cuzk"
MAX_FILE_BYTES: Final = 4 << 20
OLD_FILES: Final = 4
_BURST: Final = 20
_WINDOW_SECONDS: Final = 10.0
_MAX_LINE: Final = 4000


@dataclass(slots=True)
class _Repeats:
    """Records of one template in a window."""

    start: float
    count: int = 0
    last: logging.LogRecord | None = None


class Coalescer(logging.Filter):
    """Lets a message's template through ``burst`` times a window, counts the rest, and says the number afterwards."""

    def __init__(
        self, burst: int = _BURST, window: float = _WINDOW_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], _Repeats] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_count", False):
            return True
        key = (record.name, record.levelno, str(record.msg))
        with self._lock:
            repeats = self._seen.setdefault(key, _Repeats(self._clock()))
            repeats.count += 1
            repeats.last = record
            return repeats.count <= self._burst

    def flush(self, logger: logging.Logger) -> None:
        """Ends windows that are over; called now and then."""
        now = self._clock()
        with self._lock:
            over = [key for key, repeats in self._seen.items() if now - repeats.start >= self._window]
            ended = [self._seen.pop(key) for key in over]
        for repeats in ended:
            more = repeats.count - self._burst
            if more > 0 and repeats.last is not None:
                logger.log(
                    repeats.last.levelno,
                    "%d more like this in %.0f s, the last: %s",
                    more,
                    self._window,
                    one_line(repeats.last),
                    extra={"is_count": True},
                )


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO message``, one line, bounded."""

    def format(self, record: logging.LogRecord) -> str:
        if getattr(record, "is_raw", False):
            return record.getMessage()
        return f"{_stamp(record)} {record.levelname} {one_line(record)}"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": _stamp(record), "level": record.levelname, "message": one_line(record)})


class TelemetryHandler(logging.Handler):
    """Gives each record as a LogLine to ``sink``, which must be quick and callable from any thread."""

    def __init__(self, sink: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        # The clocks are read together here; the record's own time is older by what logging took.
        line = LogLine(time.monotonic_ns(), time.time_ns(), record.levelname, one_line(record))
        self._sink(line)


class _QuietFile(logging.handlers.RotatingFileHandler):
    """A full disk must not stop the daemon, nor print a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        self.failed = True


class DaemonLog:
    """Sets the logger up, and takes it down again in ``close``."""

    def __init__(self, folder: Path, *, level: str, form: str, foreground: bool) -> None:
        """Raises DaemonError when the file cannot be opened."""
        self.path = ensure_private(folder) / "daemon.log"
        self.logger = logging.getLogger(LOGGER_NAME)
        self.logger.propagate = False
        self._coalescer = Coalescer()
        self._handlers: list[logging.Handler] = []
        self._foreground = foreground
        self._started_ns = time.monotonic_ns()
        try:
            self._file = _QuietFile(self.path, maxBytes=MAX_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
        except OSError as error:
            raise DaemonError(f"{self.path}: the log cannot be written: {error.strerror or error}") from error
        self._add(self._file)
        if foreground and sys.stderr is not None:
            self._add(logging.StreamHandler(sys.stderr))
        self.logger.addFilter(self._coalescer)
        self.set_form(form)
        self.set_level(level)

    def set_level(self, level: str) -> None:
        self.logger.setLevel(level.upper())

    def set_form(self, form: str) -> None:
        for handler in self._handlers:
            handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())

    def send_to(self, sink: Callable[[LogLine], None]) -> None:
        self._add(TelemetryHandler(sink))

    def tick(self) -> None:
        self._coalescer.flush(self.logger)

    def timeline(self, event: str, job: str, detail: str, time_ns: int | None = None) -> None:
        """A line that operators grep: on standard error in the foreground, in the log file of a detached daemon.

        ``job`` is the caller's text: what would end the line or be obeyed by a terminal becomes "_".
        """
        elapsed = ((time.monotonic_ns() if time_ns is None else time_ns) - self._started_ns) // 10**6
        job = "".join(letter if letter.isprintable() else "_" for letter in job)
        line = f"TIMELINE,{elapsed},{event},{job},{detail}"
        if not self._foreground:
            record = {"msg": line, "levelno": logging.INFO, "levelname": "INFO", "is_raw": True}
            self._file.handle(logging.makeLogRecord(record))
        elif sys.stderr is not None:
            try:
                print(line, file=sys.stderr, flush=True)
            except (OSError, ValueError):
                return

    def close(self) -> None:
        self.logger.removeFilter(self._coalescer)
        for handler in self._handlers:
            self.logger.removeHandler(handler)
            with contextlib.suppress(OSError):  # a full disk: what is left in the buffer is lost
                handler.close()
        self._handlers.clear()
        self.logger.propagate = True

    def _add(self, handler: logging.Handler) -> None:
        self.logger.addHandler(handler)
        self._handlers.append(handler)


def one_line(record: logging.LogRecord) -> str:
    """The message without line breaks, and without what a terminal would obey: messages quote names of files."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(record.getMessage().split()))
    return text if len(text) <= _MAX_LINE else text[:_MAX_LINE] + "…"


def _stamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
