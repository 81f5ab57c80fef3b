"""Which partitions wait, and in which order.

Rank is the job's priority, and within it the order of acceptance. A job that waits counts as one priority higher after
each ``aging``, up to HIGH, so LOW is overtaken for at most twice that long; CRITICAL is above all of that. A partition
that has started is never interrupted for another.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from cuzk_engine.client.types import Priority
from cuzk_engine.daemon.records import JobRecord, Partition

_LEVELS: Final = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2, Priority.CRITICAL: 3}
_AGED_UP_TO: Final = _LEVELS[Priority.HIGH]

ANY_DEVICE: Final = ""

PartId = tuple[str, int]
"""A job's id and the number of its partition."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition in the queue. ``order``, ``since_ns``: when its job was accepted, the latter on the clock that
    ``level`` is asked with. ``circuit``: what partitions of the same key have in common. ``refused``: devices that can
    never take it. ``avoid``: the device that it failed on. ``again``: it has been started before.
    """

    job: str
    number: int
    priority: Priority
    order: int
    since_ns: int
    circuit: str = ""
    device: str = ANY_DEVICE
    refused: frozenset[str] = frozenset()
    avoid: str = ""
    alone: bool = False
    again: bool = False

    @property
    def id(self) -> PartId:
        return self.job, self.number

    @property
    def place(self) -> tuple[int, int]:
        """Its place among those of the same level."""
        return self.order, self.number

    @property
    def line(self) -> tuple[object, ...]:
        """Partitions of one line differ only in their place: the first of a line stands for all."""
        return (self.priority, self.device, self.circuit, self.refused, self.avoid, self.alone, self.again)


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions of one circuit that run one after another: those whose jobs were accepted before it began."""

    circuit: str
    last: int  # the newest order that belongs to it

    def __contains__(self, part: Waiting) -> bool:
        return part.circuit == self.circuit and part.order <= self.last


class PartitionQueue:
    """Partitions in lines of what may be treated alike, so that only the heads need comparing."""

    def __init__(self) -> None:
        self._lines: dict[tuple[object, ...], OrderedDict[PartId, Waiting]] = {}
        self._where: dict[PartId, Waiting] = {}
        self._jobs: Counter[str] = Counter()
        self._circuits: Counter[str] = Counter()
        self._newest = 0

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, part: object) -> bool:
        return part in self._where

    @property
    def newest(self) -> int:
        """The highest order that was ever in the queue."""
        return self._newest

    @property
    def jobs(self) -> int:
        """How many jobs have partitions here."""
        return len(self._jobs)

    def add(self, part: Waiting) -> None:
        line = self._lines.setdefault(part.line, OrderedDict())
        line[part.id] = part
        self._where[part.id] = part
        self._jobs[part.job] += 1
        self._circuits[part.circuit] += 1
        self._newest = max(self._newest, part.order)
        if len(line) > 1:  # one that comes back has its old place
            before = next(islice(reversed(line.values()), 1, None))
            if before.place > part.place:
                ordered = sorted(line.values(), key=lambda item: item.place)
                self._lines[part.line] = OrderedDict((item.id, item) for item in ordered)

    def remove(self, part: PartId) -> bool:
        """False when it was not waiting."""
        found = self._where.pop(part, None)
        if found is None:
            return False
        for counter, key in ((self._jobs, found.job), (self._circuits, found.circuit)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]
        line = self._lines[found.line]
        del line[part]
        if not line:
            del self._lines[found.line]
        return True

    def has_job(self, job: str) -> bool:
        return job in self._jobs

    def of_circuit(self, circuit: str) -> int:
        """How many partitions of a circuit wait."""
        return self._circuits.get(circuit, 0)

    def heads(self) -> list[Waiting]:
        """The first of each line."""
        return [next(iter(line.values())) for line in self._lines.values()]

    def all(self) -> Iterable[Waiting]:
        return self._where.values()


def level(part: Waiting, now_ns: int, aging_ns: int) -> int:
    """The level it counts as now; higher is sooner."""
    found = _LEVELS[part.priority]
    if found < _AGED_UP_TO and aging_ns > 0:
        found = min(_AGED_UP_TO, found + max(0, now_ns - part.since_ns) // aging_ns)
    return found


def in_order(
    parts: Iterable[Waiting], now_ns: int, aging_ns: int, grouped: bool, run: Run | None = None
) -> list[Waiting]:
    """Partitions as one device takes them. ``grouped``: those of one level and circuit one after another, ``run`` being
    what it has begun."""
    ranked = sorted(parts, key=lambda part: (-level(part, now_ns, aging_ns), part.place))
    if not grouped:
        return ranked
    newest = max((part.order for part in ranked), default=0)
    found: list[Waiting] = []
    for _, peers in groupby(ranked, key=lambda part: level(part, now_ns, aging_ns)):
        rest = list(peers)
        while rest:
            if run is None or not any(part in run for part in rest):
                run = Run(rest[0].circuit, newest)
            found += [part for part in rest if part in run]
            rest = [part for part in rest if part not in run]
    return found


def waiting(job: JobRecord, part: Partition) -> Waiting:
    """A partition as it goes into the queue."""
    return Waiting(
        job=job.id,
        number=part.number,
        priority=job.priority,
        order=job.order,
        since_ns=job.since_ns,
        circuit=job.key_path,
        device=job.wanted_device,
        refused=frozenset(part.refused),
        avoid=part.avoid,
        alone=part.alone,
        again=part.attempts > 0,
    )
