"""Termination as an exception, so that half-written files are removed on the way out."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the block, and then the process, with exit code 143; SIGINT raises KeyboardInterrupt as ever."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """For what must not be left half done and takes a moment: the first SIGINT or SIGTERM in the block comes too late,
    a second one is obeyed."""
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1 and callable(before[number]):
            before[number](number, frame)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.getsignal(number)
            signal.signal(number, note)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
