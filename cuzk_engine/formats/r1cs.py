"""Constraint systems as circom writes them (.r1cs): row i says (A·w)[i] * (B·w)[i] = (C·w)[i] over Fr.

Wire 0 is the constant 1; outputs, public inputs, private inputs and the other wires follow in that order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.container import Container, Cursor, FormatSpec
from cuzk_engine.formats.points import integers
from cuzk_engine.formats.source import COPY_BELOW, Bytes, SourceFile
from cuzk_engine.formats.wtns import Limbs, Witness, first_not_below
from cuzk_engine.units import format_count

R1CS_SPEC: Final = FormatSpec(
    magic=b"r1cs",
    noun="a constraint system (r1cs)",
    version=1,
    names={1: "header", 2: "constraints", 3: "labels", 4: "custom gates", 5: "custom gate uses"},
    needed=(1, 2),
    optional=(3, 4, 5),
)
_TERM_WORDS: Final = 9  # u32 wire, 32 bytes value
_TERM: Final = struct.Struct("<I32s")
_CHUNK_ROWS: Final = 1 << 14  # linear combinations looked at together when values are checked

Term = tuple[int, int]  # wire, plain coefficient
Constraint = tuple[list[Term], list[Term], list[Term]]  # A, B, C


@dataclass(frozen=True, eq=False)
class CsrMatrix:
    """One of A, B, C in compressed rows: the terms of row i are those from row_ptr[i] to row_ptr[i + 1]."""

    row_ptr: npt.NDArray[np.int64]  # (n_constraints + 1,)
    wires: npt.NDArray[np.uint32]  # (n_terms,)
    values: Limbs  # (n_terms, 4), plain, least significant limb first


@dataclass(frozen=True)
class R1csHeader:
    """Section 1."""

    curve: Curve
    n_wires: int  # with the constant
    n_outputs: int
    n_public_inputs: int
    n_private_inputs: int
    n_labels: int
    n_constraints: int

    @property
    def n_public(self) -> int:
        """Outputs and public inputs, as a key counts them."""
        return self.n_outputs + self.n_public_inputs


@dataclass(frozen=True, eq=False)
class R1cs:
    """A constraint system whose every row has been checked: wires exist, coefficients are below r.

    Repeated wires in one linear combination (their coefficients add up), zero coefficients, empty combinations and
    unused wires are allowed.
    """

    source: SourceFile
    header: R1csHeader
    _section: Bytes  # section 2
    _starts: npt.NDArray[np.uint64]  # (3 * n_constraints + 1,): where each combination starts, in 4-byte words

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW) -> R1cs:
        """Maps or copies the file and checks it whole; raises FormatError (IncompleteFileError)."""
        return cls.from_source(SourceFile.open(path, copy_below=copy_below))

    @classmethod
    def from_source(cls, source: SourceFile) -> R1cs:
        container, header = open_header(source)
        system = cls(source, header, container.view(2), _find_starts(container, header.n_constraints))
        system._check_terms()
        return system

    def __repr__(self) -> str:
        header = self.header
        return f"<R1cs {self.path}: {header.curve.title}, {header.n_constraints} constraints, {header.n_wires} wires>"

    @property
    def path(self) -> str:
        return self.source.path

    def matrix(self, which: int) -> CsrMatrix:
        """A (0), B (1) or C (2) as arrays of its own, about 44 bytes a term."""
        if which not in (0, 1, 2):
            raise ValueError(f"matrix {which}, expected 0, 1 or 2")
        counts, wires, values = self._terms(self._starts[:-1][which::3])
        row_ptr = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=row_ptr[1:])
        return CsrMatrix(row_ptr, wires, values)

    def constraints(self) -> Iterator[Constraint]:
        """The rows in order, as Python integers; about 1 µs a term."""
        for combinations in self._rows():
            a, b, c = ([(wire, int.from_bytes(raw, "little")) for wire, raw in terms] for terms in combinations)
            yield a, b, c

    def _rows(self) -> Iterator[list[Iterator[tuple[int, bytes]]]]:
        data = self._section.data
        # In blocks, so that a large system does not become a list of Python integers at once.
        for first in range(0, self.header.n_constraints, _CHUNK_ROWS):
            last = min(first + _CHUNK_ROWS, self.header.n_constraints)
            bounds = [4 * start for start in self._starts[3 * first : 3 * last + 1].tolist()]
            for row in range(0, len(bounds) - 1, 3):
                yield [_TERM.iter_unpack(data[bounds[part] + 4 : bounds[part + 1]]) for part in range(row, row + 3)]

    def _terms(self, starts: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], Limbs]:
        """For linear combinations at `starts`: number of terms of each; wires and values of all terms."""
        words = self._section.view("<u4")
        begins = starts.astype(np.int64)
        counts = words[begins].astype(np.int64)
        total = int(counts.sum())
        if total == 0:
            return counts, np.zeros(0, np.uint32), np.zeros((0, 4), np.uint64)
        # Position of term k of a combination: its begin, one word for the count, k terms.
        ordinal = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = np.repeat(begins + 1, counts) + _TERM_WORDS * ordinal
        terms = np.lib.stride_tricks.sliding_window_view(words, _TERM_WORDS)[positions]
        return counts, np.ascontiguousarray(terms[:, 0]), np.ascontiguousarray(terms[:, 1:]).view(np.uint64)

    def _check_terms(self) -> None:
        header = self.header
        for first in range(0, 3 * header.n_constraints, _CHUNK_ROWS):
            last = min(first + _CHUNK_ROWS, 3 * header.n_constraints)
            counts, wires, values = self._terms(self._starts[first:last])
            ends = np.cumsum(counts)
            beyond = np.flatnonzero(wires >= header.n_wires)
            if beyond.size:
                where = _name_row(first + int(np.searchsorted(ends, beyond[0], side="right")))
                found = f"wire {int(wires[beyond[0]]):,}, expected one of {header.n_wires:,}"
                raise FormatError(self.path, f"{where} names {found}")
            bad = first_not_below(values, header.curve.r)
            if bad is not None:
                where = _name_row(first + int(np.searchsorted(ends, bad, side="right")))
                what = f"the prime of {header.curve.title}'s scalar field"
                raise FormatError(self.path, f"{where} has a coefficient that is not below {what}")


def first_unsatisfied(r1cs: R1cs, witness: Witness) -> int | None:
    """Number of the first constraint (from 0) that the witness violates, or None when it satisfies all.

    In Python integers, independent of the native code: about a second for 200,000 terms. Raises FormatError when the
    witness is of another curve or has another number of values than the system has wires.
    """
    header = r1cs.header
    if witness.curve is not header.curve:
        message = f"witness is for {witness.curve.title}, the constraint system {r1cs.path} for {header.curve.title}"
        raise FormatError(witness.path, message)
    if len(witness) != header.n_wires:
        found = format_count(len(witness), "value")
        message = f"witness has {found}, the circuit of {r1cs.path} has {header.n_wires:,} wires"
        raise FormatError(witness.path, message)
    values = integers(witness.raw.tobytes(), header.curve.n8r)
    decode = int.from_bytes
    for number, combinations in enumerate(r1cs._rows()):
        a, b, c = (sum(values[wire] * decode(value, "little") for wire, value in terms) for terms in combinations)
        if (a * b - c) % header.curve.r:
            return number
    return None


def open_header(source: SourceFile) -> tuple[Container, R1csHeader]:
    """The table of sections and the header; the rows are not looked at."""
    container = Container.parse(source, R1CS_SPEC)
    header = read_header(container)
    _refuse_custom_gates(container)
    return container, header


def read_header(container: Container) -> R1csHeader:
    """Section 1, checked against itself and against the size of the file."""
    cursor = Cursor(container, 1)
    curve = cursor.scalar_field("coefficients")
    header = R1csHeader(
        curve=curve,
        n_wires=cursor.u32("the number of wires"),
        n_outputs=cursor.u32("the number of outputs"),
        n_public_inputs=cursor.u32("the number of public inputs"),
        n_private_inputs=cursor.u32("the number of private inputs"),
        n_labels=cursor.u64("the number of labels"),
        n_constraints=cursor.u32("the number of constraints"),
    )
    cursor.finish()
    named = 1 + header.n_public + header.n_private_inputs
    if named > header.n_wires:
        container.fail(
            f"header says {header.n_wires:,} wires, expected at least {named:,}: the constant, outputs and inputs"
        )
    if container.find(3) is not None:
        container.check_size(3, 8 * header.n_wires, f"{header.n_wires:,} labels of 8 bytes")
    elif header.n_wires > container.source.size:
        # Without labels nothing else bounds the number of wires, and a wire that is used takes 36 bytes.
        container.fail(
            f"header says {header.n_wires:,} wires, more than a file of {container.source.size:,} bytes can use"
        )
    return header


def _refuse_custom_gates(container: Container) -> None:
    if container.find(5) is not None and Cursor(container, 5).u32("the number of custom gate uses"):
        container.fail("uses custom gates, which Groth16 cannot prove; expected plain constraints")


def _find_starts(container: Container, n_constraints: int) -> npt.NDArray[np.uint64]:
    """Follows the counts through section 2 (one step a combination, about 0.1 µs) to its exact end."""
    section = container.view(2)
    if section.size % 4:
        container.fail(f"{container.label(2)} has {section.size:,} bytes, expected a multiple of 4")
    if 12 * n_constraints > section.size:
        container.fail(
            f"{container.label(2)} has {section.size:,} bytes, "
            f"expected at least {12 * n_constraints:,} for {format_count(n_constraints, 'constraint')}"
        )
    words = section.data.cast("I")
    starts = array("Q")
    position = 0
    try:
        for _ in range(3 * n_constraints):
            starts.append(position)
            position += 1 + _TERM_WORDS * words[position]
    except IndexError:
        position = len(words) + 1
    if position > len(words):
        # The last start may itself lie beyond the end: then the combination before it is the one that does not fit.
        where = _name_row(len(starts) - (2 if starts[-1] > len(words) else 1))
        container.fail(f"{container.label(2)} ends within {where}")
    if position < len(words):
        rest = 4 * (len(words) - position)
        container.fail(f"{container.label(2)} goes on for {rest:,} bytes after constraint {n_constraints:,}, the last")
    starts.append(position)
    return np.frombuffer(starts, dtype=np.uint64)


def _name_row(combination: int) -> str:
    """Which constraint (from 0) and matrix the linear combination with that number belongs to."""
    return f"constraint {combination // 3:,} (matrix {'ABC'[combination % 3]})"
