"""Takes iden3 containers apart and puts them together again, damaged on purpose."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cuzk_engine.curves import Curve

Sections = list[tuple[int, bytes]]


@dataclass
class Parts:
    """A container as a list of sections, which a test may change before it calls `build`."""

    magic: bytes
    version: int
    sections: Sections

    @classmethod
    def of(cls, data: bytes) -> Parts:
        magic, version, count = struct.unpack_from("<4sII", data)
        position, sections = 12, []
        for _ in range(count):
            kind, size = struct.unpack_from("<IQ", data, position)
            sections.append((kind, data[position + 12 : position + 12 + size]))
            position += 12 + size
        assert position == len(data)
        return cls(magic, version, sections)

    def build(self) -> bytes:
        out = [struct.pack("<4sII", self.magic, self.version, len(self.sections))]
        for kind, payload in self.sections:
            out += [struct.pack("<IQ", kind, len(payload)), payload]
        return b"".join(out)

    def get(self, kind: int) -> bytes:
        return next(payload for found, payload in self.sections if found == kind)

    def replace(self, kind: int, change: Callable[[bytes], bytes]) -> Parts:
        sections = [(found, change(payload) if found == kind else payload) for found, payload in self.sections]
        return Parts(self.magic, self.version, sections)

    def without(self, kind: int) -> Parts:
        return Parts(self.magic, self.version, [item for item in self.sections if item[0] != kind])


def section_headers(data: bytes) -> list[int]:
    """Offsets of the section headers, then the end of the file."""
    offsets, position = [], 12
    for _ in range(struct.unpack_from("<I", data, 8)[0]):
        offsets.append(position)
        position += 12 + struct.unpack_from("<Q", data, position + 4)[0]
    return [*offsets, position]


def put(offset: int, value: int, size: int = 4) -> Callable[[bytes], bytes]:
    """A change that writes a little-endian number at an offset."""

    def change(payload: bytes) -> bytes:
        return payload[:offset] + value.to_bytes(size, "little") + payload[offset + size :]

    return change


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fails when more than `limit` bytes were allocated at any time within the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


def wtns(prime: int, values: list[int], *, n8: int = 32, count: int | None = None) -> bytes:
    header = struct.pack("<I", n8) + prime.to_bytes(n8, "little")
    header += struct.pack("<I", len(values) if count is None else count)
    return Parts(b"wtns", 2, [(1, header), (2, b"".join(value.to_bytes(n8, "little") for value in values))]).build()


Combination = list[tuple[int, int]]
Row = tuple[Combination, Combination, Combination]


def r1cs(
    curve: Curve,
    rows: list[Row],
    *,
    n_wires: int,
    outputs: int = 0,
    public_inputs: int = 0,
    private_inputs: int = 0,
    labels: bool = True,
    n_constraints: int | None = None,
    extra: Sections | None = None,
) -> bytes:
    header = struct.pack("<I", 32) + curve.r.to_bytes(32, "little")
    header += struct.pack("<IIIIQ", n_wires, outputs, public_inputs, private_inputs, n_wires)
    header += struct.pack("<I", len(rows) if n_constraints is None else n_constraints)
    body = []
    for row in rows:
        for combination in row:
            body.append(struct.pack("<I", len(combination)))
            body += [struct.pack("<I", wire) + value.to_bytes(32, "little") for wire, value in combination]
    sections = [(2, b"".join(body)), (1, header)]
    if labels:
        sections.append((3, b"".join(struct.pack("<Q", index) for index in range(n_wires))))
    return Parts(b"r1cs", 1, sections + (extra or [])).build()
