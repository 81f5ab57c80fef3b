"""Groth16 keys for development, made by one party from a constraint system.

With tau, alpha, beta, gamma, delta the secret scalars, L_i the Lagrange basis of the domain, and
u_s = Σ_i A[i][s] L_i(tau), v_s and w_s the same of B and C, the queries are (Groth, "On the Size of Pairing-based
Non-interactive Arguments", section 3.2, on the generators of both groups):

    A_s = u_s · G1      B_s = v_s · G1 and v_s · G2
    IC_s = (beta u_s + alpha v_s + w_s) / gamma · G1 for the constant and the public signals
    L_s  = (beta u_s + alpha v_s + w_s) / delta · G1 for the others
    H    depends on the layout (``zkey_h_scalars``, ``monomial_h_scalars``)

After the last constraint there is one row more for the constant and each public signal s: A[i][s] = 1.

Memory: 128 bytes a domain element at the peak, and about 150 MB; the file of the constraint system is mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.points import encode_g1, encode_g2
from cuzk_engine.formats.r1cs import R1cs, R1csHeader, open_header
from cuzk_engine.formats.source import Bytes, SourceFile
from cuzk_engine.groth16.fixed_base import FixedBase
from cuzk_engine.groth16.toxic import ToxicWaste
from cuzk_engine.native import Call, Field, FieldOp, Group, NativeCallError, Status, aligned

Scalars = npt.NDArray[np.uint64]  # (n, 4), plain
Progress = Callable[[str, float], None]

CHUNK: Final = 1 << 15  # points made at a time
# What the roots of unity are powers of: they decide which row of a system stands at which point of the domain.
SNARKJS_ROOT_BASE: Final = 5  # the smallest non-residue of both fields
BELLMAN_ROOT_BASE: Final = 7  # the multiplicative generator of BLS12-381's scalar field
ENTRY_BYTES: Final = 44
_G2_WEIGHT: Final = 3  # what a point of G2 costs, in points of G1


@dataclass(frozen=True, eq=False)
class System:
    """A constraint system whose every row has been checked, left where it lies."""

    source: SourceFile
    header: R1csHeader
    section: Bytes  # section 2
    terms: tuple[int, int, int]  # of A, B, C

    @classmethod
    def load(cls, source: SourceFile, threads: int = 0) -> System:
        """Checks the file whole; raises FormatError."""
        container, header = open_header(source)
        check_domain(source.path, header)
        section = container.view(2)
        library = native.library()
        arguments = (header.curve, section, section.size, header.n_constraints, header.n_wires, Call(threads))
        terms = library.r1cs_check(*arguments)
        if terms is None:
            R1cs.from_source(source)  # the slow reader, which says what is wrong
            raise FormatError(source.path, "the constraints are damaged")
        return cls(source, header, section, terms)

    @property
    def curve(self) -> Curve:
        return self.header.curve

    @property
    def n_rows(self) -> int:
        """Constraints, and the rows for the constant and the public signals."""
        return self.header.n_constraints + self.header.n_public + 1

    @property
    def log_domain(self) -> int:
        return max(1, (self.n_rows - 1).bit_length())

    @property
    def domain_size(self) -> int:
        return 1 << self.log_domain

    @property
    def n_entries(self) -> int:
        """Entries of section 4 of a zkey."""
        return self.terms[0] + self.terms[1] + self.header.n_public + 1


def check_domain(path: str, header: R1csHeader) -> None:
    """Raises FormatError when the field has no domain for so many rows."""
    most = header.curve.max_domain - header.n_public - 1
    if header.n_constraints > most:
        found = f"has {header.n_constraints:,} constraints and {header.n_public:,} public signals"
        raise FormatError(path, f"{found}, expected at most {most:,} constraints on {header.curve.title}")


class KeyMaker:
    """The points of one key, query by query, in pieces that are views of one buffer: use each before the next.

    Made once and read in any order. ``progress`` gets a phase and the share of all work that is done.
    """

    def __init__(
        self,
        system: System,
        toxic: ToxicWaste,
        *,
        root_base: int = SNARKJS_ROOT_BASE,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """``root_base``: which power's root of unity gives row i its place on the domain."""
        self.system, self.curve, self._toxic, self._threads = system, system.curve, toxic, threads
        self._progress = progress
        self._root = root_of_unity(self.curve, root_base, system.log_domain)
        n_vars, n_public = system.header.n_wires, system.header.n_public
        self._total = 3 * n_vars + system.domain_size + _G2_WEIGHT * n_vars
        self._done = 0
        self._library = native.library()
        self._report("constraints")
        self.u, self.v, self._w = self._columns()
        curve = self.curve
        self._bases = {
            Group.G1: FixedBase(self._library, curve, Group.G1, encode_g1(curve, curve.g1), self._total, threads),
            Group.G2: FixedBase(self._library, curve, Group.G2, encode_g2(curve, curve.g2), n_vars, threads),
        }
        self._buffers = {
            Group.G1: aligned(CHUNK * curve.g1_bytes).reshape(CHUNK, curve.g1_bytes),
            Group.G2: aligned(CHUNK * curve.g2_bytes).reshape(CHUNK, curve.g2_bytes),
        }
        self.n_ic = n_public + 1
        self.n_private = n_vars - self.n_ic

    # ---- points ----

    def point(self, group: Group, scalar: int) -> bytes:
        """scalar · generator, as a zkey holds it."""
        # No generator left half-way: an interruption would be lost in its clean-up.
        scalars = np.frombuffer(scalar.to_bytes(32, "little"), np.uint64).reshape(1, 4)
        return self._multiply(group, scalars).tobytes()

    def points(self, group: Group, scalars: Iterator[Scalars], phase: str) -> Iterator[Bytes]:
        """scalar · generator for pieces of at most CHUNK scalars: (n, bytes of a point), affine, Montgomery form."""
        for part in scalars:
            yield self._multiply(group, part)
            self._done += len(part) * (_G2_WEIGHT if group is Group.G2 else 1)
            self._report(phase)

    def _multiply(self, group: Group, scalars: Scalars) -> Bytes:
        out: Bytes = self._buffers[group][: len(scalars)]
        self._bases[group].multiply(scalars, len(scalars), out, self._call())
        return out

    # ---- scalars, plain ----

    def ic_scalars(self) -> Iterator[Scalars]:
        return self._joined(0, self.n_ic, self._toxic.gamma)

    def l_scalars(self) -> Iterator[Scalars]:
        return self._joined(self.n_ic, self.system.header.n_wires, self._toxic.delta)

    def zkey_h_scalars(self) -> Iterator[Scalars]:
        """The Lagrange basis of the coset gD, D the domain and g its shift, times Z(tau) / (Z(g) delta): with a∘b − c
        on the coset, which is H Z there, it gives H(tau) Z(tau) / delta."""
        curve, n, tau = self.curve, self.system.domain_size, self._toxic.tau
        g = coset_shift(curve, self.system.log_domain)
        x = tau * pow(g, -1, curve.r) % curve.r
        factor = (pow(x, n, curve.r) - 1) * pow(n, -1, curve.r) * self._vanishing()
        factor *= pow((pow(g, n, curve.r) - 1) * self._toxic.delta, -1, curve.r)
        for begin, out in self._pieces(n):
            self._lagrange(x, factor, begin, out)
            yield self._plain(out)

    def monomial_h_scalars(self) -> Iterator[Scalars]:
        """tau^i Z(tau) / delta for i below domain − 1."""
        curve, tau = self.curve, self._toxic.tau
        factor = self._vanishing() * pow(self._toxic.delta, -1, curve.r) % curve.r
        for begin, out in self._pieces(self.system.domain_size - 1):
            first = factor * pow(tau, begin, curve.r)
            self._library.fr_powers(curve, tau, first, len(out), out, self._call())
            yield self._plain(out)

    # ---- section 4 of a zkey ----

    def coefficients(self) -> Iterator[Bytes]:
        """Entries of ENTRY_BYTES each, ordered by row, n_entries in all."""
        system, header = self.system, self.system.header
        source = (self.curve, system.section, system.section.size, header.n_constraints)
        buffer = np.empty((2 * CHUNK, ENTRY_BYTES), np.uint8)
        at = (0, 0)
        while at[1] < header.n_constraints:
            self._report("coefficients")
            try:
                count, at = self._library.r1cs_coefficients(*source, at, buffer, len(buffer), self._call())
            except NativeCallError as error:
                if error.status is not Status.SCRATCH:
                    raise
                buffer = np.empty((2 * len(buffer), ENTRY_BYTES), np.uint8)  # for the one row that has so many
                continue
            yield buffer[:count]
        extra = np.zeros((header.n_public + 1, 11), np.uint32)
        signals = np.arange(header.n_public + 1, dtype=np.uint32)
        extra[:, 1] = header.n_constraints + signals
        extra[:, 2] = signals
        extra[:, 3:] = np.frombuffer(((1 << 512) % self.curve.r).to_bytes(32, "little"), np.uint32)
        yield extra.view(np.uint8)

    # ---- inside ----

    def _call(self) -> Call:
        return Call(self._threads)

    def _report(self, phase: str) -> None:
        if self._progress is not None:
            self._progress(phase, self._done / self._total)

    def _vanishing(self) -> int:
        """Z(tau)."""
        return pow(self._toxic.tau, self.system.domain_size, self.curve.r) - 1

    def _columns(self) -> tuple[Scalars, Scalars, Scalars]:
        system, curve, header = self.system, self.curve, self.system.header
        basis = aligned(32 * system.domain_size).reshape(-1, 32)
        tau, n = self._toxic.tau, system.domain_size
        self._lagrange(tau, self._vanishing() * pow(n, -1, curve.r), 0, basis)
        flat = [aligned(32 * header.n_wires) for _ in range(3)]
        self._library.r1cs_columns(
            curve,
            system.section,
            system.section.size,
            header.n_constraints,
            header.n_wires,
            basis,
            (flat[0], flat[1], flat[2]),
            self._call(),
        )
        u, v, w = (column.view(np.uint64).reshape(-1, 4) for column in flat)
        extra = basis[header.n_constraints : header.n_constraints + header.n_public + 1]
        self._field(FieldOp.FROM_MONT, extra, extra)
        self._field(FieldOp.ADD, u[: len(extra)], u[: len(extra)], extra)
        return u, v, w

    def _lagrange(self, x: int, k: int, begin: int, out: npt.NDArray[Any]) -> None:
        if not self._library.fr_lagrange(self.curve, self._root, x, k, begin, len(out), out, self._call()):
            # Of r values fewer than 2^33 lie in a domain or its coset.
            raise ArithmeticError("the secret point lies in the domain")

    def _joined(self, begin: int, end: int, divisor: int) -> Iterator[Scalars]:
        """(beta u + alpha v + w) / divisor."""
        curve, toxic = self.curve, self._toxic
        inverse = pow(divisor, -1, curve.r)
        factors = (toxic.beta * inverse, toxic.alpha * inverse, inverse)
        for at, out in self._pieces(end - begin):
            first, last = begin + at, begin + at + len(out)
            vectors = (self.u[first:last], self.v[first:last], self._w[first:last])
            self._library.fr_combine(curve, out, vectors, factors, len(out), self._call())
            yield out

    def _pieces(self, n: int) -> Iterator[tuple[int, Scalars]]:
        buffer = aligned(32 * CHUNK).view(np.uint64).reshape(-1, 4)
        for begin in range(0, n, CHUNK):
            yield begin, buffer[: min(CHUNK, n - begin)]

    def _plain(self, out: Scalars) -> Scalars:
        self._field(FieldOp.FROM_MONT, out, out)
        return out

    def _field(self, op: FieldOp, out: Any, a: Any, b: Any = None) -> None:
        self._library.field_op(self.curve, Field.FR, op, out, a, b, len(out), self._call())


def whole(scalars: Scalars) -> Iterator[Scalars]:
    """A vector in pieces of at most CHUNK."""
    for begin in range(0, len(scalars), CHUNK):
        yield scalars[begin : begin + CHUNK]


def root_of_unity(curve: Curve, base: int, log_order: int) -> int:
    """base^((r − 1) / 2^log_order), of that order where base is no square."""
    return pow(base, (curve.r - 1) >> log_order, curve.r)


def coset_shift(curve: Curve, log_domain: int) -> int:
    """The generator of the coset that snarkjs extends a domain to: the root of unity of order 2·domain, or, where the
    field has none, the square of its smallest non-residue."""
    if log_domain < curve.two_adicity:
        return root_of_unity(curve, SNARKJS_ROOT_BASE, log_domain + 1)
    return SNARKJS_ROOT_BASE**2
