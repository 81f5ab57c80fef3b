"""The part of the time axis that is shown: it follows the present until somebody looks back."""

from __future__ import annotations

from typing import Final

SHORTEST_S: Final = 0.0002
LONGEST_S: Final = 6 * 3600.0
START_WIDTH_S: Final = 12.0


class TimeView:
    """[start, start + width] in seconds since the session's start; following means that it ends at the present."""

    def __init__(self, width: float = START_WIDTH_S) -> None:
        self.width = width
        self.following = True
        self.whole: tuple[float, float] | None = None  # of a recording, which has no present to follow
        self.now = 0.0
        self._start = 0.0
        self.version = 0

    @property
    def start(self) -> float:
        return self.now - self.width if self.following else self._start

    @property
    def end(self) -> float:
        return self.start + self.width

    @property
    def axis_zero(self) -> float:
        """What the axis counts from: the present while following, else the session's start."""
        return self.now if self.following else 0.0

    def set_now(self, now: float) -> None:
        self.now = now

    def follow(self) -> None:
        """Shows the present and stays there; of a recording, shows all of it."""
        if self.whole is not None:
            self.show(*self.whole)
            return
        self.following = True
        self.version += 1

    def pan(self, seconds: float) -> None:
        """Moves the view; following ends. It stops where nothing would be left to see."""
        start = self.start + seconds
        self.following = False
        self._start = min(max(start, -self.width * 0.9), max(self.now - self.width * 0.1, 0.0))
        self.version += 1

    def zoom(self, factor: float, at: float | None = None) -> None:
        """Multiplies the width, ``at`` (seconds) staying where it is; while following the present stays at the
        right edge."""
        width = min(max(self.width * factor, SHORTEST_S), LONGEST_S)
        if not self.following:
            fixed = self.start + self.width / 2 if at is None else at
            self._start = fixed - (fixed - self.start) * (width / self.width)
        self.width = width
        self.version += 1

    def show(self, start: float, end: float) -> None:
        """Shows [start, end]; following ends."""
        self.width = min(max(end - start, SHORTEST_S), LONGEST_S)
        self.following = False
        self._start = start
        self.version += 1


def nice_step(width: float, most: int) -> float:
    """The smallest of 1, 2, 5 × 10^k that divides ``width`` into at most ``most`` parts."""
    step = 10.0 ** _floor_log10(width / max(most, 1))
    for factor in (1, 2, 5, 10):
        if width / (step * factor) <= most:
            return step * factor
    return step * 10


def _floor_log10(value: float) -> int:
    import math

    return math.floor(math.log10(max(value, 1e-12)))
