"""The iden3 container, which .zkey, .wtns and .r1cs share.

4 bytes magic, u32 version, u32 number of sections, then for each section u32 type, u64 size, payload; little-endian.
Sections come in any order. Types that a reader does not ask for are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from cuzk_engine.curves import SUPPORTED, Curve, curve_by_r, describe_prime
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.source import Bytes, SourceFile

_HEADER: Final = struct.Struct("<4sII")
_SECTION: Final = struct.Struct("<IQ")
# Real files have up to 17. The limit bounds the time that a file of empty sections can take.
_MAX_SECTIONS: Final = 1024


@dataclass(frozen=True)
class FormatSpec:
    """What a reader expects of a container."""

    magic: bytes
    noun: str  # "a proving key (zkey)", for messages
    version: int
    names: Mapping[int, str]  # section types the reader knows
    needed: Collection[int]  # must be there exactly once
    optional: Collection[int] = ()  # at most once


class Section(NamedTuple):
    """Where one section's payload lies."""

    type: int
    offset: int
    size: int


@dataclass(frozen=True, eq=False)
class Container:
    """The table of sections of one file; every section lies within the file."""

    source: SourceFile
    spec: FormatSpec
    table: tuple[Section, ...]  # all, in the order of the file

    @classmethod
    def parse(cls, source: SourceFile, spec: FormatSpec) -> Container:
        """Reads the table of sections; raises FormatError (IncompleteFileError where the file ends too soon)."""
        _check_magic(source, spec)
        if source.size < _HEADER.size:
            raise IncompleteFileError(source.path, "the header", _HEADER.size, source.size)
        _, version, count = _HEADER.unpack_from(source.data.data)
        if version != spec.version:
            raise FormatError(source.path, f"version {version} of {spec.noun}, expected version {spec.version}")
        needed = _HEADER.size + count * _SECTION.size
        if needed > source.size:
            raise IncompleteFileError(source.path, f"a table of {count:,} sections", needed, source.size)
        if count > _MAX_SECTIONS:
            raise FormatError(source.path, f"header says {count:,} sections, expected at most {_MAX_SECTIONS:,}")
        container = cls(source, spec, _read_table(source, count))
        container._check_occurrences()
        return container

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def trailing_bytes(self) -> int:
        """Bytes after the last section; other tools ignore them, and so does this one."""
        end = max((section.offset + section.size for section in self.table), default=_HEADER.size)
        return self.source.size - end

    def find(self, section_type: int) -> Section | None:
        """The first section of that type."""
        for section in self.table:
            if section.type == section_type:
                return section
        return None

    def view(self, section_type: int) -> Bytes:
        """The payload of a needed section, as a view."""
        section = self.find(section_type)
        if section is None:
            raise FormatError(self.path, f"{self.label(section_type)} is missing from {self.spec.noun}")
        return self.source.data[section.offset : section.offset + section.size]

    def label(self, section_type: int) -> str:
        """How messages call a section: section 5 (A query)."""
        return _label(self.spec, section_type)

    def check_size(self, section_type: int, expected: int, reason: str) -> None:
        """The payload must have exactly `expected` bytes; `reason` says what they are."""
        found = self.view(section_type).size
        if found != expected:
            self.fail(f"{self.label(section_type)} has {found:,} bytes, expected {expected:,}: {reason}")

    def fail(self, message: str) -> NoReturn:
        raise FormatError(self.path, message)

    def _check_occurrences(self) -> None:
        types = [section.type for section in self.table]
        for section_type in (*self.spec.needed, *self.spec.optional):
            count = types.count(section_type)
            if count > 1:
                self.fail(f"{self.label(section_type)} appears {count} times, expected once")
            if count == 0 and section_type in self.spec.needed:
                self.fail(f"{self.label(section_type)} is missing from {self.spec.noun}")


class Cursor:
    """Reads the fields of a header section one after the other, each checked against the section's end."""

    def __init__(self, container: Container, section_type: int) -> None:
        self._container = container
        self._type = section_type
        self._data = container.view(section_type)
        self._position = 0

    def take(self, size: int, what: str) -> bytes:
        end = self._position + size
        if end > self._data.size:
            self._container.fail(
                f"{self._container.label(self._type)} has {self._data.size:,} bytes, too few for {what}, "
                f"which ends at byte {end:,}"
            )
        taken = self._data[self._position : end].tobytes()
        self._position = end
        return taken

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def prime(self, what: str) -> tuple[int, int]:
        """u32 size and the number; returns both. Sizes that no field has are refused before they are read."""
        size = self.u32(f"the size of {what}")
        if not 0 < size <= 128 or size % 4:
            self._container.fail(f"{what} has a size of {size:,} bytes, expected 32 or 48")
        return size, int.from_bytes(self.take(size, what), "little")

    def scalar_field(self, what: str) -> Curve:
        """u32 size and prime of the field that ``what`` lie in: the curve that has it."""
        size, prime = self.prime("the prime")
        curve = curve_by_r(prime)
        if curve is None:
            self._container.fail(
                f"field is not supported: {describe_prime(prime)}; expected the scalar field of {SUPPORTED}"
            )
        if size != curve.n8r:
            self._container.fail(f"{what} of {size} bytes, expected {curve.n8r} on {curve.title}")
        return curve

    def finish(self) -> None:
        rest = self._data.size - self._position
        if rest:
            self._container.fail(
                f"{self._container.label(self._type)} has {self._data.size:,} bytes, expected {self._position:,}"
            )


def _label(spec: FormatSpec, section_type: int) -> str:
    name = spec.names.get(section_type)
    return f"section {section_type} ({name})" if name else f"section {section_type}"


def _check_magic(source: SourceFile, spec: FormatSpec) -> None:
    magic = source.data[:4].tobytes()
    if magic == spec.magic or (source.size < 4 and spec.magic.startswith(magic)):
        return
    seems = guess(source.data[:HEAD_BYTES].tobytes())
    if seems:
        raise FormatError(source.path, f"this is {seems}, expected {spec.noun}")
    expected = spec.magic.decode("ascii")
    raise FormatError(source.path, f'starts with {magic!r}, expected "{expected}": this is not {spec.noun}')


def _read_table(source: SourceFile, count: int) -> tuple[Section, ...]:
    table = []
    position = _HEADER.size
    for number in range(1, count + 1):
        start = position + _SECTION.size
        if start > source.size:
            raise IncompleteFileError(source.path, f"the header of section number {number}", start, source.size)
        section_type, size = _SECTION.unpack_from(source.data.data, position)
        end = start + size
        if end > source.size:
            what = f"section {section_type} ({size:,} bytes from offset {start:,})"
            raise IncompleteFileError(source.path, what, end, source.size)
        table.append(Section(section_type, start, size))
        position = end
    return tuple(table)
