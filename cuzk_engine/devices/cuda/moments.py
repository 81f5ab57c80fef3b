"""Events that are used again and again: making one takes as long as a launch, and CuPy keeps the interpreter's lock for
it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy

from cuzk_engine.devices.cuda import driver


class Moment:
    """The end of some work: to be waited for, by streams and by threads, which sleep meanwhile. Its event is used again
    when nobody knows this object any more; a stream that was told to wait for it before that waits for what was
    recorded then."""

    __slots__ = ("_spare", "event", "over", "ptr")

    def __init__(self, spare: list[Any], made: list[Any]) -> None:
        try:
            event = spare.pop()
        except IndexError:
            event = cupy.cuda.Event(block=True)
            made.append(event)
        self.event, self.ptr, self._spare = event, event.ptr, spare
        self.over = False  # it is known to have happened

    def __del__(self) -> None:
        self._spare.append(self.event)

    def record(self, stream: Any) -> None:
        driver.record(self.ptr, stream.ptr)

    def synchronize(self) -> None:
        """Without the interpreter's lock."""
        if not self.over:
            self.event.synchronize()
            self.over = True

    @property
    def done(self) -> bool:
        if not self.over:
            self.over = driver.is_over(self.ptr)
        return self.over


class Marks:
    """Events that are timed together, and go back to ``spare`` when their times are known."""

    __slots__ = ("events", "handles", "spare")

    def __init__(self, count: int, spare: list[Marks]) -> None:
        self.spare = spare
        self.events = [cupy.cuda.Event() for _ in range(count)]
        self.handles: tuple[int, ...] = tuple(event.ptr for event in self.events)

    def begin(self, stream: Any) -> None:
        """The first one is recorded."""
        driver.record(self.handles[0], stream.ptr)


class Moments:
    """Of one device, which must be the current one. Any thread may call."""

    def __init__(self) -> None:
        # All there are: one that only a moment knew would be destroyed along with it where the two are collected as
        # garbage, as after a fault whose traceback refers to itself, though the moment has given it back.
        self._made: list[Any] = []
        self._spare: list[Any] = []
        self._marks: dict[int, list[Marks]] = {}
        self.end: Callable[[], Moment] = partial(Moment, self._spare, self._made)

    def marks(self, count: int) -> Marks:
        try:
            return self._marks[count].pop()
        except (KeyError, IndexError):  # there are none, or another thread was faster
            return Marks(count, self._marks.setdefault(count, []))

    def give_back(self, marks: Marks) -> None:
        """Nobody reads their times or waits for them any more."""
        marks.spare.append(marks)
