"""The two layouts a new key is written in: snarkjs's .zkey, and bellperson's .params."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.atomic import Sink
from cuzk_engine.formats.container_writer import ContainerWriter, prime_field, scalar_field
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.zkey import GROTH16
from cuzk_engine.groth16.setup import (
    BELLMAN_ROOT_BASE,
    ENTRY_BYTES,
    SNARKJS_ROOT_BASE,
    KeyMaker,
    Progress,
    Scalars,
    System,
    whole,
)
from cuzk_engine.groth16.toxic import ToxicWaste
from cuzk_engine.native import Call, Field, FieldOp, Group

G1, G2 = Group.G1, Group.G2
_HASH_CHUNK: Final = 1 << 20


def write_zkey(system: System, toxic: ToxicWaste, stream: Sink, progress: Progress | None = None) -> None:
    """The key as snarkjs lays it out, without contributions.

    Where snarkjs has a hash over a key's points, which ties it to a ceremony, this one has BLAKE2b-512 over the file
    of the constraint system.
    """
    maker = KeyMaker(system, toxic, root_base=SNARKJS_ROOT_BASE, progress=progress)
    curve, header = system.curve, system.header
    writer = ContainerWriter(stream, b"zkey", 1, 10)
    writer.whole_section(1, struct.pack("<I", GROTH16))
    points = (
        maker.point(G1, toxic.alpha),
        maker.point(G1, toxic.beta),
        maker.point(G2, toxic.beta),
        maker.point(G2, toxic.gamma),
        maker.point(G1, toxic.delta),
        maker.point(G2, toxic.delta),
    )
    counts = struct.pack("<III", header.n_wires, header.n_public, system.domain_size)
    writer.whole_section(2, prime_field(curve.n8q, curve.q) + scalar_field(curve) + counts + b"".join(points))

    writer.section(4, 4 + system.n_entries * ENTRY_BYTES, struct.pack("<I", system.n_entries))
    for entries in maker.coefficients():
        writer.write(entries)

    def query(section_type: int, group: Group, count: int, scalars: Iterator[Scalars], phase: str) -> None:
        writer.section(section_type, count * (curve.g1_bytes if group is G1 else curve.g2_bytes))
        for part in maker.points(group, scalars, phase):
            writer.write(part)

    query(3, G1, maker.n_ic, maker.ic_scalars(), "IC")
    query(9, G1, system.domain_size, maker.zkey_h_scalars(), "H query")
    query(8, G1, maker.n_private, maker.l_scalars(), "L query")
    query(5, G1, header.n_wires, whole(maker.u), "A query")
    query(6, G1, header.n_wires, whole(maker.v), "B query in G1")
    query(7, G2, header.n_wires, whole(maker.v), "B query in G2")
    writer.whole_section(10, _file_hash(system.source.data) + struct.pack("<I", 0))
    writer.finish()


def write_params(system: System, toxic: ToxicWaste, stream: Sink, progress: Progress | None = None) -> None:
    """The key as bellperson lays it out, on its domain: H in powers of tau; in A and B no points that are infinity.

    Raises FormatError for a circuit with a signal that no constraint uses, which the layout cannot hold.
    """
    if system.curve is not BLS12_381:
        raise FormatError(
            system.source.path, f"is for {system.curve.title}; the params layout exists on BLS12-381 only"
        )
    maker = KeyMaker(system, toxic, root_base=BELLMAN_ROOT_BASE, progress=progress)
    for group, scalar in (
        (G1, toxic.alpha),
        (G1, toxic.beta),
        (G2, toxic.beta),
        (G2, toxic.gamma),
        (G1, toxic.delta),
        (G2, toxic.delta),
    ):
        point = np.frombuffer(maker.point(group, scalar), np.uint8).reshape(1, -1)
        stream.write(big_endian(point.copy(), group))

    def query(group: Group, count: int, scalars: Iterator[Scalars], phase: str) -> None:
        stream.write(struct.pack(">I", count))
        for part in maker.points(group, scalars, phase):
            stream.write(big_endian(part, group))

    query(G1, maker.n_ic, _all_used(maker, maker.ic_scalars(), 0), "IC")
    query(G1, system.domain_size - 1, maker.monomial_h_scalars(), "H query")
    query(G1, maker.n_private, _all_used(maker, maker.l_scalars(), maker.n_ic), "L query")
    query(G1, _count_used(maker.u), _used(maker.u), "A query")
    query(G1, _count_used(maker.v), _used(maker.v), "B query in G1")
    query(G2, _count_used(maker.v), _used(maker.v), "B query in G2")


def big_endian(points: Bytes, group: Group) -> bytes:
    """Finite points of BLS12-381, (n, bytes of a point) in Montgomery form, as uncompressed zcash bytes: x before y,
    big-endian, of Fq2 the second coefficient first, all flags 0. The array is used up."""
    count = 2 if group is G1 else 4
    width = BLS12_381.n8q
    fq = len(points) * count
    native.library().field_op(BLS12_381, Field.FQ, FieldOp.FROM_MONT, points, points, None, fq, Call(1))
    coordinates = points.reshape(-1, width * count // 2)
    return coordinates[:, ::-1].tobytes()


def _used(scalars: Scalars) -> Iterator[Scalars]:
    for part in whole(scalars):
        used = part[part.any(axis=1)]
        if len(used):
            yield used


def _count_used(scalars: Scalars) -> int:
    return sum(int(np.count_nonzero(part.any(axis=1))) for part in whole(scalars))


def _all_used(maker: KeyMaker, scalars: Iterator[Scalars], first: int) -> Iterator[Scalars]:
    for part in scalars:
        unused = np.flatnonzero(~part.any(axis=1))
        if unused.size:
            wire = first + int(unused[0])
            raise FormatError(
                maker.system.source.path, f"no constraint uses wire {wire:,}; the params layout needs every wire used"
            )
        first += len(part)
        yield part


def _file_hash(data: Bytes) -> bytes:
    digest = hashlib.blake2b()
    for start in range(0, data.size, _HASH_CHUNK):
        digest.update(data[start : start + _HASH_CHUNK].data)
    return digest.digest()
