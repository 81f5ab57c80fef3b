"""What the window's timer does: a part at each of its turns, so that what the user does waits for a part only."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

Part = Callable[[], object]
_SLOW_S: Final = 0.25  # between two rounds of what moves with time only


class Turns:
    """``frame``: the parts of a frame, one after another. ``slow``: the parts of what moves with time only, one for
    each frame, until the round is over."""

    def __init__(self, frame: Sequence[Part], slow: Callable[[], Sequence[Part]]) -> None:
        self._frame = (*frame, self._slow_part)
        self._slow = slow
        self._at = 0
        self._soon: deque[Part] = deque()
        self._round: deque[Part] = deque()
        self._next_round = 0.0

    def soon(self, *parts: Part) -> None:
        """Each in a turn of its own, before anything else."""
        self._soon.extend(parts)

    def restart(self) -> None:
        """Something else is shown: what was to come is of no use any more, and a new round begins."""
        self._soon.clear()
        self._round.clear()
        self._next_round = 0.0

    def take(self) -> None:
        """The next turn."""
        if self._soon:
            self._soon.popleft()()
            return
        part = self._frame[self._at]
        self._at = (self._at + 1) % len(self._frame)
        part()

    def take_all(self) -> None:
        """All that is due, at once."""
        while self._soon:
            self._soon.popleft()()
        for part in self._frame:
            part()
        while self._round:
            self._round.popleft()()

    def _slow_part(self) -> None:
        if not self._round and time.monotonic() >= self._next_round:
            self._next_round = time.monotonic() + _SLOW_S
            self._round.extend(self._slow())
        if self._round:
            self._round.popleft()()
