"""Many multiples of one point against point operations, one by one."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BN254, CURVES
from cuzk_engine.errors import CancelledError
from cuzk_engine.groth16.fixed_base import FixedBase, best_window
from cuzk_engine.native import Call, Group, NativeCallError, NativeLibrary, PointOp, Status, aligned
from tests.support.arithmetic import Array, CurveMath, encode_scalars

groups = pytest.mark.parametrize(
    "math",
    [CurveMath(curve, group) for curve in CURVES for group in Group],
    ids=lambda math: f"{math.curve.name}-{math.group.name}",
)


def base_point(math: CurveMath, k: int = 1) -> Array:
    return math.encode([math.mul(math.generator, k)])


def multiply(
    native: NativeLibrary, math: CurveMath, point: Array, scalars: list[int], window: int | None, threads: int = 0
) -> Array:
    base = FixedBase(native, math.curve, math.group, point, len(scalars), threads, window)
    out = np.full((len(scalars), math.nbytes), 0x5A, np.uint8)
    base.multiply(encode_scalars(scalars), len(scalars), out)
    return out


def one_by_one(native: NativeLibrary, math: CurveMath, point: Array, scalars: list[int]) -> Array:
    n = len(scalars)
    out = np.empty((n, math.nbytes), np.uint8)
    points = np.repeat(point.reshape(1, -1), n, axis=0)
    native.point_op(math.curve, math.group, PointOp.MUL, out, points, encode_scalars(scalars), n)
    return out


def edge_scalars(r: int, window: int) -> list[int]:
    """0, 1, r − 1, the ends of digits, and sums that meet their own addend."""
    half = 1 << (window - 1)
    near = [0, 1, 2, 3, half - 1, half, half + 1, 2 * half - 1, 2 * half, 2 * half + 1]
    powers = [1 << bit for bit in range(0, r.bit_length() - 1, 13)]
    return [*near, *(r - 1 - k for k in near), *powers, *(power - 1 for power in powers), r // 2, r // 2 + 1]


@groups
@pytest.mark.parametrize("window", [2, 3, 5, 8, 13])
def test_edges_of_every_window(native: NativeLibrary, math: CurveMath, window: int) -> None:
    scalars = edge_scalars(math.curve.r, window)
    point = base_point(math)
    assert np.array_equal(multiply(native, math, point, scalars, window), one_by_one(native, math, point, scalars))


def test_the_widest_window(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    scalars = edge_scalars(BN254.r, 16)
    point = base_point(math)
    assert np.array_equal(multiply(native, math, point, scalars, 16), one_by_one(native, math, point, scalars))


@groups
def test_several_batches_in_any_number_of_threads(native: NativeLibrary, math: CurveMath) -> None:
    """More than two batches, which threads share; the expected points come from a running sum."""
    rng = random.Random(3)
    scalars = [rng.randrange(math.curve.r) if i % 3 else i for i in range(2500)]
    some = [0, 511, 512, 1023, 1024, 2047, 2048, 2499]
    point = base_point(math, 7)
    results = [multiply(native, math, point, scalars, 6, threads) for threads in (1, 2, 3)]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert np.array_equal(results[0][some], one_by_one(native, math, point, [scalars[i] for i in some]))
    assert native.points_check(math.curve, math.group, results[0], 2500, False) is None


@groups
@settings(max_examples=10)
@given(data=st.data())
def test_any_point_any_scalars(default_native: NativeLibrary, math: CurveMath, data: st.DataObject) -> None:
    r = math.curve.r
    point = base_point(math, data.draw(st.integers(1, r - 1)))
    scalars = data.draw(st.lists(st.integers(0, r - 1), max_size=20))
    window = data.draw(st.integers(2, 9))
    expected = one_by_one(default_native, math, point, scalars)
    assert np.array_equal(multiply(default_native, math, point, scalars, window), expected)


@groups
def test_multiples_of_infinity(native: NativeLibrary, math: CurveMath) -> None:
    out = multiply(native, math, np.zeros(math.nbytes, np.uint8), [0, 1, 2, math.curve.r - 1, 12345], 4)
    assert not out.any()


def test_a_scalar_that_is_not_below_the_order(native: NativeLibrary) -> None:
    math, window, n = CurveMath(BN254, Group.G1), 4, 3000
    scalars = np.zeros((n, 32), np.uint8)
    for bad in (2999, 1500):
        scalars[bad] = np.frombuffer(BN254.r.to_bytes(32, "little"), np.uint8)
    table = aligned(native_number(native, "fixed_base_table_bytes", window))
    scratch = aligned(native_number(native, "fixed_base_scratch_bytes", window, 0))
    out, index = np.empty((n, 64), np.uint8), ctypes.c_uint64()
    place = (scratch, scratch.nbytes)
    assert native.invoke("fixed_base_table", BN254.id, Group.G1, base_point(math), window, table, *place, Call())
    arguments = (BN254.id, Group.G1, table, window, scalars, n, out, *place, ctypes.byref(index), Call())
    assert not native.invoke("fixed_base_multiply", *arguments)
    assert index.value == 1500


def native_number(native: NativeLibrary, name: str, *arguments: int) -> int:
    return native.number(name, BN254.id, Group.G1, *arguments)


def test_refused_arguments(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    for window in (0, 1, 17, 2**31):
        assert native_number(native, "fixed_base_table_bytes", window) == 0
        assert native_number(native, "fixed_base_scratch_bytes", window, 1) == 0
        with pytest.raises(NativeCallError):
            FixedBase(native, BN254, Group.G1, base_point(math), 10, 1, window)
    small = aligned(64)
    table = aligned(native_number(native, "fixed_base_table_bytes", 4))
    arguments = (BN254.id, Group.G1, base_point(math), 4, table, small, small.nbytes, Call())
    with pytest.raises(NativeCallError) as caught:
        native.invoke("fixed_base_table", *arguments)
    assert caught.value.status is Status.SCRATCH


def test_cancelled(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    base = FixedBase(native, BN254, Group.G1, base_point(math), 10, 1, 4)
    flag = np.ones(1, np.int32)
    out = np.empty((10, 64), np.uint8)
    with pytest.raises(CancelledError):
        base.multiply(encode_scalars([1] * 10), 10, out, Call(1, flag.ctypes.data))


def test_the_window_grows_with_the_number_of_products() -> None:
    windows = [best_window(1 << k) for k in range(24)]
    assert windows == sorted(windows)
    assert windows[0] == 4
    assert windows[-1] == 16
