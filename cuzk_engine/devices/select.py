"""From the name of a device ("auto", "cpu", "cuda:0") to the device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cuzk_engine.devices.arena import host_budget, resolve
from cuzk_engine.devices.base import Device, EventSink
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.host import HostMemory
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
    host: HostMemory | None = None,
    compiling: Progress | None = None,
) -> Device:
    """The device of that name. ``auto``: the first GPU that can be used, else the CPU. ``arena``: the setting
    ``cpu.arena``. ``host``: the host's memory, one a process; None: a new one with the machine's budget. ``compiling``
    hears of a GPU's kernels that have to be compiled. Raises UsageError, CuzkError."""
    name = resolve_name(name)
    if host is None:
        host = HostMemory(host_budget().nbytes, sink, device=name, threads=threads)
    if name == "cpu":
        return CpuDevice(resolve(arena), sink, threads, host)
    from cuzk_engine.devices.cuda.device import CudaDevice
    from cuzk_engine.devices.cuda.limit import read_limit

    number = int(name.removeprefix("cuda:"))
    return CudaDevice(number, cache_dir() / "kernels", sink, read_limit(), host, progress=compiling)


def resolve_name(name: str) -> str:
    """The name without "auto". Raises UsageError, CuzkError."""
    check_name(name)
    return next(iter(usable_cards()), "cpu") if name == "auto" else name
