"""From the name of a device ("auto", "cpu", "cuda:0") to the device."""

from __future__ import annotations

import re
from typing import Final

from cuzk_engine.devices.arena import resolve
from cuzk_engine.devices.base import Device, EventSink
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.errors import CuzkError, UsageError

_CUDA: Final = re.compile(r"cuda:(0|[1-9][0-9]{0,3})", re.ASCII)


def check_name(name: str) -> None:
    """Raises UsageError for a name that no device has, CuzkError for one that this build cannot serve."""
    if name in ("auto", "cpu"):
        return
    if _CUDA.fullmatch(name) is None:
        raise UsageError(f'device "{name}" is not known, expected auto, cpu or cuda:N')
    why = "this version proves on the CPU only, it has no CUDA backend"
    from importlib.util import find_spec

    if find_spec("cupy") is None:
        why += ", and CuPy is not installed"
    raise CuzkError(f"device {name} cannot be used: {why}; choose --device cpu or auto")


def open_device(name: str = "auto", sink: EventSink | None = None, arena: str = "auto", threads: int = 0) -> Device:
    """The device of that name. ``auto``: the CPU, where there is no other. ``arena``: the setting ``cpu.arena``."""
    check_name(name)
    return CpuDevice(resolve(arena), sink, threads)
