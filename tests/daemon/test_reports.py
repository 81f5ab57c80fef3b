"""What the supervisor hears of a partition's progress, and of events: enough, and not more."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from cuzk_engine.daemon import channel as channels
from cuzk_engine.daemon import device as processes
from cuzk_engine.daemon import reports as reporting
from cuzk_engine.daemon.channel import encode
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
        self.write(encode(message, blob))

    def write(self, frames: bytes) -> None:
        if self.is_broken:
            raise BrokenPipeError
        while frames:
            body, blob = struct.unpack_from("<II", frames)
            self.messages.append(json.loads(frames[8 : 8 + body]))
            self.blobs.append(frames[8 + body : 8 + body + blob])
            frames = frames[8 + body + blob :]


@pytest.fixture
def channel() -> Any:
    return Channel()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(reporting, "time", found)
    return found


def order(job: str, partition: int = 0) -> Order:
    return Order(job, 0, "k", (), "w", {}, partition)


def told(channel: Channel) -> list[tuple[Any, ...]]:
    found = [tuple(part) for message in channel.messages for part in message["parts"]]
    channel.messages.clear()
    return found


def test_the_newest_is_told(channel: Any, clock: Clock) -> None:
    """Of all in one message."""
    reports = Reports(channel)
    with reports.of(order("a")) as first, reports.of(order("b", 3)) as second:
        first("load_key", 0.0)
        first("read_witness", 0.05)
        clock.now += 1
        reports.send()
        assert told(channel) == [("a", 0, "read_witness", 0.05)]
        clock.now += 1
        reports.send()
        assert told(channel) == []
        second("load_key", 0.1)
        first("read_witness", 0.06)
        reports.send()
        assert len(channel.messages) == 1
        assert told(channel) == [("a", 0, "read_witness", 0.06), ("b", 3, "load_key", 0.1)]


def test_what_was_just_told_of_waits(channel: Any, clock: Clock) -> None:
    """A partition of a tenth of a second is told of when it begins, is prepared, and ends."""
    reports = Reports(channel)
    with reports.of(order("a")) as report:
        report("load_key", 0.0)
        clock.now += 0.06
        reports.send()
        assert told(channel) == []
        report("lock", 0.3)
        assert told(channel) == [("a", 0, "lock", 0.3)]
        report("msm", 0.4)
        clock.now += 0.06
        reports.send()
        assert told(channel) == []
        clock.now += 0.06
        reports.send()
        assert told(channel) == [("a", 0, "msm", 0.4)]


def test_one_that_is_prepared_is_told_at_once(channel: Any, clock: Clock) -> None:
    """Another one may be waiting to be prepared (pipeline.max_parallel_synthesis). Once."""
    reports = Reports(channel)
    with reports.of(order("a")) as report:
        report("load_key", 0.0)
        report("lock", 0.3)
        assert told(channel) == [("a", 0, "lock", 0.3)]
        report("msm", 0.4)
        report("lock", 0.4)
        assert told(channel) == []
        clock.now += 1
        reports.send()
        assert told(channel) == [("a", 0, "lock", 0.4)]


def test_of_one_that_has_ended_nothing_is_told(channel: Any, clock: Clock) -> None:
    reports = Reports(channel)
    with reports.of(order("a")) as report:
        report("msm", 0.5)
        told(channel)
        report("verify", 0.9)
    clock.now += 1
    reports.send()
    assert told(channel) == []


def test_a_supervisor_that_has_gone(channel: Any, clock: Clock) -> None:
    """Ends no proof: the process ends by itself."""
    reports = Reports(channel)
    channel.is_broken = True
    with reports.of(order("a")) as report:
        report("lock", 0.3)
        report("msm", 0.4)
        clock.now += 1
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


def test_events_wait_where_others_were_just_sent(monkeypatch: pytest.MonkeyPatch, channel: Any, clock: Clock) -> None:
    """Sending costs as much for few as for many. None waits for longer than was asked for."""
    monkeypatch.setattr(processes, "time", clock)
    events, line = EventBuffer(channel), LogLine(0, 0, "INFO", "said")
    found = []
    for clock.now, after, adds in (
        (100.0, 0.5, True), (100.25, 0.5, True), (100.375, 0.0, False), (100.5, 0.5, True), (100.875, 0.5, False),
        (102.0, 0.5, False),
    ):  # fmt: skip
        if adds:
            events.add(line)
        pause = events.flush(after)
        found.append((len(channel.blobs), pause))
    assert found == [(1, 0.5), (1, 0.25), (2, 0.0), (2, 0.375), (3, 0.5), (3, 0.5)]


def test_what_a_job_did_is_known_before_that_it_ended(channel: Any) -> None:
    """In one write, however much it was."""
    events = EventBuffer(channel)
    events.add(Allocation(0, "cpu", 1, Purpose.ABC))
    events.end(encode({"type": "done", "job": "a"}))
    events.end(encode({"type": "done", "job": "b"}))
    assert [message["type"] for message in channel.messages] == ["events", "done", "done"]


def test_too_much_for_one_message_is_dropped(monkeypatch: pytest.MonkeyPatch, channel: Any) -> None:
    """And counted; what is said behind it is said."""
    events = EventBuffer(channel)
    events.add(LogLine(0, 0, "INFO", "x" * 100))
    with monkeypatch.context() as patched:
        patched.setattr(channels, "MAX_BLOB", 50)
        events.end(encode({"type": "done"}))
    assert [message["type"] for message in channel.messages] == ["done"]
    events.flush()
    assert pb.TelemetryBatch.FromString(channel.blobs[-1]).dropped == 1


@pytest.mark.parametrize("event", [Span(0, 1, "cpu", "l", "k", "j", 1 << 31), Allocation(0, "cpu", 1 << 63, "abc")])
def test_an_event_that_no_column_holds(channel: Any, event: Any) -> None:
    """Is dropped with those beside it, and counted; the partition's end is told, and what comes later."""
    events = EventBuffer(channel)
    events.add(event)
    events.end(encode({"type": "done"}))
    assert [message["type"] for message in channel.messages] == ["done"]
    events.add(LogLine(0, 0, "INFO", "said"))
    events.flush()
    batch = pb.TelemetryBatch.FromString(channel.blobs[-1])
    assert (batch.dropped, len(batch.logs)) == (1, 1)


def test_rows_that_are_made_quickly() -> None:
    span = Span(1, 2, "cuda:0", "d2h", "download.result", "j", 3, 4, 5, True)
    assert (new_span(tuple(span)), type(new_span(tuple(span)))) == (span, Span)
    allocation = Allocation(1, "cuda:0", 2, Purpose.MSM, 3, "j")
    assert (new_allocation(tuple(allocation)), type(new_allocation(tuple(allocation)))) == (allocation, Allocation)
