"""Multi-scalar multiplication against the sum that known multiples of the generator must give."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BN254, CURVES, Curve, curve_by_name
from cuzk_engine.errors import CancelledError
from cuzk_engine.native import Call, Group, NativeCallError, NativeLibrary, SpanKind, Status, aligned
from tests.support.arithmetic import CurveMath, Point, encode_scalars

Array = npt.NDArray[np.uint8]

groups = pytest.mark.parametrize(
    "math",
    [CurveMath(curve, group) for curve in CURVES for group in Group],
    ids=lambda math: f"{math.curve.name}-{math.group.name}",
)

LENGTHS = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 63, 64, 65, 255, 256, 257)


@dataclass
class Bases:
    """Points whose logarithms to the base of the generator are known."""

    logarithms: list[int]
    points: Array  # (n, bytes of a point)


@functools.cache
def bases(curve_name: str, group: Group) -> Bases:
    """1 G to 320 G, their opposites, some infinities and repetitions, shuffled the same way each time."""
    curve = curve_by_name(curve_name)
    assert curve is not None
    math = CurveMath(curve, group)
    plain = math.multiples(320)
    known: list[tuple[int, Point]] = [(i + 1, point) for i, point in enumerate(plain)]
    known += [(-(i + 1), math.neg(point)) for i, point in enumerate(plain)]
    known += [(0, None)] * 20 + [(7, plain[6])] * 30 + [(-7, math.neg(plain[6]))] * 30
    random.Random(5).shuffle(known)
    points = math.encode([point for _, point in known]).reshape(-1, math.nbytes)
    return Bases([k for k, _ in known], points)


def run(
    native: NativeLibrary,
    math: CurveMath,
    points: Array,
    scalars: Array,
    n: int,
    threads: int = 0,
    call: Call | None = None,
) -> Array:
    size = native.msm_scratch_bytes(math.curve, math.group, n, threads)
    scratch = aligned(size)
    scratch[:] = 0xA5  # what stood there must not matter
    out = np.full(math.nbytes, 0x5A, np.uint8)
    native.msm(math.curve, math.group, points, scalars, n, out, scratch, size, call or Call(threads))
    return out


def check(native: NativeLibrary, math: CurveMath, scalars: list[int], threads: int = 0, shift: int = 0) -> None:
    """The bases (from number `shift` on, again and again) times the scalars."""
    base = bases(math.curve.name, math.group)
    n = len(scalars)
    numbers = [(i + shift) % len(base.logarithms) for i in range(n)]
    total = sum(s * base.logarithms[i] for s, i in zip(scalars, numbers, strict=True)) % math.curve.r
    points = np.ascontiguousarray(base.points[numbers]) if n else np.empty(0, np.uint8)
    result = run(native, math, points, encode_scalars(scalars), n, threads)
    assert math.decode(result) == [math.mul(math.generator, total)]


def scalars_of(curve: Curve) -> st.SearchStrategy[int]:
    r = curve.r
    special = [0, 1, 2, 3, r - 1, r - 2, (r - 1) // 2, (r + 1) // 2, *(1 << i for i in range(0, 254, 11))]
    return st.one_of(st.sampled_from(special), st.integers(0, r - 1), st.integers(0, 1 << 20))


@groups
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(native: NativeLibrary, math: CurveMath, n: int) -> None:
    rng = random.Random(n)
    check(native, math, [rng.randrange(math.curve.r) for _ in range(n)])


@groups
@settings(max_examples=15)
@given(data=st.data())
def test_any_scalars(native: NativeLibrary, math: CurveMath, data: st.DataObject) -> None:
    scalars = data.draw(st.lists(scalars_of(math.curve), max_size=40))
    check(native, math, scalars, shift=data.draw(st.integers(0, 700)), threads=data.draw(st.integers(1, 4)))


@groups
@pytest.mark.parametrize("n", [1, 5, 900])
def test_uniform_scalars(native: NativeLibrary, math: CurveMath, n: int) -> None:
    r = math.curve.r
    for value in (0, 1, 2, r - 1, 1 << 12, (1 << 13) - 1, 0xDEADBEEF << 150):
        check(native, math, [value] * n)


@groups
def test_powers_of_two(native: NativeLibrary, math: CurveMath) -> None:
    """Every bit alone, and one less: digits at the edges of their range, and carries through all windows."""
    powers = [1 << i for i in range(math.curve.r.bit_length() - 1)]
    check(native, math, powers)
    check(native, math, [x - 1 for x in powers])
    check(native, math, [math.curve.r - x for x in powers])


@groups
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_mostly_bits(native: NativeLibrary, math: CurveMath, threads: int) -> None:
    rng = random.Random(threads)
    scalars = [
        rng.choice([0, 0, 0, 1, 1, 1, 1, rng.randrange(math.curve.r), rng.randrange(1 << 32)]) for _ in range(6000)
    ]
    check(native, math, scalars, threads)


@groups
def test_equal_and_opposite_points_meet_in_a_bucket(native: NativeLibrary, math: CurveMath) -> None:
    """All scalars equal, so that every bucket sees each point with itself, its opposite, and infinity."""
    point = math.generator
    encoded = [math.encode([p]) for p in (point, math.neg(point), None)]
    for pattern in ([0, 0], [0, 1], [0, 1, 2], [2, 0, 2], [0, 0, 0, 1, 1], [2] * 8, [0] * 1000, [0, 1] * 700 + [0]):
        for scalar in (1, 5, math.curve.r - 1):
            n = len(pattern)
            total = sum((1, -1, 0)[i] for i in pattern) * scalar % math.curve.r
            points = np.concatenate([encoded[i] for i in pattern])
            result = run(native, math, points, encode_scalars([scalar] * n), n)
            assert math.decode(result) == [math.mul(point, total)]


@groups
@pytest.mark.parametrize("n", [0, 1, 2, 33, 200])
def test_reference_gives_the_same(native: NativeLibrary, math: CurveMath, n: int) -> None:
    rng = random.Random(n)
    base = bases(math.curve.name, math.group)
    scalars = encode_scalars([rng.choice([0, 1, rng.randrange(math.curve.r)]) for _ in range(n)])
    out = np.empty(math.nbytes, np.uint8)
    native.msm_reference(math.curve, math.group, base.points, scalars, n, out)
    assert np.array_equal(out, run(native, math, base.points, scalars, n))


@groups
def test_tens_of_thousands(native: NativeLibrary, math: CurveMath) -> None:
    """Wide windows, several pieces, parts of buckets in different pieces."""
    rng = random.Random(1)
    check(native, math, [rng.randrange(math.curve.r) for _ in range(12000)])
    check(native, math, [rng.randrange(1 << 20) << 100 for _ in range(12000)], threads=3)


@pytest.mark.parametrize("group", Group)
def test_more_than_a_slab(native: NativeLibrary, group: Group) -> None:
    """More points than are sorted at a time: buckets are added to."""
    math = CurveMath(BN254, group)
    base = bases("bn254", group)
    n = (1 << 20) + 12345
    period = len(base.logarithms)
    scalars = np.zeros((n, 32), np.uint8)
    rng = random.Random(2)
    total = 0
    for i in [*sorted(rng.sample(range(n), 4000)), n - 1, (1 << 20) - 1, 1 << 20]:
        value = rng.choice([1, 3, BN254.r - 1, rng.randrange(BN254.r)])
        scalars[i] = np.frombuffer(value.to_bytes(32, "little"), np.uint8)
    for i in np.flatnonzero(scalars.any(axis=1)):
        total += int.from_bytes(scalars[i].tobytes(), "little") * base.logarithms[i % period]
    points = np.resize(base.points, (n, math.nbytes))
    assert math.decode(run(native, math, points, scalars, n)) == [math.mul(math.generator, total % BN254.r)]


def test_unaligned_points_and_scalars(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    base = bases("bn254", Group.G1)
    n = 100
    scalars = encode_scalars(list(range(n)))
    points = np.zeros(4 + n * 64, np.uint8)[4:]
    points[:] = base.points[:n].ravel()
    shifted = np.zeros(4 + n * 32, np.uint8)[4:]
    shifted[:] = scalars
    assert np.array_equal(run(native, math, points, shifted, n), run(native, math, base.points, scalars, n))


@groups
def test_too_small_scratch_is_refused(native: NativeLibrary, math: CurveMath) -> None:
    n = 300
    base = bases(math.curve.name, math.group)
    scalars = encode_scalars(list(range(n)))
    size = native.msm_scratch_bytes(math.curve, math.group, n)
    scratch, out = aligned(size), np.empty(math.nbytes, np.uint8)
    with pytest.raises(NativeCallError) as caught:
        native.msm(math.curve, math.group, base.points, scalars, n, out, scratch, size - 1)
    assert caught.value.status is Status.SCRATCH
    with pytest.raises(NativeCallError) as caught:
        native.msm(math.curve, math.group, base.points, scalars, n, out, None, size)
    assert caught.value.status is Status.SCRATCH
    native.msm(math.curve, math.group, base.points, scalars, n, out, scratch, size)


@groups
def test_scratch_grows_with_points_and_threads(native: NativeLibrary, math: CurveMath) -> None:
    sizes = [native.msm_scratch_bytes(math.curve, math.group, n, 2) for n in (0, 10, 1000, 100_000, 1 << 20, 1 << 26)]
    assert sizes == sorted(sizes)
    assert sizes[-1] < 400e6
    assert native.msm_scratch_bytes(math.curve, math.group, 1000, 8) > sizes[2]


@groups
@pytest.mark.parametrize("at", [0, 150, 299])
def test_scalars_not_below_the_order_are_refused(native: NativeLibrary, math: CurveMath, at: int) -> None:
    n = 300
    for value in (math.curve.r, (1 << 256) - 1):
        scalars = [2] * n
        scalars[at] = value
        with pytest.raises(NativeCallError) as caught:
            run(native, math, bases(math.curve.name, math.group).points, encode_scalars(scalars), n)
        assert caught.value.status is Status.DATA


def test_cancelled_before_it_starts(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    flag = np.ones(1, np.int32)
    scalars = encode_scalars([5] * 100)
    with pytest.raises(CancelledError):
        run(native, math, bases("bn254", Group.G1).points, scalars, 100, call=Call(0, flag.ctypes.data))


def test_spans_tell_the_phases(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    call = Call(span_capacity=64)
    run(native, math, bases("bn254", Group.G1).points, encode_scalars([5] * 100), 100, call=call)
    spans = call.spans()
    assert [span.kind for span in spans] == [SpanKind.MSM_DIGITS, SpanKind.MSM_ACCUMULATE, SpanKind.MSM_REDUCE]
    for before, after in itertools.pairwise(spans):
        assert before.start_ns <= before.end_ns <= after.start_ns
    short = Call(span_capacity=1)
    run(native, math, bases("bn254", Group.G1).points, encode_scalars([5] * 100), 100, call=short)
    assert [span.kind for span in short.spans()] == [SpanKind.MSM_DIGITS]
