"""Constraint systems in compressed rows, and the quotient's coefficients, against Python integers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.errors import CancelledError
from cuzk_engine.native import Call, Field, NativeCallError, NativeLibrary, NttFlags, aligned
from cuzk_engine.native_csr import Csr, CsrFault, CsrProblem
from tests.support.arithmetic import FieldMath, encode_scalars

Rows = list[list[tuple[int, int]]]

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def unaligned(data: bytes) -> Any:
    array = aligned(4 + len(data))[4:]
    array[:] = np.frombuffer(data, np.uint8)
    return array


def encode(curve: Curve, rows: Rows) -> Csr:
    pointers = np.cumsum([0, *(len(row) for row in rows)]).astype("<u4")
    terms = [term for row in rows for term in row]
    values = FieldMath(curve, Field.FR).encode_mont([value for _, value in terms]).tobytes()
    columns = np.array([column for column, _ in terms], "<u4")
    return Csr(unaligned(pointers.tobytes()), unaligned(columns.tobytes()), unaligned(values), len(terms))


def some_rows(curve: Curve, n: int, n_vars: int, rng: random.Random) -> Rows:
    values = [0, 1, curve.r - 1, rng.randrange(curve.r)]
    return [
        [(rng.randrange(n_vars), rng.choice(values)) for _ in range(rng.choice([0, 1, 2, 3, 40]))] for _ in range(n)
    ]


def present(curve: Curve, rows: Rows, n_vars: int) -> list[int]:
    found = set()
    for row in rows:
        sums: dict[int, int] = {}
        for column, value in row:
            sums[column] = (sums.get(column, 0) + value) % curve.r
        found |= {column for column, value in sums.items() if value}
    return [int(k in found) for k in range(n_vars)]


@curves
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 60), n_vars=st.integers(1, 70))
def test_check_and_presence(native: NativeLibrary, curve: Curve, seed: int, n: int, n_vars: int) -> None:
    rows = some_rows(curve, n, n_vars, random.Random(seed))
    bits = np.full((n_vars + 7) // 8, 0xFF, np.uint8)
    assert native.csr_check(curve, encode(curve, rows), n, n_vars, bits) is None
    found = np.unpackbits(bits, bitorder="little").tolist()
    assert found[:n_vars] == present(curve, rows, n_vars)
    assert not any(found[n_vars:])


def test_presence_adds_up_repeated_columns(native: NativeLibrary) -> None:
    curve = CURVES[1]
    rows: Rows = [[(3, 5), (1, 1), (3, curve.r - 5)], [(2, 0)], [(4, 1), (4, 1)], []]
    bits = np.zeros(1, np.uint8)
    assert native.csr_check(curve, encode(curve, rows), 4, 8, bits) is None
    assert bits.tolist() == [0b10010]


@curves
def test_check_names_the_first_fault(native: NativeLibrary, curve: Curve) -> None:
    n, n_vars = 20_000, 100
    rows: Rows = [[(k % n_vars, k + 1), ((k + 1) % n_vars, 1)] for k in range(n)]

    def problem(change: Any = lambda matrix: matrix) -> CsrProblem | None:
        matrix = encode(curve, rows)
        change(matrix)
        return native.csr_check(curve, matrix, n, n_vars, None)

    def row(index: int, value: int) -> Any:
        return lambda matrix: matrix.row_ptr.view("<u4").__setitem__(index, value)

    def column(index: int, value: int) -> Any:
        return lambda matrix: matrix.columns.view("<u4").__setitem__(index, value)

    def value(index: int, number: int) -> Any:
        raw = np.frombuffer(number.to_bytes(32, "little"), np.uint8)
        return lambda matrix: matrix.values.reshape(-1, 32).__setitem__(index, raw)

    assert problem() is None
    assert problem(row(0, 1)) == CsrProblem(CsrFault.ROWS, 0)
    assert problem(row(n, 2 * n + 1)) == CsrProblem(CsrFault.ROWS, n)
    assert problem(row(n, 2 * n - 1)) == CsrProblem(CsrFault.ROWS, n)
    assert problem(row(17_000, 2**32 - 1)) == CsrProblem(CsrFault.ROWS, 17_001)
    assert problem(row(5, 3)) == CsrProblem(CsrFault.ROWS, 5)
    assert problem(column(33_333, n_vars)) == CsrProblem(CsrFault.COLUMN, 33_333)
    assert problem(column(0, 2**32 - 1)) == CsrProblem(CsrFault.COLUMN, 0)
    assert problem(value(39_999, curve.r)) == CsrProblem(CsrFault.VALUE, 39_999)
    assert problem(value(7, 2**256 - 1)) == CsrProblem(CsrFault.VALUE, 7)


@curves
@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 29),
    inputs=st.integers(0, 3),
    stride=st.sampled_from([1, 7, 0xB766BFD]),
)
def test_evaluation(native: NativeLibrary, curve: Curve, seed: int, n: int, inputs: int, stride: int) -> None:
    rng = random.Random(seed)
    n_vars, domain = 12, 32
    w = [1, 0, *(rng.randrange(curve.r) for _ in range(n_vars - 2))]
    a, b = (some_rows(curve, n, n_vars, rng) for _ in "ab")

    def values(rows: Rows) -> list[int]:
        return [sum(w[k] * value for k, value in row) % curve.r for row in rows]

    # c makes every row true, but some.
    wrong = {k for k in range(n) if rng.random() < 0.05}
    products = [x * y % curve.r for x, y in zip(values(a), values(b), strict=True)]
    c: Rows = [[(0, product + (k in wrong))] for k, product in enumerate(products)]
    out = [aligned(32 * domain) for _ in "abc"]
    found = native.csr_evaluate(
        curve, [encode(curve, rows) for rows in (a, b, c)], n, inputs, encode_scalars(w), domain, stride, *out
    )
    assert found == (min(wrong) if wrong else None)
    expected = [[0] * domain for _ in "abc"]
    for which, rows in enumerate((a, b, c)):
        for k, value in enumerate(values(rows)):
            expected[which][k * stride % domain] = value
    for k in range(inputs):
        expected[0][(n + k) * stride % domain] = w[k]
    fr = FieldMath(curve, Field.FR)
    assert [fr.decode_mont(vector) for vector in out] == expected


def test_arguments_and_cancellation(native: NativeLibrary) -> None:
    curve = CURVES[0]
    matrix = encode(curve, [[(0, 1)]])
    w, out = encode_scalars([1]), aligned(32 * 4)

    def evaluate(n: int, inputs: int, domain: int, stride: int, call: Call | None = None) -> int | None:
        return native.csr_evaluate(curve, [matrix] * 3, n, inputs, w, domain, stride, out, out, out, call)

    for arguments in ((1, 0, 3, 1), (1, 0, 0, 1), (5, 0, 4, 1), (1, 4, 4, 1), (1, 0, 4, 2)):
        with pytest.raises(NativeCallError):
            evaluate(*arguments)
    flag = np.ones(1, np.int32)
    call = Call(2, int(flag.ctypes.data))
    with pytest.raises(CancelledError):
        evaluate(1, 1, 4, 1, call)
    with pytest.raises(CancelledError):
        native.csr_check(curve, matrix, 1, 1, np.zeros(1, np.uint8), call)


def multiply(curve: Curve, p: list[int], q: list[int]) -> list[int]:
    out = [0] * (len(p) + len(q) - 1)
    for i, x in enumerate(p):
        for j, y in enumerate(q):
            out[i + j] = (out[i + j] + x * y) % curve.r
    return out


@curves
@pytest.mark.parametrize("log_n", [1, 2, 3, 5])
def test_quotient_of_polynomials(native: NativeLibrary, curve: Curve, log_n: int) -> None:
    """(a b - c) / (X^n - 1), with c the remainder of a b: then h is what long division gives."""
    n, fr, rng = 1 << log_n, FieldMath(curve, Field.FR), random.Random(log_n)
    table = aligned(native.ntt_table_bytes(curve, log_n))
    native.ntt_table(curve, log_n, table)
    a, b = ([rng.randrange(curve.r) for _ in range(n)] for _ in "ab")
    product = [*multiply(curve, a, b), 0]
    c, h = [(product[i] + product[i + n]) % curve.r for i in range(n)], product[n:]
    vectors = []
    for coefficients in (a, b, c):
        vector = fr.encode_mont(coefficients)
        native.coset_scale(curve, vector, log_n, False, False, table)  # coefficients to values on the coset
        native.ntt(curve, vector, log_n, NttFlags.FORWARD, table)
        vectors.append(vector)
    native.quotient(curve, *vectors, log_n, table)
    assert fr.decode(vectors[0]) == h
    assert h[-1] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_quotient_of_a_large_domain(native: NativeLibrary, threads: int) -> None:
    """At a random point, since long division would take hours."""
    curve, log_n = CURVES[1], 12
    n, fr, rng = 1 << log_n, FieldMath(curve, Field.FR), random.Random(1)
    table = aligned(native.ntt_table_bytes(curve, log_n))
    native.ntt_table(curve, log_n, table)
    a, b = ([rng.randrange(curve.r) for _ in range(n)] for _ in "ab")
    vectors = [fr.encode_mont(values) for values in (a, b, [x * y % curve.r for x, y in zip(a, b, strict=True)])]
    plain = []
    for vector in vectors:
        coefficients = vector.copy()
        copy = aligned(vector.nbytes)
        copy[:] = coefficients
        native.ntt(curve, copy, log_n, NttFlags.INVERSE, table)
        plain.append(fr.decode_mont(copy))
        native.coset_extend(curve, vector, log_n, table)
    native.quotient(curve, *vectors, log_n, table, Call(threads))
    x = rng.randrange(curve.r)

    def at(coefficients: list[int]) -> int:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % curve.r
        return value

    pa, pb, pc = map(at, plain)
    assert (pa * pb - pc - at(fr.decode(vectors[0])) * (pow(x, n, curve.r) - 1)) % curve.r == 0
