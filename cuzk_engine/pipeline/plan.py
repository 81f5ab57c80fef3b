"""What one partition will hold on a device, stage by stage, known before anything starts.

What is alive in each stage (w: witness; a, b, c: the vectors over the domain), in the order of launches, which is the
ledger's: a buffer goes as soon as what uses it was launched.

    evaluate    w, a, b, c, scratch      where the device evaluates; the matrices stay from here on
    transform   w, a, b, c               the NTT table stays from here on
    H           w, a, buckets, results   b and c went when a∘b − c stood in a
    A B1 B2 L   w, buckets, results      a went with H

Buckets are those of as many launches as the device has under way at a time. Points that travel are there from one
launch ahead until a launch's result was fetched; the first ones come with the lock. What stays (table, matrices,
points) counts from the stage that loads it, or in all of them where it is there already.

Where launches run beside each other, the lock is given up while the last one runs, if there is room: what that takes is
there beside the next worker's stages up to A, its buckets up to H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final, Protocol

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import DeviceInfo, Need
from cuzk_engine.devices.pages import block_bytes
from cuzk_engine.events import Purpose
from cuzk_engine.groth16.plan import QUERIES, CircuitSizes, PointRange, Query
from cuzk_engine.pipeline.modes import Mode, Prestage, Work

OUTSTANDING: Final = 2  # results of MSM launches at a time, or more where a device has more under way

EVALUATE: Final = "evaluate"
TRANSFORM: Final = "transform"
TABLE: Final = "table"
MATRICES: Final = "matrices"
_BEGINNING: Final = (EVALUATE, TRANSFORM, Query.H, Query.A)  # before anything is waited for


class Needs(Protocol):
    """What a device takes for its operations; see `devices.base.Device`."""

    @property
    def info(self) -> DeviceInfo: ...
    def msm_need(self, curve: Curve, group: int, n: int, present: int, *, resident: bool) -> Need: ...
    def evaluate_need(
        self,
        curve: Curve,
        coefficients: int,
        n_vars: int,
        domain: int,
        *,
        prepared: bool = False,
        general: int | None = None,
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


@dataclass(frozen=True)
class PartitionPlan:
    """Bytes of one partition in a mode. ``there``: what stays and is on the device already; ``found``: the names of
    that; ``inputs``: what is uploaded; ``results``: of MSM launches; ``last``: what the last launch takes when the lock
    is given up; ``host``: host memory by purpose."""

    mode: Mode
    stages: tuple[Stage, ...]
    there: dict[Purpose, int]
    found: frozenset[str]
    inputs: int
    results: int
    last: Need
    host: dict[Purpose, int]

    @property
    def columns(self) -> dict[str, dict[Purpose, int]]:
        """Stage → purpose → bytes, with what stays."""
        stays, columns = dict(self.there), {}
        for stage in self.stages:
            stays = _added(stays, stage.loaded)
            columns[stage.name] = {key: n for key, n in _added(stays, stage.used).items() if n}
        return columns

    @cached_property
    def by_purpose(self) -> dict[Purpose, int]:
        """The bytes at the peak, in the stage that makes it."""
        return max(self.columns.values(), key=lambda column: sum(column.values()))

    @cached_property
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

    @cached_property
    def own(self) -> int:
        """Bytes that each worker has on the device outside the lock."""
        return self.results + (self.inputs if self.mode.is_ahead else 0)

    @cached_property
    def reservation(self) -> tuple[int, int]:
        """(held, serial) as the ledger takes them. Held: what is there before the lock is taken or stays behind it."""
        held, loaded, most = self.missing + self.own, 0, 0
        for stage in self.stages:
            loaded += sum(stage.loaded.values())
            most = max(most, loaded + stage.total)
        return held, max(0, most - held)

    @cached_property
    def host_bytes(self) -> int:
        return sum(self.host.values())

    def together(self, workers: int) -> int:
        """Bytes of so many workers at once, with what stays: all but one wait for the lock."""
        held, serial = self.reservation
        return sum(self.there.values()) + held + serial + (workers - 1) * self.own

    def most(self, workers: int) -> int:
        """The same where there is room for a worker's last launch beside the next one's first stages. ``together`` is
        enough for all of them: the lock is given up later then."""
        if workers < 2:
            return self.together(workers)
        beside, reached = 0, sum(self.there.values())
        for stage in self.stages:
            reached += sum(stage.loaded.values())
            if stage.name in _BEGINNING:
                scratch = 0 if stage.name == Query.A else self.last.scratch
                beside = max(beside, reached + stage.total + scratch + self.last.transit)
        return max(self.together(workers), beside + self.results + (workers - 2) * self.own)


def plan_partition(work: Work, mode: Mode, needs: Needs, there: There = NOTHING) -> PartitionPlan:
    """The plan of one proof in ``mode`` on a device with these needs, of which some things are there."""
    sizes = work.sizes
    vector, witness = sizes.vector_bytes, sizes.witness_bytes
    stages = []
    launches = _launches(work, mode, needs)
    first = 0 if work.converts else launches[0][1].transit
    inputs = {Purpose.WITNESS: witness, Purpose.ABC: 3 * vector, Purpose.SRS: first}
    if mode.on_device:
        need = _evaluate_need(sizes, needs, prepared=MATRICES in there)
        loaded = {} if MATRICES in there else {Purpose.MATRICES: need.stay}
        stages.append(Stage(EVALUATE, {**inputs, Purpose.SCRATCH: need.scratch}, loaded))
    table = needs.table_bytes(sizes.curve, sizes.log_domain)
    stages.append(Stage(TRANSFORM, inputs, {} if TABLE in there else {Purpose.NTT: table}))
    results = outstanding(mode, needs.info) * max(sizes.point_bytes(query) for query in Query)
    stages += _msm_stages(sizes, mode, needs.info, launches, there, results)
    return PartitionPlan(
        mode=mode,
        stages=tuple(stages),
        there=_there_by_purpose(there),
        found=frozenset(there),
        inputs=witness + (0 if mode.on_device else 3 * vector),
        results=results,
        last=launches[-1][1] if mode.double_buffer and needs.info.parallel_launches > 1 else Need(0),
        host=_host(work, mode, needs.info),
    )


def _evaluate_need(sizes: CircuitSizes, needs: Needs, *, prepared: bool) -> Need:
    return needs.evaluate_need(
        sizes.curve, sizes.n_coefficients, sizes.n_vars, sizes.domain_size, prepared=prepared, general=sizes.general
    )


def steady_plan(work: Work, mode: Mode, needs: Needs) -> PartitionPlan:
    """The plan where all is there that stays."""
    cold = plan_partition(work, mode, needs)
    names = {EVALUATE: MATRICES, TRANSFORM: TABLE}
    loads = {names.get(stage.name, stage.name): sum(stage.loaded.values()) for stage in cold.stages}
    there = {name: nbytes for name, nbytes in loads.items() if nbytes}
    return plan_partition(work, mode, needs, there)


@lru_cache(maxsize=256)
def residents(work: Work, mode: Mode) -> frozenset[Query]:
    """The queries whose points stay on the device: not where they are converted or summed in parts."""
    if not mode.is_resident or work.converts:
        return frozenset()
    return frozenset(query for query in QUERIES if work.sizes.launch_count(query, mode.batch) == 1)


def is_resident(work: Work, mode: Mode, query: Query) -> bool:
    """Whether a query's points stay on the device."""
    return query in residents(work, mode)


def outstanding(mode: Mode, info: DeviceInfo) -> int:
    """MSM launches whose results were not fetched, at most."""
    return max(OUTSTANDING, info.parallel_launches) if mode.double_buffer else 1


def msm_need(sizes: CircuitSizes, needs: Needs, query: Query, part: PointRange, *, resident: bool) -> Need:
    present = min(part.n, sizes.present_points(query))  # where they are in a query is not known
    return needs.msm_need(sizes.curve, query.group, part.n, present, resident=resident)


def _launches(work: Work, mode: Mode, needs: Needs) -> list[tuple[Query, Need]]:
    found = []
    for query in Query:
        resident = is_resident(work, mode, query)
        for part in work.sizes.launches(query, mode.batch):
            found.append((query, msm_need(work.sizes, needs, query, part, resident=resident)))
    return found


def _msm_stages(
    sizes: CircuitSizes,
    mode: Mode,
    info: DeviceInfo,
    launches: Sequence[tuple[Query, Need]],
    there: There,
    results: int,
) -> list[Stage]:
    needs = [need for _, need in launches]
    parallel, fetched = info.parallel_launches if mode.double_buffer else 1, outstanding(mode, info)
    stages = []
    for query in Query:
        numbers = [k for k, (of, _) in enumerate(launches) if of is query]
        scratch = (sum(need.scratch for need in needs[max(0, k + 1 - parallel) : k + 1]) for k in numbers)
        transit = (sum(need.transit for need in needs[max(0, k + 1 - fetched) : k + 2]) for k in numbers)
        used = {
            Purpose.WITNESS: sizes.witness_bytes,
            Purpose.ABC: sizes.vector_bytes if query is Query.H else 0,
            Purpose.MSM: max(scratch),
            Purpose.SRS: max(transit),
            Purpose.RESULT: results,
        }
        stay = sum(needs[k].stay for k in numbers)
        stages.append(Stage(query.value, used, {} if query in there else {Purpose.SRS: stay}))
    return stages


def _there_by_purpose(there: There) -> dict[Purpose, int]:
    purposes = {TABLE: Purpose.NTT, MATRICES: Purpose.MATRICES}
    found: dict[Purpose, int] = {}
    for what, nbytes in there.items():
        found = _added(found, {purposes.get(what, Purpose.SRS): nbytes})
    return found


def _host(work: Work, mode: Mode, info: DeviceInfo) -> dict[Purpose, int]:
    """a, b, c where the host evaluates; a copy of the witness where that is page-locked; what points are converted
    into."""
    locks = info.page_locks and mode.prestage is not Prestage.OFF

    def size(nbytes: int) -> int:
        return block_bytes(nbytes) if locks and nbytes else nbytes

    host = {
        Purpose.ABC: 0 if mode.on_device else 3 * size(work.sizes.vector_bytes),
        Purpose.WITNESS: size(work.sizes.witness_bytes) if locks else 0,
        Purpose.SRS: conversions(mode) * size(conversion_bytes(work, mode)) if work.converts else 0,
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
