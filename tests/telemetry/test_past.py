"""What a hub keeps of what it sent: the last of it, whatever the sizes, and nothing more in memory."""

import mmap
import tracemalloc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.telemetry.past import BLOCK_BYTES, HEAD_BYTES, Past

MAP = mmap.mmap


def no_sums() -> None:
    return None


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * BLOCK_BYTES // 2)), max_size=30),
    st.integers(0, 40),
    st.integers(0, 4 * BLOCK_BYTES),
)
def test_the_newest_that_fit_are_kept(batches: list[tuple[int, int]], most_events: int, most_bytes: int) -> None:
    past = Past(most_events, most_bytes, no_sums)
    sent = [(bytes([number + 1]) * nbytes, events) for number, (events, nbytes) in enumerate(batches)]
    for number, (data, events) in enumerate(sent):
        past.append(number, data, events)
    kept = len(sent)
    while kept > 1 and (
        sum(events for _, events in sent[-kept:]) > most_events
        or sum(HEAD_BYTES + len(data) for data, _ in sent[-kept:]) > most_bytes
    ):
        kept -= 1
    newest = sent[-kept:] if kept else []
    assert list(past.since(0)) == [data for data, _ in newest]
    assert past.events == sum(events for _, events in newest)
    assert past.bytes == sum(HEAD_BYTES + len(data) for data, _ in newest)
    assert past.dropped_until_ns == max(0, len(sent) - kept - 1)
    if newest:
        assert list(past.since(len(sent) - 1)) == [newest[-1][0]]
    assert not list(past.since(len(sent)))


@given(
    st.lists(st.tuples(st.integers(0, BLOCK_BYTES // 2), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(1, 8 * BLOCK_BYTES),
    st.integers(0, 40),
)
def test_the_sums_of_before_are_a_block_away(sent: list[tuple[int, int]], most_bytes: int, since_ns: int) -> None:
    """Whatever was dropped meanwhile, and also of batches that were sent at one time."""
    done, now = 0, 0
    past = Past(1 << 30, most_bytes, lambda: done)
    times = []
    for nbytes, later in sent:
        now += later
        past.append(now, bytes(nbytes), 1)
        times.append(now)
        done += 1
    stretch = past.since(since_ns)
    rest = len(list(stretch))
    lead = stretch.lead()
    if not rest:
        assert (lead, stretch.first_ns) == (None, None)
        return
    assert lead is not None
    sums, between = lead
    read = list(between)
    assert sums + len(read) == len(sent) - rest
    assert sum(map(len, read)) <= BLOCK_BYTES
    assert stretch.first_ns == times[len(sent) - rest] >= since_ns


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[mmap.mmap]:
    """Those that there are."""
    found: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def map_pages(*args: int, **options: int) -> mmap.mmap:
        block = MAP(*args, **options)
        found.add(block)
        return block

    monkeypatch.setattr(mmap, "mmap", map_pages)
    return found


def test_blocks_go_with_their_last_batch(blocks: weakref.WeakSet[mmap.mmap]) -> None:
    past = Past(1_000, 1 << 30, no_sums)
    for number in range(20_000):
        past.append(number, b"x" * (number * 4_001 % 7_000), 1)
    kept = sum(map(len, past.since(0)))
    assert kept <= sum(map(len, blocks)) < kept + 2 * BLOCK_BYTES + len(blocks) * 7_000
    assert len(blocks) > 10


def test_small_batches_take_no_more_than_their_bytes() -> None:
    """As of an engine that has nothing to do and says so for a day."""
    tracemalloc.start()
    try:
        past = Past(1 << 30, 1 << 20, no_sums)
        for number in range(30_000):
            past.append(number, b"x" * 30, 1)
        beside, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert past.bytes <= 1 << 20
    assert beside < 50_000


def test_what_was_sent_since_a_time_may_begin_within_a_block() -> None:
    past = Past(1 << 30, 1 << 30, no_sums)
    for number in range(3_000):
        past.append(number // 2, str(number).encode() * 100, 1)
    assert list(past.since(700)) == [str(number).encode() * 100 for number in range(1_400, 3_000)]


def test_what_is_being_read_stays_until_it_is_taken(blocks: weakref.WeakSet[mmap.mmap]) -> None:
    past = Past(1 << 30, 4 * BLOCK_BYTES, no_sums)
    for number in range(400):
        past.append(number, bytes([number % 256]) * 2_600, 1)
    kept = list(past.since(0))
    reading = past.since(0)
    for number in range(400):
        past.append(number, b"new" * 866, 1)
    most = len(blocks)
    assert [len(blocks) for _ in reading.take()][-1] < most - 2
    assert not list(reading)
    assert kept[0] == bytes([400 - len(kept)]) * 2_600


def test_reading_copies_one_batch_at_a_time() -> None:
    past = Past(1 << 30, 8 * BLOCK_BYTES, no_sums)
    for number in range(1_000):
        past.append(number, b"x" * 2_000, 1)
    tracemalloc.start()
    try:
        nbytes = sum(map(len, past.since(0)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert nbytes > 1_900_000
    assert peak < 50_000
