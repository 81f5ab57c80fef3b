"""Spans of one lane of one device: exact rows, and shares of time in buckets of coarser and coarser width. Gaps of a
device are kept the same way, with the number of their cause in the place of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cuzk_gui.models.columns import Array, Columns
from cuzk_gui.models.levels import LEVEL_BUCKETS, Buckets, Levels

EXACT_LIMIT: Final = 8192  # more exact rows than this in view and the coarser levels are drawn

_SPAN_DTYPES: Final = {
    "start": np.int64,
    "end": np.int64,
    "reach": np.int64,  # running maximum of "end": finds the first row that can be in view
    "group": np.int8,
    "kind": np.int32,
    "job": np.int32,
    "partition": np.int32,
    "worker": np.int32,
    "bytes": np.int64,
    "pinned": np.int8,
}


@dataclass(slots=True)
class SpanRows:
    """Spans of one lane as columns; ``kind`` and ``job`` index the intern tables of the session."""

    start: Array
    end: Array
    group: Array
    kind: Array
    job: Array
    partition: Array
    worker: Array
    bytes: Array
    pinned: Array

    def __len__(self) -> int:
        return len(self.start)


class SpanTrack:
    """Spans of a lane in order of their start, at most ``capacity`` exactly, and six coarser levels."""

    def __init__(self, capacity: int, buckets: int = LEVEL_BUCKETS) -> None:
        self.rows = Columns(capacity, _SPAN_DTYPES)
        self._levels = Levels(buckets)
        self.levels = self._levels.levels
        self.version = 0
        self.newest_end = -1
        self.resume_end = -1  # spans up to here were seen before the stream was lost

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self._levels.nbytes

    def append(self, new: SpanRows) -> None:
        if not len(new):
            return
        values = {name: getattr(new, name) for name in _SPAN_DTYPES if name != "reach"}
        values["end"] = np.maximum(new.end, new.start)
        previous = int(self.rows["start"][-1]) if len(self.rows) else None
        self.rows.append({**values, "reach": values["end"]}, len(new))
        self._restore_order(len(new), previous)
        self._levels.add(values["start"], values["end"], values["group"], values["bytes"])
        self.newest_end = max(self.newest_end, int(values["end"].max()))
        self.version += 1

    def window(self, start_ns: int, end_ns: int) -> slice:
        """The exact rows that can touch [start, end); some rows at its beginning may not."""
        low = int(np.searchsorted(self.rows["reach"], start_ns, side="right"))
        high = int(np.searchsorted(self.rows["start"], end_ns, side="left"))
        return slice(low, max(low, high))

    def exact_covers(self, start_ns: int) -> bool:
        """Whether no row that reaches past ``start_ns`` has been dropped."""
        return not self.rows.dropped or (len(self.rows) > 0 and start_ns >= int(self.rows["start"][0]))

    def crowded(self, part: slice, pixel_ns: float, width: float) -> bool:
        """Whether exact rows would claim more than they are: more of them than pixels, and shorter ones."""
        count = part.stop - part.start
        if count <= width:
            return False
        return float((self.rows["end"][part] - self.rows["start"][part]).mean()) < pixel_ns / 2

    def level_for(self, start_ns: int, pixel_ns: float) -> Buckets:
        """The level whose buckets are at least a pixel wide and which reaches back far enough, else the coarsest."""
        for level in self.levels:
            if (
                level.width >= pixel_ns
                and level.first is not None
                and (level.first * level.width <= start_ns or level.last - level.first + 1 < level.size)
            ):
                return level
        return self.levels[-1]

    def at(self, time_ns: int, tolerance_ns: int) -> int | None:
        """Index of the shortest span at ``time_ns``, or the nearest one within the tolerance."""
        rows = self.window(time_ns - tolerance_ns, time_ns + tolerance_ns + 1)
        start, end = self.rows["start"][rows], self.rows["end"][rows]
        if not len(start):
            return None
        outside = np.maximum(np.maximum(start - time_ns, time_ns - end), 0)
        if int(outside.min()) > tolerance_ns:
            return None
        candidates = np.flatnonzero(outside == outside.min())
        return rows.start + int(candidates[np.argmin((end - start)[candidates])])

    def _restore_order(self, added: int, previous: int | None) -> None:
        start = self.rows["start"]
        begin = max(0, len(start) - added)
        fresh = start[begin:]
        lowest = int(fresh.min())
        if previous is not None and lowest < previous:
            begin = int(np.searchsorted(start[:begin], lowest, side="right"))
        if begin < len(start) - 1 and (np.diff(start[begin:]) < 0).any():
            self.rows.reorder_tail(begin, np.argsort(start[begin:], kind="stable"))
        reach, end = self.rows["reach"], self.rows["end"]
        reach[begin:] = np.maximum.accumulate(end[begin:])
        if begin:
            np.maximum(reach[begin:], reach[begin - 1], out=reach[begin:])
