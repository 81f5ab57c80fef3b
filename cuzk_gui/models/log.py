"""The engine's log: the newest lines, and the end of the log file after a crash."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cuzk_engine.events import LogLine
from cuzk_gui.models import words

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_LEVEL_IN_FILE: Final = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\b")
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_JOB_ID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_UTC_IN_FILE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")
_MACHINE_LINE: Final = "TIMELINE,"  # for scripts that read the log
_CLOCK_IN_FILE: Final = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,3})?")


@dataclass(frozen=True, slots=True)
class LogEntry:
    clock: str
    level: str
    message: str


class LogRing:
    """At most ``capacity`` lines. ``added`` counts all lines ever, so that a view knows what is new."""

    def __init__(self, capacity: int = 5000) -> None:
        self.entries: deque[LogEntry] = deque(maxlen=capacity)
        self.added = 0

    def extend(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self.add(LogEntry(words.clock(line.wall_ns), level_name(line.level), words.plain(line.message, 2000)))

    def add(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self.added += 1

    def newest(self, count: int) -> list[LogEntry]:
        """The last ``count`` entries, oldest first."""
        skip = max(0, len(self.entries) - count)
        return [entry for index, entry in enumerate(self.entries) if index >= skip]


def level_name(text: str) -> str:
    upper = text.upper()
    return {"WARN": "WARNING", "CRITICAL": "ERROR"}.get(upper, upper if upper in LEVELS else "INFO")


def short_ids(text: str) -> str:
    """Job ids by their first eight digits, as the window shows them everywhere; the log file has them whole."""
    return _JOB_ID.sub(r"\1", text)


def passes(entry: LogEntry, least: str) -> bool:
    return LEVELS.index(entry.level) >= LEVELS.index(least)


def tail_of_file(path: str, lines: int = 200, limit: int = 256 * 1024) -> list[LogEntry]:
    """The last lines of a log file, whatever it holds. Raises OSError when it cannot be read; reads at most
    ``limit`` bytes."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - limit))
        data = file.read(limit)
    text = data.decode("utf-8", errors="replace")
    rows = text.splitlines()
    if size > limit:
        rows = rows[1:]
    told = [row for row in rows if row.strip() and not row.startswith(_MACHINE_LINE)]
    return [_entry(row) for row in told[-lines:]]


def _entry(row: str) -> LogEntry:
    row = _ANSI.sub("", row)
    head = row[:80]
    clock = _CLOCK_IN_FILE.search(head)
    level = _LEVEL_IN_FILE.search(head)
    after = max((m.end() for m in (clock, level) if m), default=0)
    utc = _UTC_IN_FILE.match(head)
    return LogEntry(
        _local_clock(utc.group(0)) if utc else clock.group(0).replace(",", ".") if clock else "",
        level_name(level.group(1)) if level else "INFO",
        words.plain(row[after:].lstrip(" :-"), 2000),
    )


def _local_clock(utc: str) -> str:
    """The file counts in UTC, the window in local time."""
    try:
        moment = datetime.fromisoformat(utc)
    except ValueError:
        return ""
    return words.clock(round(moment.timestamp() * 1000) * 1_000_000)
