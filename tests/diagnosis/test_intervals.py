"""Set operations against a bitmap of the first 64 nanoseconds."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.diagnosis import intervals
from cuzk_engine.diagnosis.intervals import IntervalSet

SIZE = 64
points = st.integers(0, SIZE)
rows = st.lists(st.tuples(points, points), max_size=12)


def bitmap(found: IntervalSet) -> set[int]:
    return {t for start, end in found.tolist() for t in range(start, end)}


def set_of(pairs: list[tuple[int, int]]) -> IntervalSet:
    return intervals.normalise([s for s, _ in pairs], [e for _, e in pairs])


def naive(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, end in pairs for t in range(start, end)}


def check_form(found: IntervalSet) -> None:
    """Sorted, disjoint, not touching, not empty."""
    assert found.dtype == np.int64
    flat = found.ravel().tolist()
    assert all(a < b for a, b in pairwise(flat))


@given(rows)
def test_normalise_is_the_union_of_the_rows(pairs: list[tuple[int, int]]) -> None:
    found = set_of(pairs)
    check_form(found)
    assert bitmap(found) == naive(pairs)
    assert intervals.total(found) == len(naive(pairs))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (intervals.union, set.union),
        (intervals.intersection, set.intersection),
        (intervals.difference, set.difference),
    ],
)
@given(a=rows, b=rows)
def test_operations_of_two_sets(
    operation: Callable[[IntervalSet, IntervalSet], IntervalSet],
    expected: Callable[[set[int], set[int]], set[int]],
    a: list[tuple[int, int]],
    b: list[tuple[int, int]],
) -> None:
    found = operation(set_of(a), set_of(b))
    check_form(found)
    assert bitmap(found) == expected(naive(a), naive(b))


@given(rows, points, points)
def test_clip_and_complement_share_a_window(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    window = set(range(start, end))
    inside, outside = (f(set_of(pairs), start, end) for f in (intervals.clip, intervals.complement))
    check_form(inside)
    check_form(outside)
    assert bitmap(inside) == naive(pairs) & window
    assert bitmap(outside) == window - naive(pairs)


@given(rows, rows)
def test_pieces_know_their_rows(pairs: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    start, end = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    number, pieces = intervals.clipped(start, end, set_of(other))
    for i, pair in enumerate(pairs):
        assert bitmap(pieces[number == i]) == naive([pair]) & naive(other)


@given(rows, st.lists(points, max_size=8))
def test_covers(pairs: list[tuple[int, int]], times: list[int]) -> None:
    found = intervals.covers(set_of(pairs), np.array(times, np.int64))
    assert found.tolist() == [t in naive(pairs) for t in times]


def test_large_times_stay_exact() -> None:
    base = 2**62 + 1
    found = intervals.normalise([base, base + 5], [base + 3, base + 6])
    assert found.tolist() == [[base, base + 3], [base + 5, base + 6]]
    assert intervals.complement(found, base, base + 7).tolist() == [[base + 3, base + 5], [base + 6, base + 7]]
