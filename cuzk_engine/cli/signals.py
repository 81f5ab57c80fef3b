"""Interruption and termination for the time of a block: as an exception, so that half-written files are removed on the
way out, too late, or told to somebody."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_LATE: Final = (*_ENDING, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def handled(handler: Handler, numbers: Sequence[signal.Signals] = _ENDING) -> Iterator[None]:
    """Signals of these numbers go to ``handler`` for the time of the block."""
    before: dict[signal.Signals, Any] = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def terminable() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP (the terminal has gone) end the block, and then the process, with exit code 143 or 129; SIGINT
    raises KeyboardInterrupt as ever. A SIGHUP that is ignored, as under nohup, still is."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return handled(_terminate, (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP))


def held_back() -> contextlib.AbstractContextManager[None]:
    """For what must not be left half done and takes a moment: the first SIGINT, SIGTERM or SIGHUP in the block comes
    too late, a second one is obeyed."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _LATE}

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        obey = before[signal.Signals(number)]
        if len(came) > 1 and callable(obey):
            obey(number, frame)

    return handled(note, _LATE)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
