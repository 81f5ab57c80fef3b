"""How busy a device was in a stretch of time, and why it was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cuzk_engine.events import Lane
from cuzk_gui.models.causes import CAUSES
from cuzk_gui.models.columns import Array
from cuzk_gui.models.session import DeviceTimeline, Session
from cuzk_gui.models.tracks import SpanTrack

MINUTE_NS: Final = 60_000_000_000
_MOST_ROWS: Final = 60_000
_JUDGED_NS: Final = 8_000_000_000  # kernels are told of when they have ended, gaps a little later


@dataclass(frozen=True, slots=True)
class Idle:
    """Gaps of one cause together; ``gaps`` 0 where only their time is known."""

    cause: str
    ns: int
    gaps: int


@dataclass(frozen=True, slots=True)
class Load:
    """A stretch of time of one device, nanoseconds. ``measured``: the part of it for which anything is known;
    ``kernels`` and ``lock``: None where that lane has never had a span. ``copying``: copies ran and no kernel."""

    measured: int
    kernels: int | None
    lock: int | None
    copying: int  # 0 also where there is too much to look at
    idle: tuple[Idle, ...]  # most time first

    @property
    def explained(self) -> int:
        return sum(row.ns for row in self.idle)

    @property
    def unexplained(self) -> int:
        """Time without a kernel that no gap accounts for: too short to be judged, or not judged yet."""
        return max(0, self.measured - (self.kernels or 0) - self.explained)

    def share(self, ns: int) -> float:
        return ns / self.measured if self.measured else 0.0


def load(session: Session, timeline: DeviceTimeline, start_ns: int, end_ns: int) -> Load:
    """Of [start, end); of a running engine not from before the device's first kernel: until then it was not idle, but
    unused. A recording has a beginning, from which on its diagnosis counts."""
    compute = timeline.tracks.get(Lane.COMPUTE.value)
    if not session.recorded and compute is not None and len(compute.rows) and not compute.rows.dropped:
        start_ns = max(start_ns, min(int(compute.rows["start"][0]), end_ns))
    lock = timeline.tracks.get(Lane.LOCK.value)
    kernels = busy_ns(compute, start_ns, end_ns) if compute else None
    return Load(
        measured_ns(session, start_ns, end_ns),
        kernels,
        busy_ns(lock, start_ns, end_ns) if lock else None,
        _only_copying(timeline, start_ns, end_ns),
        idle_by_cause(timeline.gaps, start_ns, end_ns),
    )


def last_minute(session: Session, timeline: DeviceTimeline) -> tuple[int, int]:
    """[from, to): the last minute, less where the session is younger. It ends where the engine has judged gaps, which
    it does a little later than they happen, so that what is new does not count as unexplained."""
    end = session.latest_ns
    compute = timeline.tracks.get(Lane.COMPUTE.value)
    if len(timeline.gaps.rows):
        known = max(timeline.gaps.newest_end, compute.newest_end if compute else 0)
        end = min(end, max(known, end - _JUDGED_NS))
    return max(end - MINUTE_NS, session.origin_ns or 0), end


def shown_stretch(session: Session, start_ns: int, end_ns: int) -> tuple[int, int]:
    """[from, to): the part of what is shown that has happened."""
    start = max(start_ns, session.origin_ns or 0)
    return start, max(start, min(end_ns, session.latest_ns))


def measured_ns(session: Session, start_ns: int, end_ns: int) -> int:
    """The part of [start, end) during which the engine could be heard."""
    lost = sum(max(0, min(b, end_ns) - max(a, start_ns)) for a, b in session.outages)
    return max(0, end_ns - max(start_ns, session.origin_ns or 0) - lost)


def busy_ns(track: SpanTrack, start_ns: int, end_ns: int) -> int:
    """Nanoseconds of [start, end) with a span: the union, so that overlapping spans count once. Where exact rows do not
    reach back so far or are too many, from the levels, as a sum."""
    if end_ns <= start_ns:
        return 0
    part = track.window(start_ns, end_ns)
    if not track.exact_covers(start_ns) or part.stop - part.start > _MOST_ROWS:
        level = track.level_for(start_ns, (end_ns - start_ns) / 4096)
        starts, busy, _ = level.view(start_ns, end_ns)
        inside = (starts >= start_ns) & (starts + level.width <= end_ns)
        return min(int(busy[inside].sum()), end_ns - start_ns)
    return _union(*_clipped([track], start_ns, end_ns))


def idle_by_cause(gaps: SpanTrack, start_ns: int, end_ns: int) -> tuple[Idle, ...]:
    if not gaps.exact_covers(start_ns):
        level = gaps.level_for(start_ns, (end_ns - start_ns) / 4096)
        starts, idle, _ = level.view(start_ns, end_ns)
        inside = (starts >= start_ns) & (starts + level.width <= end_ns)
        sums = idle[inside].sum(axis=0, dtype=np.float64)
        return _largest_first([Idle(cause, int(sums[i]), 0) for i, cause in enumerate(CAUSES) if sums[i] >= 1])
    start, end, part = _gap_rows(gaps, start_ns, end_ns)
    cause = gaps.rows["group"][part].astype(np.int64)
    length = np.maximum(end - start, 0)
    there = length > 0
    ns = np.bincount(cause[there], length[there], len(CAUSES))
    count = np.bincount(cause[there], minlength=len(CAUSES))
    return _largest_first([Idle(CAUSES[i], int(ns[i]), int(count[i])) for i in np.flatnonzero(count)])


def _largest_first(rows: list[Idle]) -> tuple[Idle, ...]:
    return tuple(sorted(rows, key=lambda row: -row.ns))


def _gap_rows(gaps: SpanTrack, start_ns: int, end_ns: int) -> tuple[Array, Array, slice]:
    part = gaps.window(start_ns, end_ns)
    return np.maximum(gaps.rows["start"][part], start_ns), np.minimum(gaps.rows["end"][part], end_ns), part


def _only_copying(timeline: DeviceTimeline, start_ns: int, end_ns: int) -> int:
    tracks = [t for lane in (Lane.H2D, Lane.D2H) if (t := timeline.tracks.get(lane.value)) is not None]
    compute = timeline.tracks.get(Lane.COMPUTE.value)
    together = [*tracks, compute] if compute else tracks
    if not tracks or not all(track.exact_covers(start_ns) for track in together):
        return 0
    rows = sum(part.stop - part.start for track in together for part in [track.window(start_ns, end_ns)])
    if rows > _MOST_ROWS:
        return 0
    kernels = _union(*_clipped([compute], start_ns, end_ns)) if compute else 0
    return _union(*_clipped(together, start_ns, end_ns)) - kernels


def _clipped(tracks: Iterable[SpanTrack], start_ns: int, end_ns: int) -> tuple[Array, Array]:
    """(start, end) of the spans of all tracks, cut to [start, end), in order of their start."""
    parts = [(track.rows, track.window(start_ns, end_ns)) for track in tracks]
    start = np.concatenate([np.clip(rows["start"][part], start_ns, end_ns) for rows, part in parts])
    end = np.concatenate([np.clip(rows["end"][part], start_ns, end_ns) for rows, part in parts])
    if len(parts) > 1:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return start, end


def _union(start: Array, end: Array) -> int:
    if not len(start):
        return 0
    reach = np.maximum.accumulate(end)
    before = np.append(start[0], reach[:-1])
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
