"""What a hub keeps of what it sent: the last of it, whatever the sizes, and nothing more in memory."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.telemetry.past import BLOCK_BYTES, Past


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
        sum(events for _, events in sent[-kept:]) > most_events or sum(len(d) for d, _ in sent[-kept:]) > most_bytes
    ):
        kept -= 1
    newest = sent[-kept:] if kept else []
    assert past.since(0) == [data for data, _ in newest]
    assert past.events == sum(events for _, events in newest)
    if newest:
        assert past.since(len(sent) - 1) == [newest[-1][0]]
    assert past.since(len(sent)) == []


def test_blocks_go_with_their_last_batch() -> None:
    past = Past(1_000, 1 << 30)

    def fill(first: int) -> int:
        """Bytes of what is kept then."""
        for number in range(first, first + 10_000):
            past.append(number, b"x" * (number * 4_001 % 7_000), 1)
        return sum(map(len, past.since(0)))

    kept = fill(0)
    before = own_bytes()
    assert abs(fill(10_000) - kept) < BLOCK_BYTES
    assert own_bytes() - before < 3 * BLOCK_BYTES
    past = Past(1_000, 1 << 30)
    assert before - own_bytes() > kept - 3 * BLOCK_BYTES


def own_bytes() -> int:
    """Anonymous memory of this process that is resident."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
