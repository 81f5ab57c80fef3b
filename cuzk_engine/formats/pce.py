"""Saved constraint systems of the reference (.pce, also pce-….bin): A, B, C over BLS12-381's scalar field in compressed
rows, read where they lie.

Little-endian. 32 bytes of header: magic "PCE\\x02", u32 version 2, u32 inputs (with the constant), u32 auxiliary
variables, u32 constraints, u64 non-zero terms in all, u32 reserved. For A, B, C: row pointers (u64 count, u32 each),
columns (u64 count, u32 each; inputs first, then auxiliary variables), values (u64 count, 32 bytes each, Montgomery
form). Then three density bitmaps, each u64 count of words, u64 words (least significant bit first), u64 bits, u64 ones:
the auxiliary variables in A, the inputs in B, the auxiliary variables in B. The constraints include, as the last ones,
a row input · 0 = 0 for each input. Source: extern/cuzk/cuzk-pce of filecoin-project/curio.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.source import COPY_BELOW, Bytes, SourceFile
from cuzk_engine.units import format_count

MAGIC: Final = b"PCE\x02"
VERSION: Final = 2
HEADER_BYTES: Final = 32
VALUE_BYTES: Final = 32
MATRICES: Final = "ABC"
DENSITIES: Final = ("auxiliary variables in A", "inputs in B", "auxiliary variables in B")
_HEADER: Final = struct.Struct("<4sIIIIQI")
_NOUN: Final = "a saved constraint system (pce)"


@dataclass(frozen=True, eq=False)
class PceMatrix:
    """One matrix as it lies in the file, at multiples of 4 bytes."""

    row_ptr: Bytes  # 4 * (n_constraints + 1)
    columns: Bytes  # 4 * n_terms
    values: Bytes  # 32 * n_terms, Montgomery form

    @property
    def n_terms(self) -> int:
        return int(self.columns.size) // 4


@dataclass(frozen=True, eq=False)
class Density:
    """One bitmap: which variables have a coefficient that is not zero."""

    words: Bytes  # least significant bit first, a multiple of 8 bytes
    n_bits: int
    ones: int

    def bits(self) -> Bytes:
        """n_bits values 0 or 1."""
        return np.unpackbits(self.words, count=self.n_bits, bitorder="little")


@dataclass(frozen=True, eq=False)
class Pce:
    """A constraint system whose structure has been checked: counts against the file and against each other.

    That row pointers rise, columns exist and values are below r is for the native library to check.
    """

    source: SourceFile
    n_inputs: int
    n_aux: int
    n_constraints: int  # with the inputs' rows
    matrices: tuple[PceMatrix, PceMatrix, PceMatrix]
    densities: tuple[Density, Density, Density]

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW) -> Pce:
        """Maps or copies the file and checks its structure; raises FormatError (IncompleteFileError)."""
        return cls.from_source(SourceFile.open(path, copy_below=copy_below))

    @classmethod
    def from_source(cls, source: SourceFile) -> Pce:
        n_inputs, n_aux, n_constraints, terms = _read_header(source)
        reader = _Reader(source, HEADER_BYTES)
        a, b, c = (_read_matrix(reader, name, n_constraints) for name in MATRICES)
        found = a.n_terms + b.n_terms + c.n_terms
        if found != terms:
            raise FormatError(source.path, f"header says {format_count(terms, 'term')}, the matrices have {found:,}")
        sizes = (n_aux, n_inputs, n_aux)
        x, y, z = (_read_density(reader, name, bits) for name, bits in zip(DENSITIES, sizes, strict=True))
        if reader.position != source.size:
            rest = source.size - reader.position
            raise FormatError(source.path, f"goes on for {rest:,} bytes after the last bitmap, expected the end")
        return cls(source, n_inputs, n_aux, n_constraints, (a, b, c), (x, y, z))

    def __repr__(self) -> str:
        return f"<Pce {self.path}: {self.n_constraints} constraints, {self.n_vars} variables>"

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
        return sum(matrix.n_terms for matrix in self.matrices)


class _Reader:
    """Takes arrays with a count before them, one after the other, each checked against the end of the file."""

    def __init__(self, source: SourceFile, position: int) -> None:
        self.source = source
        self.position = position

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what).tobytes(), "little")

    def array(self, size: int, expected: int, what: str) -> Bytes:
        """A u64 count and so many elements of `size` bytes; `expected` is what the count must be."""
        count = self.u64(f"the count of {what}")
        if count != expected:
            raise FormatError(self.source.path, f"{what}: {count:,} elements, expected {expected:,}")
        return self.take(count * size, f"{what} ({count:,} elements of {size} bytes from offset {self.position:,})")

    def take(self, size: int, what: str) -> Bytes:
        end = self.position + size
        if end > self.source.size:
            raise IncompleteFileError(self.source.path, what, end, self.source.size)
        taken = self.source.data[self.position : end]
        self.position = end
        return taken


def _read_header(source: SourceFile) -> tuple[int, int, int, int]:
    head = source.data[:HEAD_BYTES].tobytes()
    if not head.startswith(MAGIC) and not (source.size and MAGIC.startswith(head[:4])):
        seems = guess(head) or f"no such file: it starts with {head[:4]!r}"
        raise FormatError(source.path, f"this is {seems}, expected {_NOUN}")
    if source.size < HEADER_BYTES:
        raise IncompleteFileError(source.path, "the header", HEADER_BYTES, source.size)
    _, version, n_inputs, n_aux, n_constraints, terms, _ = _HEADER.unpack_from(head)
    if version != VERSION:
        raise FormatError(source.path, f"version {version} of {_NOUN}, expected version {VERSION}")
    if n_inputs == 0:
        raise FormatError(source.path, "header says 0 inputs, expected at least the constant 1")
    if n_inputs + n_aux >= 1 << 32:
        raise FormatError(source.path, f"header says {n_inputs + n_aux:,} variables, expected fewer than 2^32")
    return n_inputs, n_aux, n_constraints, terms


def _read_matrix(reader: _Reader, name: str, n_constraints: int) -> PceMatrix:
    rows = reader.array(4, n_constraints + 1, f"matrix {name}, row pointers")
    n_terms = int.from_bytes(rows[-4:].tobytes(), "little")
    columns = reader.array(4, n_terms, f"matrix {name}, columns")
    return PceMatrix(rows, columns, reader.array(VALUE_BYTES, n_terms, f"matrix {name}, values"))


def _read_density(reader: _Reader, name: str, n_bits: int) -> Density:
    what = f"bitmap of {name}"
    words = reader.array(8, -(-n_bits // 64), what)
    bits, ones = reader.u64(f"{what}, number of bits"), reader.u64(f"{what}, number of ones")
    if bits != n_bits:
        raise FormatError(reader.source.path, f"{what} has {bits:,} bits, expected {n_bits:,}")
    found = int(np.bitwise_count(words).sum(dtype=np.int64))
    if ones != found:
        raise FormatError(reader.source.path, f"{what} says {ones:,} ones, it has {found:,}")
    tail = n_bits % 64
    if tail and int.from_bytes(words[-8:].tobytes(), "little") >> tail:
        raise FormatError(reader.source.path, f"{what} has ones after its {n_bits:,} bits")
    return Density(words, n_bits, ones)
