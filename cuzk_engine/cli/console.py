"""What commands print: results on standard output, a progress line on standard error, and nothing when nobody
listens."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import IO, Any, Final

from cuzk_engine.errors import CuzkError

_WIDTH: Final = 30


class OutputError(CuzkError):
    """What was asked for was found or done, but cannot be printed."""


def say(text: str) -> None:
    """Prints a line of results. A closed output or a reader that has gone is no error: the exit code still tells.

    Raises OutputError when it cannot be written, as to a full disk.
    """
    if sys.stdout is None:
        return
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # a terminal or a pipe that is set to less than UTF-8
            print(text.encode("ascii", "backslashreplace").decode(), flush=True)
    except OSError as error:
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            text = (error.strerror or str(error)).lower()
            raise OutputError(f"standard output cannot be written: {text}") from error


def say_json(document: Any) -> None:
    """Prints one JSON document."""
    say(json.dumps(document, indent=1, ensure_ascii=True))


class ProgressLine:
    """One line with a bar, redrawn in place. Draws only where ``stream`` is a terminal; ``clear`` leaves no trace."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._started = time.monotonic()
        self._drawn = 0

    @property
    def visible(self) -> bool:
        return self._stream is not None

    def draw(self, phase: str, fraction: float) -> None:
        filled = round(_WIDTH * min(1.0, max(0.0, fraction)))
        bar = "█" * filled + "·" * (_WIDTH - filled)
        seconds = time.monotonic() - self._started
        line = f"{bar} {100 * fraction:3.0f} %  {phase}  {seconds:.1f} s"
        self._put("\r" + line.ljust(self._drawn))
        self._drawn = len(line)

    def clear(self) -> None:
        if self._drawn:
            self._put("\r" + " " * self._drawn + "\r")
            self._drawn = 0

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeEncodeError):
            self._stream = None
