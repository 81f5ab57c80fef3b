"""How an MSM is cut, and the arithmetic of what it takes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES, Curve
from cuzk_engine.devices.cuda.shape import HALF_BITS, Method, aligned_size, part_bytes, scratch_bytes, shape, table_rows

GIB = 1 << 30


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 1000, 1 << 16, (1 << 20) + 3, 1 << 24, 1 << 27])
def test_windows_cover_the_scalar_and_parts_cover_the_windows(
    curve: Curve, n: int, halves: int, method: Method
) -> None:
    form = shape(curve, n, method=method, halves=halves)
    assert form.method == method
    scalar_bits = HALF_BITS if halves == 2 else curve.r.bit_length()
    assert form.windows * form.bits >= scalar_bits > (form.windows - 1) * form.bits
    assert form.numbers == halves * n
    assert form.part_entries < 1 << 32
    for count in (1, 2, 3, 100):
        groups = replace(form, parts=count).groups()
        assert sum(size for _, size in groups) == form.windows
        assert [first for first, _ in groups][-1] == 0
        assert all(a == b + size for (a, _), (b, size) in itertools.pairwise(groups))
        assert groups[0][1] == max(size for _, size in groups)


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("group", [1, 2])
def test_scratch_holds_the_entries_and_sums_of_its_parts(group: int, method: Method) -> None:
    for log_n in range(28):
        form = shape(BLS12_381, 1 << log_n, group, method=method)
        size = scratch_bytes(form, 192 * group)
        assert size % 512 == 0
        part = form.part(form.groups()[0][1])
        assert part_bytes(form, 192 * group) >= 14 * part.entries + 192 * group * part.buckets
        if method == "affine":  # points after the first round, and half as many products as points
            assert part_bytes(form, 192 * group) >= (14 + 60 * group) * part.entries
    assert scratch_bytes(shape(BN254, 1 << 20), 128) < 1 << 29


@pytest.mark.parametrize("lengths", [[1] * 100, [64] * 100, [5, 7, 9] * 33, list(range(1, 65)) * 3, [64] + [1] * 40])
def test_rows_and_places_are_enough(lengths: list[int]) -> None:
    """For tasks whose sizes the plan does not know: each length begins a new group."""
    form = replace(shape(BLS12_381, sum(lengths), bits=8, method="affine"), windows=1, longest=64)
    assert len(lengths) <= form.most_tasks
    groups = {k: -(-lengths.count(k) // form.width) for k in set(lengths)}
    assert sum(groups.values()) <= form.task_groups
    assert sum(number * ((k + 1) // 2) for k, number in groups.items()) <= form.rows


def test_budget() -> None:
    """Less memory takes more parts, then the other method, and in the end what is smallest."""
    whole = shape(BLS12_381, 1 << 24)
    assert whole.method == "affine"
    last = whole
    for gib in range(40, 0, -1):
        form = shape(BLS12_381, 1 << 24, budget=gib * GIB)
        fits = scratch_bytes(form, 192) <= gib * GIB
        assert fits or (form.method == "xyzz" and form.parts == form.windows)
        assert scratch_bytes(form, 192) <= scratch_bytes(last, 192)
        last = form
    assert last.method == "xyzz"
    assert shape(BLS12_381, 1 << 24, budget=1) == replace(last, parts=last.windows)


def test_small_things() -> None:
    assert [aligned_size(n) for n in (0, 1, 512, 513)] == [512, 512, 512, 1024]
    assert table_rows(10) == 1024 + 128
    assert scratch_bytes(shape(BN254, 0), 128) == 512
