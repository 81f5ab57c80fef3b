"""Constraint systems made of few rows that repeat with shifted wires, written in bounded memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.formats.atomic import Sink
from cuzk_engine.formats.container_writer import ContainerWriter, scalar_field

Words = npt.NDArray[np.uint32]
Values = npt.NDArray[np.uint64]  # (n, 4), plain
Combination = Mapping[int, int]  # wire, coefficient of any sign
Progress = Callable[[float], None]

ONE: Final = 0  # the wire of the constant
_LOCAL: Final = 1 << 40  # what tells a local wire from one of the whole system
_CHUNK_WORDS: Final = 1 << 21


def local(number: int) -> int:
    """A wire counted from the base of each repetition; may be negative."""
    return _LOCAL + number


@dataclass(frozen=True, eq=False)
class Template:
    """Rows as section 2 of an .r1cs file holds them, with the places of their local wires."""

    n_rows: int
    words: Words
    places: npt.NDArray[np.int64]

    def repeated(self, bases: npt.NDArray[np.int64]) -> Words:
        """(repetitions, words of one)."""
        out = np.repeat(self.words[np.newaxis], len(bases), axis=0)
        out[:, self.places] += bases.astype(np.uint32)[:, np.newaxis]  # modulo 2^32: local numbers may be negative
        return out


class RowBuilder:
    """Collects the rows of a template."""

    def __init__(self, curve: Curve) -> None:
        self._r = curve.r
        self._parts: list[bytes] = []
        self._size = 0  # in words
        self._places: list[int] = []
        self._n_rows = 0

    def row(self, a: Combination, b: Combination, c: Combination) -> None:
        """a · b = c."""
        for combination in (a, b, c):
            self._put(struct.pack("<I", len(combination)))
            for wire, coefficient in combination.items():
                if wire > _LOCAL // 2:
                    self._places.append(self._size)
                    wire = wire - _LOCAL & 0xFFFFFFFF
                self._put(struct.pack("<I", wire) + (coefficient % self._r).to_bytes(32, "little"))
        self._n_rows += 1

    def boolean(self, wire: int) -> None:
        """(1 − wire) · wire = 0."""
        self.row({ONE: 1, wire: -1}, {wire: 1}, {})

    def template(self) -> Template:
        words = np.frombuffer(b"".join(self._parts), np.uint32)
        return Template(self._n_rows, words, np.array(self._places, np.int64))

    def _put(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part) // 4


@dataclass(frozen=True)
class Piece:
    """A template, ``count`` times; ``base`` of the first one, ``stride`` to the next."""

    template: Template
    base: int = 0
    stride: int = 0
    count: int = 1

    def chunks(self) -> Iterator[Words]:
        step = max(1, _CHUNK_WORDS // max(1, self.template.words.size))
        for first in range(0, self.count, step):
            numbers = np.arange(first, min(first + step, self.count), dtype=np.int64)
            yield self.template.repeated(self.base + self.stride * numbers)


@dataclass(frozen=True)
class Circuit:
    """A constraint system and one witness of it. Wires: the constant, outputs, public inputs, private ones."""

    profile: str
    curve: Curve
    n_outputs: int
    n_public_inputs: int
    n_private_inputs: int
    n_wires: int
    pieces: tuple[Piece, ...]
    values: Callable[[], Iterator[Values]]
    """Pieces of the witness in the order of the wires; each is used before the next one is asked for."""

    @property
    def n_public(self) -> int:
        return self.n_outputs + self.n_public_inputs

    @property
    def n_constraints(self) -> int:
        return sum(piece.template.n_rows * piece.count for piece in self.pieces)

    @property
    def domain_size(self) -> int:
        return 1 << max(1, (self.n_constraints + self.n_public).bit_length())

    @property
    def section_bytes(self) -> int:
        return sum(piece.template.words.nbytes * piece.count for piece in self.pieces)

    def write_r1cs(self, stream: Sink, progress: Progress | None = None) -> None:
        """The system as an .r1cs file; the labels are the wires' numbers."""
        writer = ContainerWriter(stream, b"r1cs", 1, 3)
        counts = (self.n_wires, self.n_outputs, self.n_public_inputs, self.n_private_inputs)
        header = struct.pack("<IIIIQI", *counts, self.n_wires, self.n_constraints)
        writer.whole_section(1, scalar_field(self.curve) + header)
        total, done = self.section_bytes, 0
        writer.section(2, total)
        for piece in self.pieces:
            for words in piece.chunks():
                writer.write(words)
                done += words.nbytes
                if progress is not None:
                    progress(done / total)
        writer.section(3, 8 * self.n_wires)
        for first in range(0, self.n_wires, _CHUNK_WORDS):
            writer.write(np.arange(first, min(first + _CHUNK_WORDS, self.n_wires), dtype=np.uint64))
        writer.finish()

    def write_wtns(self, stream: Sink, progress: Progress | None = None) -> None:
        """The witness as a .wtns file."""
        writer = ContainerWriter(stream, b"wtns", 2, 2)
        writer.whole_section(1, scalar_field(self.curve) + struct.pack("<I", self.n_wires))
        writer.section(2, 32 * self.n_wires)
        done = 0
        for values in self.values():
            writer.write(values)
            done += len(values)
            if progress is not None:
                progress(done / self.n_wires)
        writer.finish()
