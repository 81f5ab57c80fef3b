"""What one partition will hold on a device at its peak, known from the circuit's sizes before anything starts.

The pipeline's stages and what is alive in each (w: witness, a b c: the three vectors over the domain):

    transform   w, a, b, c
    H           w, a, buckets of the H query        b and c are freed once a∘b − c stands in a
    queries     w, buckets of the largest query     a is freed after H

before them, where the device evaluates, ``evaluate``: w, a, b, c and scratch;

and the NTT table, which outlives the partition. ``runner`` allocates and frees in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.events import Purpose
from cuzk_engine.formats.zkey import ZKey

FR_BYTES: Final = 32


class Query(StrEnum):
    """The five MSMs of a proof, in the order in which they run."""

    H = "H"
    A = "A"
    B1 = "B1"
    B2 = "B2"
    L = "L"

    @property
    def group(self) -> int:
        return 2 if self is Query.B2 else 1


@dataclass(frozen=True, slots=True)
class CircuitSizes:
    """What the plan and the cost model need to know of a circuit."""

    curve: Curve
    n_vars: int
    n_public: int
    domain_size: int
    n_coefficients: int

    @classmethod
    def of(cls, zkey: ZKey) -> CircuitSizes:
        return cls(zkey.curve, zkey.n_vars, zkey.n_public, zkey.domain_size, zkey.n_coefficients)

    @property
    def log_domain(self) -> int:
        return self.domain_size.bit_length() - 1

    @property
    def witness_bytes(self) -> int:
        return self.n_vars * FR_BYTES

    @property
    def vector_bytes(self) -> int:
        """Bytes of one of a, b, c."""
        return self.domain_size * FR_BYTES

    def query_length(self, query: Query) -> int:
        if query is Query.H:
            return self.domain_size
        return self.n_vars - self.n_public - 1 if query is Query.L else self.n_vars

    def launch_lengths(self, query: Query) -> tuple[int, ...]:
        """The lengths, each once, of the MSMs that a query is summed by."""
        return (self.query_length(query),)

    def point_bytes(self, query: Query) -> int:
        return self.curve.g2_bytes if query.group == 2 else self.curve.g1_bytes


@dataclass(frozen=True, slots=True)
class Needs:
    """What a device takes for its operations: MSM scratch for (curve, group, n), table for (curve, log n), scratch of
    the evaluation on the device for (curve, n), n counting coefficients, signals and rows."""

    msm_scratch: Callable[[Curve, int, int], int]
    ntt_table: Callable[[Curve, int], int]
    evaluate_scratch: Callable[[Curve, int], int] = lambda curve, n: 0


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Bytes of one partition. ``stages``: stage → purpose → bytes, without the NTT table; ``table``: the NTT table's
    bytes.

    ``host_vectors``: a, b, c in host memory while they are evaluated there and travel.
    """

    stages: dict[str, dict[Purpose, int]]
    input_bytes: int  # what is uploaded: the witness, and a, b, c where they were evaluated on the host
    table: int
    host_vectors: int

    @property
    def peak(self) -> int:
        return self.table + max(sum(stage.values()) for stage in self.stages.values())

    @property
    def by_purpose(self) -> dict[Purpose, int]:
        """The bytes at the peak, in the stage that makes it, by purpose."""
        stage = max(self.stages, key=lambda name: sum(self.stages[name].values()))
        return {Purpose.NTT: self.table, **self.stages[stage]}

    def reservation(self, *, ahead: bool) -> tuple[int, int]:
        """(held, serial) as the ledger takes them: with ``ahead`` the inputs are on the device before the lock is held,
        otherwise everything is allocated within it. The table is part of held, because it outlives the lock."""
        held = self.table + (self.input_bytes if ahead else 0)
        return held, max(0, self.peak - held)


def plan_partition(sizes: CircuitSizes, needs: Needs, *, evaluate_on_device: bool) -> PartitionPlan:
    """The plan of one proof of a circuit on a device with these needs."""
    witness, vector = sizes.witness_bytes, sizes.vector_bytes
    results = sum(sizes.point_bytes(query) for query in Query)

    def scratch(query: Query) -> int:
        return max(needs.msm_scratch(sizes.curve, query.group, n) for n in sizes.launch_lengths(query))

    queries = max(scratch(query) for query in Query if query is not Query.H)
    stages = {
        "transform": {Purpose.WITNESS: witness, Purpose.ABC: 3 * vector},
        "H": {
            Purpose.WITNESS: witness,
            Purpose.ABC: vector,
            Purpose.MSM: scratch(Query.H),
            Purpose.RESULT: results,
        },
        "queries": {Purpose.WITNESS: witness, Purpose.MSM: queries, Purpose.RESULT: results},
    }
    if evaluate_on_device:
        everything = sizes.n_coefficients + sizes.n_vars + sizes.domain_size
        scratch_bytes = needs.evaluate_scratch(sizes.curve, everything)
        stages["evaluate"] = {**stages["transform"], Purpose.SCRATCH: scratch_bytes}
    return PartitionPlan(
        stages=stages,
        input_bytes=witness + (0 if evaluate_on_device else 3 * vector),
        table=needs.ntt_table(sizes.curve, sizes.log_domain),
        host_vectors=0 if evaluate_on_device else 3 * vector,
    )


class CostModel:
    """Shares of a proof's time by step, for progress only: nanoseconds a unit on one core of a 2020s x86 server,
    measured roughly.

    Ratios matter and are the same for any number of cores; a GPU's differ, which makes its bar uneven but not wrong.
    """

    _BUTTERFLY: Final = 12.0
    _COEFFICIENT: Final = 25.0
    _READ: Final = 1.0  # a byte of witness read and checked
    _CHECK_G1: Final = 250.0
    _CHECK_G2: Final = 500.0
    _ADD_G1: Final = 4500.0  # a scalar's whole way through the buckets, windows included
    _ADD_G2: Final = 12000.0
    _FIXED: Final = 3e6  # assemble and verify

    def __init__(self, sizes: CircuitSizes) -> None:
        self._sizes = sizes
        self._wide = (sizes.curve.limbs / 4) ** 2

    def check_key(self) -> float:
        sizes = self._sizes
        g1 = 2 * sizes.n_vars + sizes.query_length(Query.L) + sizes.domain_size
        return self._wide * (g1 * self._CHECK_G1 + sizes.n_vars * self._CHECK_G2)

    def read_witness(self) -> float:
        return self._READ * self._sizes.witness_bytes

    def evaluate(self) -> float:
        return self._COEFFICIENT * self._sizes.n_coefficients

    def transforms(self) -> float:
        return 3 * self._BUTTERFLY * self._sizes.domain_size * self._sizes.log_domain

    def msm(self, query: Query) -> float:
        each = self._ADD_G2 if query.group == 2 else self._ADD_G1
        return self._wide * each * self._sizes.query_length(query)

    def total(self) -> float:
        """Everything after the key was loaded."""
        queries = sum(self.msm(query) for query in Query)
        return self.read_witness() + self.evaluate() + self.transforms() + queries + self.finish()

    def finish(self) -> float:
        return self._FIXED * self._wide
