"""bellperson's proving keys, ready for use: a key with its circuit, checked once, converted as it is read.

The points of a .params file are big-endian plain numbers. Proofs convert them part by part, of a few ten MB, into one
buffer while they sum a query, which costs a few percent of the sum: so memory stays bounded for keys of any size.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import FormatError, ProofInvalidError
from cuzk_engine.formats.params import HEADER, Params
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.groth16.circuit import Circuit, open_circuit
from cuzk_engine.groth16.plan import CircuitSizes, Query
from cuzk_engine.groth16.proving_key import HBasis, KeyElements, PointRange
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.key_checks import CheckedKeys, Progress, content_hash
from cuzk_engine.native import Group, PointFault, PointProblem
from cuzk_engine.units import format_count

STAGING_BYTES: Final = 48 << 20  # 2^19 points of G1, 2^18 of G2
_CHECKED_AT_ONCE: Final = 12 << 20  # bytes of points between two reports of progress, below a second of one core
_FEW: Final = 64  # points that are tested one by one

_FAULTS: Final = {
    PointFault.COORDINATE: "a coordinate is not below the prime of the base field",
    PointFault.OFF_CURVE: "is not on its curve",
    PointFault.SUBGROUP: "is not of the group's order",
    PointFault.FLAGS: "has a flag that uncompressed points do not have",
    PointFault.INFINITY: "is infinity, which a bellperson key never holds",
}


@dataclass(frozen=True, slots=True)
class ParamsSizes(CircuitSizes):
    """Sizes of a circuit with a bellperson key. Queries are summed over all variables, with infinity where the key
    leaves one out, in parts of at most ``part_bytes``."""

    part_bytes: int = STAGING_BYTES

    @classmethod
    def of_key(cls, params: Params, n_terms: int = 0) -> ParamsSizes:
        """``n_terms``: non-zero coefficients of the circuit's matrices, which the key does not tell."""
        listed = {Query.H: len(params.h), Query.A: len(params.a), Query.L: len(params.l)}
        present = tuple(listed.get(query, len(params.b1)) for query in Query)
        sizes = params.n_vars, params.n_public, params.domain_size, n_terms
        return cls(BLS12_381, *sizes, present, part_bytes=STAGING_BYTES)

    def query_length(self, query: Query) -> int:
        if query is Query.H:
            return self.domain_size - 1
        return CircuitSizes.query_length(self, query)

    def ranges(self, query: Query) -> list[PointRange]:
        """Parts that begin at multiples of 8, as the bits of `Circuit.a_present` need it, and fit into staging."""
        step, total = self.part_bytes // self.point_bytes(query) // 64 * 64, self.query_length(query)
        return [PointRange(first, min(step, total - first)) for first in range(0, max(total, 1), step)]


@dataclass(frozen=True, eq=False)
class LoadedParams:
    """A key and its circuit, both checked, also against each other."""

    params: Params
    circuit: Circuit
    sizes: ParamsSizes
    verification_key: PreparedKey

    @property
    def path(self) -> str:
        return self.params.path

    @property
    def curve(self) -> Curve:
        return BLS12_381

    @property
    def n_vars(self) -> int:
        return self.sizes.n_vars

    @property
    def file_bytes(self) -> int:
        return self.params.file_bytes

    @property
    def elements(self) -> KeyElements:
        return self.params

    @property
    def h_basis(self) -> HBasis:
        return HBasis.MONOMIAL

    @property
    def device_matrices(self) -> None:
        return None

    @property
    def staging_bytes(self) -> int:
        parts = ((query, part) for query in Query for part in self.sizes.ranges(query))
        return max(part.n * self.sizes.point_bytes(query) for query, part in parts)

    def is_unchanged(self) -> bool:
        return self.params.is_unchanged() and self.circuit.source.is_unchanged()

    def check_witness(self, witness: Witness) -> None:
        check_witness(self, witness)

    def evaluate(self, witness: Witness, a: Bytes, b: Bytes, c: Bytes, call: native.Call) -> None:
        violated = self.circuit.evaluate(witness.raw, self.sizes.domain_size, a, b, c, call)
        if violated is not None:
            raise ProofInvalidError(
                f"{witness.path}: the witness does not satisfy the circuit: constraint {violated:,} of "
                f"{self.circuit.path}, counted from 0, is the first that it violates"
            )

    def ranges(self, query: Query) -> list[PointRange]:
        return self.sizes.ranges(query)

    def points(self, query: Query, part: PointRange, staging: Bytes | None, call: native.Call) -> Bytes:
        """Converts a part into ``staging``; raises FormatError where the file holds no point any more."""
        section, encoded, bits = self._query(query)
        group, size = Group(query.group), self.sizes.point_bytes(query)
        assert staging is not None
        if staging.nbytes < part.n * size:
            raise ValueError(f"{staging.nbytes} bytes for {part.n} points of {size}")
        first, n = part.first, part.n
        present = None
        if bits is not None:
            present = bits[part.first // 8 : -(-(part.first + part.n) // 8)]
            first = self._rank(bits, part.first)
            n = self._rank(bits, part.first + part.n) - first
        out = staging[: part.n * size]
        library = native.library()
        problem = library.points_decode(
            self.curve, group, encoded[first : first + n], n, present, part.n, out, False, call
        )
        if problem is not None:
            where = f"section {section}, point {first + problem.index:,}"
            raise FormatError(self.path, f"{where}: {_FAULTS[problem.fault]}; the file changed after it was checked")
        return out.reshape(part.n, size)

    def explain(self, witness: Witness) -> str:
        return f"; it satisfies {self.circuit.path}, so the key belongs to another circuit"

    def _query(self, query: Query) -> tuple[str, Bytes, Bytes | None]:
        params, circuit = self.params, self.circuit
        return {
            Query.H: ("h", params.h, None),
            Query.L: ("l", params.l, None),
            Query.A: ("a", params.a, circuit.a_present),
            Query.B1: ("b_g1", params.b1, circuit.b_present),
            Query.B2: ("b_g2", params.b2, circuit.b_present),
        }[query]

    @staticmethod
    def _rank(bits: Bytes, end: int) -> int:
        """How many of the first ``end`` bits are set."""
        whole = int(np.bitwise_count(bits[: end // 8]).sum(dtype=np.int64))
        return whole + (int(bits[end // 8]) & ((1 << (end % 8)) - 1)).bit_count() if end % 8 else whole


def load_params(
    path: Path | str,
    circuit_path: Path | str,
    checks: CheckedKeys,
    threads: int = 0,
    cancel: CancelToken | None = None,
    progress: Progress | None = None,
) -> LoadedParams:
    """Opens a key and its circuit and checks both, the points only when their content was never checked before."""
    cancel = CancelToken() if cancel is None else cancel
    params = Params.open(path)
    circuit = open_circuit(circuit_path, threads, cancel.address)
    check_match(params, circuit)
    name = os.path.abspath(path)
    content = checks.known_hash(name, params.identity)
    if content is None or not checks.is_checked(content):
        content = content_hash(params.source.data, cancel)
        if not checks.is_checked(content):
            check_points(params, threads, cancel, progress)
        checks.remember(name, params.identity, content)
    prepared = PreparedKey.checked(params.verification_key(), params.path)
    return LoadedParams(params, circuit, ParamsSizes.of_key(params, circuit.n_terms), prepared)


def check_match(params: Params, circuit: Circuit) -> None:
    """Raises FormatError where the key's counts are not those of a key for the circuit."""
    b_present = circuit.count_present(circuit.b_present)
    for what, found, expected in (
        ("ic", params.n_inputs, circuit.n_inputs),
        ("l", params.n_aux, circuit.n_aux),
        ("h", params.domain_size - 1, circuit.domain_size - 1),
        ("a", len(params.a), circuit.count_present(circuit.a_present)),
        ("b_g1", len(params.b1), b_present),
        ("b_g2", len(params.b2), b_present),
    ):
        if found != expected:
            raise FormatError(
                params.path,
                f"section {what} has {format_count(found, 'point')}, the circuit {circuit.path} needs {expected:,}: "
                "the key belongs to another circuit",
            )


def check_points(params: Params, threads: int, cancel: CancelToken, progress: Progress | None = None) -> None:
    """Every point must be encoded as the format says, not infinity, lie on its curve and have order r.

    Raises FormatError that names section and index.
    """
    library = native.library()
    converted = (params.alpha1, params.beta1, params.beta2, params.gamma2, params.delta1, params.delta2)
    for (name, _, _), point in zip(HEADER, converted, strict=True):
        group = Group.G1 if name.endswith("_g1") else Group.G2
        problem = library.points_check(BLS12_381, group, point, 1, True, native.Call(threads, cancel.address))
        if problem is not None:
            raise FormatError(params.path, f"header, {name}: {_FAULTS[problem.fault]}")
    total, done = sum(section.size for section in params.sections), 0
    views = (params.ic, params.h, params.l, params.a, params.b1, params.b2)
    buffer = native.aligned(min(_CHECKED_AT_ONCE, max(view.size for view in views)))
    for section, points in zip(params.sections, views, strict=True):
        group = Group.G2 if section.name == "b_g2" else Group.G1
        step = _CHECKED_AT_ONCE // section.point_bytes
        for start in range(0, section.count, step):
            part = points[start : start + step]
            affine = buffer[: part.size].reshape(part.shape)
            call, n = native.Call(threads, cancel.address), len(part)
            problem = library.points_decode(BLS12_381, group, part, n, None, n, affine, False, call)
            if problem is None:
                problem = find_stray(group, affine, threads, cancel)
            if problem is not None:
                where = f"section {section.name}, point {start + problem.index:,}"
                raise FormatError(params.path, f"{where}: {_FAULTS[problem.fault]}")
            done += part.size
            if progress is not None:
                progress(done / total)


def find_stray(group: Group, points: Bytes, threads: int, cancel: CancelToken) -> PointProblem | None:
    """The first of (n, point bytes) affine points of BLS12-381 that is not of order r.

    Looked for among many by random subsets (see ``subgroup_check``), halving where there is one.
    """
    library, low, high = native.library(), 0, len(points)

    def is_clean(start: int, end: int) -> bool:
        nbytes = library.subgroup_check_scratch_bytes(BLS12_381, group, end - start, threads)
        seed, call = secrets.token_bytes(32), native.Call(threads, cancel.address)
        part, scratch = points[start:end], native.aligned(nbytes)
        return library.subgroup_check(BLS12_381, group, part, end - start, seed, scratch, nbytes, call)

    if high > _FEW and is_clean(low, high):
        return None
    while high - low > _FEW:
        middle = (low + high) // 2
        low, high = (middle, high) if is_clean(low, middle) else (low, middle)
    part, call = points[low:high], native.Call(threads, cancel.address)
    problem = library.points_check(BLS12_381, group, part, high - low, True, call)
    return None if problem is None else PointProblem(low + problem.index, problem.fault)
