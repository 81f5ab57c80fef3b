"""What the supervisor hears of a partition's progress, and of events: enough, and not more."""

from __future__ import annotations

from typing import Any

import pytest

from cuzk_engine.daemon import device as processes
from cuzk_engine.daemon.device import EventBuffer
from cuzk_engine.daemon.reports import Reports
from cuzk_engine.daemon.runtime import Order
from cuzk_engine.events import Allocation, LogLine, Purpose, Span, new_allocation, new_span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_events


class Channel:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.blobs: list[bytes] = []
        self.is_broken = False

    def send(self, message: dict[str, Any], blob: bytes = b"") -> None:
        if self.is_broken:
            raise BrokenPipeError
        self.messages.append(message)
        self.blobs.append(blob)


@pytest.fixture
def channel() -> Any:
    return Channel()


def order(job: str, partition: int = 0) -> Order:
    return Order(job, 0, "k", (), "w", {}, partition)


def told(channel: Channel) -> list[tuple[Any, ...]]:
    found = [tuple(message[name] for name in ("job", "partition", "phase", "fraction")) for message in channel.messages]
    channel.messages.clear()
    return found


def test_the_newest_is_told(channel: Any) -> None:
    reports = Reports(channel)
    with reports.of(order("a")) as first, reports.of(order("b", 3)) as second:
        first("load_key", 0.0)
        first("read_witness", 0.05)
        reports.send()
        assert told(channel) == [("a", 0, "read_witness", 0.05)]
        reports.send()
        assert told(channel) == []
        second("load_key", 0.1)
        first("read_witness", 0.06)
        reports.send()
        assert told(channel) == [("a", 0, "read_witness", 0.06), ("b", 3, "load_key", 0.1)]


def test_one_that_is_prepared_is_told_at_once(channel: Any) -> None:
    """Another one may be waiting to be prepared (pipeline.max_parallel_synthesis). Once."""
    reports = Reports(channel)
    with reports.of(order("a")) as report:
        report("load_key", 0.0)
        report("lock", 0.3)
        assert told(channel) == [("a", 0, "lock", 0.3)]
        report("msm", 0.4)
        report("lock", 0.4)
        assert told(channel) == []
        reports.send()
        assert told(channel) == [("a", 0, "lock", 0.4)]


def test_of_one_that_has_ended_nothing_is_told(channel: Any) -> None:
    reports = Reports(channel)
    with reports.of(order("a")) as report:
        report("msm", 0.5)
        told(channel)
        report("verify", 0.9)
    reports.send()
    assert told(channel) == []


def test_a_supervisor_that_has_gone(channel: Any) -> None:
    """Ends no proof: the process ends by itself."""
    reports = Reports(channel)
    channel.is_broken = True
    with reports.of(order("a")) as report:
        report("lock", 0.3)
        report("msm", 0.4)
        with pytest.raises(BrokenPipeError):
            reports.send()


def test_events_are_bounded(monkeypatch: pytest.MonkeyPatch, channel: Any) -> None:
    """The newest go, but for allocations, since their sum must stay right; what went is counted."""
    monkeypatch.setattr(processes, "_MAX_BUFFERED", 3)
    events = EventBuffer(channel)
    spans = [Span(k, k + 1, "cpu", "compute", "ntt") for k in range(5)]
    for span in spans[:3]:
        events.add(span)
    events.trim()
    for k, span in enumerate(spans[3:]):
        events.add(span)
        events.add(Allocation(k, "cpu", 1 - 2 * k, Purpose.ABC))
    events.trim()
    events.add(LogLine(0, 0, "INFO", "said"))
    events.flush()
    (blob,) = channel.blobs
    batch = decode_events(pb.TelemetryBatch.FromString(blob))
    assert (batch.spans, batch.dropped, len(batch.logs)) == (spans[:3], 2, 1)
    assert [one.delta for one in batch.allocations] == [1, -1]
    events.flush()
    assert len(channel.blobs) == 1


def test_events_wait_where_others_were_just_sent(monkeypatch: pytest.MonkeyPatch, channel: Any) -> None:
    """Sending costs as much for few as for many. What a proof did is sent at its end in any case."""
    now = 100.0
    monkeypatch.setattr(processes.time, "monotonic", lambda: now)
    events, line = EventBuffer(channel), LogLine(0, 0, "INFO", "said")
    sent = []
    for now, after in ((100.0, 0.05), (100.04, 0.05), (100.045, 0.0), (100.09, 0.05), (100.1, 0.05), (100.2, 0.05)):
        if now != 100.2:
            events.add(line)
        events.flush(after)
        sent.append(len(channel.blobs))
    assert sent == [1, 1, 2, 2, 3, 3]


def test_rows_that_are_made_quickly() -> None:
    span = Span(1, 2, "cuda:0", "d2h", "download.result", "j", 3, 4, 5, True)
    assert (new_span(tuple(span)), type(new_span(tuple(span)))) == (span, Span)
    allocation = Allocation(1, "cuda:0", 2, Purpose.MSM, 3, "j")
    assert (new_allocation(tuple(allocation)), type(new_allocation(tuple(allocation)))) == (allocation, Allocation)
