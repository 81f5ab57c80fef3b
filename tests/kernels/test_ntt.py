"""Transforms of the native library against the definition of the discrete Fourier transform."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.native import Field, FieldOp, NativeLibrary, NttFlags, aligned
from tests.support.arithmetic import FieldMath

Array = npt.NDArray[np.uint8]

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def omega(curve: Curve, k: int) -> int:
    """snarkjs's root of unity of order 2^k."""
    nqr = next(x for x in range(2, 100) if pow(x, (curve.r - 1) // 2, curve.r) == curve.r - 1)
    root = pow(nqr, (curve.r - 1) >> curve.two_adicity, curve.r)
    return pow(root, 1 << (curve.two_adicity - k), curve.r)


def coset_shift(curve: Curve, log_n: int) -> int:
    return omega(curve, log_n + 1)


def dft(values: list[int], root: int, r: int) -> list[int]:
    powers = [1]
    for _ in range(len(values) - 1):
        powers.append(powers[-1] * root % r)
    n = len(values)
    return [sum(v * powers[i * j % n] for j, v in enumerate(values)) % r for i in range(n)]


def reverse(i: int, bits: int) -> int:
    return int(f"{i:0{bits}b}"[::-1], 2) if bits else 0


def reordered(values: list[int]) -> list[int]:
    bits = len(values).bit_length() - 1
    return [values[reverse(i, bits)] for i in range(len(values))]


def table(native: NativeLibrary, curve: Curve, log_n: int) -> Array:
    memory = aligned(native.ntt_table_bytes(curve, log_n))
    native.ntt_table(curve, log_n, memory)
    return memory


def random_vector(curve: Curve, log_n: int, seed: int = 1) -> Array:
    """Any limbs below 2^252 are a valid element."""
    vector = aligned(32 << log_n)
    vector[:] = np.random.default_rng(seed).integers(0, 256, vector.size, np.uint8)
    vector.reshape(-1, 32)[:, 31] &= 15
    return vector


@curves
@pytest.mark.parametrize("log_n", range(8))
def test_transforms_are_the_definition(native: NativeLibrary, curve: Curve, log_n: int) -> None:
    math = FieldMath(curve, Field.FR)
    n, r = 1 << log_n, curve.r
    values = [random.Random(log_n).randrange(r) for _ in range(n)]
    values[: n // 2] = ([0, 1, r - 1, 2] * n)[: n // 2]
    twiddles = table(native, curve, log_n)
    root = omega(curve, log_n)
    forward = dft(values, root, r)
    inverse = [x * pow(n, -1, r) % r for x in dft(values, pow(root, -1, r), r)]
    for inverted, expected in ((NttFlags.FORWARD, forward), (NttFlags.INVERSE, inverse)):
        for order in range(4):
            flags = inverted
            source, target = values, expected
            if order & 1:
                flags, source = flags | NttFlags.IN_REVERSED, reordered(values)
            if order & 2:
                flags, target = flags | NttFlags.OUT_REVERSED, reordered(expected)
            data = math.encode_mont(source)
            native.ntt(curve, data, log_n, flags, twiddles)
            assert math.decode_mont(data) == target


@curves
@pytest.mark.parametrize("log_n", range(7))
def test_coset_extension_is_the_definition(native: NativeLibrary, curve: Curve, log_n: int) -> None:
    math = FieldMath(curve, Field.FR)
    n, r = 1 << log_n, curve.r
    values = [random.Random(log_n + 50).randrange(r) for _ in range(n)]
    root, shift = omega(curve, log_n), coset_shift(curve, log_n)
    coefficients = [x * pow(n, -1, r) % r for x in dft(values, pow(root, -1, r), r)]
    expected = dft([x * pow(shift, i, r) % r for i, x in enumerate(coefficients)], root, r)
    data = math.encode_mont(values)
    native.coset_extend(curve, data, log_n, table(native, curve, log_n))
    assert math.decode_mont(data) == expected


@curves
@pytest.mark.parametrize("log_n", [0, 1, 6])
@pytest.mark.parametrize("is_inverse", [False, True])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_coset_scaling(native: NativeLibrary, curve: Curve, log_n: int, is_inverse: bool, is_reversed: bool) -> None:
    math = FieldMath(curve, Field.FR)
    n, r = 1 << log_n, curve.r
    shift = pow(coset_shift(curve, log_n), -1 if is_inverse else 1, r)
    values = [random.Random(log_n).randrange(r) for _ in range(n)]
    expected = [x * pow(shift, i, r) % r for i, x in enumerate(values)]
    data = math.encode_mont(reordered(values) if is_reversed else values)
    native.coset_scale(curve, data, log_n, is_inverse, is_reversed, table(native, curve, log_n))
    assert math.decode_mont(data) == (reordered(expected) if is_reversed else expected)


@curves
@pytest.mark.parametrize("log_n", [9, 10, 11, 13])
def test_large_transforms(native: NativeLibrary, curve: Curve, log_n: int) -> None:
    """Sizes of several passes: a round trip gives the input back, and single outputs are polynomials' values."""
    math = FieldMath(curve, Field.FR)
    r = curve.r
    vector = random_vector(curve, log_n)
    twiddles = table(native, curve, log_n)
    values = math.decode_mont(vector)
    data = vector.copy()
    moved = aligned(data.nbytes)
    moved[:] = data
    native.ntt(curve, moved, log_n, NttFlags.FORWARD, twiddles)
    result = math.decode_mont(moved)
    for index in (0, 1, 2, (1 << log_n) - 1, 3 << (log_n - 3)):
        assert result[index] == evaluate(values, pow(omega(curve, log_n), index, r), r)
    native.ntt(curve, moved, log_n, NttFlags.INVERSE, twiddles)
    assert np.array_equal(moved, vector)
    native.ntt(curve, moved, log_n, NttFlags.INVERSE | NttFlags.OUT_REVERSED, twiddles)
    native.ntt(curve, moved, log_n, NttFlags.IN_REVERSED, twiddles)
    assert np.array_equal(moved, vector)


def evaluate(coefficients: list[int], x: int, r: int) -> int:
    result = 0
    for c in reversed(coefficients):
        result = (result * x + c) % r
    return result


@curves
def test_coset_extension_is_its_three_steps(native: NativeLibrary, curve: Curve) -> None:
    log_n = 13
    twiddles = table(native, curve, log_n)
    at_once, in_steps = random_vector(curve, log_n), random_vector(curve, log_n)
    native.coset_extend(curve, at_once, log_n, twiddles)
    native.ntt(curve, in_steps, log_n, NttFlags.INVERSE, twiddles)
    native.coset_scale(curve, in_steps, log_n, False, False, twiddles)
    native.ntt(curve, in_steps, log_n, NttFlags.FORWARD, twiddles)
    assert np.array_equal(at_once, in_steps)


@curves
def test_extending_twice_turns_the_domain(native: NativeLibrary, curve: Curve) -> None:
    """From the coset the next step is the domain again, one place on."""
    log_n = 5
    twiddles = table(native, curve, log_n)
    vector = random_vector(curve, log_n)
    twice = aligned(vector.nbytes)
    twice[:] = vector
    for _ in range(2):
        native.coset_extend(curve, twice, log_n, twiddles)
    assert np.array_equal(twice.reshape(-1, 32), np.roll(vector.reshape(-1, 32), -1, axis=0))


@curves
@settings(max_examples=10)
@given(log_n=st.integers(0, 9), seed=st.integers(0, 1 << 30))
def test_transforms_are_linear(native: NativeLibrary, curve: Curve, log_n: int, seed: int) -> None:
    n = 1 << log_n
    twiddles = table(native, curve, log_n)
    a, b = random_vector(curve, log_n, seed), random_vector(curve, log_n, seed + 1)
    total = aligned(a.nbytes)
    native.field_op(curve, Field.FR, FieldOp.ADD, total, a, b, n)
    for vector in (a, b, total):
        native.ntt(curve, vector, log_n, NttFlags.FORWARD, twiddles)
    native.field_op(curve, Field.FR, FieldOp.ADD, a, a, b, n)
    assert np.array_equal(a, total)
