"""What the driver's management library tells of a card, and which card a number is: by bus id, so that nothing depends
on how the two libraries count."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import DeviceInfo
from cuzk_engine.events import OtherProcess

log = logging.getLogger(__name__)

T = TypeVar("T")
_SLACK: Final = 512 << 20  # between what a process counts as its own and what the library says of it


class Card:
    """One card in the management library; everything is None where that cannot tell."""

    def __init__(self, bus_id: str) -> None:
        self._bus_id = bus_id
        self._nvml: Any = None
        self._handle: Any = None
        self._ask("knows", self._open)

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            self._ask("lets go of", nvml.nvmlShutdown)

    def free_bytes(self) -> int | None:
        """Free memory, also before this process has a context."""
        if self._nvml is None:
            return None
        return self._ask("tells the free memory of", lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).free))

    def others(self, own: int, proc: Path = Path("/proc")) -> tuple[OtherProcess, ...] | None:
        """The other programs that hold memory, largest first. In a container the library may know this process by a
        number that is not its own: it is then the one that is not visible and holds about ``own`` bytes."""
        if self._nvml is None:
            return None
        found = self._ask("lists the processes of", self._processes)
        if found is None:
            return None
        others = {pid: nbytes for pid, nbytes in found.items() if pid != os.getpid()}
        if len(others) == len(found):
            hidden = {pid: n for pid, n in others.items() if n is not None and not (proc / str(pid)).exists()}
            nearest = min(hidden, key=lambda pid: abs(hidden[pid] - own), default=None)
            if nearest is not None and abs(hidden[nearest] - own) <= _SLACK:
                del others[nearest]
        rows = [OtherProcess(pid, _name(proc, pid), nbytes) for pid, nbytes in others.items()]
        return tuple(sorted(rows, key=lambda row: (-(row.bytes or 0), row.pid)))

    def _open(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(self._bus_id)
        self._nvml = pynvml

    def _processes(self) -> dict[int, int | None]:
        nvml, found = self._nvml, {}
        for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in ask(self._handle):
                used = process.usedGpuMemory
                found[int(process.pid)] = None if used is None else int(used)
        return found

    def _ask(self, what: str, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except Exception as error:  # a missing library, a driver without it, a bus id it does not know
            log.debug("NVML no longer %s %s: %s", what, self._bus_id, error)
            return None


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def describe(number: int, capacity: int, source: str, parallel: int) -> DeviceInfo:
    """The current device, which is ``number`` as the driver counts."""
    properties = runtime.getDeviceProperties(number)
    raw = bytes(properties["uuid"])[:16].hex()
    uuid = "-".join(("GPU", raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))
    device = cupy.cuda.Device(number)
    return DeviceInfo(
        id=f"cuda:{number}",
        kind="cuda",
        name=properties["name"].decode(errors="replace"),
        capacity=capacity,
        capacity_source=source,
        isa=f"sm_{device.compute_capability}",
        uuid=uuid,
        bus_id=str(device.pci_bus_id),
        inert_settings=("pipeline.double_buffer",),
        parallel_launches=parallel,
    )
