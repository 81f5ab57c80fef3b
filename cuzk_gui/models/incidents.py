"""Faults with what was when they happened. The memory of the last seconds is copied before newer rows push it out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cuzk_engine.events import Holding, Incident, Picture
from cuzk_gui.models import words
from cuzk_gui.models.columns import Array

if TYPE_CHECKING:
    from cuzk_gui.models.session import DeviceTimeline

KEPT: Final = 1000
EARLIER: Final = -1  # stands for the start of an engine of which only an incident is known
_FROZEN: Final = 40  # incidents of which the memory before them is kept
BEFORE_NS: Final = 10_000_000_000
AFTER_NS: Final = 1_000_000_000  # so much of what followed belongs to the picture; later it is frozen

_TITLES: Final = {
    "out-of-memory": "Out of memory",
    "device-lost": "Device lost",
    "worker-died": "Worker died",
    "verification-failed": "Proof did not verify",
}


@dataclass(slots=True)
class Frozen:
    """Copies of memory by purpose and of readings around an incident."""

    times: Array
    values: Array
    known: Array
    samples: dict[str, Array]


@dataclass(slots=True)
class Record:
    """An incident, its number among those that came, and the memory before it once that is frozen. ``run``: when the
    engine started in whose time it was, 0 where that is not known; ``dismissed``: seen, and no finding any more."""

    number: int
    incident: Incident
    run: int = 0
    dismissed: bool = False
    frozen: Frozen | None = field(default=None, repr=False)


class IncidentList:
    """The newest incidents, in the order in which they came."""

    def __init__(self) -> None:
        self.records: deque[Record] = deque(maxlen=KEPT)
        self._waiting: list[Record] = []
        self._frozen: deque[Record] = deque()
        self._count = 0
        self.version = 0

    def __iter__(self) -> Iterator[Incident]:
        return (record.incident for record in self.records)

    def __len__(self) -> int:
        return len(self.records)

    def extend(self, incidents: Iterable[Incident], run: int = 0) -> None:
        for incident in incidents:
            self._count += 1
            record = Record(self._count, incident, run)
            self.records.append(record)
            self._waiting.append(record)
            self.version += 1

    def dismiss(self, records: Iterable[Record]) -> None:
        for record in records:
            record.dismissed = True
        self.version += 1

    def freeze(self, devices: Mapping[str, DeviceTimeline], now_ns: int) -> None:
        """Copies what belongs to incidents that lie far enough back."""
        ready = [r for r in self._waiting if now_ns >= r.incident.time_ns + AFTER_NS]
        if not ready:
            return
        self._waiting = [r for r in self._waiting if now_ns < r.incident.time_ns + AFTER_NS]
        for record in ready:
            timeline = devices.get(record.incident.device)
            if timeline is None:
                continue
            record.frozen = frozen(timeline, record.incident)
            self._frozen.append(record)
            if len(self._frozen) > _FROZEN:
                self._frozen.popleft().frozen = None

    def near(self, device: str, time_ns: int, tolerance_ns: int) -> Record | None:
        """The incident that is nearest to a moment."""
        found = [
            r
            for r in self.records
            if r.incident.device in ("", device) and abs(r.incident.time_ns - time_ns) <= tolerance_ns
        ]
        return min(found, key=lambda r: abs(r.incident.time_ns - time_ns), default=None)


def begin_ns(incident: Incident) -> int:
    """From where the events belong to the picture."""
    since = incident.picture.since_ns if incident.picture else 0
    return since if 0 < since < incident.time_ns else incident.time_ns - BEFORE_NS


def frozen(timeline: DeviceTimeline, incident: Incident) -> Frozen:
    start, end = begin_ns(incident), incident.time_ns + AFTER_NS
    times, values, known = timeline.memory.steps(start, end, (end - start) / 1500)
    rows = timeline.samples.rows
    inside = (rows["time"] >= start - 3_000_000_000) & (rows["time"] < end)
    samples = {name: rows[name][inside].copy() for name in rows.names}
    return Frozen(times.copy(), values.copy(), known.copy(), samples)


def title(incident: Incident) -> str:
    """ "Out of memory"; a kind that this version does not know as it is."""
    return _TITLES.get(incident.kind) or words.plain(incident.kind.replace("-", " "), 40).capitalize() or "Incident"


def headline(incident: Incident) -> str:
    """One sentence of what failed: who asked for what, and what was free."""
    picture = incident.picture
    if incident.requested is None:
        return words.plain(incident.message, 400)
    free = incident.free if incident.free is not None else picture.free if picture else None
    who = f"Worker {picture.worker}" if picture and picture.worker >= 0 else "The engine"
    what = f" for {purpose_words(picture.purpose)}" if picture and picture.purpose else ""
    of = f" of {words.size(picture.capacity)}" if picture and picture.capacity else ""
    left = f", and {words.size(free)}{of} were free" if free is not None else ""
    return f"{who} asked for {words.size(incident.requested)}{what}{left}"


def largest_holder(picture: Picture) -> str:
    """One sentence of who held most, all that belongs together added up; "" where nothing was held."""
    shares = [
        (amount, f"the engine, for {purpose_words(name)}") for name, amount in by_purpose(picture.holdings).items()
    ]
    shares += [
        (o.bytes or 0, f"another program, {words.plain(o.name, 40) or 'not visible here'}") for o in picture.others
    ]
    amount, who = max(shares, default=(0, ""))
    return f"Most was held by {who}: {words.size(amount)}" if amount else ""


PURPOSE_WORDS: Final = {
    "srs": "the proving key",
    "matrices": "the circuit's matrices",
    "witness": "the witness",
    "abc": "the vectors a, b, c",
    "ntt": "transforms (NTT)",
    "msm": "multi-scalar multiplication (MSM)",
    "scratch": "scratch",
    "result": "results",
    "partition": "a whole partition",
    "context": "the device's context and kernels",
}


def purpose_words(purpose: str) -> str:
    """A purpose for people who have never seen its name; an unknown one as it is."""
    return PURPOSE_WORDS.get(purpose) or words.plain(purpose, 24)


def holder(holding: Holding) -> str:
    """Who holds bytes, in few words."""
    if holding.worker >= 0:
        return f"worker {holding.worker}"
    return "all workers" if not holding.job else "no worker"


def by_purpose(holdings: Iterable[Holding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for holding in holdings:
        found[holding.purpose] = found.get(holding.purpose, 0) + holding.bytes
    return found
