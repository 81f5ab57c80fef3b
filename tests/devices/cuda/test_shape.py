"""How an MSM is cut, and the arithmetic of what it takes."""

from __future__ import annotations

import itertools

import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES, Curve
from cuzk_engine.devices.cuda.shape import aligned_size, group_count, scratch_bytes, shape, table_rows


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
@pytest.mark.parametrize("n", [1, 2, 1000, 1 << 16, (1 << 20) + 3, 1 << 24, 1 << 27])
def test_windows_cover_the_scalar_and_groups_cover_the_windows(curve: Curve, n: int) -> None:
    form = shape(curve, n)
    assert form.windows * form.bits >= curve.r.bit_length() > (form.windows - 1) * form.bits
    assert form.entries < 1 << 32
    for count in (1, 2, 3, 100):
        groups = form.groups(count)
        assert sum(size for _, size in groups) == form.windows
        assert [first for first, _ in groups][-1] == 0
        assert all(a == b + size for (a, _), (b, size) in itertools.pairwise(groups))


def test_scratch_grows_with_the_points_and_holds_the_entries() -> None:
    sizes = []
    for log_n in range(27):
        form = shape(BLS12_381, 1 << log_n)
        sizes.append(scratch_bytes(form, 192, group_count(form.n)))
        assert sizes[-1] >= 14 * form.entries + 192 * form.buckets
        assert sizes[-1] % 512 == 0
    assert sizes == sorted(sizes)
    assert scratch_bytes(shape(BN254, 1 << 20), 128, 2) < 1 << 29


def test_small_things() -> None:
    assert [aligned_size(n) for n in (0, 1, 512, 513)] == [512, 512, 512, 1024]
    assert table_rows(10) == 1024 + 128
    assert scratch_bytes(shape(BN254, 0), 128, 2) == 512
