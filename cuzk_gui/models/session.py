"""Everything the window knows of the engine since it was opened. Bounded: devices, lanes, rows, marks, lines and
jobs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cuzk_engine.client import DeviceDescription, EngineIdentity
from cuzk_engine.events import HOST_LANE_PREFIX, Incident, Lane, Mark
from cuzk_gui.models.digest import Digest, Names
from cuzk_gui.models.jobs import JobTable
from cuzk_gui.models.log import LogRing
from cuzk_gui.models.memory import MemorySeries, SampleSeries
from cuzk_gui.models.settings import SettingsModel
from cuzk_gui.models.tracks import SpanRows, SpanTrack

MOST_DEVICES: Final = 64
MOST_LANES: Final = 24
_BUSY_LANE_ROWS: Final = 49_152
_LANE_ROWS: Final = 16_384
_FIRST_LANES: Final = (Lane.LOCK.value, Lane.COMPUTE.value, Lane.H2D.value, Lane.D2H.value)


@dataclass(slots=True)
class DeviceTimeline:
    """What happened on one device."""

    id: str
    tracks: dict[str, SpanTrack] = field(default_factory=dict)
    memory: MemorySeries = field(default_factory=MemorySeries)
    samples: SampleSeries = field(default_factory=SampleSeries)
    lanes_version: int = 0

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes + self.samples.nbytes + sum(t.nbytes for t in self.tracks.values())

    def track(self, lane: str) -> SpanTrack | None:
        """The lane's track, made on first use; None beyond the limit."""
        found = self.tracks.get(lane)
        if found is None and len(self.tracks) < MOST_LANES:
            found = self.tracks[lane] = SpanTrack(_BUSY_LANE_ROWS if lane == Lane.COMPUTE else _LANE_ROWS)
            self.lanes_version += 1
        return found

    def lanes(self, workers: int = 0) -> list[str]:
        """Lanes from top to bottom: the device's own always, those of ``workers`` and of every other one that was
        seen."""
        wanted = set(self.tracks) | {f"{HOST_LANE_PREFIX}{n}" for n in range(min(workers, 8))}
        hosts = sorted((x for x in wanted if x.startswith(HOST_LANE_PREFIX)), key=_lane_number)
        others = sorted(x for x in wanted if x not in _FIRST_LANES and x not in hosts)
        return [*_FIRST_LANES, *others, *hosts]


class Session:
    """The models together, and the clock that ties the engine's time to the axis."""

    def __init__(self) -> None:
        self.names = Names()
        self.devices: dict[str, DeviceTimeline] = {}
        self.described: dict[str, DeviceDescription] = {}
        self.jobs = JobTable()
        self.settings = SettingsModel()
        self.log = LogRing()
        self.marks: deque[Mark] = deque(maxlen=1000)
        self.incidents: deque[Incident] = deque(maxlen=1000)
        self.identity: EngineIdentity | None = None
        self.origin_ns: int | None = None
        self.latest_ns = 0  # the engine's clock at the newest message
        self.wall_offset_ns = 0
        self.dropped = 0
        self.log_path = ""
        self.left_out = 0  # events of devices or lanes beyond the limits
        self.version = 0
        self._history_ns = 0
        self._stream_first_ns: int | None = None  # the engine's clock at the first message of the stream
        self._stream_from_ns = 0  # the beginning of the past that the stream sends
        self._resume_after = -1  # the last moment seen before the stream was lost

    @property
    def nbytes(self) -> int:
        return sum(device.nbytes for device in self.devices.values())

    def seconds(self, time_ns: int) -> float:
        """Position on the axis."""
        return (time_ns - (self.origin_ns or 0)) / 1e9

    def time_ns(self, seconds: float) -> int:
        return round(seconds * 1e9) + (self.origin_ns or 0)

    def wall_ns(self, seconds: float) -> int:
        return self.time_ns(seconds) + self.wall_offset_ns

    def device_ids(self) -> list[str]:
        """Devices that the engine describes, then those that were only seen."""
        return [*self.described, *(d for d in self.devices if d not in self.described)]

    def timeline(self, device: str) -> DeviceTimeline | None:
        found = self.devices.get(device)
        if found is None and len(self.devices) < MOST_DEVICES:
            found = self.devices[device] = DeviceTimeline(device)
        return found

    def begin_stream(self, history_ns: int) -> None:
        """A stream was opened that sends ``history_ns`` of the past first: what was seen before is not taken in
        twice."""
        self._history_ns = history_ns
        self._stream_first_ns = None

    def apply(self, digest: Digest) -> None:
        """Takes in a part of a message."""
        self._set_clock(digest)
        again = (
            self._stream_first_ns is not None and digest.time_ns <= self._stream_first_ns and self._resume_after >= 0
        )
        if digest.identity is not None:
            self._identify(digest.identity)
        if digest.memory is not None:
            self._start_ledger(digest)
        for device, allocations in digest.allocations.items():
            timeline = self.timeline(device)
            if timeline is not None:
                fresh = allocations.time > (self._resume_after if again else -1)
                timeline.memory.skip(allocations.purpose[~fresh], allocations.delta[~fresh])
                timeline.memory.add(allocations.time[fresh], allocations.purpose[fresh], allocations.delta[fresh])
        for (device, lane), rows in digest.spans.items():
            self._add_spans(device, lane, rows, again)
        for device, samples in digest.samples.items():
            timeline = self.timeline(device)
            if timeline is not None:
                fresh = samples["time"] > (self._resume_after if again else -1)
                timeline.samples.append({k: v[fresh] for k, v in samples.items()})
        after = self._resume_after if again else -1
        self.marks.extend(m for m in digest.marks if m.time_ns > after)
        self.incidents.extend(i for i in digest.incidents if i.time_ns > after)
        self.log.extend(line for line in digest.logs if line.time_ns > after)
        self.jobs.update(digest.jobs)
        if digest.settings is not None:
            self.settings.update(digest.settings)
        self.dropped += digest.dropped
        self.version += 1

    def disconnected(self) -> None:
        """The stream ended: nothing is known of memory until it is back."""
        for timeline in self.devices.values():
            timeline.memory.forget(self.latest_ns)
            for track in timeline.tracks.values():
                track.resume_end = track.newest_end
        self._resume_after = self.latest_ns
        self.identity = None
        self.version += 1

    def _set_clock(self, digest: Digest) -> None:
        self.wall_offset_ns = digest.wall_ns - digest.time_ns
        if self._stream_first_ns is None:
            self._stream_first_ns = digest.time_ns
            self._stream_from_ns = digest.time_ns - self._history_ns
            if digest.identity is not None:  # there is no past before the engine's start
                self._stream_from_ns = max(
                    self._stream_from_ns, min(digest.identity.started_unix_ns - self.wall_offset_ns, digest.time_ns)
                )
            if self.origin_ns is None:
                self.origin_ns = max(0, self._stream_from_ns)
        self.latest_ns = max(self.latest_ns, digest.time_ns)

    def _identify(self, identity: EngineIdentity) -> None:
        self.identity = identity
        self.described = {d.id: d for d in identity.devices[:MOST_DEVICES]}
        for device in self.described:
            self.timeline(device)

    def _start_ledger(self, digest: Digest) -> None:
        assert digest.memory is not None
        by_device: dict[str, dict[str, int]] = {device: {} for device in self.described}
        for (device, purpose), amount in digest.memory.items():
            by_device.setdefault(device, {})[purpose] = amount
        for device, values in by_device.items():
            timeline = self.timeline(device)
            if timeline is not None:
                timeline.memory.set_state(max(self._stream_from_ns, self._resume_after), values)

    def _add_spans(self, device: str, lane: str, rows: SpanRows, again: bool) -> None:
        timeline = self.timeline(device)
        track = timeline.track(lane) if timeline is not None else None
        if track is None:
            self.left_out += len(rows)
            return
        if again:
            fresh = rows.end > track.resume_end
            rows = SpanRows(*(getattr(rows, name)[fresh] for name in SpanRows.__slots__))
        track.append(rows)


def busy_share(timeline: DeviceTimeline, lane: str, start_ns: int, end_ns: int) -> float | None:
    """Share of [start, end) during which the lane has a span: the union, so that overlapping spans count once."""
    track = timeline.tracks.get(lane)
    if track is None or end_ns <= start_ns or not track.exact_covers(start_ns):
        return None
    part = track.window(start_ns, end_ns)
    start = np.clip(track.rows["start"][part], start_ns, end_ns)
    end = np.clip(track.rows["end"][part], start_ns, end_ns)
    if not len(start):
        return 0.0
    reach = np.maximum.accumulate(end)
    before = np.append(start_ns, reach[:-1])
    return float(np.maximum(end - np.maximum(start, before), 0).sum() / (end_ns - start_ns))


def _lane_number(lane: str) -> tuple[int, str]:
    number = lane.removeprefix(HOST_LANE_PREFIX)
    return (int(number) if number.isdigit() else 10**9, lane)
