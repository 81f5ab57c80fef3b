"""How a device spent a stretch of time: kernels, copies, its lock, nothing; and what each partition took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cuzk_engine.diagnosis.intervals import IntervalSet, clip, complement, difference, normalise, total
from cuzk_engine.diagnosis.table import Mask, SpanTable, joined
from cuzk_engine.events import Kind, Lane

PHASES: Final[dict[str, tuple[Kind, ...]]] = {
    "load key": (Kind.LOAD_KEY,),
    "read witness": (Kind.READ_WITNESS,),
    "memory wait": (Kind.MEMORY_WAIT,),
    "evaluate": (Kind.EVALUATE,),
    "page-lock": (Kind.PAGE_LOCK,),
    "upload": (Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC, Kind.UPLOAD_SRS),
    "lock wait": (Kind.LOCK_WAIT,),
    "lock held": (Kind.LOCK_HELD,),
    "result sync": (Kind.RESULT_SYNC,),
    "assemble": (Kind.ASSEMBLE,),
    "verify": (Kind.VERIFY,),
    "deliver": (Kind.DELIVER,),
}
"""What a partition's time is divided into besides its kernels: name → kinds of spans, in the order of the work."""

_BEFORE_A_HOLD: Final = (Kind.LOAD_KEY, Kind.READ_WITNESS, Kind.LOCK_WAIT)
"""What a try of a partition begins with; behind a hold it is another try."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Nanoseconds of ``window``. ``held_idle``: the lock was held and no kernel ran; ``by_kind``: sums of the compute
    lane's spans, which may overlap."""

    window: int
    busy: int
    idle: int
    copying: int
    held: int
    held_idle: int
    by_kind: dict[str, int]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copies of one direction, kind and sort of host memory. ``nanoseconds``: the union of the spans, so that copies
    side by side count once; ``pinned`` None where it is not known."""

    lane: str
    kind: str
    pinned: bool | None
    count: int
    bytes: int
    nanoseconds: int

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return self.bytes * 1e9 / self.nanoseconds if self.nanoseconds else None


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """Nanoseconds of one partition on one device, from its first span to its last. ``parts``: of ``PHASES`` those that
    it had."""

    job: str
    partition: int
    start: int
    end: int
    kernels: int
    parts: dict[str, int]


def busy_set(spans: SpanTable, start: int, end: int) -> IntervalSet:
    """When kernels of the device's spans ran, within [start, end)."""
    return clip(spans.intervals(spans.in_lane(Lane.COMPUTE)), start, end)


def copying_mask(spans: SpanTable) -> Mask:
    return spans.in_lane(Lane.H2D) | spans.in_lane(Lane.D2H)


def holds(spans: SpanTable) -> SpanTable:
    """The times for which workers held the device's lock, with their owners.

    The span of a hold is known when it has ended; one that still lasts, or ended with its process, is seen from the
    wait that came before it, up to the last span of the same try of the partition."""
    held = spans.where(spans.of_kind(Kind.LOCK_HELD))
    waits = spans.where(spans.of_kind(Kind.LOCK_WAIT))
    known = set(zip(held.job.tolist(), held.partition.tolist(), held.start.tolist(), strict=True))
    open_ = [
        row not in known for row in zip(waits.job.tolist(), waits.partition.tolist(), waits.end.tolist(), strict=True)
    ]
    if not any(open_):
        return held
    lasting = waits.where(np.array(open_))
    ends, beginnings = [], spans.of_kind(*_BEFORE_A_HOLD)
    for job, partition, taken in zip(lasting.job, lasting.partition, lasting.end, strict=True):
        own = (spans.job == job) & (spans.partition == partition)
        again = spans.start[own & beginnings & (spans.start > taken)]
        if len(again):
            own &= spans.start < again.min()
        ends.append(max(taken, spans.end[own].max()))
    lasting = replace(lasting, start=lasting.end, end=np.array(ends, np.int64))
    return joined([held, lasting], spans.names)


def held_set(spans: SpanTable) -> IntervalSet:
    """When some worker held the device's lock."""
    held = holds(spans)
    return normalise(held.start, held.end)


def shares(spans: SpanTable, start: int, end: int) -> Shares:
    """Of one device's spans in [start, end)."""
    busy = busy_set(spans, start, end)
    held = clip(held_set(spans), start, end)
    compute = spans.where(spans.in_lane(Lane.COMPUTE)).within(start, end)
    length = np.minimum(compute.end, end) - np.maximum(compute.start, start)
    sums = np.bincount(compute.kind, weights=length, minlength=1) if len(compute) else np.zeros(1)
    return Shares(
        window=max(0, end - start),
        busy=total(busy),
        idle=total(complement(busy, start, end)),
        copying=total(clip(spans.intervals(copying_mask(spans)), start, end)),
        held=total(held),
        held_idle=total(difference(held, busy)),
        by_kind={spans.text(i): int(sums[i]) for i in np.flatnonzero(sums).tolist()},
    )


def transfers(spans: SpanTable) -> list[Transfer]:
    """Sorted by bytes, most first."""
    copies = spans.where(copying_mask(spans))
    kinds = len(copies.names.texts)
    # Of one number a row, which is sorted without the interpreter's lock; rows of an array are not.
    keys = (copies.lane.astype(np.int64) * kinds + copies.kind) * 3 + np.clip(copies.pinned, -1, 1) + 1
    found = []
    for key in np.unique(keys).tolist():
        rows = keys == key
        lane, kind, pinned = key // 3 // kinds, key // 3 % kinds, key % 3 - 1
        found.append(
            Transfer(
                copies.text(lane),
                copies.text(kind),
                None if pinned < 0 else bool(pinned),
                int(rows.sum()),
                int(copies.size[rows].sum()),
                total(copies.intervals(rows)),
            )
        )
    return sorted(found, key=lambda transfer: -transfer.bytes)


def partitions(spans: SpanTable) -> list[PartitionTimes]:
    """Of one device's spans, in the order in which they began; spans without a job are left out."""
    with_job = spans.where((spans.job != spans.names.find("")) & (spans.job >= 0))
    if not len(with_job):
        return []
    order = np.lexsort((with_job.start, with_job.partition, with_job.job))
    rows = with_job.where(order)
    changes = np.flatnonzero((np.diff(rows.job) != 0) | (np.diff(rows.partition) != 0)) + 1
    found = []
    for part in np.split(np.arange(len(rows)), changes):
        own = rows.where(part)
        kernels = own.intervals(own.in_lane(Lane.COMPUTE))
        parts = {name: total(own.intervals(own.of_kind(*kinds))) for name, kinds in PHASES.items()}
        found.append(
            PartitionTimes(
                own.text(int(own.job[0])),
                int(own.partition[0]),
                int(own.start.min()),
                int(own.end.max()),
                total(kernels),
                {name: spent for name, spent in parts.items() if spent},
            )
        )
    return sorted(found, key=lambda partition: partition.start)
