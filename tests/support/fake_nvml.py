"""As much of nvidia-ml-py as the engine asks for, with cards that do as they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
LOST, NOT_SUPPORTED, UNKNOWN, MISMATCH = 15, 3, 999, 18


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


@dataclass
class FakeCard:
    """``missing``: functions that it does not support; ``lost_after``: calls until it is lost; ``hang``: while set,
    every call waits for it to be cleared (see ``FakeNvml.release``)."""

    uuid: str
    bus_id: str
    name: str | bytes = "NVIDIA Fake"
    used: int = 100 * MIB
    total: int = 1000 * MIB
    reserved: int = 10 * MIB
    processes: dict[int, int | None] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    lost_after: int | None = None
    calls: int = 0
    throttle: int = 1
    mig: bool = False
    counters: Callable[[], tuple[int, int]] = lambda: (0, 0)


class FakeNvml:
    """``start``: the code with which it does not start; ``broken``: the code of every later call."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *cards: FakeCard, start: int = 0) -> None:
        self.cards = list(cards)
        self.start, self.broken = start, 0
        self.opened = self.closed = self.starts = 0
        self.release = threading.Event()
        self.release.set()

    # ---- the library ----

    def nvmlInit(self) -> None:  # noqa: N802
        self.starts += 1
        if self.start:
            raise NVMLError(self.start)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 13000

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> FakeCard:  # noqa: N802
        return self._there(self.cards[number])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:  # noqa: N802
        return self._there(self._first(lambda card: card.uuid == uuid))

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> FakeCard:  # noqa: N802
        return self._there(self._first(lambda card: card.bus_id.lower().endswith(bus_id.lower()[-12:])))

    # ---- a card ----

    def nvmlDeviceGetName(self, card: FakeCard) -> str | bytes:  # noqa: N802
        return self._there(card).name

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:  # noqa: N802
        return self._there(card).uuid

    def nvmlDeviceGetPciInfo(self, card: FakeCard) -> Any:  # noqa: N802
        return SimpleNamespace(busId=self._there(card).bus_id.encode())

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> list[int]:  # noqa: N802
        self._has(card, "nvmlDeviceGetMigMode")
        return [int(card.mig), int(card.mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:  # noqa: N802
        if index >= 2:
            raise NVMLError(6)
        return FakeCard(f"MIG-{card.uuid[4:]}-{index}", card.bus_id)

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard, version: int | None = None) -> Any:  # noqa: N802
        self._has(card, "nvmlDeviceGetMemoryInfo" if version is None else "nvmlDeviceGetMemoryInfo_v2")
        free = card.total - card.used - card.reserved
        if version is None:
            return SimpleNamespace(total=card.total, used=card.used + card.reserved, free=free)
        return SimpleNamespace(total=card.total, used=card.used, free=free, reserved=card.reserved)

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:  # noqa: N802
        self._has(card, "nvmlDeviceGetComputeRunningProcesses")
        return [SimpleNamespace(pid=pid, usedGpuMemory=nbytes) for pid, nbytes in card.processes.items()]

    def nvmlDeviceGetUtilizationRates(self, card: FakeCard) -> Any:  # noqa: N802
        self._has(card, "nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=40, memory=20)

    def nvmlDeviceGetPowerUsage(self, card: FakeCard) -> int:  # noqa: N802
        self._has(card, "nvmlDeviceGetPowerUsage")
        return 350_500

    def nvmlDeviceGetClockInfo(self, card: FakeCard, kind: int) -> int:  # noqa: N802
        self._has(card, "nvmlDeviceGetClockInfo")
        return 1980

    def nvmlDeviceGetTemperature(self, card: FakeCard, sensor: int) -> int:  # noqa: N802
        self._has(card, "nvmlDeviceGetTemperature")
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, card: FakeCard) -> int:  # noqa: N802
        self._has(card, "nvmlDeviceGetCurrentClocksEventReasons")
        return card.throttle

    def nvmlDeviceGetMaxPcieLinkGeneration(self, card: FakeCard) -> int:  # noqa: N802
        self._has(card, "nvmlDeviceGetMaxPcieLinkGeneration")
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, card: FakeCard) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetFieldValues(self, card: FakeCard, fields: list[int]) -> list[Any]:  # noqa: N802
        self._has(card, "nvmlDeviceGetFieldValues")
        rx, tx = card.counters()
        counted = {198: rx % (1 << 32), 197: tx % (1 << 32)}
        return [
            SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=counted[number]))
            for number in fields
        ]

    # ---- inside ----

    def _check(self) -> None:
        self.release.wait()
        if self.broken:
            raise NVMLError(self.broken)

    def _there(self, card: FakeCard) -> FakeCard:
        self._check()
        card.calls += 1
        if card.lost_after is not None and card.calls > card.lost_after:
            raise NVMLError(LOST)
        return card

    def _has(self, card: FakeCard, function: str) -> None:
        self._there(card)
        if function in card.missing:
            raise NVMLError(NOT_SUPPORTED)

    def _first(self, fits: Callable[[FakeCard], bool]) -> FakeCard:
        self._check()
        for card in self.cards:
            if fits(card):
                return card
        raise NVMLError(6)
