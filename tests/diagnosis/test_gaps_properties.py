"""Whatever the spans: gaps, short idleness and kernels are disjoint and fill the window; each gap has one cause."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.diagnosis import intervals
from cuzk_engine.diagnosis.gaps import Idleness, find_gaps, idle_set
from cuzk_engine.diagnosis.queue import JobTimes, Queue
from cuzk_engine.diagnosis.shares import busy_set, shares
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Cause, Kind, Lane, Sample, Span, host_lane

END = 200
times = st.integers(-20, END + 20)
lanes = st.sampled_from([*Lane, host_lane(0), host_lane(1)])
spans = st.builds(
    lambda a, b, lane, kind, job, partition, worker, size, pinned: Span(
        min(a, b), max(a, b), "cuda:0", lane, kind, job, partition, worker, size, pinned
    ),
    times,
    times,
    lanes,
    st.sampled_from([*Kind, "new.kind"]),
    st.sampled_from(["", "a", "b"]),
    st.integers(-1, 1),
    st.integers(-1, 2),
    st.integers(0, 1 << 40),
    st.none() | st.booleans(),
)
kernels = st.builds(
    lambda a, length: Span(a, a + length, "cuda:0", Lane.COMPUTE, Kind.NTT, "a", 0, 0), times, st.integers(0, 30)
)
readings = st.builds(
    Sample,
    times,
    st.just("cuda:0"),
    *[st.none() | st.integers(0, 1 << 40)] * 4,
    utilisation=st.none() | st.floats(0, 1),
    clock=st.none() | st.floats(0, 3000),
    temperature=st.none() | st.floats(0, 120),
)
jobs = st.builds(JobTimes, times, st.none() | times, st.none() | times, st.sampled_from(["", "cuda:0"]))
queues = st.none() | st.lists(jobs, max_size=3).map(lambda rows: Queue.of(rows, "cuda:0"))
mixtures = st.tuples(st.lists(spans, max_size=15), st.lists(kernels, max_size=8)).map(
    lambda lists: [*lists[0], *lists[1]]
)


@given(mixtures, st.lists(readings, max_size=4), queues, st.integers(1, 40))
def test_gaps_and_kernels_fill_the_window(
    rows: list[Span], samples: list[Sample], queue: Queue | None, threshold: int
) -> None:
    table = SpanTable.of(rows)
    found = find_gaps(table, 0, END, device="cuda:0", queue=queue, samples=samples, threshold_ns=threshold)
    busy = busy_set(table, 0, END)
    idle = intervals.complement(busy, 0, END)
    gaps = idle_set(found.gaps)
    assert gaps.ravel().tolist() == sorted(gaps.ravel().tolist())  # in order and disjoint
    covered = intervals.normalise(gaps[:, 0], gaps[:, 1])
    assert intervals.total(intervals.difference(covered, idle)) == 0
    assert intervals.total(covered) + found.short_ns == intervals.total(idle)
    assert sum(found.by_cause().values()) == intervals.total(covered)
    left = intervals.difference(idle, covered)
    assert all(end - start < threshold for start, end in left.tolist())
    for gap in found.gaps:
        assert gap.end_ns - gap.start_ns >= threshold
        assert gap.cause in list(Cause)
        assert gap.evidence


@given(mixtures, st.integers(1, 40))
def test_the_order_of_the_spans_does_not_matter(rows: list[Span], threshold: int) -> None:
    def found(given_rows: list[Span]) -> Idleness:
        return find_gaps(SpanTable.of(given_rows), 0, END, device="cuda:0", threshold_ns=threshold)

    forward, backward = found(rows), found(rows[::-1])
    causes = [[(gap.start_ns, gap.end_ns, gap.cause) for gap in one.gaps] for one in (forward, backward)]
    assert causes[0] == causes[1] or _tie(rows)


def _tie(rows: list[Span]) -> bool:
    """Two kernels of different workers that begin at once: either may have ended the gap."""
    starts = [row.start_ns for row in rows if row.lane == Lane.COMPUTE]
    return len(starts) != len(set(starts))


@given(mixtures)
def test_shares_add_up(rows: list[Span]) -> None:
    found = shares(SpanTable.of(rows), 0, END)
    assert found.busy + found.idle == found.window == END
    assert 0 <= found.held_idle <= found.held <= END
    assert found.held_idle <= found.idle
    assert sum(found.by_kind.values()) >= found.busy


def test_tables_keep_what_spans_say() -> None:
    rows = [Span(5, 9, "cpu", "compute", "ntt", "j", 2, 1, 77, True), Span(1, 2, "cuda:0", "lock", "lock.held")]
    table = SpanTable.of(rows)
    assert table.start.tolist() == [1, 5]
    assert table.devices() == ["cpu", "cuda:0"]
    own = table.of_device("cpu")
    assert (own.size.tolist(), own.pinned.tolist(), own.partition.tolist(), own.worker.tolist()) == (
        [77],
        [1],
        [2],
        [1],
    )
    assert [own.text(number) for number in (*own.lane, *own.kind, *own.job)] == ["compute", "ntt", "j"]
    assert len(table.of_device("cuda:9")) == 0
    assert np.array_equal(table.within(2, 5).start, [])
