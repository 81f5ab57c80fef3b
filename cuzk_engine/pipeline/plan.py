"""What one partition will hold on a device, stage by stage, known before anything starts.

What is alive in each stage (w: witness; a, b, c: the vectors over the domain), in the order of launches, which is the
ledger's: a buffer goes as soon as what uses it was launched.

    evaluate    w, a, b, c, scratch      where the device evaluates; the matrices stay from here on
    transform   w, a, b, c               the NTT table stays from here on
    H           w, a, buckets, results   b and c went when a∘b − c stood in a
    A B1 B2 L   w, buckets, results      a went with H

What stays (table, matrices, points) counts from the stage that loads it, or in all of them where it is there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import Need
from cuzk_engine.events import Purpose
from cuzk_engine.groth16.plan import CircuitSizes, PointRange, Query
from cuzk_engine.pipeline.modes import Mode, Prestage, Work

OUTSTANDING: Final = 2  # results of MSM launches at a time, with double-buffering; else one

EVALUATE: Final = "evaluate"
TRANSFORM: Final = "transform"
TABLE: Final = "table"
MATRICES: Final = "matrices"


class Needs(Protocol):
    """What a device takes for its operations; see `devices.base.Device`."""

    def msm_need(self, curve: Curve, group: int, n: int, present: int, *, resident: bool) -> Need: ...
    def evaluate_need(
        self, curve: Curve, coefficients: int, n_vars: int, domain: int, *, prepared: bool = False
    ) -> Need: ...
    def table_bytes(self, curve: Curve, log_n: int) -> int: ...


There = Mapping[str, int]
"""Bytes that are on the device already and stay for the partition, by what they are: ``table``, ``matrices``, or a
query."""

NOTHING: Final[There] = {}


@dataclass(frozen=True, slots=True)
class Stage:
    """``used``: purpose → the partition's own bytes. ``loaded``: what this stage loads that stays."""

    name: str
    used: dict[Purpose, int]
    loaded: dict[Purpose, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.used.values())


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Bytes of one partition in a mode. ``there``: what stays and is on the device already; ``found``: the names of
    that; ``inputs``: what is uploaded; ``results``: of MSM launches; ``host``: host memory by purpose."""

    mode: Mode
    stages: tuple[Stage, ...]
    there: dict[Purpose, int]
    found: frozenset[str]
    inputs: int
    results: int
    host: dict[Purpose, int]

    @property
    def columns(self) -> dict[str, dict[Purpose, int]]:
        """Stage → purpose → bytes, with what stays."""
        stays, columns = dict(self.there), {}
        for stage in self.stages:
            stays = _added(stays, stage.loaded)
            columns[stage.name] = {key: n for key, n in _added(stays, stage.used).items() if n}
        return columns

    @property
    def by_purpose(self) -> dict[Purpose, int]:
        """The bytes at the peak, in the stage that makes it."""
        return max(self.columns.values(), key=lambda column: sum(column.values()))

    @property
    def peak(self) -> int:
        """Most bytes on the device at a time, with what is there already."""
        return sum(self.by_purpose.values())

    @property
    def stays(self) -> int:
        """Bytes that are on the device afterwards."""
        return sum(self.there.values()) + self.missing

    @property
    def missing(self) -> int:
        """Bytes that this partition loads and leaves."""
        return sum(sum(stage.loaded.values()) for stage in self.stages)

    @property
    def own(self) -> int:
        """Bytes that each worker has on the device outside the lock."""
        return self.results + (self.inputs if self.mode.is_ahead else 0)

    @property
    def reservation(self) -> tuple[int, int]:
        """(held, serial) as the ledger takes them. Held: what is there before the lock is taken or stays behind it."""
        held, loaded, most = self.missing + self.own, 0, 0
        for stage in self.stages:
            loaded += sum(stage.loaded.values())
            most = max(most, loaded + stage.total)
        return held, max(0, most - held)

    @property
    def host_bytes(self) -> int:
        return sum(self.host.values())

    def together(self, workers: int) -> int:
        """Bytes of so many workers at once, with what stays: all but one wait for the lock."""
        held, serial = self.reservation
        return sum(self.there.values()) + held + serial + (workers - 1) * self.own


def plan_partition(
    work: Work, mode: Mode, needs: Needs, there: There = NOTHING, *, page_locks: bool = False
) -> PartitionPlan:
    """The plan of one proof in ``mode`` on a device with these needs, of which some things are there.

    ``page_locks``: the witness is copied to be page-locked.
    """
    sizes = work.sizes
    vector, witness = sizes.vector_bytes, sizes.witness_bytes
    stages = []
    inputs = {Purpose.WITNESS: witness, Purpose.ABC: 3 * vector}
    if mode.on_device:
        need = _evaluate_need(sizes, needs, prepared=MATRICES in there)
        loaded = {} if MATRICES in there else {Purpose.MATRICES: need.stay}
        stages.append(Stage(EVALUATE, {**inputs, Purpose.SCRATCH: need.scratch}, loaded))
    table = needs.table_bytes(sizes.curve, sizes.log_domain)
    stages.append(Stage(TRANSFORM, inputs, {} if TABLE in there else {Purpose.NTT: table}))
    results = (OUTSTANDING if mode.double_buffer else 1) * max(sizes.point_bytes(query) for query in Query)
    stages += _msm_stages(work, mode, needs, there, results)
    return PartitionPlan(
        mode=mode,
        stages=tuple(stages),
        there=_there_by_purpose(there),
        found=frozenset(there),
        inputs=witness + (0 if mode.on_device else 3 * vector),
        results=results,
        host=_host(work, mode, page_locks=page_locks),
    )


def _evaluate_need(sizes: CircuitSizes, needs: Needs, *, prepared: bool) -> Need:
    return needs.evaluate_need(sizes.curve, sizes.n_coefficients, sizes.n_vars, sizes.domain_size, prepared=prepared)


def steady_plan(work: Work, mode: Mode, needs: Needs, *, page_locks: bool = False) -> PartitionPlan:
    """The plan where all is there that stays."""
    cold = plan_partition(work, mode, needs, page_locks=page_locks)
    names = {EVALUATE: MATRICES, TRANSFORM: TABLE}
    loads = {names.get(stage.name, stage.name): sum(stage.loaded.values()) for stage in cold.stages}
    there = {name: nbytes for name, nbytes in loads.items() if nbytes}
    return plan_partition(work, mode, needs, there, page_locks=page_locks)


def is_resident(work: Work, mode: Mode, query: Query) -> bool:
    """Whether a query's points stay on the device: not where they are converted or summed in parts."""
    return mode.is_resident and not work.converts and len(work.sizes.launches(query, mode.batch)) == 1


def _msm_stages(work: Work, mode: Mode, needs: Needs, there: There, results: int) -> list[Stage]:
    sizes, stages, before = work.sizes, [], 0
    for query in Query:
        resident = is_resident(work, mode, query)
        scratch = stay = transit = 0
        for part in sizes.launches(query, mode.batch):
            need = _msm_need(sizes, needs, query, part, resident=resident)
            scratch = max(scratch, need.scratch)
            # Two buffers: one of this launch, one of the one before it.
            transit = max(transit, need.transit, (before + need.transit + 1) // 2)
            before = need.transit
            stay += need.stay
        used = {
            Purpose.WITNESS: sizes.witness_bytes,
            Purpose.ABC: sizes.vector_bytes if query is Query.H else 0,
            Purpose.MSM: scratch,
            Purpose.SRS: transit,
            Purpose.RESULT: results,
        }
        stages.append(Stage(query.value, used, {} if query in there else {Purpose.SRS: stay}))
    return stages


def _msm_need(sizes: CircuitSizes, needs: Needs, query: Query, part: PointRange, *, resident: bool) -> Need:
    present = min(part.n, sizes.present_points(query))  # where they are in a query is not known
    return needs.msm_need(sizes.curve, query.group, part.n, present, resident=resident)


def _there_by_purpose(there: There) -> dict[Purpose, int]:
    purposes = {TABLE: Purpose.NTT, MATRICES: Purpose.MATRICES}
    found: dict[Purpose, int] = {}
    for what, nbytes in there.items():
        found = _added(found, {purposes.get(what, Purpose.SRS): nbytes})
    return found


def _host(work: Work, mode: Mode, *, page_locks: bool) -> dict[Purpose, int]:
    """a, b, c where the host evaluates; a copy of the witness where that is page-locked; what points are converted
    into."""
    host = {
        Purpose.ABC: 0 if mode.on_device else 3 * work.sizes.vector_bytes,
        Purpose.WITNESS: work.sizes.witness_bytes if page_locks and mode.prestage is not Prestage.OFF else 0,
        Purpose.SRS: conversions(mode) * conversion_bytes(work, mode) if work.converts else 0,
    }
    return {purpose: nbytes for purpose, nbytes in host.items() if nbytes}


def conversions(mode: Mode) -> int:
    """Buffers that points are converted into."""
    return OUTSTANDING if mode.double_buffer else 1


def conversion_bytes(work: Work, mode: Mode) -> int:
    """Bytes of the largest part that is converted at once."""
    sizes = work.sizes
    return max(part.n * sizes.point_bytes(query) for query in Query for part in sizes.launches(query, mode.batch))


def _added(one: Mapping[Purpose, int], other: Mapping[Purpose, int]) -> dict[Purpose, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in (*one, *(key for key in other if key not in one))}
