"""What a hub keeps of what it sent: the last of it, whatever the sizes, and nothing more in memory."""

import mmap
import tracemalloc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.telemetry.past import BLOCK_BYTES, HEAD_BYTES, Past

MAP = mmap.mmap


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * BLOCK_BYTES // 2)), max_size=30),
    st.integers(0, 40),
    st.integers(0, 4 * BLOCK_BYTES),
)
def test_the_newest_that_fit_are_kept(batches: list[tuple[int, int]], most_events: int, most_bytes: int) -> None:
    past = Past(most_events, most_bytes)
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
    assert past.since(0) == [data for data, _ in newest]
    assert past.events == sum(events for _, events in newest)
    assert past.bytes == sum(HEAD_BYTES + len(data) for data, _ in newest)
    assert past.dropped_until_ns == max(0, len(sent) - kept - 1)
    if newest:
        assert past.since(len(sent) - 1) == [newest[-1][0]]
    assert past.since(len(sent)) == []


def test_blocks_go_with_their_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def map_pages(*args: int, **options: int) -> mmap.mmap:
        block = MAP(*args, **options)
        blocks.add(block)
        return block

    monkeypatch.setattr(mmap, "mmap", map_pages)
    past = Past(1_000, 1 << 30)
    for number in range(20_000):
        past.append(number, b"x" * (number * 4_001 % 7_000), 1)
    kept = sum(map(len, past.since(0)))
    assert kept <= sum(map(len, blocks)) < kept + 2 * BLOCK_BYTES + len(blocks) * 7_000
    assert len(blocks) > 10


def test_small_batches_take_no_more_than_their_bytes() -> None:
    """As of an engine that has nothing to do and says so for a day."""
    tracemalloc.start()
    try:
        past = Past(1 << 30, 1 << 20)
        for number in range(30_000):
            past.append(number, b"x" * 30, 1)
        beside, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert past.bytes <= 1 << 20
    assert beside < 50_000


def test_what_was_sent_since_a_time_may_begin_within_a_block() -> None:
    past = Past(1 << 30, 1 << 30)
    for number in range(3_000):
        past.append(number // 2, str(number).encode() * 100, 1)
    assert past.since(700) == [str(number).encode() * 100 for number in range(1_400, 3_000)]
