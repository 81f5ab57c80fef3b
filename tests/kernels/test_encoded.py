"""Points in the zcash encoding, and the subgroup test of BLS12-381, in the native library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.errors import CancelledError
from cuzk_engine.formats import zcash
from cuzk_engine.native import Call, Group, NativeCallError, NativeLibrary, PointFault, PointProblem, aligned
from tests.kernels.test_points import find_point
from tests.support.arithmetic import CurveMath, Point

Array = npt.NDArray[np.uint8]

Z = -0xD201000000010000
G1_EXPONENT = 1 - Z  # of the points whose order divides the cofactor (1 - z)^2 / 3; the product of these primes
G1_PRIMES = (3, 11, 10177, 859267, 52437899)
SIZES = {Group.G1: 96, Group.G2: 192}

groups = pytest.mark.parametrize(
    "math", [CurveMath(BLS12_381, group) for group in Group], ids=lambda math: math.group.name
)


def encode(math: CurveMath, points: list[Point]) -> Array:
    """A byte off any alignment, as in a file."""
    write: Any = zcash.write_g1 if math.group is Group.G1 else zcash.write_g2
    data = b"".join(write(point) for point in points)
    array = aligned(1 + len(data))[1:]
    array[:] = np.frombuffer(data, np.uint8)
    return array


def check(native: NativeLibrary, math: CurveMath, data: Any, subgroup: bool = True) -> PointProblem | None:
    n = len(data) // SIZES[math.group]
    return native.points_decode(math.curve, math.group, data, n, None, n, None, subgroup)


@groups
def test_points_come_out_as_the_library_has_them(native: NativeLibrary, math: CurveMath) -> None:
    points = math.multiples(70, start=10**20)
    out = aligned(70 * math.nbytes)
    assert native.points_decode(math.curve, math.group, encode(math, points), 70, None, 70, out, True) is None
    assert math.decode(out) == points


@groups
@settings(max_examples=10)
@given(data=st.data())
def test_bits_say_where_points_stand(native: NativeLibrary, math: CurveMath, data: Any) -> None:
    places = data.draw(st.integers(0, 300).flatmap(lambda n: st.lists(st.booleans(), min_size=n, max_size=n)))
    some = math.multiples(7)
    points = [some[k % 7] for k in range(sum(places))]
    out = aligned(len(places) * math.nbytes)
    bits = np.packbits(np.array(places, np.uint8), bitorder="little")
    encoded = encode(math, points)
    assert native.points_decode(math.curve, math.group, encoded, len(points), bits, len(places), out, False) is None
    left = iter(points)
    assert math.decode(out) == [next(left) if place else None for place in places]


@groups
def test_many_points_over_many_tasks(native: NativeLibrary, math: CurveMath) -> None:
    n = 5000
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 256, n // 8, dtype=np.uint8)
    places = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    some = encode(math, math.multiples(50)).reshape(50, -1)
    numbers = np.arange(len(places)) % 50
    out = aligned(n * math.nbytes).reshape(n, -1)
    out[:] = 0xAA
    encoded = np.ascontiguousarray(some[numbers])
    assert native.points_decode(math.curve, math.group, encoded, len(places), bits, n, out, False) is None
    expected = np.zeros_like(out)
    expected[places] = math.encode(math.multiples(50)).reshape(50, -1)[numbers]
    assert np.array_equal(out, expected)

    encoded[len(places) - 3, -1] ^= 1
    encoded[1234, -1] ^= 1
    problem = native.points_decode(math.curve, math.group, encoded, len(places), bits, n, out, False)
    assert problem == PointProblem(1234, PointFault.OFF_CURVE)


@groups
def test_number_of_bits_must_be_that_of_points(native: NativeLibrary, math: CurveMath) -> None:
    encoded, out = encode(math, math.multiples(2)), aligned(9 * math.nbytes)
    for bits, n_out in (([0b111], 8), ([0b1], 8), ([0b111], 3), ([0b11, 0b1], 9)):
        with pytest.raises(NativeCallError):
            native.points_decode(math.curve, math.group, encoded, 2, np.array(bits, np.uint8), n_out, out, False)
    assert native.points_decode(math.curve, math.group, encoded, 2, np.array([0b111], np.uint8), 2, out, False) is None


@groups
def test_every_flag_and_coordinate(native: NativeLibrary, math: CurveMath) -> None:
    good = encode(math, math.multiples(3)).reshape(3, -1)
    for flags in range(1, 8):
        data = good.copy()
        data[1, 0] |= flags << 5
        assert check(native, math, data.tobytes()) == PointProblem(1, PointFault.FLAGS)
    for first, fault in ((0x40, PointFault.INFINITY), (0, PointFault.OFF_CURVE), (0xC0, PointFault.FLAGS)):
        data = good.copy()
        data[2] = 0
        data[2, 0] = first
        assert check(native, math, data.tobytes()) == PointProblem(2, fault)
    for element in range(SIZES[math.group] // 48):
        for value in (BLS12_381.q, BLS12_381.q + 1, (1 << 381) - 1):
            data = good.copy()
            data[0, 48 * element : 48 * element + 48] = np.frombuffer(value.to_bytes(48, "big"), np.uint8)
            assert check(native, math, data.tobytes()) == PointProblem(0, PointFault.COORDINATE)


@groups
def test_every_bit_counts(native: NativeLibrary, math: CurveMath) -> None:
    good = encode(math, [math.generator])
    for bit in range(0, 8 * len(good), 5):
        data = good.copy()
        data[bit // 8] ^= 1 << (bit % 8)
        assert check(native, math, data.tobytes()) is not None


@groups
def test_points_of_another_order(native: NativeLibrary, math: CurveMath) -> None:
    for start in (1, 1000, 123456):
        point = find_point(math, start)
        data = encode(math, [math.generator, point, math.generator])
        assert check(native, math, data.tobytes(), subgroup=False) is None
        assert check(native, math, data.tobytes()) == PointProblem(1, PointFault.SUBGROUP)
        torsion = math.mul(point, BLS12_381.r)  # the part that should not be there, alone
        assert check(native, math, encode(math, [torsion])) == PointProblem(0, PointFault.SUBGROUP)
        mixed = math.add(torsion, math.mul(math.generator, 12345))
        assert check(native, math, encode(math, [mixed])) == PointProblem(0, PointFault.SUBGROUP)


def test_points_of_small_order(native: NativeLibrary) -> None:
    math = CurveMath(BLS12_381, Group.G1)
    for prime in G1_PRIMES:
        point = next(
            found
            for start in range(1, 4000, 200)
            if (found := math.mul(find_point(math, start), BLS12_381.r * G1_EXPONENT // prime)) is not None
        )
        assert math.mul(point, prime) is None
        for bad in (point, math.add(point, math.generator)):
            problem = native.points_check(BLS12_381, Group.G1, math.encode([bad]), 1, True)
            assert problem == PointProblem(0, PointFault.SUBGROUP)


@groups
def test_random_points_of_the_subgroup(native: NativeLibrary, math: CurveMath) -> None:
    points = math.multiples(200, start=0xC0FFEE << 200)
    assert check(native, math, encode(math, points)) is None
    assert check(native, math, encode(math, [math.neg(point) for point in points])) is None


def all_in(native: NativeLibrary, math: CurveMath, points: Array, seed: bytes, threads: int = 2) -> bool:
    n = len(points)
    nbytes = native.subgroup_check_scratch_bytes(math.curve, math.group, n, threads)
    return native.subgroup_check(math.curve, math.group, points, n, seed, aligned(nbytes), nbytes, Call(threads))


every_group = pytest.mark.parametrize(
    "math",
    [CurveMath(curve, group) for curve in CURVES for group in Group],
    ids=lambda math: f"{math.curve.name}-{math.group.name}",
)


@every_group
@pytest.mark.parametrize("n", [0, 1, 2, 100, 5000, 40_000])
def test_many_points_are_tested_by_random_subsets(native: NativeLibrary, math: CurveMath, n: int) -> None:
    if n > 5000 and math.group is Group.G2:
        n = 33_000  # more than a task takes
    some = math.encode([*math.multiples(30, start=99), None]).reshape(31, -1)
    points = np.ascontiguousarray(some[np.arange(n) % 31])
    assert all_in(native, math, points, bytes(32))
    if n == 0 or (math.curve is BN254 and math.group is Group.G1):
        return
    stray = math.encode([find_point(math, 1000)])
    for place in {0, n // 2, n - 1}:
        kept = points[place].copy()
        points[place] = stray
        assert not all_in(native, math, points, place.to_bytes(32, "little"))
        points[place] = kept
    assert all_in(native, math, points, bytes(32))


def test_strays_that_cancel_out_are_found(native: NativeLibrary) -> None:
    """Their plain sum has order r, and of points of order 3 every third sum has."""
    math = CurveMath(BLS12_381, Group.G1)
    start = next(k for k in range(1, 4000, 200) if math.mul(find_point(math, k), BLS12_381.r * G1_EXPONENT // 3))
    three = math.mul(find_point(math, start), BLS12_381.r * G1_EXPONENT // 3)
    good = math.multiples(300)
    for strays in ([three, math.neg(three)], [three] * 3, [math.add(three, good[7]), math.neg(three)]):
        for seed in range(40):
            points = math.encode([*strays, *good]).reshape(-1, 96)
            assert not all_in(native, math, points, seed.to_bytes(32, "big"), threads=1)


def test_subset_test_arguments(native: NativeLibrary) -> None:
    math = CurveMath(BLS12_381, Group.G1)
    points = math.encode([math.generator])
    scratch = aligned(1 << 20)
    with pytest.raises(NativeCallError):
        native.subgroup_check(BLS12_381, Group.G1, points, 1, bytes(32), scratch, 8)
    with pytest.raises(ValueError, match="expected 32"):
        native.subgroup_check(BLS12_381, Group.G1, points, 1, bytes(31), scratch, 1 << 20)
    flag = np.ones(1, np.int32)
    with pytest.raises(CancelledError):
        native.subgroup_check(
            BLS12_381, Group.G1, points, 1, bytes(32), scratch, 1 << 20, Call(1, int(flag.ctypes.data))
        )


def test_arguments_and_cancellation(native: NativeLibrary) -> None:
    math = CurveMath(BLS12_381, Group.G1)
    data = encode(math, [math.generator])
    with pytest.raises(NativeCallError):
        native.points_decode(BN254, Group.G1, data, 1, None, 1, None, True)
    with pytest.raises(NativeCallError):
        native.points_decode(BLS12_381, Group.G1, data, 1, None, 2, None, True)
    assert native.points_decode(BLS12_381, Group.G1, None, 0, None, 0, None, True) is None
    flag = np.ones(1, np.int32)
    with pytest.raises(CancelledError):
        native.points_decode(BLS12_381, Group.G1, data, 1, None, 1, None, True, Call(2, int(flag.ctypes.data)))
