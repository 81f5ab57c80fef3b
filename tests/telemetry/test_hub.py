import asyncio
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.events import Allocation, EventBatch, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_events, encode_events
from cuzk_engine.telemetry.hub import MAX_PAST_BYTES, Hub
from cuzk_engine.telemetry.past import BLOCK_BYTES
from tests.support.pages import counted_pages


class Clock:
    now = 1000

    def __call__(self) -> int:
        return self.now


def batch(*, spans: int = 0, deltas: tuple[int, ...] = (), purpose: str = "msm") -> pb.TelemetryBatch:
    events = EventBatch.empty()
    events.spans += [Span(1, 2, "cpu", "compute", "ntt")] * spans
    events.allocations += [Allocation(1, "cpu", delta, purpose) for delta in deltas]
    return encode_events(events)


async def taken(reader: object, count: int) -> list[pb.TelemetryBatch]:
    return [await asyncio.wait_for(reader.batch(), 5) for _ in range(count)]  # type: ignore[attr-defined]


def test_every_reader_gets_every_batch_in_order() -> None:
    async def check() -> None:
        hub = Hub()
        readers = [hub.subscribe(0)[0] for _ in range(3)]
        for number in range(1, 5):
            hub.publish(batch(spans=number))
        for reader in readers:
            assert [len(decode_events(b).spans) for b in await taken(reader, 4)] == [1, 2, 3, 4]
        hub.unsubscribe(readers[0])
        assert hub.readers == 2

    asyncio.run(check())


def test_a_slow_reader_loses_counted_events_and_goes_on() -> None:
    async def check() -> None:
        hub = Hub(max_queued_events=10)
        slow, quick = hub.subscribe(0)[0], hub.subscribe(0)[0]
        seen = 0
        for _ in range(5):
            hub.publish(batch(spans=4))
            (got,) = await taken(quick, 1)
            seen += len(decode_events(got).spans)
            assert got.dropped == 0
        assert seen == 20
        first, second = await taken(slow, 2)
        assert (first.dropped, second.dropped) == (12, 0)
        hub.publish(batch(spans=1))
        (last,) = await taken(slow, 1)
        assert (last.dropped, len(decode_events(last).spans)) == (0, 1)

    asyncio.run(check())


def test_the_past_is_bounded() -> None:
    async def check() -> None:
        clock = Clock()
        hub = Hub(max_past_events=100, clock=clock)
        for number in range(1000):
            assert (hub.past_since_ns > 0) == (number > 10)
            clock.now += 1
            hub.publish(batch(spans=10))
        assert hub.past_events <= 100
        _, history, _ = hub.subscribe(10**18)
        kept = list(map(pb.TelemetryBatch.FromString, history))
        assert len(kept) == 10
        assert hub.past_since_ns == kept[0].time_ns - 1

    asyncio.run(check())


@pytest.mark.parametrize("spans", [2, 20, 100])
def test_the_past_takes_as_much_memory_whatever_is_sent(spans: int) -> None:
    async def check() -> None:
        hub, sent = Hub(), batch(spans=spans)
        while not hub.past_since_ns:
            hub.publish(sent)
        assert MAX_PAST_BYTES - 10_000 < hub.past_bytes <= MAX_PAST_BYTES

    asyncio.run(check())


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.sampled_from(["msm", "ntt"])), max_size=12),
    st.integers(0, 12),
    st.integers(1, 12),
    st.sampled_from([1, 200, BLOCK_BYTES]),
)
def test_ledger_and_history_always_add_up(
    changes: list[tuple[int, str]], recent: int, kept: int, block_bytes: int
) -> None:
    async def check() -> None:
        clock = Clock()
        hub = Hub(max_past_events=kept, clock=clock)
        for delta, purpose in changes:
            clock.now += 10
            hub.publish(batch(deltas=(delta,), purpose=purpose))
        _, history, before = hub.subscribe(10 * recent + 5)
        assert len(list(history)) == min(recent + 1, kept, len(changes))
        total = dict(before)
        for past in map(pb.TelemetryBatch.FromString, history):
            for allocation in decode_events(past).allocations:
                key = (allocation.device, allocation.purpose)
                total[key] = total.get(key, 0) + allocation.delta
        assert all(total.get(("cpu", purpose), 0) == nbytes for purpose, nbytes in hub.by_purpose("cpu").items())
        assert sum(total.values()) == hub.memory("cpu") == sum(delta for delta, _ in changes)

    with mock.patch("cuzk_engine.telemetry.past.BLOCK_BYTES", block_bytes):
        asyncio.run(check())


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_new_reader_reads_one_block_of_the_past_at_most(share: float) -> None:
    async def check() -> None:
        clock = Clock()
        hub, sent = Hub(max_past_events=1 << 30, clock=clock), batch(spans=5, deltas=(1, -1) * 20)
        while not hub.past_since_ns:
            clock.now += 1
            hub.publish(sent)
        pages.bytes = 0
        _, history, _ = hub.subscribe(int(share * (clock.now - hub.past_since_ns)))
        assert pages.bytes <= BLOCK_BYTES
        assert sum(map(len, history)) > 0.9 * share * MAX_PAST_BYTES

    with counted_pages() as pages:
        asyncio.run(check())


def test_a_device_that_died_holds_nothing() -> None:
    async def check() -> None:
        hub = Hub()
        reader, _, _ = hub.subscribe(0)
        hub.publish(batch(deltas=(100, 50)))
        hub.forget_device("cpu")
        assert hub.memory("cpu") == 0
        _, last = await taken(reader, 2)
        assert [a.delta for a in decode_events(last).allocations] == [-150]
        hub.forget_device("cpu")
        assert hub.past_events == 3

    asyncio.run(check())
