"""What is read of which device, and where the readings go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cuzk_engine.daemon.sampling import Sampling
from cuzk_engine.events import EventBatch, Sample
from cuzk_engine.telemetry.gpu_sampler import GpuSampler
from tests.support.daemons import wait_for
from tests.support.fake_nvml import MIB, FakeCard, FakeNvml


def device(name: str, pid: int, **info: Any) -> Any:
    return SimpleNamespace(id=name, pid=pid, info=info, is_ready=False)


def test_cards_are_read_from_when_their_process_has_told_of_them() -> None:
    library = FakeNvml(FakeCard("GPU-aaaa", "00000000:1B:00.0", processes={7: 60 * MIB}))
    sampler = GpuSampler(library, sample_seconds=0.01)
    card = device("cuda:0", 7)
    sampling = Sampling([card, device("cpu", 8, kind="host")], lambda name: 50 * MIB, sampler)
    published = EventBatch.empty()

    def samples() -> list[Sample]:
        sampling.look()
        sampling.collect(published)
        return published.samples

    assert samples() == []  # it has not started yet
    card.info = {"kind": "cuda", "uuid": "GPU-aaaa", "bus_id": "0000:1B:00.0"}
    wait_for(lambda: bool(samples()))
    found = samples()[0]
    assert (found.device, found.memory_used, found.memory_other) == ("cuda:0", 50 * MIB, 40 * MIB)
    card.pid = 0  # it died; the card stays known
    before = len(samples())
    wait_for(lambda: len(samples()) > before)
    sampling.stop()
    assert library.opened == library.closed


def test_the_host_is_read_when_it_is_ready() -> None:
    host = device("cpu", 8, kind="cpu", capacity=100 * MIB)
    sampling = Sampling([host], lambda name: 50 * MIB, GpuSampler(FakeNvml()))
    published = EventBatch.empty()
    sampling.look()
    sampling.collect(published)
    assert published.samples == []
    host.is_ready = True
    sampling.look()
    sampling.collect(published)
    sampling.collect(published)  # once each
    sampling.stop()
    assert [(one.device, one.memory_used) for one in published.samples] == [("cpu", 50 * MIB)]
