"""What of the jobs runs where: gives waiting partitions to workers, and hears what became of them.

It knows partitions, devices and the order of the queue; whether a job is accepted, and what its end means to anybody
else, it does not know. Every change is in the store before anybody hears of it, so what is done is never done again.
Where memory was short, a proof did not verify or a process died, the partition is tried once more; the first that fails
for good ends its job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cuzk_engine.client.types import JobState, PhaseTime
from cuzk_engine.daemon.book import JobBook
from cuzk_engine.daemon.queue import PartId, waiting
from cuzk_engine.daemon.records import Failure, Fault, JobRecord, Kept, Partition, PartitionState, Totals
from cuzk_engine.daemon.scheduler import Choice, Policy, Scheduler, Slot

log = logging.getLogger("cuzk")


class DeviceSlot(Slot, Protocol):
    """What is needed of a device."""

    def start(self, job: JobRecord, part: Partition, worker: int) -> None: ...
    def cancel(self, job_id: str, number: int) -> None: ...


class JobOwner(Protocol):
    """Who is told what its partitions mean for a job."""

    def changed(self, job: JobRecord) -> None: ...
    def end(self, job: JobRecord, state: JobState, error: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Clocks:
    """``wall`` gives the times that people see, ``ticks`` those by which jobs wait, since the other clock may be set;
    both in nanoseconds. ``later`` calls something after so many nanoseconds and can be cancelled."""

    wall: Callable[[], int]
    ticks: Callable[[], int]
    later: Callable[[int, Callable[[], None]], Any]


class Dispatcher:
    """See the module's text. Everything runs on the supervisor's event loop."""

    def __init__(self, book: JobBook, totals: Totals, policy: Policy, clocks: Clocks, owner: JobOwner) -> None:
        self._book = book
        self._totals = totals
        self._clocks = clocks
        self._owner = owner
        self._scheduler = Scheduler(policy)
        self._devices: dict[str, DeviceSlot] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._positions: dict[str, int] | None = None
        self._waking: Any = None
        self.draining = False
        """Nothing new starts."""

    # ---- looking ----

    def position(self, job: JobRecord) -> int:
        """1 for the job that is next; 0 for one that does not wait."""
        if job.state is not JobState.QUEUED or not self._scheduler.queue.has_job(job.id):
            return 0
        if self._positions is None:
            self._positions = self._scheduler.positions(self._clocks.ticks())
        return self._positions.get(job.id, 0)

    @property
    def is_idle(self) -> bool:
        """Whether no worker has anything to do, not even for a job that has ended."""
        return not self._scheduler.running

    async def drained(self) -> None:
        """Waits until nothing runs."""
        await self._idle.wait()

    def running_jobs(self) -> list[JobRecord]:
        """Those of which something runs."""
        found = map(self._book.active, dict.fromkeys(job for job, _ in self._scheduler.running))
        return [job for job in found if job is not None]

    def runs(self, job: JobRecord) -> bool:
        """Whether anything of it does."""
        return bool(self._places(job))

    def running_on(self, device: str) -> dict[int, tuple[JobRecord, Partition]]:
        """Worker → what it does; without what is being cancelled for a job that has ended."""
        found = {worker: self._find(part) for worker, part in self._scheduler.on(device).items()}
        return {worker: work for worker, work in found.items() if work is not None}

    def is_busy(self, device: str) -> bool:
        return bool(self._scheduler.on(device))

    def stopping(self, device: str) -> list[PartId]:
        """What was told to stop there, and has not."""
        found = {part: self._book.active(part[0]) for part in self._scheduler.on(device).values()}
        return [part for part, job in found.items() if job is None or job.cancelling]

    def users_of(self, key_path: str) -> int:
        """Running partitions that use a key."""
        return sum(place.circuit == key_path for place in self._scheduler.running.values())

    # ---- what jobs ask for ----

    def enqueue(self, job: JobRecord) -> None:
        """What of it is not done waits for a worker from now on."""
        for part in job.parts:
            if part.state is PartitionState.PENDING:
                self._scheduler.queue.add(waiting(job, part))
        self._positions = None

    def withdraw(self, job: JobRecord) -> None:
        """Nothing of it waits any more; what runs goes on."""
        for part in job.parts:
            self._scheduler.queue.remove((job.id, part.number))
        self._positions = None

    def stop(self, job: JobRecord) -> None:
        """Tells the devices to stop what runs of it."""
        for (_, number), device in self._places(job):
            self._devices[device].cancel(job.id, number)

    def pump(self) -> None:
        """Gives waiting partitions to workers that have nothing to do."""
        if self.draining:
            return
        now = self._clocks.ticks()
        while (choice := self._scheduler.choose(now)) is not None:
            self._start(choice)
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        if self._scheduler.wake_ns is not None:
            self._waking = self._clocks.later(max(0, self._scheduler.wake_ns - now), self.pump)

    def put_back(self) -> None:
        """At the end of the daemon: what still runs is queued for the next start, and this attempt does not count."""
        for part_id, place in list(self._scheduler.running.items()):
            found = self._stopped(place.device, part_id)
            if found is not None:
                self._take_back(*found)

    def fail_impossible(self, reason: str) -> None:
        """Jobs do not wait for devices that have failed, where no other may take them."""
        for item in list(self._scheduler.queue.all()):
            job = self._book.active(item.job)
            if job is not None and not self._scheduler.can_run(item):
                self._owner.end(job, JobState.FAILED, reason)
        self.pump()

    # ---- devices and settings ----

    def add_device(self, device: DeviceSlot) -> None:
        self._devices[device.id] = device
        self._scheduler.add_device(device)

    def set_policy(self, policy: Policy) -> None:
        self._scheduler.policy = policy
        self._positions = None
        self.pump()

    def forget_fits(self, device: str = "") -> None:
        """What fits on a device, or on all, may be another thing now."""
        self._scheduler.forget_fits(device)

    # ---- what a device said ----

    def progress(self, device: str, part_id: PartId, phase: str, fraction: float) -> None:
        place, found = self._scheduler.running.get(part_id), self._find(part_id)
        if place is None or place.device != device or found is None:
            return
        job, part = found
        part.phase = job.phase = phase
        part.state = part.state.after(phase)
        reached = min(1.0, max(part.progress, fraction))
        job.progress = min(1.0, job.progress + (reached - part.progress) / job.partitions)
        part.progress = reached
        job.last_activity_unix_ns = self._clocks.wall()
        self._owner.changed(job)
        if place.preparing and part.state is not PartitionState.SYNTHESIZING:
            place.preparing = False
            self.pump()

    def completed(
        self, device: str, part_id: PartId, proof: tuple[str, str] | Kept, phases: Iterable[tuple[str, int]]
    ) -> None:
        """``proof``: proof.json and public.json, unless they are in the store."""
        found = self._stopped(device, part_id)
        if found is not None:
            self._completed(*found, proof, [PhaseTime(name, nanoseconds) for name, nanoseconds in phases])
        self.pump()

    def failed(self, device: str, part_id: PartId, failure: Failure) -> None:
        found = self._stopped(device, part_id)
        if found is not None:
            if failure.never:
                self._scheduler.does_not_fit(device, found[0].key_path)
            self._failed(*found, failure)
        self.pump()

    def cancelled(self, device: str, part_id: PartId) -> None:
        found = self._stopped(device, part_id)
        if found is not None:
            self._settle_partition(*found)
        self.pump()

    def device_died(self, device: str, reason: str, blamed: Collection[PartId] | None = None) -> None:
        """What ran there is queued once more, or its job failed with ``reason``. ``blamed``: the process was ended for
        these; for what else ran there, the attempt does not count."""
        self._scheduler.forget_fits(device)
        for part_id in sorted(self._scheduler.on(device).values(), key=self._order_of):
            found = self._stopped(device, part_id)
            if found is None:
                continue
            job, part = found
            if blamed is not None and part_id not in blamed:
                self._take_back(job, part)
                continue
            again = part.died()
            if job.cancelling:
                self._settle_partition(job, part)
            elif again:
                self._totals.retried["died"] += 1
                self._requeue(job, part)
            else:
                where = f"partition {part.number + 1} of {job.partitions}, phase {part.phase or 'start'}"
                self._owner.end(job, JobState.FAILED, f"{reason} while it ran {where}, twice; it is not tried again")
        self.pump()

    # ---- inside ----

    def _find(self, part_id: PartId) -> tuple[JobRecord, Partition] | None:
        job = self._book.active(part_id[0])
        return (job, job.parts[part_id[1]]) if job is not None else None

    def _order_of(self, part_id: PartId) -> tuple[int, int]:
        job = self._book.active(part_id[0])
        return (job.order if job else 0), part_id[1]

    def _places(self, job: JobRecord) -> list[tuple[PartId, str]]:
        """Partitions of a job that run, and where."""
        return [(part, place.device) for part, place in self._scheduler.running.items() if part[0] == job.id]

    def _start(self, choice: Choice) -> None:
        now = self._clocks.wall()
        job = self._book.get(choice.part.job)
        part = job.parts[choice.part.number]
        if job.state is JobState.QUEUED and not job.partitions_done:
            job.started_unix_ns = now
        job.state = JobState.RUNNING
        job.last_activity_unix_ns = now
        part.state, part.phase, part.device = PartitionState.SYNTHESIZING, "", choice.device
        part.started_unix_ns = now
        part.attempts += 1
        job.summarise()
        self._book.save(job, part)
        self._scheduler.started(choice)
        self._positions = None
        self._idle.clear()
        self._devices[choice.device].start(job, part, choice.worker)
        self._owner.changed(job)

    def _stopped(self, device: str, part_id: PartId) -> tuple[JobRecord, Partition] | None:
        """A partition that was running there does not any more; None where it was not, or its job has ended."""
        place = self._scheduler.running.get(part_id)
        if place is None or place.device != device:
            return None
        self._scheduler.ended(part_id)
        if self.is_idle:
            self._idle.set()
        return self._find(part_id)

    def _completed(
        self, job: JobRecord, part: Partition, proof: tuple[str, str] | Kept, phases: list[PhaseTime]
    ) -> None:
        part.done(proof, phases)
        self._totals.partitions += 1
        if all(other.state is PartitionState.DONE for other in job.parts):
            self._owner.end(job, JobState.COMPLETED)
        else:
            self._settle_partition(job, part)

    def _failed(self, job: JobRecord, part: Partition, failure: Failure) -> None:
        again = part.failed(failure)
        if job.cancelling:
            self._settle_partition(job, part)
        elif again and self._scheduler.can_run(waiting(job, part)):
            log.warning("job %s, partition %d: %s; it is tried again", job.id, part.number, failure.error)
            self._totals.retried[failure.fault] += 1
            self._requeue(job, part)
        else:
            reasons = part.refused.values() if failure.fault is Fault.PLAN else [failure.error]
            self._fail_partition(job, part, "; ".join(reasons))

    def _settle_partition(self, job: JobRecord, part: Partition) -> None:
        """A partition has ended, and its job has not for that; unless it is cancelled, and this was the last that
        ran."""
        if job.cancelling and not self.runs(job):
            self._owner.end(job, JobState.CANCELLED)
        elif part.state is PartitionState.DONE:
            self._after_partition(job, part)
        elif job.cancelling:
            part.state = PartitionState.FAILED
            self._after_partition(job, part)
        else:  # nobody had asked for that
            self._requeue(job, part)

    def _requeue(self, job: JobRecord, part: Partition) -> None:
        part.wait_again()
        self._scheduler.queue.add(waiting(job, part))
        self._after_partition(job, part)

    def _take_back(self, job: JobRecord, part: Partition) -> None:
        """Something else ended the attempt, which does not count."""
        part.attempts -= 1
        if job.cancelling:
            self._settle_partition(job, part)
        else:
            self._requeue(job, part)

    def _after_partition(self, job: JobRecord, part: Partition) -> None:
        self._positions = None
        job.state = JobState.RUNNING if self.runs(job) else JobState.QUEUED
        job.phase = job.phase if job.state is JobState.RUNNING else ""
        job.last_activity_unix_ns = self._clocks.wall()
        job.summarise()
        self._book.save(job, part)
        self._owner.changed(job)

    def _fail_partition(self, job: JobRecord, part: Partition, error: str) -> None:
        where = f"partition {part.number + 1} of {job.partitions}" if job.partitions > 1 else ""
        if where and part.witness_path and part.witness_path not in error:
            where += f" ({part.witness_path})"
        self._owner.end(job, JobState.FAILED, f"{where}: {error}" if where else error)
