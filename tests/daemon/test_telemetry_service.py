"""What a new reader is given before anything new happens, and that it is made step by step: the event loop serves
others in between."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cuzk_engine.client.types import EngineIdentity
from cuzk_engine.daemon.incidents import Incidents
from cuzk_engine.daemon.publisher import Publisher
from cuzk_engine.daemon.services import TelemetryService
from cuzk_engine.events import Allocation, EventBatch, Incident, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import encode_events
from cuzk_engine.telemetry.hub import MAX_PAST_BYTES, Hub
from cuzk_engine.telemetry.past import BLOCK_BYTES
from tests.support.pages import counted_pages

IDENTITY = EngineIdentity("b" * 64, "1", 1, 1, "", "ready", "", (), "", "", "")


def busy() -> pb.TelemetryBatch:
    events = EventBatch.empty()
    events.spans += [Span(1, 2, "cpu", "compute", "ntt")] * 20
    events.allocations += [Allocation(1, "cpu", delta, "msm") for delta in (5, -5) * 20]
    return encode_events(events)


class Told:
    """The service of an engine whose devices tell what the test has them tell."""

    def __init__(self, folder: Path) -> None:
        self.hub, self.incidents = Hub(max_past_events=1 << 30), Incidents(folder)
        jobs = SimpleNamespace(newest=lambda limit: [])
        subject = SimpleNamespace(jobs=jobs, identity=lambda: IDENTITY, setting_infos=list)
        self.sampled: list[Incident] = []  # what the sampling of cards finds
        ignored = SimpleNamespace(
            take=lambda batch: None,
            spans=lambda batch: None,
            start=lambda work: work.close(),
            collect=lambda batch: batch.incidents.extend(self.sampled),
            poll=lambda now_ns: EventBatch.empty(),
        )
        self.publisher = Publisher(
            cast(Any, subject), self.hub, self.incidents, *cast(tuple[Any, Any, Any, Any], (ignored,) * 4)
        )
        self._service = TelemetryService(cast(Any, SimpleNamespace(hub=self.hub, publisher=self.publisher)))

    def incident(self, message: str) -> None:
        events = EventBatch.empty()
        events.incidents.append(Incident(time.monotonic_ns(), "cpu", "out-of-memory", "", message))
        self.publisher.device_events("cpu", encode_events(events).SerializeToString())

    def until_full(self) -> None:
        sent = busy().SerializeToString()
        while not self.hub.past_since_ns:
            self.publisher.device_events("cpu", sent)

    def stream(self, history_ns: int) -> Any:
        return self._service.Stream(pb.TelemetryRequest(history_ns=history_ns), None)


def test_a_full_past_is_read_a_batch_at_a_time(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told(tmp_path)
        told.until_full()
        told.incident("the last one")
        largest, total, messages = 0, 0, told.stream(10**18)
        pages.bytes = 0
        await anext(messages)
        assert pages.bytes <= BLOCK_BYTES
        while total < 0.9 * MAX_PAST_BYTES:
            pages.bytes = 0
            total += (await anext(messages)).ByteSize()
            largest = max(largest, pages.bytes)
        assert largest <= 2 * busy().ByteSize()
        await messages.aclose()
        assert not told.hub.readers

    with counted_pages() as pages:
        asyncio.run(check())


def test_an_incident_is_in_the_history_or_before_it(tmp_path: Path) -> None:
    async def check() -> None:
        told = Told(tmp_path)
        told.incident("first")
        told.until_full()  # what told of it is no longer there
        told.incident("second")
        for history_ns, early in ((0, ["first", "second"]), (10**18, ["first"])):
            messages = told.stream(history_ns)
            assert [one.message for one in (await anext(messages)).incidents] == early
            heard = list(early)
            while len(heard) < 2:
                heard += [one.message for one in (await anext(messages)).incidents]
            assert heard == ["first", "second"]
            await messages.aclose()

    asyncio.run(check())


def test_what_the_sampling_finds_is_kept_as_what_devices_tell(tmp_path: Path) -> None:
    """A card that has gone, for one: those who come later hear of it."""

    async def check() -> None:
        told = Told(tmp_path)
        told.sampled.append(Incident(time.monotonic_ns(), "cuda:0", "device-lost", "", "has gone"))
        told.publisher.flush()
        told.sampled.clear()
        told.publisher.incident(Incident(time.monotonic_ns(), "cuda:1", "worker-died", "", "has ended"))
        messages = told.stream(0)
        first = await anext(messages)
        await messages.aclose()
        assert [incident.message for incident in first.incidents] == ["has gone", "has ended"]

    asyncio.run(check())
