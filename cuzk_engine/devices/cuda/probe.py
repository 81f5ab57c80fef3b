"""Which NVIDIA cards there are, and why one cannot be used: asked of the driver alone, without CuPy and without a
context on any card."""

from __future__ import annotations

import ctypes
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

LEAST_CAPABILITY: Final = (7, 5)
LIBRARY: Final = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NO_DEVICE: Final = 100
_OLD_DRIVER: Final = 35
CPU_INSTEAD: Final = 'prove on the CPU (--device cpu or auto; with the daemon gpus.devices = ["cpu"])'
_NAME_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Card:
    """``capability`` as (9, 0); ``memory`` in bytes, 0 where not known. Of the list that CUDA_VISIBLE_DEVICES
    leaves."""

    capability: tuple[int, int]
    name: str = ""
    uuid: str = ""
    bus_id: str = ""
    memory: int = 0

    @property
    def architecture(self) -> str:
        """As "sm_90"."""
        return "sm_{}{}".format(*self.capability)


@dataclass(frozen=True, slots=True)
class Driver:
    """``version``: the newest CUDA it serves, (major, minor); ``fault``: the code with which it did not start."""

    version: tuple[int, int]
    cards: tuple[Card, ...] = ()
    fault: int = 0


def read_driver(load: Callable[[str], Any] = ctypes.CDLL) -> Driver | None:
    """None: there is no driver."""
    try:
        library = load(LIBRARY)
    except OSError:
        return None
    newest = _ask(library, "cuDriverGetVersion")
    version = (newest // 1000, newest % 1000 // 10)
    fault = int(library.cuInit(0))
    if fault:
        return Driver(version, (), 0 if fault == _NO_DEVICE else fault)
    numbers = (_ask(library, "cuDeviceGet", index) for index in range(_ask(library, "cuDeviceGetCount")))
    return Driver(version, tuple(_card(library, number) for number in numbers))


def _card(library: Any, number: int) -> Card:
    name, bus_id = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_NAME_BYTES)
    uuid, memory = (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    _call(library, "cuDeviceGetName", name, _NAME_BYTES, number)
    _call(library, "cuDeviceGetPCIBusId", bus_id, _NAME_BYTES, number)
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), number)
    has_uuid = _call(library, "cuDeviceGetUuid_v2", uuid, number) or _call(library, "cuDeviceGetUuid", uuid, number)
    return Card(
        (_ask(library, "cuDeviceGetAttribute", _MAJOR, number), _ask(library, "cuDeviceGetAttribute", _MINOR, number)),
        name.value.decode(errors="replace"),
        uuid_text(bytes(uuid)) if has_uuid else "",
        bus_id.value.decode(errors="replace"),
        memory.value,
    )


def uuid_text(raw: bytes) -> str:
    """As nvidia-smi writes it."""
    digits = raw.hex()
    return "-".join(("GPU", digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _ask(library: Any, function: str, *arguments: Any) -> int:
    """A whole number; 0 where the call fails."""
    number = ctypes.c_int()
    return number.value if _call(library, function, ctypes.byref(number), *arguments) else 0


def _call(library: Any, function: str, *arguments: Any) -> bool:
    """False for a call that failed, or that this driver does not have."""
    called = getattr(library, function, None)
    return called is not None and int(called(*arguments)) == 0


def install(extra: str) -> str:
    """The command that installs one of cuzk's extras where cuzk runs: another pip would put it elsewhere, or refuse."""
    return f"{shlex.quote(sys.executable)} -m pip install 'cuzk[{extra}]'"


def cupy_cuda() -> int | None:
    """The major version of CUDA that the installed CuPy is for: 0 when CuPy is missing, None when it does not say."""
    if find_spec("cupy") is None:
        return 0
    from importlib import metadata  # slow to load, and not needed on machines without a GPU

    for major in (13, 12, 11):
        try:
            metadata.version(f"cupy-cuda{major}x")
        except metadata.PackageNotFoundError:
            continue
        return major
    return None


def refusal(number: int, driver: Driver | None, cupy: int | None) -> str | None:
    """Why card ``number`` cannot be used, one sentence with what to do; None where it can. ``cupy`` as ``cupy_cuda``
    gives it."""
    if driver is None:
        return f"no NVIDIA driver was found ({LIBRARY}); install the driver, or {CPU_INSTEAD}"
    if driver.fault and driver.fault != _OLD_DRIVER:
        return f"the NVIDIA driver does not start (code {driver.fault}); see nvidia-smi, or {CPU_INSTEAD}"
    if not driver.cards and not driver.fault:
        return f"the NVIDIA driver sees no card; see nvidia-smi, or {CPU_INSTEAD}"
    if number >= len(driver.cards) and not driver.fault:
        there = ", ".join(f"cuda:{k}" for k in range(len(driver.cards)))
        return f"there is no such card; there is {there}"
    if driver.fault == _OLD_DRIVER or (cupy and driver.version[0] < cupy):
        served = ".".join(map(str, driver.version))
        return (
            f"the NVIDIA driver is too old: it serves CUDA {served}, the installed CuPy needs {cupy or 12}; update the "
            f"driver, or {install('cuda12')} for CUDA 12, or {CPU_INSTEAD}"
        )
    found = driver.cards[number].capability
    if found < LEAST_CAPABILITY:
        have, need = (".".join(map(str, version)) for version in (found, LEAST_CAPABILITY))
        return f"the card has compute capability {have}, {need} or higher is needed; {CPU_INSTEAD}"
    if cupy == 0:
        extra = "cuda13" if driver.version[0] >= 13 else "cuda12"
        return f"CuPy is not installed; {install(extra)}, or {CPU_INSTEAD}"
    return None


def usable(driver: Driver | None, cupy: int | None) -> list[int]:
    """The numbers of the cards that can be used."""
    return [k for k in range(len(driver.cards)) if refusal(k, driver, cupy) is None] if driver is not None else []
