"""From the name of a device ("auto", "cpu", "cuda:0") to the device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cuzk_engine.devices.arena import resolve
from cuzk_engine.devices.base import Device, EventSink
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.cuda import probe
from cuzk_engine.errors import CuzkError, UsageError
from cuzk_engine.paths import cache_dir

if TYPE_CHECKING:
    from cuzk_engine.devices.cuda.compiling import Progress

_CUDA: Final = re.compile(r"cuda:(0|[1-9][0-9]{0,3})", re.ASCII)


def check_name(name: str) -> None:
    """Raises UsageError for a name that no device has, CuzkError for one that cannot be used on this machine."""
    if name in ("auto", "cpu"):
        return
    if _CUDA.fullmatch(name) is None:
        raise UsageError(f'device "{name}" is not known, expected auto, cpu or cuda:N')
    why = probe.refusal(int(name.removeprefix("cuda:")), probe.read_driver(), probe.cupy_cuda())
    if why is not None:
        raise CuzkError(f"device {name} cannot be used: {why}")


def usable_cards() -> list[str]:
    """The GPUs of this machine that can be used."""
    return [f"cuda:{number}" for number in probe.usable(probe.read_driver(), probe.cupy_cuda())]


def open_device(
    name: str = "auto",
    sink: EventSink | None = None,
    arena: str = "auto",
    threads: int = 0,
    compiling: Progress | None = None,
) -> Device:
    """The device of that name. ``auto``: the first GPU that can be used, else the CPU. ``arena``: the setting
    ``cpu.arena``. ``compiling`` hears of a GPU's kernels that have to be compiled. Raises UsageError, CuzkError."""
    check_name(name)
    if name == "auto":
        name = next(iter(usable_cards()), "cpu")
    if name == "cpu":
        return CpuDevice(resolve(arena), sink, threads)
    from cuzk_engine.devices.cuda.device import CudaDevice

    return CudaDevice(int(name.removeprefix("cuda:")), cache_dir() / "kernels", sink, progress=compiling)
