"""Gaps of a device. A running engine tells of a long one in steps: those are one gap to whoever looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from cuzk_gui.models.levels import LEVEL_BUCKETS
from cuzk_gui.models.tracks import SpanRows, SpanTrack

_LENGTH: Final = " without a kernel: "  # what the engine begins the evidence of a gap with: of that step alone
_MOST_SAID: Final = 2000


class GapTrack(SpanTrack):
    """A row whose beginning is the end of the one before, with the same cause, is joined to it; a step is told when
    nothing was under way, so it ends where the next begins, to the nanosecond. ``text``: evidence by its number."""

    def __init__(self, capacity: int, buckets: int = LEVEL_BUCKETS, text: Callable[[int], str] = str) -> None:
        super().__init__(capacity, buckets)
        self._text = text
        self._said: dict[int, str] = {}  # beginning of a joined gap → its evidence

    def append(self, new: SpanRows) -> None:
        super().append(new)
        if len(new):
            self._join(max(0, len(self.rows) - len(new) - 1))

    def evidence(self, index: int) -> str:
        """What the engine said of a gap."""
        said = self._said.get(int(self.rows["start"][index]))
        return self._text(int(self.rows["kind"][index])) if said is None else said

    def _join(self, begin: int) -> None:
        """Of the rows from ``begin`` on each run becomes its last one, which knows what ended it."""
        start, end, cause = (self.rows[name][begin:] for name in ("start", "end", "group"))
        touches = (start[1:] == end[:-1]) & (cause[1:] == cause[:-1])
        if not touches.any():
            return
        first = np.append(0, np.flatnonzero(~touches) + 1)
        last = np.append(first[1:], len(start)) - 1
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            if high > low:
                self._said[int(start[low])] = _together(self.evidence(begin + i) for i in range(low, high + 1))
        while len(self._said) > _MOST_SAID:
            del self._said[next(iter(self._said))]
        start[last] = start[first]
        self.rows.keep_of_tail(begin, last)


def _together(texts: Iterable[str]) -> str:
    """Without the length of each step, and each statement once."""
    said = (part for text in texts for part in (text.partition(_LENGTH)[2] or text).split("; "))
    return "; ".join(dict.fromkeys(said))
