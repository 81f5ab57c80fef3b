"""Field arithmetic of the native library against Python integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.native import Field, FieldOp, NativeLibrary
from tests.support.arithmetic import FieldMath, encode_scalars

fields = pytest.mark.parametrize(
    "math",
    [FieldMath(curve, field) for curve in CURVES for field in Field],
    ids=lambda math: f"{math.curve.name}-{math.field.name}",
)
curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def edges(p: int, limbs: int) -> list[int]:
    """Values where carries, borrows and reductions turn."""
    near_limbs = [(1 << (64 * i)) + d for i in range(1, limbs) for d in (-1, 0, 1)]
    halves = [(p - 1) // 2, (p + 1) // 2]
    return [0, 1, 2, 3, p - 1, p - 2, p - 3, *halves, *near_limbs, (1 << (p.bit_length() - 1)) - 1]


def values(math: FieldMath) -> st.SearchStrategy[Any]:
    one = st.one_of(st.sampled_from(edges(math.p, math.limbs)), st.integers(0, math.p - 1))
    return st.tuples(one, one) if math.degree == 2 else one


def apply(native: NativeLibrary, math: FieldMath, op: FieldOp, a: list[Any], b: list[Any] | None = None) -> list[Any]:
    x = math.encode(a)
    y = None if b is None else math.encode(b)
    out = np.empty_like(x)
    native.field_op(math.curve, math.field, op, out, x, y, len(a))
    return math.decode(out)


def check_all(native: NativeLibrary, math: FieldMath, a: list[Any], b: list[Any]) -> None:
    """Every operation on the pairs of a and b, taken as Montgomery forms."""
    f = math
    assert apply(native, f, FieldOp.ADD, a, b) == [f.add(x, y) for x, y in zip(a, b, strict=True)]
    assert apply(native, f, FieldOp.SUB, a, b) == [f.sub(x, y) for x, y in zip(a, b, strict=True)]
    assert apply(native, f, FieldOp.MUL, a, b) == [f.from_mont(f.mul(x, y)) for x, y in zip(a, b, strict=True)]
    assert apply(native, f, FieldOp.SQR, a) == [f.from_mont(f.mul(x, x)) for x in a]
    assert apply(native, f, FieldOp.NEG, a) == [f.neg(x) for x in a]
    assert apply(native, f, FieldOp.INV, a) == [f.to_mont(f.to_mont(f.inv(x))) for x in a]
    assert apply(native, f, FieldOp.TO_MONT, a) == [f.to_mont(x) for x in a]
    assert apply(native, f, FieldOp.FROM_MONT, a) == [f.from_mont(x) for x in a]


@fields
def test_operations_on_edge_values(native: NativeLibrary, math: FieldMath) -> None:
    some: list[Any] = edges(math.p, math.limbs)
    if math.degree == 2:
        some = [(x, y) for x in some[:7] for y in some[:7]]
    pairs = [(x, y) for x in some for y in some]
    check_all(native, math, [x for x, _ in pairs], [y for _, y in pairs])


@fields
@settings(max_examples=25)
@given(data=st.data())
def test_operations(native: NativeLibrary, math: FieldMath, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(values(math), values(math)), max_size=20))
    check_all(native, math, [x for x, _ in pairs], [y for _, y in pairs])


@fields
def test_results_may_replace_operands(native: NativeLibrary, math: FieldMath) -> None:
    a = math.encode([math.one, math.neg(math.one), math.zero])
    native.field_op(math.curve, math.field, FieldOp.SUB, a, a, a, 3)
    assert math.decode(a) == [math.zero] * 3


@fields
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_check_finds_the_first_unreduced_element(native: NativeLibrary, math: FieldMath, n: int) -> None:
    a = np.zeros(n * math.nbytes, np.uint8)
    assert native.field_check(math.curve, math.field, a, n) is None
    if n == 0:
        return
    a[-math.nbytes :] = math.encode([math.neg(math.one)])
    assert native.field_check(math.curve, math.field, a, n) is None
    p = math.encode([(0, math.p) if math.degree == 2 else math.p])
    a[-math.nbytes :] = p
    assert native.field_check(math.curve, math.field, a, n) == n - 1
    middle = n // 2
    a[middle * math.nbytes : (middle + 1) * math.nbytes] = 255
    assert native.field_check(math.curve, math.field, a, n) == middle


@curves
def test_classify_counts_zeros_and_ones(native: NativeLibrary, curve: Curve) -> None:
    scalars = [0, 1, 2, curve.r - 1, 0, 1 << 64, 1 << 128, 1 << 192, (1 << 64) + 1, 1] * 700
    assert native.fr_classify(curve, encode_scalars(scalars), len(scalars)) == (1400, 1400, 4200)
    assert native.fr_classify(curve, None, 0) == (0, 0, 0)


def test_data_may_lie_anywhere(native: NativeLibrary) -> None:
    """Mapped files align to 4 bytes at best."""
    math = FieldMath(CURVES[1], Field.FQ)
    a = np.zeros(4 + 3 * math.nbytes, np.uint8)[4:]
    a[:] = math.encode([1, 2, math.p - 1])
    out = np.zeros(4 + 3 * math.nbytes, np.uint8)[4:]
    native.field_op(math.curve, math.field, FieldOp.ADD, out, a, a, 3)
    assert math.decode(out) == [2, 4, math.p - 2]
