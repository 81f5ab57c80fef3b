"""Multi-scalar multiplication on the device: points are known multiples of the generator, so the sum is known too."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import cupy
import numpy as np
import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import faults, msm, msm_script
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.ntt import to_limbs
from cuzk_engine.devices.cuda.shape import Method, aligned_size, scratch_bytes
from cuzk_engine.errors import DeviceFaultError
from tests.gpu import curve_reference as reference

_LAMBDA = {
    "bls12_381": 0xD201000000010000**2 - 1,
    "bn254": 0x30644E72E131A029048B6E193FD84104CC37A73FEC2BC5E9B8CA0B2D36636F23,
}
_MSMS: dict[tuple[str, int], msm.Msm] = {}


@pytest.fixture(params=["xyzz", "affine"])
def method(request: pytest.FixtureRequest) -> Method:
    found: Method = request.param
    return found


@pytest.fixture(params=[1, 2], ids=["g1", "g2"])
def summer(request: pytest.FixtureRequest, kernels: Kernels, curve: Curve) -> msm.Msm:
    key = (curve.name, request.param)
    if key not in _MSMS:
        _MSMS[key] = msm.Msm(kernels, curve, request.param)
    return _MSMS[key]


def points_of(summer: msm.Msm, factors: list[int]) -> Any:
    base = reference.montgomery_bytes(summer.curve, reference.generator(summer.curve, summer.group), summer.group)
    return summer.fixed_base(base, cupy.asarray(to_limbs(factors)))


def expected(summer: msm.Msm, k: int) -> tuple[int, ...]:
    curve = summer.curve
    point = reference.multiply(reference.generator(curve, summer.group), k % curve.r, curve.q)
    return reference.flat(point, summer.group)


def cut(
    summer: msm.Msm,
    n: int,
    method: Method | None = None,
    bits: int | None = None,
    longest: int | None = None,
    budget: int | None = None,
    halves: int = 2,
) -> msm.Shape:
    return msm.shape(
        summer.curve, n, summer.group, bits=bits, longest=longest, method=method, budget=budget, halves=halves
    )


def check(summer: msm.Msm, scalars: list[int], factors: list[int], form: msm.Shape | None = None) -> None:
    total = summer.run(points_of(summer, factors), cupy.asarray(to_limbs(scalars)).reshape(-1, 4), form)
    assert summer.to_affine(total) == expected(summer, sum(s * f for s, f in zip(scalars, factors, strict=True)))


def test_fixed_base(summer: msm.Msm) -> None:
    r = summer.curve.r
    factors = [0, 1, 2, 255, 256, r - 1, r - 2, random.Random(1).randrange(r)]
    assert summer.plain(points_of(summer, factors)) == [expected(summer, k) for k in factors]


def test_images_are_multiples(summer: msm.Msm) -> None:
    """The endomorphism multiplies by a cube root of unity; the same one in both groups, which the digits rely on."""
    curve, factors = summer.curve, [1, 2, 3, 0]
    points = points_of(summer, factors)
    images = cupy.empty(len(factors) * summer.coordinate_bytes, dtype=np.uint8)
    arguments = (points, np.uint64(len(factors)), images)
    summer._kernels.launch(summer.names.images, "msm_images", 1, 256, arguments)
    size = summer.coordinate_bytes
    table = points.reshape(len(factors), 2 * size)
    table[:, :size] = images.reshape(len(factors), size)
    root = _LAMBDA[curve.name]
    assert pow(root, 3, curve.r) == 1 != root
    assert summer.plain(table) == [expected(summer, k * root) for k in factors]


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 1000, 8192, 8193, 40000])
def test_sizes(summer: msm.Msm, method: Method, n: int) -> None:
    source = random.Random(n)
    r = summer.curve.r
    scalars, factors = ([source.randrange(r) for _ in range(n)] for _ in range(2))
    check(summer, scalars, factors, cut(summer, n, method))


def test_empty(summer: msm.Msm) -> None:
    total = summer.run(None, cupy.zeros((0, 4), dtype=np.uint64))
    assert summer.to_affine(total) == (0,) * (2 * summer.group)


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("bits", [8, 9, 12, 13, 16, 17, 20, 22])
def test_windows(summer: msm.Msm, method: Method, bits: int, halves: int) -> None:
    source = random.Random(bits)
    r, n = summer.curve.r, 3000
    scalars = [source.randrange(r) for _ in range(n)]
    scalars[:8] = [0, 1, 2, r - 1, r - 2, r // 2, r // 2 + 1, 1 << (bits - 1)]
    check(summer, scalars, [source.randrange(r) for _ in range(n)], cut(summer, n, method, bits, halves=halves))


def _skewed(kind: str, n: int, r: int, source: random.Random) -> list[int]:
    if kind == "zeros":
        return [0] * n
    if kind == "bits":
        return [source.randrange(2) if source.random() < 0.8 else source.randrange(r) for _ in range(n)]
    if kind == "equal":
        return [source.randrange(r)] * n
    if kind == "powers":
        return [1 << (i % (r.bit_length() - 1)) for i in range(n)]
    return [r - 1 - (i & 1) for i in range(n)]


@pytest.mark.parametrize("kind", ["zeros", "bits", "equal", "powers", "negative"])
@pytest.mark.parametrize("n", [500, 70000])
def test_skewed(summer: msm.Msm, method: Method, kind: str, n: int) -> None:
    source = random.Random(7)
    r = summer.curve.r
    check(summer, _skewed(kind, n, r, source), [source.randrange(r) for _ in range(n)], cut(summer, n, method))


@pytest.mark.parametrize("kind", ["bits", "equal", "negative"])
def test_equal_opposite_and_infinite_points(summer: msm.Msm, method: Method, kind: str) -> None:
    """Additions that double, cancel or meet infinity, in every phase."""
    source = random.Random(11)
    r, n = summer.curve.r, 5000
    factors = [source.choice((0, 1, r - 1, 2, 3, r - 3)) for _ in range(n)]
    check(summer, _skewed(kind, n, r, source), factors, cut(summer, n, method))
    check(summer, [source.randrange(3) for _ in range(n)], factors, cut(summer, n, method, 8, 16))


@pytest.mark.parametrize("longest", [16, 100, 1024])
def test_long_tasks(summer: msm.Msm, method: Method, longest: int) -> None:
    """Few buckets: long lists, and those that are cut into pieces."""
    source = random.Random(longest)
    r, n = summer.curve.r, 60_000
    scalars, factors = ([source.randrange(r) for _ in range(n)] for _ in range(2))
    check(summer, scalars, factors, cut(summer, n, method, 8, longest))


def test_parts_take_what_was_planned(summer: msm.Msm, method: Method) -> None:
    """Windows in parts, down to one at a time where the memory is small: the same sum, in exactly the planned bytes."""
    source = random.Random(5)
    r, n = summer.curve.r, 3000
    scalars, factors = ([source.randrange(r) for _ in range(n)] for _ in range(2))
    whole = cut(summer, n, method)
    for parts in (1, 2, 3, whole.windows):
        form = replace(whole, parts=parts)
        check(summer, scalars, factors, form)
        tape = summer.tape(msm.Variant(form, affine=False))
        assert tape.scratch_bytes + aligned_size(summer.sum_bytes) == scratch_bytes(form, summer.sum_bytes)
    budget = scratch_bytes(whole, summer.sum_bytes) * 3 // 4
    small = cut(summer, n, method, budget=budget)
    assert scratch_bytes(small, summer.sum_bytes) <= budget
    check(summer, scalars, factors, small)


def test_one_run_after_another(summer: msm.Msm, method: Method) -> None:
    """Runs that were enqueued together share streams and give each other's memory back."""
    source = random.Random(9)
    r, n = summer.curve.r, 20_000
    factors = [source.randrange(r) for _ in range(n)]
    points, form = points_of(summer, factors), cut(summer, n, method)
    several = [[source.randrange(r) for _ in range(n)] for _ in range(4)]
    arrays = [cupy.asarray(to_limbs(scalars)) for scalars in several]
    totals = [summer.run(points, scalars, form) for scalars in arrays]
    for scalars, total in zip(several, totals, strict=True):
        assert summer.to_affine(total) == expected(summer, sum(s * f for s, f in zip(scalars, factors, strict=True)))


def test_phases_are_marked(summer: msm.Msm) -> None:
    """In the order of time, each at the end of its phase, also when the events are those of the run before."""
    n, form = 3000, replace(cut(summer, 3000), parts=3)
    points, scalars = points_of(summer, list(range(n))), cupy.asarray(to_limbs(list(range(n))))
    for _ in range(2):
        marks: list[tuple[str, Any]] = []
        begin = cupy.cuda.get_current_stream().record()
        total = summer.run(points, scalars, form, marks=marks)
        assert summer.to_affine(total) == expected(summer, sum(k * k for k in range(n)))
        assert [name for name, _ in marks] == ["sort", "accumulate", "reduce", "total"] * 3
        times = [cupy.cuda.get_elapsed_time(begin, event) for _, event in marks]
        assert all(0 < a <= b for part in range(3) for a, b in itertools.pairwise(times[4 * part : 4 * part + 4]))


def test_a_refusal_of_the_driver(summer: msm.Msm) -> None:
    """It has the driver's number, as CuPy's errors have."""
    variant = msm.Variant(cut(summer, 100), affine=False)
    tape = summer.player.tape(msm_script.record_msm(summer.curve, summer.group, summer.names, variant))
    tape.packed.arrays[0]["block"] = 4096
    bases = dict.fromkeys(msm_script.Base, 1 << 40)
    events = [cupy.cuda.Event() for _ in tape.marks]
    with pytest.raises(RuntimeError) as caught:
        summer.play(tape, cupy.cuda.get_current_stream(), msm.Streams(), events, bases)
    assert faults.status_of(caught.value) == 1
    assert type(faults.translate("cuda:0", caught.value)) is DeviceFaultError


@pytest.mark.parametrize("halves", [1, 2])
def test_reversed_order(summer: msm.Msm, halves: int) -> None:
    source = random.Random(3)
    r, log_n = summer.curve.r, 11
    n = 1 << log_n
    scalars = [source.randrange(r) for _ in range(n)]
    factors = [source.randrange(r) for _ in range(n)]
    turned = [scalars[int(format(i, f"0{log_n}b")[::-1], 2)] for i in range(n)]
    form = cut(summer, n, halves=halves)
    total = summer.run(points_of(summer, factors), cupy.asarray(to_limbs(turned)), form, reversed_bits=log_n)
    assert summer.to_affine(total) == expected(summer, sum(s * f for s, f in zip(scalars, factors, strict=True)))
