"""Field arithmetic on the device against Python's integers."""

from __future__ import annotations

import random

import cupy
import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import fields
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.ntt import to_limbs


def edge_values(p: int, limbs: int, count: int, seed: int) -> list[int]:
    """0, 1, p - 1, limbs of all ones or zeros, and uniform values."""
    source = random.Random(seed)
    values = [0, 1, 2, p - 1, p - 2, (1 << (64 * limbs - 64)) - 1, 1 << (64 * limbs - 65), p // 2, p // 2 + 1]
    while len(values) < count:
        words = [source.choice((0, 2**32 - 1, source.getrandbits(32))) for _ in range(2 * limbs)]
        values.append(sum(w << (32 * i) for i, w in enumerate(words)) % p)
        values.append(source.randrange(p))
    return values[:count]


def from_limbs(array: object) -> list[int]:
    host = cupy.asnumpy(array)
    return [int.from_bytes(row.tobytes(), "little") for row in host]


@pytest.mark.parametrize("field", ["Fr", "Fq"])
def test_operations(kernels: Kernels, curve: Curve, field: str) -> None:
    p = curve.q if field == "Fq" else curve.r
    limbs = curve.limbs if field == "Fq" else 4
    radix = 1 << (64 * limbs)
    inverse_radix = pow(radix, -1, p)
    n = 3000
    x, y = edge_values(p, limbs, n, 1), edge_values(p, limbs, n, 2)
    y = y[7:] + y[:7]
    a, b = cupy.asarray(to_limbs(x, limbs)), cupy.asarray(to_limbs(y, limbs))

    def apply(op: int, other: object | None = None) -> list[int]:
        return from_limbs(fields.field_op(kernels, curve, field, op, a, other))

    assert apply(fields.ADD, b) == [(s + t) % p for s, t in zip(x, y, strict=True)]
    assert apply(fields.SUB, b) == [(s - t) % p for s, t in zip(x, y, strict=True)]
    assert apply(fields.MUL, b) == [s * t * inverse_radix % p for s, t in zip(x, y, strict=True)]
    assert apply(fields.SQR) == [s * s * inverse_radix % p for s in x]
    assert apply(fields.NEG) == [-s % p for s in x]
    assert apply(fields.TO_MONT) == [s * radix % p for s in x]
    assert apply(fields.FROM_MONT) == [s * inverse_radix % p for s in x]
    assert apply(fields.INV) == [pow(s * inverse_radix, -1, p) * radix % p if s else 0 for s in x]


def test_first_unreduced(kernels: Kernels, curve: Curve) -> None:
    values = edge_values(curve.r, 4, 1000, 3)
    assert fields.first_unreduced(kernels, curve, "Fr", cupy.asarray(to_limbs(values))) is None
    values[901] = curve.r
    values[555] = curve.r + 1
    assert fields.first_unreduced(kernels, curve, "Fr", cupy.asarray(to_limbs(values))) == 555
