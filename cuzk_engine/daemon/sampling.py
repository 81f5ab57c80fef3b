"""The samples of all devices: cards are read by a thread of their own, the host when it is asked to look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from cuzk_engine.events import EventBatch, Sample
from cuzk_engine.telemetry.gpu_sampler import GpuSampler, Target
from cuzk_engine.telemetry.sampler import HostSampler


class Sampled(Protocol):
    """What is needed of a device; ``info`` is empty until its process has told of it."""

    id: str
    pid: int
    info: dict[str, Any]

    @property
    def is_ready(self) -> bool: ...


class Sampling:
    """``memory``: the bytes that proofs use on a device, by its id."""

    def __init__(
        self, devices: Iterable[Sampled], memory: Callable[[str], int], cards: GpuSampler | None = None
    ) -> None:
        self._devices = devices
        self._memory = memory
        self._cards = cards or GpuSampler()
        self._hosts: dict[str, HostSampler] = {}
        self._found: list[Sample] = []

    def look(self) -> None:
        """Takes a sample of the CPU device, and tells the thread which cards there are."""
        cards = [device for device in self._devices if device.info.get("kind") == "cuda"]
        self._cards.watch(
            {card.id: Target(card.info["uuid"], card.info["bus_id"], (card.pid,) if card.pid else ()) for card in cards}
        )
        for device in self._devices:
            if device.is_ready and device.info.get("kind") == "cpu":
                sampler = self._hosts.setdefault(device.id, HostSampler())
                used, capacity = self._memory(device.id), device.info.get("capacity")
                self._found.append(sampler.sample(device.id, used=used, capacity=capacity))

    def collect(self, batch: EventBatch) -> None:
        """Moves what was found since the last time into ``batch``."""
        found, self._found = self._found, []
        batch.samples.extend(found)
        self._cards.collect(batch, self._memory)

    def stop(self) -> None:
        """Waits for the thread."""
        self._cards.stop()
