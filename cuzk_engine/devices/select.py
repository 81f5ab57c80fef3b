"""From the name of a device ("auto", "cpu", "cuda:0") to the device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cuzk_engine.devices.arena import host_budget, resolve
from cuzk_engine.devices.base import Device, EventSink
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Card, Driver
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.scheduling import drive_a_gpu
from cuzk_engine.errors import CuzkError, UsageError
from cuzk_engine.paths import cache_dir

if TYPE_CHECKING:
    from cuzk_engine.devices.cuda.compiling import Progress

_CUDA: Final = re.compile(r"cuda:(0|[1-9][0-9]{0,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which devices can be used: the driver, and the CUDA that CuPy is for (`probe.cupy_cuda`)."""

    driver: Driver | None
    cupy: int | None

    @classmethod
    def read(cls) -> Machine:
        return cls(probe.read_driver(), probe.cupy_cuda())

    @property
    def cards(self) -> tuple[Card, ...]:
        return () if self.driver is None else self.driver.cards

    def usable(self) -> list[str]:
        """The GPUs that can be used."""
        return [f"cuda:{number}" for number in probe.usable(self.driver, self.cupy)]

    def refusal(self, number: int) -> str | None:
        """Why a GPU cannot be used; None where it can."""
        return probe.refusal(number, self.driver, self.cupy)

    def check(self, name: str) -> None:
        """Raises UsageError for a name that no device has, CuzkError for one that cannot be used on this machine."""
        if name in ("auto", "cpu"):
            return
        if _CUDA.fullmatch(name) is None:
            raise UsageError(f'device "{name}" is not known, expected auto, cpu or cuda:N')
        why = self.refusal(int(name.removeprefix("cuda:")))
        if why is not None:
            raise CuzkError(f"device {name} cannot be used: {why}")


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

    drive_a_gpu()
    number = int(name.removeprefix("cuda:"))
    return CudaDevice(number, cache_dir() / "kernels", sink, read_limit(), host, progress=compiling)


def resolve_name(name: str) -> str:
    """The name without "auto". Raises UsageError, CuzkError."""
    if name == "cpu":
        return name
    machine = Machine.read()
    machine.check(name)
    return next(iter(machine.usable()), "cpu") if name == "auto" else name
