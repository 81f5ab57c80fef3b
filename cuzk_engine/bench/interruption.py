"""Ctrl-C and SIGTERM as a request that is looked at, not as an exception that can strike anywhere: what was changed in
an engine is put back, whenever the signal comes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

_PATIENCE: Final = 3  # the signal from which on nothing is waited for any more


class InterruptedRunError(Exception):
    """The run was asked to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


class Interruption:
    """A context manager: within it the first SIGINT or SIGTERM asks the run to end, a second changes nothing, and the
    third ends the process at once. To be entered by the main thread."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._count = 0
        self._callbacks: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Whoever starts a program with a signal ignored, as a shell does in the background, means it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises InterruptedRunError when the run was asked to end."""
        if self.number is not None:
            raise InterruptedRunError(self.number)

    @contextlib.contextmanager
    def calls(self, callback: Callable[[], None]) -> Iterator[None]:
        """``callback`` is called when the request comes, at once when it has come; within a signal handler, so it may
        take no lock."""
        self._callbacks.append(callback)
        if self.number is not None:
            callback()
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count >= _PATIENCE:
            os._exit(128 + number)
        if self.number is None:
            self.number = number
            for callback in list(self._callbacks):
                callback()
