"""Everything the window knows of the engine since it was opened. Bounded: devices, lanes, rows, marks, lines and
jobs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from cuzk_engine.client import DeviceDescription, EngineIdentity
from cuzk_engine.events import HOST_LANE_PREFIX, Incident, Lane, Mark
from cuzk_gui.models.digest import Digest, Names
from cuzk_gui.models.findings import FindingList
from cuzk_gui.models.gaps import GapTrack
from cuzk_gui.models.incidents import EARLIER, IncidentList
from cuzk_gui.models.jobs import JobTable
from cuzk_gui.models.levels import LEVEL_BUCKETS
from cuzk_gui.models.log import LogRing
from cuzk_gui.models.memory import MemorySeries, SampleSeries
from cuzk_gui.models.settings import SettingsModel
from cuzk_gui.models.tracks import SpanRows, SpanTrack

MOST_DEVICES: Final = 64
MOST_LANES: Final = 24
MOST_OUTAGES: Final = 200
_FIRST_LANES: Final = (Lane.LOCK.value, Lane.COMPUTE.value, Lane.H2D.value, Lane.D2H.value)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each kind is kept exactly; what is older stays in coarser levels."""

    busy_lane: int = 49_152
    lane: int = 16_384
    gaps: int = 16_384
    memory: int = 16_384
    samples: int = 20_480
    buckets: int = LEVEL_BUCKETS


LIVE: Final = Sizes()
RECORDED: Final = Sizes(busy_lane=2**20, lane=2**18, gaps=2**18, memory=2**17, samples=2**17, buckets=4 * LEVEL_BUCKETS)
"""For a recording, which is opened to look at its beginning too. Memory is taken as rows come."""


class DeviceTimeline:
    """What happened on one device."""

    def __init__(self, device: str, names: Names, sizes: Sizes = LIVE) -> None:
        self.id = device
        self._sizes = sizes
        self.tracks: dict[str, SpanTrack] = {}
        self.gaps = GapTrack(sizes.gaps, sizes.buckets, names.evidence.text)
        self.memory = MemorySeries(sizes.memory)
        self.samples = SampleSeries(sizes.samples)
        self.lanes_version = 0

    @property
    def nbytes(self) -> int:
        tracks = (self.gaps, *self.tracks.values())
        return self.memory.nbytes + self.samples.nbytes + sum(t.nbytes for t in tracks)

    def track(self, lane: str) -> SpanTrack | None:
        """The lane's track, made on first use; None beyond the limit."""
        found = self.tracks.get(lane)
        if found is None and len(self.tracks) < MOST_LANES:
            rows = self._sizes.busy_lane if lane == Lane.COMPUTE else self._sizes.lane
            found = self.tracks[lane] = SpanTrack(rows, self._sizes.buckets)
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

    def __init__(self, sizes: Sizes = LIVE) -> None:
        self._sizes = sizes
        self.names = Names()
        self.devices: dict[str, DeviceTimeline] = {}
        self.described: dict[str, DeviceDescription] = {}
        self.jobs = JobTable()
        self.settings = SettingsModel()
        self.log = LogRing()
        self.marks: deque[Mark] = deque(maxlen=1000)
        self.incidents = IncidentList()
        self.findings = FindingList()
        self.outages: deque[tuple[int, int]] = deque(maxlen=MOST_OUTAGES)  # nothing is known of [from, to)
        self.recorded = False  # what is here was read from a file: it is the past, and nothing can be changed
        self.reading = False  # that file has more than is here
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
    def live(self) -> bool:
        """Whether an engine is there that takes changes."""
        return self.identity is not None and not self.recorded

    @property
    def run(self) -> int:
        """When the engine that is there started, which tells one from its successor; 0 for none."""
        return self.identity.started_unix_ns if self.identity else 0

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
            found = self.devices[device] = DeviceTimeline(device, self.names, self._sizes)
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
            self.identify(digest.identity)
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
        for device, gaps in digest.gaps.items():
            self._add_gaps(device, gaps, again)
        for device, samples in digest.samples.items():
            timeline = self.timeline(device)
            if timeline is not None:
                fresh = samples["time"] > (self._resume_after if again else -1)
                timeline.samples.append({k: v[fresh] for k, v in samples.items()})
        after = self._resume_after if again else -1
        self.marks.extend(m for m in digest.marks if m.time_ns > after)
        for incident in digest.incidents:
            if incident.time_ns > after:
                self.incidents.extend([incident], EARLIER if self._is_of_earlier(incident, digest) else self.run)
        self.findings.extend(digest.findings)
        self.log.extend(line for line in digest.logs if line.time_ns > after)
        self.jobs.update(digest.jobs)
        if digest.settings is not None:
            self.settings.update(digest.settings)
        self.dropped += digest.dropped
        self.incidents.freeze(self.devices, self.latest_ns)
        self.version += 1

    def disconnected(self) -> None:
        """The stream ended: nothing is known of memory until it is back."""
        for timeline in self.devices.values():
            timeline.memory.forget(self.latest_ns)
            for track in (timeline.gaps, *timeline.tracks.values()):
                track.resume_end = track.newest_end
        self._resume_after = self.latest_ns
        self.identity = None
        self.version += 1

    def knows_of(self, end_unix_ns: int) -> bool:
        """Whether the charts reach back to what ended then."""
        return self.origin_ns is not None and end_unix_ns - self.wall_offset_ns > self.origin_ns

    def _is_of_earlier(self, incident: Incident, digest: Digest) -> bool:
        """With its first message an engine tells of incidents of its predecessors too."""
        return digest.time_ns == self._stream_first_ns and incident.time_ns + self.wall_offset_ns < self.run

    def _set_clock(self, digest: Digest) -> None:
        self.wall_offset_ns = digest.wall_ns - digest.time_ns
        if self._stream_first_ns is None:
            self._stream_first_ns = digest.time_ns
            self._stream_from_ns = max(digest.time_ns - self._history_ns, digest.since_ns)
            if digest.identity is not None:  # there is no past before the engine's start
                self._stream_from_ns = max(
                    self._stream_from_ns, min(digest.identity.started_unix_ns - self.wall_offset_ns, digest.time_ns)
                )
            if self.origin_ns is None:
                self.origin_ns = max(0, self._stream_from_ns)
            elif self._stream_from_ns > self._resume_after >= 0:
                self.outages.append((self._resume_after, self._stream_from_ns))
        self.latest_ns = max(self.latest_ns, digest.time_ns)

    def identify(self, identity: EngineIdentity) -> None:
        """Takes in who the engine is, with its devices."""
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
        track.append(_fresh(rows, track) if again else rows)

    def _add_gaps(self, device: str, rows: SpanRows, again: bool) -> None:
        timeline = self.timeline(device)
        if timeline is None:
            self.left_out += len(rows)
            return
        timeline.gaps.append(_fresh(rows, timeline.gaps) if again else rows)


def _fresh(rows: SpanRows, track: SpanTrack) -> SpanRows:
    """Those that were not seen before the stream was lost."""
    fresh = rows.end > track.resume_end
    return SpanRows(*(getattr(rows, name)[fresh] for name in SpanRows.__slots__))


def _lane_number(lane: str) -> tuple[int, str]:
    number = lane.removeprefix(HOST_LANE_PREFIX)
    return (int(number) if number.isdigit() else 10**9, lane)
