"""Which card a number is, and what the driver's management library tells of it."""

from __future__ import annotations

import os
from typing import Any, Final

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import DeviceInfo
from cuzk_engine.devices.cuda.probe import uuid_text
from cuzk_engine.events import OtherProcess
from cuzk_engine.nvml import CardView

_SLACK: Final = 512 << 20  # between what a process counts as its own and what the library says of it


def view(number: int) -> CardView:
    """Card ``number`` as the driver counts."""
    return CardView(_uuid(number), str(cupy.cuda.Device(number).pci_bus_id))


def others(card: CardView, own: int) -> tuple[OtherProcess, ...] | None:
    """The other programs that hold memory, largest first; None where that cannot be told. In a container the library
    may know this process by a number that is not its own: it is then one without a name that holds about ``own``
    bytes."""
    found = card.others(())
    if found is None:
        return None
    rest = tuple(process for process in found if process.pid != os.getpid())
    if len(rest) < len(found):
        return rest
    hidden = [process for process in rest if not process.name and process.bytes is not None]
    mine = min(hidden, key=lambda process: abs((process.bytes or 0) - own), default=None)
    if mine is None or abs((mine.bytes or 0) - own) > _SLACK:
        return rest
    return tuple(process for process in rest if process is not mine)


def describe(number: int, capacity: int, source: str, parallel: int) -> DeviceInfo:
    """The current device, which is ``number`` as the driver counts."""
    device = cupy.cuda.Device(number)
    return DeviceInfo(
        id=f"cuda:{number}",
        kind="cuda",
        name=_properties(number)["name"].decode(errors="replace"),
        capacity=capacity,
        capacity_source=source,
        isa=f"sm_{device.compute_capability}",
        uuid=_uuid(number),
        bus_id=str(device.pci_bus_id),
        page_locks=True,
        parallel_launches=parallel,
    )


def _properties(number: int) -> dict[str, Any]:
    found: dict[str, Any] = runtime.getDeviceProperties(number)
    return found


def _uuid(number: int) -> str:
    return uuid_text(bytes(_properties(number)["uuid"])[:16])
