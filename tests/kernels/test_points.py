"""Points of the native library against textbook formulas and py_ecc."""

from __future__ import annotations

from typing import Any

import numpy as np
import py_ecc.optimized_bls12_381
import py_ecc.optimized_bn128
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BN254, CURVES
from cuzk_engine.native import Field, Group, NativeCallError, NativeLibrary, PointFault, PointOp, PointProblem
from tests.support.arithmetic import CurveMath, FieldMath, Point, encode_scalars


def each(groups: list[CurveMath]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("math", groups, ids=lambda math: f"{math.curve.name}-{math.group.name}")


groups = each([CurveMath(curve, group) for curve in CURVES for group in Group])
groups_with_cofactor = each(
    [CurveMath(curve, group) for curve in CURVES for group in Group if (curve, group) != (BN254, Group.G1)]
)


def apply(native: NativeLibrary, math: CurveMath, op: PointOp, a: list[Point], b: Any = None) -> list[Point]:
    x = math.encode(a)
    y = encode_scalars(b) if op is PointOp.MUL else None if b is None else math.encode(b)
    out = np.empty_like(x)
    native.point_op(math.curve, math.group, op, out, x, y, len(a))
    return math.decode(out)


@groups
@pytest.mark.parametrize("n", [0, 1, 5, 20_000])
def test_points_that_are_not_infinity_are_counted(native: NativeLibrary, math: CurveMath, n: int) -> None:
    size = math.encode([None]).nbytes
    points = np.zeros((n, size), dtype=np.uint8)
    rows = np.random.default_rng(n).random(n) < 0.3
    points[rows, np.arange(n)[rows] % size] = 1  # whichever byte it is
    assert native.points_present(math.curve, math.group, points, n) == rows.sum()


def find_point(math: CurveMath, start: int) -> Point:
    """A point of the curve that is (nearly certainly) not of order r."""
    f = math.field
    for k in range(start, start + 200):
        x: Any = k if f.degree == 1 else (k, 1)
        y = square_root(f, f.add(f.mul(f.mul(x, x), x), math.b))
        if y is not None:
            return x, y
    raise AssertionError("no point found")


def square_root(f: FieldMath, a: Any) -> Any:
    """p = 3 mod 4 on both curves."""
    p = f.p
    if f.degree == 1:
        root = pow(a, (p + 1) // 4, p)
        return root if root * root % p == a else None
    # |a| and then a real half, as for complex numbers.
    norm = square_root(FieldMath(f.curve, Field.FQ), (a[0] * a[0] + a[1] * a[1]) % p)
    if norm is None:
        return None
    for sign in (1, -1):
        c0 = square_root(FieldMath(f.curve, Field.FQ), (a[0] + sign * norm) * pow(2, -1, p) % p)
        if c0:
            root = (c0, a[1] * pow(2 * c0, -1, p) % p)
            return root if f.mul(root, root) == a else None
    return None


@groups
def test_addition_of_all_pairs_of_special_points(native: NativeLibrary, math: CurveMath) -> None:
    some = [None, *math.multiples(4), *(math.neg(point) for point in math.multiples(4))]
    a = [x for x in some for _ in some]
    b = [y for _ in some for y in some]
    assert apply(native, math, PointOp.ADD, a, b) == [math.add(x, y) for x, y in zip(a, b, strict=True)]
    assert apply(native, math, PointOp.DOUBLE, some) == [math.add(x, x) for x in some]
    assert apply(native, math, PointOp.NEG, some) == [math.neg(x) for x in some]


@groups
@settings(max_examples=5)
@given(k=st.integers(0, BN254.r - 1), m=st.integers(1, 1 << 20))
def test_multiplication(native: NativeLibrary, math: CurveMath, k: int, m: int) -> None:
    point = math.mul(math.generator, m)
    edge = [0, 1, 2, math.curve.r - 1, math.curve.r]
    expected = [None, point, math.add(point, point), math.neg(point), None, math.mul(point, k)]
    assert apply(native, math, PointOp.MUL, [point] * 6, [*edge, k]) == expected
    assert apply(native, math, PointOp.MUL, [None], [k]) == [None]


@groups
def test_multiplication_is_that_of_py_ecc(native: NativeLibrary, math: CurveMath) -> None:
    ec: Any = py_ecc.optimized_bn128 if math.curve is BN254 else py_ecc.optimized_bls12_381
    k = 0x1234567890ABCDEF1234567890ABCDEF1234567890ABCDEF1234567890ABCDEF
    x, y = ec.normalize(ec.multiply(ec.G1 if math.group is Group.G1 else ec.G2, k))
    expected = (
        (int(x), int(y))
        if math.group is Group.G1
        else (tuple(int(c) for c in x.coeffs), tuple(int(c) for c in y.coeffs))
    )
    assert apply(native, math, PointOp.MUL, [math.generator], [k]) == [expected]


@groups
def test_check_accepts_good_points(native: NativeLibrary, math: CurveMath) -> None:
    points = [None, *math.multiples(3), math.neg(math.generator), None]
    for subgroup in (False, True):
        assert native.points_check(math.curve, math.group, math.encode(points), len(points), subgroup) is None
    assert native.points_check(math.curve, math.group, None, 0, True) is None


@groups
def test_check_names_the_first_fault(native: NativeLibrary, math: CurveMath) -> None:
    f = math.field
    n = 3000
    points = np.tile(math.encode([math.generator]), n).reshape(n, math.nbytes)
    off = math.encode([(math.generator[0], f.add(math.generator[1], f.one))])
    half_infinite = math.encode([(f.zero, math.generator[1])])
    unreduced = points[0].copy()
    unreduced[-8 * f.limbs :] = np.frombuffer(f.p.to_bytes(8 * f.limbs, "little"), np.uint8)

    points[2999] = off
    assert native.points_check(math.curve, math.group, points, n, False) == PointProblem(2999, PointFault.OFF_CURVE)
    points[2500] = half_infinite
    assert native.points_check(math.curve, math.group, points, n, False) == PointProblem(2500, PointFault.OFF_CURVE)
    points[77] = unreduced
    assert native.points_check(math.curve, math.group, points, n, False) == PointProblem(77, PointFault.COORDINATE)


@groups_with_cofactor  # on BN254 every point of G1 has order r
def test_check_finds_points_of_another_order(native: NativeLibrary, math: CurveMath) -> None:
    for start in (1, 1000, 123456):
        point = find_point(math, start)
        assert math.mul(point, math.curve.r) is not None
        points = math.encode([math.generator, point])
        assert native.points_check(math.curve, math.group, points, 2, False) is None
        problem = native.points_check(math.curve, math.group, points, 2, True)
        assert problem == PointProblem(1, PointFault.SUBGROUP)


@groups
def test_sums_of_multiples(native: NativeLibrary, math: CurveMath) -> None:
    """Infinity, the same point twice, its negative, and factors of 0, 1 and -1 among the terms."""
    (g,), r = math.multiples(1), math.curve.r
    points: list[Point] = [g, math.mul(g, 5), None, math.neg(g)]
    terms = [
        [(0, 1)],
        [(0, 1), (0, 1)],
        [(0, 1), (3, 1)],
        [(1, r - 1), (0, 5), (2, 7)],
        [(2, 1), (1, 1), (3, 3), (0, 0)],
        [(0, 2**200 + 1), (1, r - 2), (3, 1)],
    ]
    raw = [math.encode([point]).tobytes() for point in points]
    sums = [[(raw[place], factor) for place, factor in one] for one in terms]
    found = native.point_sums(math.curve, math.group, sums)
    for one, out in zip(terms, found, strict=True):
        total: Point = None
        for place, factor in one:
            total = math.add(total, math.mul(points[place], factor))
        assert math.decode(np.frombuffer(out, np.uint8)) == [total]
    assert native.point_sums(math.curve, math.group, []) == []


def test_sums_that_are_none(default_native: NativeLibrary) -> None:
    with pytest.raises(NativeCallError):
        default_native.point_sums(BN254, Group.G1, [[]])
    with pytest.raises(ValueError, match="63 bytes for 1 points of 64"):
        default_native.point_sums(BN254, Group.G1, [[(bytes(63), 1)]])
