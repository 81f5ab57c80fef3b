"""When a device's process is started again, and when nothing should wait for that any more."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 60.0  # seconds of starts that fail: want of files, of memory or of a free card passes
_LEAST_FAILURES: Final = 3
_FIRST_PAUSE: Final = 0.2
_MOST_PAUSE: Final = 15.0
_FAILED_PAUSE: Final = 5.0
_STEADY: Final = 10.0  # a process that lived this long starts the pauses anew


class Restarts:
    """Told of every end of the process; times in seconds on a clock that nobody sets."""

    def __init__(self) -> None:
        self._failures = 0
        self._failing_since = 0.0
        self._next = _FIRST_PAUSE
        self.pause = 0.0
        self.is_hopeless = False

    def ended(self, started: float, now: float, *, was_ready: bool, is_final: bool = False) -> None:
        """``is_final``: it refused to start, for a reason that waiting does not cure."""
        if was_ready:
            self._failures = 0
            if now - started > _STEADY:
                self._next = _FIRST_PAUSE
        else:
            if not self._failures:
                self._failing_since = now
            self._failures += 1
        is_over = self._failures >= _LEAST_FAILURES and now - self._failing_since >= PATIENCE
        self.is_hopeless = not was_ready and (is_final or is_over)
        if self.is_hopeless:
            self._next = max(self._next, _FAILED_PAUSE)
        self.pause = self._next
        self._next = min(_MOST_PAUSE, self._next * 2)
