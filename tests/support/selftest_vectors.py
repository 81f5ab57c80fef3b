"""Known answers for tests/kernels/native_selftest.cpp, made by plain Python arithmetic.

    python -m tests.support.selftest_vectors FILE

The pairings' answers come from snarkjs: `vk_alphabeta_12` of the verification keys under tests/data. snarkjs stops at a
multiple of the exponent (q^12 - 1) / r, whose factor is taken out here with py_ecc's arithmetic. The file's form stands
in native_selftest.cpp.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import py_ecc.optimized_bls12_381
import py_ecc.optimized_bn128

from cuzk_engine.curves import BN254, CURVES, Curve
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.native import Field, FieldOp, Group, NttFlags, PointFault, PointOp
from tests.support.arithmetic import CurveMath, FieldMath, encode_scalars
from tests.support.cases import case

MAGIC = b"cuzkself"
_POINTS = {Group.G1: (1, 5, 700), Group.G2: (1, 5, 150)}
_SEED = 20
_BN_X = 4965661367192848881
# BN254: Fuentes-Castañeda, Knapp, Rodríguez-Henríquez, "Faster hashing to G2", 2011. BLS12-381: the usual 3.
_SNARKJS_FACTOR = {"bn254": 2 * _BN_X * (6 * _BN_X**2 + 3 * _BN_X + 1), "bls12_381": 3}


class Kind(IntEnum):
    FIELD = 1
    POINT = 2
    TRANSFORM = 3
    EXTEND = 4
    MSM = 5
    PAIRING = 6
    PAIRING_CHECK = 7
    EVALUATE = 8
    POINTS_CHECK = 9


def write(path: Path) -> int:
    """Writes all records; returns how many."""
    records = [record for curve in CURVES for record in _records(curve)]
    path.write_bytes(MAGIC + b"".join(records))
    return len(records)


def _records(curve: Curve) -> Iterator[bytes]:
    rng = random.Random(_SEED + curve.id)
    for field in Field:
        yield from _field(curve, field, rng)
    for group in Group:
        yield from _points(curve, group, rng)
        yield from _msm(curve, group, rng)
    for log_n in (0, 1, 5, 7):
        yield from _transforms(curve, log_n, rng)
    yield _evaluate(curve, rng)
    yield from _pairings(curve)


def _record(kind: Kind, curve: Curve, first: int, second: int, n: int, *blobs: Any) -> bytes:
    parts = [struct.pack("<IIIIQI", kind, curve.id, first, second, n, len(blobs))]
    for blob in blobs:
        data = bytes(blob)
        parts += [struct.pack("<Q", len(data)), data]
    return b"".join(parts)


def _field(curve: Curve, field: Field, rng: random.Random) -> Iterator[bytes]:
    math = FieldMath(curve, field)
    edges = [0, 1, 2, math.p - 1, math.p - 2, (1 << 64) - 1, 1 << 64, math.p // 2]
    numbers = edges + [rng.randrange(math.p) for _ in range(25)]
    other = [rng.randrange(math.p) for _ in edges] + numbers[len(edges) :][::-1]
    if math.degree == 2:
        a, b = list(zip(numbers, other, strict=True)), list(zip(other[::-1], numbers, strict=True))
    else:
        a, b = numbers, other
    for op, function in {FieldOp.ADD: math.add, FieldOp.SUB: math.sub, FieldOp.MUL: math.mul}.items():
        answer = [function(x, y) for x, y in zip(a, b, strict=True)]
        yield _record(Kind.FIELD, curve, field, op, len(a), *map(math.encode_mont, (a, b, answer)))
    squares = [math.mul(x, x) for x in a]
    for op, answer in {
        FieldOp.SQR: squares,
        FieldOp.NEG: [math.neg(x) for x in a],
        FieldOp.INV: [math.inv(x) for x in a],
    }.items():
        yield _record(Kind.FIELD, curve, field, op, len(a), math.encode_mont(a), b"", math.encode_mont(answer))
    yield _record(Kind.FIELD, curve, field, FieldOp.TO_MONT, len(a), math.encode(a), b"", math.encode_mont(a))
    yield _record(Kind.FIELD, curve, field, FieldOp.FROM_MONT, len(a), math.encode_mont(a), b"", math.encode(a))


def _points(curve: Curve, group: Group, rng: random.Random) -> Iterator[bytes]:
    math = CurveMath(curve, group)
    a = [None, *math.multiples(8, rng.randrange(1 << 64))]
    b = [a[1], a[1], math.neg(a[2]), *math.multiples(6, rng.randrange(1 << 64))]
    scalars = [3, 0, 1, curve.r - 1, *(rng.randrange(curve.r) for _ in range(5))]
    sums = [math.add(x, y) for x, y in zip(a, b, strict=True)]
    products = [math.mul(x, k) for x, k in zip(a, scalars, strict=True)]
    for op, second, answer in (
        (PointOp.ADD, math.encode(b), sums),
        (PointOp.DOUBLE, b"", [math.add(x, x) for x in a]),
        (PointOp.NEG, b"", [math.neg(x) for x in a]),
        (PointOp.MUL, encode_scalars(scalars), products),
    ):
        yield _record(Kind.POINT, curve, group, op, len(a), math.encode(a), second, math.encode(answer))
    x, y = math.generator
    off_curve = math.encode([math.generator, None, (x, math.field.add(y, math.field.one))])
    yield _record(Kind.POINTS_CHECK, curve, group, 0, 3, off_curve, struct.pack("<QI", 2, PointFault.OFF_CURVE))


def _msm(curve: Curve, group: Group, rng: random.Random) -> Iterator[bytes]:
    math = CurveMath(curve, group)
    for n in _POINTS[group]:
        start = rng.randrange(1, 1 << 64)
        points = math.multiples(n, start)
        scalars = [rng.choice((0, 1, 2, curve.r - 1, rng.randrange(curve.r), rng.randrange(curve.r))) for _ in points]
        total = sum(k * (start + i) for i, k in enumerate(scalars)) % curve.r
        if n > 1:  # infinity among the points, and the same point twice
            points[0], points[1] = None, points[n - 1]
            total = (total - scalars[0] * start - scalars[1] * (start + 1) + scalars[1] * (start + n - 1)) % curve.r
        answer = math.mul(math.generator, total) if total else None
        blobs = math.encode(points), encode_scalars(scalars), math.encode([answer])
        yield _record(Kind.MSM, curve, group, 0, n, *blobs)


def _transforms(curve: Curve, log_n: int, rng: random.Random) -> Iterator[bytes]:
    math, r, n = FieldMath(curve, Field.FR), curve.r, 1 << log_n
    values = [rng.randrange(r) for _ in range(n)]
    root = _root(curve, log_n)
    coefficients = [x * pow(n, -1, r) % r for x in _dft(values, pow(root, -1, r), r)]
    data = math.encode_mont(values)
    for flags, answer in ((NttFlags.FORWARD, _dft(values, root, r)), (NttFlags.INVERSE, coefficients)):
        yield _record(Kind.TRANSFORM, curve, log_n, flags, n, data, math.encode_mont(answer))
    shift = _root(curve, log_n + 1)
    extended = _dft([x * pow(shift, i, r) % r for i, x in enumerate(coefficients)], root, r)
    yield _record(Kind.EXTEND, curve, log_n, 0, n, data, math.encode_mont(extended))


def _evaluate(curve: Curve, rng: random.Random) -> bytes:
    math, domain, n_vars = FieldMath(curve, Field.FR), 16, 9
    witness = [1, *(rng.randrange(curve.r) for _ in range(n_vars - 1))]
    rows: list[list[int]] = [[0] * domain, [0] * domain]
    entries = b""
    for constraint in range(domain - 3):
        for matrix, signal in ((0, rng.randrange(n_vars)), (0, rng.randrange(n_vars)), (1, rng.randrange(n_vars))):
            coefficient = rng.choice((1, curve.r - 1, rng.randrange(curve.r)))
            rows[matrix][constraint] = (rows[matrix][constraint] + coefficient * witness[signal]) % curve.r
            stored = coefficient * math.radix * math.radix % curve.r
            entries += struct.pack("<III", matrix, constraint, signal) + stored.to_bytes(32, "little")
    a, b = rows
    answer = math.encode_mont([*a, *b, *(x * y % curve.r for x, y in zip(a, b, strict=True))])
    return _record(Kind.EVALUATE, curve, domain, 0, len(entries) // 44, entries, encode_scalars(witness), answer)


def _pairings(curve: Curve) -> Iterator[bytes]:
    item = case(curve.snarkjs_name, "mul_pub")
    key = VerificationKey.read(item.path("verification_key.json"))
    g1, g2 = CurveMath(curve, Group.G1), CurveMath(curve, Group.G2)
    plain = FieldMath(curve, Field.FQ)
    numbers = [int(x) for six in item.json("verification_key.json")["vk_alphabeta_12"] for two in six for x in two]
    p, q = g1.encode([key.alpha1]), g2.encode([key.beta2])
    yield _record(Kind.PAIRING, curve, 0, 0, 1, p, q, plain.encode(_power(curve, numbers, _SNARKJS_FACTOR[curve.name])))
    for k, is_one in ((15, 1), (16, 0)):  # e(3 P, 5 Q) e(-k P, Q)
        left = [g1.mul(g1.generator, 3), g1.neg(g1.mul(g1.generator, k))]
        right = [g2.mul(g2.generator, 5), g2.generator]
        yield _record(Kind.PAIRING_CHECK, curve, 0, 0, 2, g1.encode(left), g2.encode(right), bytes([is_one]))


def _power(curve: Curve, value: list[int], factor: int) -> list[int]:
    """``value``, of order r, to the power of 1 / ``factor``.

    py_ecc writes Fq12 as Fq[w] with w^6 = xi = a + u; of the tower, v is w^2.
    """
    module = py_ecc.optimized_bn128 if curve is BN254 else py_ecc.optimized_bls12_381
    a = 9 if curve is BN254 else 1
    powers = (0, 2, 4, 1, 3, 5)
    coefficients = [0] * 12
    for i, power in enumerate(powers):
        coefficients[power] = (value[2 * i] - a * value[2 * i + 1]) % curve.q
        coefficients[power + 6] = value[2 * i + 1]
    found = [int(x) for x in (module.FQ12(coefficients) ** pow(factor, -1, curve.r)).coeffs]
    return [x for power in powers for x in ((found[power] + a * found[power + 6]) % curve.q, found[power + 6])]


def _root(curve: Curve, k: int) -> int:
    """snarkjs's root of unity of order 2^k."""
    nqr = next(x for x in range(2, 100) if pow(x, (curve.r - 1) // 2, curve.r) == curve.r - 1)
    root = pow(nqr, (curve.r - 1) >> curve.two_adicity, curve.r)
    return pow(root, 1 << (curve.two_adicity - k), curve.r)


def _dft(values: Sequence[int], root: int, r: int) -> list[int]:
    return [sum(v * pow(root, i * j, r) for j, v in enumerate(values)) % r for i in range(len(values))]


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} records")
