"""What the plan and the progress of a proof need to know of its circuit: lengths, bytes, costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.events import Name
from cuzk_engine.formats.zkey import ZKey

FR_BYTES: Final = 32


class Query(Name):
    """The five MSMs of a proof, in the order in which they run."""

    H = "H"
    A = "A"
    B1 = "B1"
    B2 = "B2"
    L = "L"

    @property
    def group(self) -> int:
        return 2 if self is Query.B2 else 1


QUERIES: Final = tuple(Query)  # quicker to go through
_PLACES: Final = {query: place for place, query in enumerate(QUERIES)}


@dataclass(frozen=True, slots=True)
class PointRange:
    """Part of a query: points and scalars [first, first + n)."""

    first: int
    n: int


@dataclass(frozen=True, slots=True)
class CircuitSizes:
    """What the plan and the cost model need to know of a circuit. ``present``: points of each query, in the order of
    `Query`, that are not at infinity; ``general``: coefficients that are neither one nor minus one; None: not
    counted."""

    curve: Curve
    n_vars: int
    n_public: int
    domain_size: int
    n_coefficients: int
    present: tuple[int, ...] | None = None
    general: int | None = None

    @classmethod
    def of(cls, zkey: ZKey, present: tuple[int, ...] | None = None, general: int | None = None) -> CircuitSizes:
        return cls(zkey.curve, zkey.n_vars, zkey.n_public, zkey.domain_size, zkey.n_coefficients, present, general)

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

    def present_points(self, query: Query) -> int:
        """Points that are not at infinity, at most."""
        length = self.query_length(query)
        return length if self.present is None else min(length, self.present[_PLACES[query]])

    def ranges(self, query: Query) -> Sequence[PointRange]:
        """The parts in which a query's points are at hand."""
        return (PointRange(0, self.query_length(query)),)

    def launches(self, query: Query, batch: int) -> list[PointRange]:
        """The parts in which a query is summed, none longer than ``batch``; one, maybe empty, at least."""
        return [
            PointRange(part.first + start, min(batch, part.n - start))
            for part in self.ranges(query)
            for start in range(0, max(part.n, 1), max(batch, 1))
        ]

    def launch_count(self, query: Query, batch: int) -> int:
        """How many those are."""
        step = max(batch, 1)
        return sum(-(-max(part.n, 1) // step) for part in self.ranges(query))

    def point_bytes(self, query: Query) -> int:
        return self.curve.g2_bytes if query.group == 2 else self.curve.g1_bytes


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
        self._msms = {query: self._msm(query) for query in QUERIES}
        queries = sum(self._msms.values())
        self._total = self.read_witness() + self.evaluate() + self.transforms() + queries + self.finish()

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
        return self._msms[query]

    def _msm(self, query: Query) -> float:
        each = self._ADD_G2 if query.group == 2 else self._ADD_G1
        return self._wide * each * self._sizes.query_length(query)

    def total(self) -> float:
        """Everything after the key was loaded."""
        return self._total

    def finish(self) -> float:
        return self._FIXED * self._wide
