"""Which waiting partition runs next, on which device and with which worker. It knows no store, no processes and no
clock: it is asked, told, and answers.

Among the partitions of the highest level: those that continue a worker's batch, then those that continue a device's run
of one circuit, then the oldest. A run is closed: only partitions whose jobs were accepted before it began belong to it,
so no circuit waits for ever. The oldest one goes to a device that has its key loaded where there is a choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from cuzk_engine.client.types import Priority
from cuzk_engine.config import Settings
from cuzk_engine.daemon.queue import PartId, PartitionQueue, Run, Waiting, in_order, level
from cuzk_engine.settings import most_at_once
from cuzk_engine.units import parse_duration


class Slot(Protocol):
    """What scheduling needs of a device. ``keys``: circuits whose key it has loaded."""

    @property
    def id(self) -> str: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def workers(self) -> int: ...
    @property
    def keys(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings. ``at_once``: partitions that one device has at the same time at most, 0 for as many as it has
    workers; ``preparing``: partitions that are being evaluated on all devices together, 0 for no limit."""

    aging_ns: int = 0
    sort_by_circuit: bool = False
    batch_size: int = 1
    batch_wait_ns: int = 0
    at_once: int = 0
    preparing: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        return cls(
            aging_ns=parse_duration(settings.text("scheduler.aging")),
            sort_by_circuit=settings.flag("scheduler.sort_by_type"),
            batch_size=settings.number("scheduler.max_batch_size"),
            batch_wait_ns=settings.number("scheduler.max_batch_wait_ms") * 10**6,
            at_once=most_at_once(settings.values),
            preparing=settings.number("pipeline.max_parallel_synthesis"),
        )


@dataclass(slots=True)
class Place:
    """Where a partition runs. ``preparing``: it does not need the device yet."""

    device: str
    worker: int
    circuit: str
    alone: bool = False
    preparing: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    part: Waiting
    device: str
    worker: int


@dataclass(slots=True)
class _Batch:
    circuit: str
    left: int


class Scheduler:
    """``choose`` what starts next, tell ``started`` and ``ended``."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.queue = PartitionQueue()
        self.running: dict[PartId, Place] = {}
        self.wake_ns: int | None = None  # when something that is held for its batch may start, as of the last choice
        self._devices: dict[str, Slot] = {}
        self._runs: dict[str, Run] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._unfit: set[tuple[str, str]] = set()

    def add_device(self, device: Slot) -> None:
        self._devices[device.id] = device

    # ---- being told ----

    def started(self, choice: Choice) -> None:
        part = choice.part
        self.queue.remove(part.id)
        self.running[part.id] = Place(choice.device, choice.worker, part.circuit, part.alone)
        slot = choice.device, choice.worker
        batch = self._batches.get(slot)
        if batch is None or batch.circuit != part.circuit or batch.left == 0:
            batch = self._batches[slot] = _Batch(part.circuit, self.policy.batch_size)
        batch.left -= 1
        run = self._runs.get(choice.device)
        if run is None or part not in run:
            self._runs[choice.device] = Run(part.circuit, self.queue.newest)

    def ended(self, part: PartId) -> Place | None:
        """Where it ran; None for one that did not run."""
        place = self.running.pop(part, None)
        if place is not None:
            batch = self._batches.get((place.device, place.worker))
            if batch is not None and not self.queue.of_circuit(batch.circuit):
                batch.left = 0  # what comes later begins another
        return place

    def does_not_fit(self, device: str, circuit: str) -> None:
        """The circuit's partitions go to other devices from now on, where there are any."""
        self._unfit.add((device, circuit))

    def forget_fits(self, device: str = "") -> None:
        """What fits may be another thing now: settings changed, or the process of ``device`` is a new one."""
        self._unfit = {(name, circuit) for name, circuit in self._unfit if device and name != device}

    # ---- answering ----

    def choose(self, now_ns: int) -> Choice | None:
        """What should start now, or None. It stays in the queue until ``started``."""
        self.wake_ns = None
        policy = self.policy
        if policy.preparing and sum(place.preparing for place in self.running.values()) >= policy.preparing:
            return None
        free = self._free()
        heads = self.queue.heads() if free else []
        heads.sort(key=lambda part: (-self._level(part, now_ns), part.place))
        heads = [part for part in heads if not self._is_held(part, now_ns)]
        for index, head in enumerate(heads):
            devices = [name for name in free if self._may_take(head, name)]
            if not devices:
                continue
            if head.alone:
                idle = [name for name in devices if not self.on(name)]
                if not idle:  # nothing else starts on one of them until it can have that to itself
                    del free[min(devices, key=lambda name: len(self.on(name)))]
                    continue
                return self._at(head, self._best(head, idle), free)
            found = self._level(head, now_ns)
            peers = [part for part in heads[index:] if self._level(part, now_ns) == found and not part.alone]
            return self._continued(peers, free) or self._at(head, self._best(head, devices), free)
        return None

    def can_run(self, part: Waiting) -> bool:
        """Whether there is a device, ready or not, that may take it one day."""
        return any(self._is_possible(part, device) for device in self._devices.values())

    def on(self, device: str) -> dict[int, PartId]:
        """Worker → partition."""
        return {place.worker: part for part, place in self.running.items() if place.device == device}

    def positions(self, now_ns: int) -> dict[str, int]:
        """Job → 1 for the one that is next, and so on, as one device that may run everything would take them."""
        policy = self.policy
        begun = next(iter(self._runs.values()), None)
        order = in_order(self.queue.all(), now_ns, policy.aging_ns, policy.sort_by_circuit, begun)
        jobs = dict.fromkeys(part.job for part in order)
        return {job: number for number, job in enumerate(jobs, 1)}

    # ---- inside ----

    def _level(self, part: Waiting, now_ns: int) -> int:
        return level(part, now_ns, self.policy.aging_ns)

    def _free(self) -> dict[str, list[int]]:
        """Ready device → its workers that have nothing to do; devices without any are not in it."""
        found: dict[str, list[int]] = {}
        for name, device in self._devices.items():
            if not device.is_ready:
                continue
            busy = self.on(name)
            at_once = min(device.workers, self.policy.at_once or device.workers)
            if len(busy) < at_once and not any(self.running[part].alone for part in busy.values()):
                free = [worker for worker in range(device.workers) if worker not in busy]
                if free:
                    found[name] = free
        return found

    def _is_held(self, part: Waiting, now_ns: int) -> bool:
        """Whether it waits for others of its circuit, to make a batch with them."""
        policy = self.policy
        if part.again or part.priority is Priority.CRITICAL or policy.batch_size <= 1:
            return False
        if self.queue.of_circuit(part.circuit) >= policy.batch_size or self._has_open_batch(part.circuit):
            return False
        until = part.since_ns + policy.batch_wait_ns
        if now_ns >= until:
            return False
        self.wake_ns = until if self.wake_ns is None else min(self.wake_ns, until)
        return True

    def _has_open_batch(self, circuit: str) -> bool:
        return any(batch.circuit == circuit and batch.left for batch in self._batches.values())

    def _is_possible(self, part: Waiting, device: Slot) -> bool:
        return part.device in ("", device.id) and device.id not in part.refused and not device.has_failed

    def _may_take(self, part: Waiting, name: str) -> bool:
        """A device that had no room for the circuit is asked again only when there is no other."""
        if not self._is_possible(part, self._devices[name]):
            return False
        return (name, part.circuit) not in self._unfit or not any(
            self._is_possible(part, other) and (other.id, part.circuit) not in self._unfit
            for other in self._devices.values()
        )

    def _continued(self, peers: list[Waiting], free: dict[str, list[int]]) -> Choice | None:
        for name, worker, batch in self._open_batches(free):
            for part in peers:
                if part.circuit == batch.circuit and self._may_take(part, name):
                    return Choice(part, name, worker)
        if not self.policy.sort_by_circuit:
            return None
        for name in free:
            run = self._runs.get(name)
            for part in peers:
                if run is not None and part in run and self._may_take(part, name):
                    return self._at(part, name, free)
        return None

    def _open_batches(self, free: dict[str, list[int]]) -> Iterator[tuple[str, int, _Batch]]:
        for name, workers in free.items():
            for worker in workers:
                batch = self._batches.get((name, worker))
                if batch is not None and batch.left:
                    yield name, worker, batch

    def _best(self, part: Waiting, names: list[str]) -> str:
        def cost(name: str) -> tuple[bool, bool, float]:
            device, busy = self._devices[name], self.on(name)
            resident = part.circuit in device.keys or any(
                self.running[other].circuit == part.circuit for other in busy.values()
            )
            return name == part.avoid, not resident, len(busy) / device.workers

        return min(names, key=cost)

    def _at(self, part: Waiting, name: str, free: dict[str, list[int]]) -> Choice:
        return Choice(part, name, free[name][0])
