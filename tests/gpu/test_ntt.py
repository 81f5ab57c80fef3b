"""Transforms on the device against the definition, and against each other at large sizes."""

from __future__ import annotations

import random

import cupy
import numpy as np
import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import ntt
from cuzk_engine.devices.cuda.module import Kernels
from tests.gpu.test_fields import from_limbs

_TRANSFORMS: dict[str, ntt.Ntt] = {}


@pytest.fixture
def transform(kernels: Kernels, curve: Curve) -> ntt.Ntt:
    if curve.name not in _TRANSFORMS:
        _TRANSFORMS[curve.name] = ntt.Ntt(kernels, curve, 22)
    return _TRANSFORMS[curve.name]


def evaluate(values: list[int], points: list[int], r: int) -> list[int]:
    out = []
    for x in points:
        total = 0
        for c in reversed(values):
            total = (total * x + c) % r
        out.append(total)
    return out


def reverse(i: int, bits: int) -> int:
    return int(format(i, f"0{bits}b")[::-1], 2) if bits else 0


def reordered(values: list[int]) -> list[int]:
    bits = len(values).bit_length() - 1
    return [values[reverse(i, bits)] for i in range(len(values))]


def run(transform: ntt.Ntt, values: list[int], **options: bool) -> list[int]:
    data = cupy.asarray(ntt.to_limbs(values)).copy()
    transform.run(data, **options)
    return from_limbs(data)


@pytest.mark.parametrize("log_n", range(10))
def test_definition(transform: ntt.Ntt, curve: Curve, log_n: int) -> None:
    n, r = 1 << log_n, curve.r
    source = random.Random(log_n)
    values = [source.randrange(r) for _ in range(n)]
    values[0] = r - 1
    w, shift = ntt.root_of_unity(curve, log_n), ntt.root_of_unity(curve, log_n + 1)
    domain = [pow(w, i, r) for i in range(n)]
    expected = evaluate(values, domain, r)
    expected_coset = evaluate(values, [shift * x % r for x in domain], r)
    inverse = [v * pow(n, -1, r) % r for v in evaluate(values, [pow(x, -1, r) for x in domain], r)]

    assert run(transform, values) == reordered(expected)
    assert run(transform, reordered(values), in_reversed=True) == expected
    assert run(transform, values, coset=True) == reordered(expected_coset)
    assert run(transform, reordered(values), coset=True, in_reversed=True) == expected_coset
    assert run(transform, values, inverse=True) == reordered(inverse)
    assert run(transform, reordered(values), inverse=True, in_reversed=True) == inverse
    assert run(transform, reordered(expected_coset), inverse=True, coset=True, in_reversed=True) == values


@pytest.mark.parametrize("log_n", [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22])
def test_large(transform: ntt.Ntt, curve: Curve, log_n: int) -> None:
    """Some values by the definition (a sparse polynomial), all orders against each other, and the way back."""
    n, r = 1 << log_n, curve.r
    source = random.Random(log_n)
    terms = {source.randrange(n): source.randrange(r) for _ in range(5)}
    host = np.zeros((n, 4), dtype=np.uint64)
    for position, value in terms.items():
        host[position] = ntt.to_limbs([value])[0]
    data = cupy.asarray(host)
    transform.run(data)
    w = ntt.root_of_unity(curve, log_n)
    places = [source.randrange(n) for _ in range(20)] + [0, n - 1]
    got = from_limbs(data[cupy.asarray([reverse(i, log_n) for i in places])])
    assert got == [sum(c * pow(w, i * k, r) for k, c in terms.items()) % r for i in places]

    random_host = np.frombuffer(source.randbytes(32 * n), dtype=np.uint64).reshape(n, 4).copy()
    random_host[:, 3] &= np.uint64((1 << 60) - 1)
    start = cupy.asarray(random_host)
    a = start.copy()
    transform.run(a)
    transform.reverse(a)
    b = start.copy()
    transform.reverse(b)
    transform.run(b, in_reversed=True)
    assert bool((a == b).all())
    transform.run(b, inverse=True)
    transform.reverse(b)
    assert bool((b == start).all())
    c = start.copy()
    transform.coset_extend(c)
    d = start.copy()
    transform.reverse(d)
    transform.coset_extend_reversed(d)
    transform.reverse(d)
    assert bool((c == d).all())
    assert not bool((c == start).all())
    transform.reverse(d)
    transform.run(d, inverse=True, coset=True, in_reversed=True)
    transform.run(d)
    transform.reverse(d)
    assert bool((d == start).all())


def test_batch(transform: ntt.Ntt, curve: Curve) -> None:
    source = random.Random(5)
    host = np.frombuffer(source.randbytes(32 * 3 << 12), dtype=np.uint64).reshape(3, 1 << 12, 4).copy()
    host[:, :, 3] &= np.uint64((1 << 60) - 1)
    together = cupy.asarray(host)
    transform.coset_extend(together)
    for k in range(3):
        alone = cupy.asarray(host[k])
        transform.coset_extend(alone)
        assert bool((alone == together[k]).all())
