"""The supervisor's part in sampling GPUs: which cards are read, and where the readings go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cuzk_engine.daemon.supervisor import Supervisor
from cuzk_engine.events import EventBatch, Sample
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.gpu_sampler import GpuSampler
from tests.support.daemons import wait_for
from tests.support.fake_nvml import MIB, FakeCard, FakeNvml


def device(name: str, pid: int, **info: str) -> Any:
    return SimpleNamespace(id=name, pid=pid, info=info, is_ready=False)


def test_cards_are_read_from_when_their_process_has_told_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(FakeCard("GPU-aaaa", "00000000:1B:00.0", processes={7: 60 * MIB}))
    sampler = GpuSampler(library, sample_seconds=0.01)
    published: list[EventBatch] = []
    card = device("cuda:0", 7)
    supervisor: Any = SimpleNamespace(
        devices=[card, device("cpu", 8, kind="host")],
        hub=SimpleNamespace(memory=lambda name: 50 * MIB, publish=lambda batch: None),
        _gpus=sampler,
        _diagnosing=SimpleNamespace(poll=lambda now: EventBatch.empty(), take=lambda batch: None),
        _pending=EventBatch.empty(),
        _changed_jobs={},
        _identity_due=False,
        _settings_due=False,
    )

    def encode(batch: EventBatch) -> pb.TelemetryBatch:
        published.append(batch)
        return pb.TelemetryBatch()

    monkeypatch.setattr("cuzk_engine.daemon.supervisor.encode_events", encode)

    def samples() -> list[Sample]:
        Supervisor._sample(supervisor)
        Supervisor._flush(supervisor)
        return [sample for batch in published for sample in batch.samples]

    assert samples() == []  # it has not started yet
    card.info = {"kind": "cuda", "uuid": "GPU-aaaa", "bus_id": "0000:1B:00.0"}
    wait_for(lambda: bool(samples()))
    found = samples()[0]
    assert (found.device, found.memory_used, found.memory_other) == ("cuda:0", 50 * MIB, 40 * MIB)
    card.pid = 0  # it died; the card stays known
    before = len(samples())
    wait_for(lambda: len(samples()) > before)
    sampler.stop()
    assert library.opened == library.closed
