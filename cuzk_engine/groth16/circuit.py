"""Constraint systems in memory, for keys that do not hold their matrices: from .r1cs or .pce, as bellperson sees them.

Variables are numbered inputs first (the constant, then the public ones), then auxiliary ones, which is also the order
of a witness file. Constraint i stands at ω^i, with bellman's root of unity; after the circuit's own constraints comes
one row input · 0 = 0 for each input, so that no input's polynomial in A is zero.

bellman takes ω = 7^((r−1)/2^32), the native transforms (and snarkjs) 5^((r−1)/2^32). Both generate the same domains,
and 7^… = (5^…)^`BELLMAN_STRIDE`: the rows are put at i · stride mod domain, and the polynomials are bellman's. Their
quotient does not depend on the coset on which it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.pce import DENSITIES, MAGIC, MATRICES, Pce
from cuzk_engine.formats.r1cs import R1cs
from cuzk_engine.formats.source import Bytes, SourceFile
from cuzk_engine.native import Field, FieldOp
from cuzk_engine.native_csr import Csr, CsrFault

BELLMAN_STRIDE: Final = 0xB766BFD  # the logarithm of 7^((r-1)/2^32) to the base 5^((r-1)/2^32), modulo 2^32


@dataclass(frozen=True, eq=False)
class Circuit:
    """A constraint system whose every row has been checked. On BLS12-381 only.

    ``a_present`` and ``b_present`` hold a bit for each variable, least significant first: whether its polynomial in A,
    or B, is not zero. Every input has its bit in A.
    """

    source: SourceFile
    n_inputs: int
    n_aux: int
    n_rows: int  # constraints that the matrices hold
    extra_inputs: int  # rows input · 0 = 0 that come after them: n_inputs, or 0 where the matrices have them
    matrices: tuple[Csr, Csr, Csr]
    a_present: Bytes
    b_present: Bytes

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def curve(self) -> Curve:
        return BLS12_381

    @property
    def n_vars(self) -> int:
        return self.n_inputs + self.n_aux

    @property
    def n_terms(self) -> int:
        return sum(matrix.terms for matrix in self.matrices)

    @property
    def domain_size(self) -> int:
        """The smallest power of two that holds all rows."""
        return 1 << max(0, self.n_rows + self.extra_inputs - 1).bit_length()

    def count_present(self, present: Bytes) -> int:
        return int(np.bitwise_count(present).sum(dtype=np.int64))

    def evaluate(self, witness: Bytes, domain: int, a: Bytes, b: Bytes, c: Bytes, call: native.Call) -> int | None:
        """Fills a = A·w, b = B·w, c = C·w over the domain, in the order of the native transforms, Montgomery form.

        ``witness``: n_vars plain values. Returns the number of the first constraint that it violates, or None.
        """
        return native.library().csr_evaluate(
            self.curve,
            self.matrices,
            self.n_rows,
            self.extra_inputs,
            witness,
            domain,
            BELLMAN_STRIDE,
            a,
            b,
            c,
            call,
        )


def open_circuit(path: Path | str, threads: int = 0, cancel_address: int = 0) -> Circuit:
    """The circuit of a .r1cs or .pce file, told apart by their first bytes, checked whole.

    Raises FormatError for a file that is no sound constraint system over BLS12-381's scalar field, CancelledError
    when the int32 at ``cancel_address`` turned non-zero.
    """
    source = SourceFile.open(path)
    head = source.data[:HEAD_BYTES].tobytes()
    if head.startswith(b"r1cs"):
        return _from_r1cs(R1cs.from_source(source), threads, cancel_address)
    if head.startswith(MAGIC):
        return _from_pce(Pce.from_source(source), threads, cancel_address)
    seems = guess(head) or f"something else: it starts with {head[:4]!r}"
    raise FormatError(path, f"this is {seems}, expected a constraint system (r1cs or pce)")


def _from_r1cs(r1cs: R1cs, threads: int, cancel_address: int) -> Circuit:
    header, library = r1cs.header, native.library()
    if header.curve is not BLS12_381:
        title = BLS12_381.title
        raise FormatError(r1cs.path, f"constraint system is for {header.curve.title}, a bellperson key is for {title}")
    matrices = []
    for which in range(3):
        matrix = r1cs.matrix(which)
        terms = len(matrix.wires)
        if terms >= 1 << 32:
            raise FormatError(r1cs.path, f"matrix {MATRICES[which]} has {terms:,} terms, expected fewer than 2^32")
        call = native.Call(threads, cancel_address)
        values = matrix.values
        library.field_op(header.curve, Field.FR, FieldOp.TO_MONT, values, values, None, terms, call)
        matrices.append(Csr(matrix.row_ptr.astype(np.uint32), matrix.wires, values, terms))
    n_inputs = header.n_public + 1
    circuit = (r1cs.source, n_inputs, header.n_wires - n_inputs, header.n_constraints, n_inputs)
    return _checked(*circuit, (matrices[0], matrices[1], matrices[2]), threads, cancel_address)


def _from_pce(pce: Pce, threads: int, cancel_address: int) -> Circuit:
    a, b, c = (Csr(matrix.row_ptr, matrix.columns, matrix.values, matrix.n_terms) for matrix in pce.matrices)
    circuit = _checked(pce.source, pce.n_inputs, pce.n_aux, pce.n_constraints, 0, (a, b, c), threads, cancel_address)
    in_a, in_b = (
        np.unpackbits(bits, count=pce.n_vars, bitorder="little") for bits in (circuit.a_present, circuit.b_present)
    )
    missing = np.flatnonzero(in_a[: pce.n_inputs] == 0)
    if missing.size:
        message = f"matrix A has no coefficient for input {int(missing[0]):,}, expected a row of its own for each input"
        raise FormatError(pce.path, message)
    found = (in_a[pce.n_inputs :], in_b[: pce.n_inputs], in_b[pce.n_inputs :])
    for name, density, expected in zip(DENSITIES, pce.densities, found, strict=True):
        wrong = np.flatnonzero(density.bits() != expected)
        if wrong.size:
            raise FormatError(pce.path, f"bitmap of {name}: bit {int(wrong[0]):,} disagrees with the matrix")
    return circuit


def _checked(
    source: SourceFile,
    n_inputs: int,
    n_aux: int,
    n_rows: int,
    extra_inputs: int,
    matrices: tuple[Csr, Csr, Csr],
    threads: int,
    cancel_address: int,
) -> Circuit:
    library, n_vars = native.library(), n_inputs + n_aux
    present = []
    for name, matrix in zip(MATRICES, matrices, strict=True):
        bits = np.zeros((n_vars + 7) // 8, dtype=np.uint8)
        call = native.Call(threads, cancel_address)
        problem = library.csr_check(BLS12_381, matrix, n_rows, n_vars, bits, call)
        if problem is not None:
            raise FormatError(source.path, f"matrix {name}, {_problem(problem.fault, problem.index, n_vars)}")
        present.append(bits)
    a_present, b_present, _ = present
    if extra_inputs:
        full, rest = divmod(extra_inputs, 8)
        a_present[:full] = 0xFF
        if rest:
            a_present[full] |= (1 << rest) - 1
    return Circuit(source, n_inputs, n_aux, n_rows, extra_inputs, matrices, a_present, b_present)


def _problem(fault: CsrFault, index: int, n_vars: int) -> str:
    if fault is CsrFault.ROWS:
        return f"row pointer {index:,}: expected pointers that start at 0, never fall and end at the number of terms"
    if fault is CsrFault.COLUMN:
        return f"term {index:,}: the column is not one of {n_vars:,} variables"
    return f"term {index:,}: the value is not below the prime of {BLS12_381.title}'s scalar field"
