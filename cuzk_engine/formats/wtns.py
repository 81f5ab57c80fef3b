"""Witnesses (.wtns): the values of all signals of a circuit, plain, little-endian, the constant 1 first.

Values are secret. No message here contains one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.container import Container, Cursor, FormatSpec
from cuzk_engine.formats.points import integers
from cuzk_engine.formats.source import COPY_BELOW, Bytes, BytesLike, SourceFile
from cuzk_engine.units import format_count

Limbs = npt.NDArray[np.uint64]

WTNS_SPEC: Final = FormatSpec(
    magic=b"wtns",
    noun="a witness (wtns)",
    version=2,
    names={1: "header", 2: "values"},
    needed=(1, 2),
)
_USUAL: Final = struct.Struct("<4sII IQI32sI IQ")
"""All before the values, as circom's and snarkjs's writers order it: magic, version, number of sections; type, size,
size of the prime, prime, number of values; type, size."""
_USUAL_HEADS: Final = {(b"wtns", 2, 2, 1, 40, 32, curve.r.to_bytes(32, "little")): curve for curve in CURVES}
_ONE: Final = (1).to_bytes(32, "little")
_CHUNK_ROWS: Final = 1 << 16  # bounds the temporary arrays of a check to a few MB

ValueCheck = Callable[[Bytes, Curve], int | None]
"""The index of the first of (n, 32) values that is not below the curve's r. It may raise what else can happen while it
looks, such as CancelledError."""


def check_values(raw: Bytes, curve: Curve) -> int | None:
    """The check without the native library, by one thread."""
    return first_not_below(as_limbs(raw), curve.r)


class CircuitKey(Protocol):
    """What a witness is held against."""

    @property
    def path(self) -> str: ...
    @property
    def curve(self) -> Curve: ...
    @property
    def n_vars(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Witness:
    """A witness whose values are all below r, the first being 1."""

    source: SourceFile
    curve: Curve
    raw: Bytes  # (n, 32), a view of the file

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW, check: ValueCheck = check_values) -> Witness:
        """Maps or copies the file and checks it whole; raises FormatError (IncompleteFileError)."""
        return cls.from_source(SourceFile.open(path, copy_below=copy_below), check)

    @classmethod
    def from_buffer(cls, data: BytesLike, name: str = "witness") -> Witness:
        """A witness that came another way, as the bytes of a .wtns file.

        It is not copied: whoever shares the buffer must leave it alone as long as the witness is used.
        """
        return cls.from_source(SourceFile.from_buffer(data, name))

    @classmethod
    def from_source(cls, source: SourceFile, check: ValueCheck = check_values) -> Witness:
        curve, raw = _usual(source) or _any(source)
        bad = check(raw, curve)
        if bad is not None:
            raise FormatError(source.path, f"value {bad:,} is not below the prime of {curve.title}'s scalar field")
        if raw[0].tobytes() != _ONE:
            raise FormatError(source.path, "the first value is not 1, which every witness starts with")
        return cls(source, curve, raw)

    def __repr__(self) -> str:
        return f"<Witness {self.path}: {self.curve.title}, {len(self)} values>"

    def __len__(self) -> int:
        return int(self.raw.shape[0])

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def values(self) -> Limbs:
        """(n, 4) plain values as 64-bit limbs, least significant first; a view, aligned to 4 bytes only."""
        return as_limbs(self.raw)

    def public_bytes(self, n_public: int) -> bytes:
        """The outputs and public inputs, values 1 to `n_public`: plain, 32 bytes each, little-endian."""
        return self.raw[1 : n_public + 1].tobytes()

    def public_values(self, n_public: int) -> tuple[int, ...]:
        """The same as numbers."""
        return tuple(integers(self.public_bytes(n_public), self.curve.n8r))


def check_witness(key: CircuitKey, witness: Witness) -> None:
    """Raises FormatError when the witness cannot belong to the key: another curve or another number of values."""
    if witness.curve is not key.curve:
        raise FormatError(
            witness.path,
            f"witness is for {witness.curve.title}, the key {key.path} for {key.curve.title}",
        )
    if len(witness) != key.n_vars:
        found = format_count(len(witness), "value")
        raise FormatError(
            witness.path,
            f"witness has {found}, the circuit of the key {key.path} has {key.n_vars:,} signals",
        )


def _usual(source: SourceFile) -> tuple[Curve, Bytes] | None:
    """Curve and values of a sound file whose sections come in the usual order; None for any other, as `_any` says what
    is wrong."""
    start = _USUAL.size
    if source.size <= start:
        return None
    *head, count, kind, size = _USUAL.unpack_from(source.data.data)
    curve = _USUAL_HEADS.get(tuple(head))
    if curve is None or kind != 2 or size != count * 32 or not 0 < size <= source.size - start:
        return None
    return curve, source.data[start : start + size].reshape(count, 32)


def _any(source: SourceFile) -> tuple[Curve, Bytes]:
    """The same of every sound file; raises FormatError."""
    container = Container.parse(source, WTNS_SPEC)
    curve, count = read_header(container)
    container.check_size(2, count * curve.n8r, f"{format_count(count, 'value')} of {curve.n8r} bytes")
    if count == 0:
        container.fail("has no values, expected at least the constant 1")
    return curve, container.view(2).reshape(count, curve.n8r)


def read_header(container: Container) -> tuple[Curve, int]:
    """Curve and number of values, from section 1."""
    cursor = Cursor(container, 1)
    curve = cursor.scalar_field("values")
    count = cursor.u32("the number of values")
    cursor.finish()
    return curve, count


def as_limbs(raw: Bytes) -> Limbs:
    """(n, 32) bytes as (n, 4) 64-bit limbs, least significant first, without copying."""
    return raw.view("<u8")


def first_not_below(values: Limbs, modulus: int) -> int | None:
    """Index of the first of (n, 4) little-endian values that is not below the modulus (of 4 limbs)."""
    limbs = np.array([(modulus >> (64 * index)) & (2**64 - 1) for index in range(4)], dtype=np.uint64)
    for start in range(0, len(values), _CHUNK_ROWS):
        chunk = values[start : start + _CHUNK_ROWS]
        # Almost every value is settled by its top limb; the others are compared from the top down.
        open_rows = np.flatnonzero(chunk[:, 3] >= limbs[3])
        rest = chunk[open_rows]
        below = np.zeros(len(rest), dtype=bool)
        equal = np.ones(len(rest), dtype=bool)
        for index in (3, 2, 1, 0):
            below |= equal & (rest[:, index] < limbs[index])
            equal &= rest[:, index] == limbs[index]
        bad = open_rows[~below]
        if bad.size:
            return start + int(bad[0])
    return None
