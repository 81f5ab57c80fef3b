"""Fr at the secret point, and constraint systems at it, against Python integers."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.errors import CancelledError
from cuzk_engine.native import Call, Field, NativeCallError, NativeLibrary, Status, aligned
from tests.formats.builders import Parts, Row, r1cs
from tests.support.arithmetic import Array, FieldMath, encode_scalars

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@pytest.fixture
def library(native: NativeLibrary) -> NativeLibrary:
    return native


def fr(curve: Curve) -> FieldMath:
    return FieldMath(curve, Field.FR)


def omega(curve: Curve, log_n: int) -> int:
    return pow(5, (curve.r - 1) >> log_n, curve.r)


@curves
@pytest.mark.parametrize("n", [0, 1, 5, 5000])
def test_powers(library: NativeLibrary, curve: Curve, n: int) -> None:
    x, first = random.Random(n).randrange(curve.r), 12345
    out = aligned(32 * n)
    library.fr_powers(curve, x, first, n, out, Call())
    assert fr(curve).decode_mont(out) == [first * pow(x, i, curve.r) % curve.r for i in range(n)]


@curves
def test_chain(library: NativeLibrary, curve: Curve) -> None:
    out = aligned(32 * 300)
    library.fr_chain(curve, 3, 5, 300, out, Call())
    expected, x = [], 3
    for _ in range(300):
        x = (x * x + 5) % curve.r
        expected.append(x)
    assert fr(curve).decode_mont(out) == expected


@curves
@pytest.mark.parametrize(
    ("log_n", "begin", "n"), [(0, 0, 1), (1, 0, 2), (5, 0, 32), (5, 7, 20), (13, 0, 8192), (20, 999_999, 600)]
)
def test_lagrange(library: NativeLibrary, curve: Curve, log_n: int, begin: int, n: int) -> None:
    r, size = curve.r, 1 << log_n
    x = random.Random(log_n).randrange(r)
    out = aligned(32 * n)
    k = (pow(x, size, r) - 1) * pow(size, -1, r) % r
    w = omega(curve, log_n)
    assert library.fr_lagrange(curve, w, x, k, begin, n, out, Call())
    values = fr(curve).decode_mont(out)
    for i in {0, n // 2, n - 1}:
        root = pow(w, begin + i, r)
        assert values[i] == k * root * pow(x - root, -1, r) % r
    if n == size:
        # They interpolate: the basis of f gives f(x), for f = 1 and f = X.
        assert sum(values) % r == 1
        assert sum(value * pow(w, i, r) for i, value in enumerate(values)) % r == (x if size > 1 else 1)


@curves
def test_lagrange_at_a_point_of_the_domain(library: NativeLibrary, curve: Curve) -> None:
    out = aligned(32 * 16)
    w = omega(curve, 4)
    assert not library.fr_lagrange(curve, w, pow(w, 11, curve.r), 1, 0, 16, out, Call())
    assert library.fr_lagrange(curve, w, pow(w, 11, curve.r), 1, 0, 11, out, Call())


@curves
def test_combine(library: NativeLibrary, curve: Curve) -> None:
    rng, n = random.Random(1), 3000
    vectors = [[rng.randrange(curve.r) for _ in range(n)] for _ in range(3)]
    k = (rng.randrange(curve.r), 0, curve.r - 1)
    a, b, c = (encode_scalars(vector) for vector in vectors)
    library.fr_combine(curve, a, (a, b, c), k, n, Call())
    expected = [sum(f * x for f, x in zip(k, row, strict=True)) % curve.r for row in zip(*vectors, strict=True)]
    assert fr(curve).decode(a) == expected


def random_system(curve: Curve, n_rows: int, n_wires: int) -> list[Row]:
    rng = random.Random(n_rows)

    def combination() -> list[tuple[int, int]]:
        return [(rng.randrange(n_wires), rng.randrange(curve.r)) for _ in range(rng.choice((0, 1, 2, 7)))]

    return [(combination(), combination(), combination()) for _ in range(n_rows)]


def section(curve: Curve, rows: list[Row], n_wires: int) -> Array:
    return np.frombuffer(Parts.of(r1cs(curve, rows, n_wires=n_wires)).get(2), np.uint8)


@curves
def test_check_counts_terms(library: NativeLibrary, curve: Curve) -> None:
    rows = random_system(curve, 100, 20)
    data = section(curve, rows, 20)
    expected = tuple(sum(len(row[matrix]) for row in rows) for matrix in range(3))
    assert library.r1cs_check(curve, data, data.size, 100, 20, Call()) == expected


@curves
def test_check_finds_every_damage(library: NativeLibrary, curve: Curve) -> None:
    rows: list[Row] = [([(0, 1)], [(1, 2)], [(2, 3)]), ([], [], [(3, curve.r - 1)])]
    data = section(curve, rows, 4)
    size = data.size
    assert library.r1cs_check(curve, data, size, 2, 4, Call()) == (1, 1, 2)
    assert library.r1cs_check(curve, data, size, 2, 3, Call()) is None  # wire 3
    assert library.r1cs_check(curve, data, size, 1, 4, Call()) is None  # bytes left
    assert library.r1cs_check(curve, data, size, 3, 4, Call()) is None  # rows missing
    for shorter in range(size):
        assert library.r1cs_check(curve, data, shorter, 2, 4, Call()) is None
    huge = data.copy()
    huge[:4] = 0xFF
    assert library.r1cs_check(curve, huge, size, 2, 4, Call()) is None
    big = data.copy()
    big[size - 32 :] = np.frombuffer(curve.r.to_bytes(32, "little"), np.uint8)
    assert library.r1cs_check(curve, big, size, 2, 4, Call()) is None


@curves
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_columns(library: NativeLibrary, curve: Curve, threads: int) -> None:
    n_rows, n_wires = 200, 31
    rows = random_system(curve, n_rows, n_wires)
    data = section(curve, rows, n_wires)
    rng = random.Random(2)
    basis = [rng.randrange(curve.r) for _ in range(n_rows)]
    out = [aligned(32 * n_wires) for _ in range(3)]
    for column in out:
        column[:] = 0xA5
    encoded = fr(curve).encode_mont(basis)
    library.r1cs_columns(curve, data, data.size, n_rows, n_wires, encoded, (out[0], out[1], out[2]), Call(threads))
    for matrix in range(3):
        expected = [0] * n_wires
        for row, value in zip(rows, basis, strict=True):
            for wire, coefficient in row[matrix]:
                expected[wire] += coefficient * value
        assert fr(curve).decode(out[matrix]) == [value % curve.r for value in expected]


@curves
def test_columns_of_a_damaged_section(library: NativeLibrary, curve: Curve) -> None:
    rows = random_system(curve, 50, 9)
    data = section(curve, rows, 9)
    basis = np.zeros((50, 32), np.uint8)
    out = [aligned(32 * 9) for _ in range(3)]
    columns = (out[0], out[1], out[2])
    with pytest.raises(NativeCallError):
        library.r1cs_columns(curve, data, data.size - 1, 50, 9, basis, columns, Call())
    with pytest.raises(NativeCallError):
        library.r1cs_columns(curve, data, data.size, 50, 8, basis, columns, Call())


@curves
@pytest.mark.parametrize("capacity", [14, 20, 1000])
def test_coefficients(library: NativeLibrary, curve: Curve, capacity: int) -> None:
    rows = random_system(curve, 60, 9)
    data = section(curve, rows, 9)
    buffer, parts, at = np.empty((capacity, 44), np.uint8), [], (0, 0)
    while at[1] < 60:
        count, at = library.r1cs_coefficients(curve, data, data.size, 60, at, buffer, capacity, Call())
        parts.append(buffer[:count].tobytes())
    expected = b""
    for number, row in enumerate(rows):
        for matrix in (0, 1):
            for wire, coefficient in row[matrix]:
                value = (coefficient << 512) % curve.r
                expected += struct.pack("<III", matrix, number, wire) + value.to_bytes(32, "little")
    assert b"".join(parts) == expected


@curves
def test_coefficients_without_room_for_a_row(library: NativeLibrary, curve: Curve) -> None:
    data = section(curve, [([(0, 1)] * 3, [(0, 1)] * 2, [])], 1)
    buffer = np.empty((4, 44), np.uint8)
    with pytest.raises(NativeCallError) as caught:
        library.r1cs_coefficients(curve, data, data.size, 1, (0, 0), buffer, 4, Call())
    assert caught.value.status is Status.SCRATCH


@curves
def test_cancelled(library: NativeLibrary, curve: Curve) -> None:
    flag = np.ones(1, np.int32)
    call = Call(1, flag.ctypes.data)
    out = [aligned(32 * 4096) for _ in range(3)]
    data = section(curve, [([(0, 1)], [], [])], 1)
    with pytest.raises(CancelledError):
        library.fr_powers(curve, 2, 1, 4096, out[0], call)
    with pytest.raises(CancelledError):
        library.fr_chain(curve, 2, 1, 4096, out[0], call)
    with pytest.raises(CancelledError):
        library.r1cs_check(curve, data, data.size, 1, 1, call)
    with pytest.raises(CancelledError):
        library.r1cs_columns(curve, data, data.size, 1, 1, out[0], (out[0], out[1], out[2]), call)
