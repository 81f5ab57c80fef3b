"""Spans kept by lane: exact rows, in order, and coarser levels that hold all of their time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_gui.models.columns import Columns, zeros
from cuzk_gui.models.groups import Group
from cuzk_gui.models.levels import LEVEL_NS
from cuzk_gui.models.tracks import SpanRows, SpanTrack

SECOND = 1_000_000_000


def rows(spans: list[tuple[int, int]], group: int = Group.MSM, size: int = 0) -> SpanRows:
    n = len(spans)
    zero = np.zeros(n, dtype=np.int64)
    return SpanRows(
        start=np.array([a for a, _ in spans], dtype=np.int64),
        end=np.array([b for _, b in spans], dtype=np.int64),
        group=np.full(n, group, dtype=np.int8),
        kind=zero,
        job=zero,
        partition=zero,
        worker=zero,
        bytes=np.full(n, size, dtype=np.int64),
        pinned=np.full(n, -1, dtype=np.int8),
    )


class TestColumns:
    def test_keeps_the_newest_rows_in_order(self) -> None:
        columns = Columns(100, {"a": np.int64})
        for first in range(0, 1000, 7):
            columns.append({"a": np.arange(first, first + 7)}, 7)
            assert len(columns) <= 100
        assert columns["a"].tolist() == list(range(1001 - 100, 1001))
        assert columns.dropped == 1001 - 100

    def test_more_rows_than_fit(self) -> None:
        columns = Columns(10, {"a": np.int64, "b": (np.int64, (2,))})
        columns.append({"a": np.arange(25), "b": np.ones((25, 2))}, 25)
        assert columns["a"].tolist() == list(range(15, 25))
        assert columns["b"].shape == (10, 2)

    def test_large_ones_begin_as_zeros_of_their_own(self) -> None:
        first, second = (zeros((2**16, 3), np.int64) for _ in range(2))
        assert not first.any()
        first[:] = 7
        assert (first.shape, first.dtype) == ((2**16, 3), np.int64)
        assert not second.any()

    def test_bytes_do_not_grow(self) -> None:
        columns = Columns(64, {"a": np.int64})
        before = columns.nbytes
        for _ in range(500):
            columns.append({"a": np.arange(9)}, 9)
        assert columns.nbytes == before


class TestSpanTrack:
    def test_window_finds_long_spans_that_began_before(self) -> None:
        track = SpanTrack(100)
        track.append(rows([(0, 1000), (10, 20), (30, 40)]))
        part = track.window(500, 600)
        assert 0 in range(part.start, part.stop)

    def test_late_spans_are_put_in_order(self) -> None:
        track = SpanTrack(100)
        track.append(rows([(100, 110), (200, 210)]))
        track.append(rows([(150, 160), (50, 220), (300, 310)]))
        assert track.rows["start"].tolist() == [50, 100, 150, 200, 300]
        assert track.rows["reach"].tolist() == [220, 220, 220, 220, 310]

    @given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**9)), min_size=1, max_size=60))
    def test_buckets_hold_all_time(self, spans: list[tuple[int, int]]) -> None:
        track = SpanTrack(100)
        track.append(rows([(start, start + length) for start, length in spans]))
        total = sum(max(length, 1) for _, length in spans)
        coarsest = track.levels[-1]
        _, busy, _ = coarsest.view(0, 2 * 10**10)
        assert busy.sum() == pytest.approx(total, rel=1e-4)

    def test_bytes_are_spread_over_buckets(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(0, 4 * LEVEL_NS[0])], Group.UP_PINNED, size=4000))
        _, _, sizes = track.levels[0].view(0, 4 * LEVEL_NS[0])
        assert sizes[:, Group.UP_PINNED].tolist() == [1000.0] * 4

    @given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 3 * 10**8)), min_size=1, max_size=20))
    def test_every_level_has_what_is_in_its_buckets(self, spans: list[tuple[int, int]]) -> None:
        track = SpanTrack(100)
        for part in (spans[:7], spans[7:]):
            if part:
                track.append(rows([(start, start + length) for start, length in part], Group.NTT, size=1000))
        for level in track.levels:
            starts, busy, nbytes = level.view(0, 2 * 10**9)
            wanted = [
                sum(max(0, min(a + max(n, 1), low + level.width) - max(a, low)) for a, n in spans)
                for low in starts.tolist()
            ]
            assert busy[:, Group.NTT].tolist() == pytest.approx(wanted, rel=1e-4)
            assert nbytes.sum() == pytest.approx(1000 * len(spans), rel=1e-3)

    def test_buckets_move_on_and_forget(self) -> None:
        track = SpanTrack(10)
        level = track.levels[0]
        track.append(rows([(0, LEVEL_NS[0])]))
        far = level.size * LEVEL_NS[0] * 3
        track.append(rows([(far, far + LEVEL_NS[0])]))
        _, busy, _ = level.view(0, far + LEVEL_NS[0])
        assert len(busy) == level.size
        assert busy.sum() == pytest.approx(LEVEL_NS[0])

    def test_nearest_span(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(0, 1000), (100, 200)]))
        assert track.at(150, 0) == 1  # the shorter of two
        assert track.at(500, 0) == 0
        assert track.at(1005, 10) == 0
        assert track.at(2000, 10) is None

    def test_negative_length_is_no_length(self) -> None:
        track = SpanTrack(10)
        track.append(rows([(100, 50)]))
        assert track.rows["end"].tolist() == [100]
