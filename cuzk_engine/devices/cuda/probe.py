"""Which NVIDIA cards there are, and why one cannot be used: asked of the driver alone, without CuPy and without a
context on any card."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

LEAST_CAPABILITY: Final = (7, 5)
_LIBRARY: Final = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NO_DEVICE: Final = 100
_OLD_DRIVER: Final = 35
_CPU_INSTEAD: Final = "choose --device cpu or auto"


@dataclass(frozen=True, slots=True)
class Driver:
    """``version``: the newest CUDA it serves, (major, minor); ``cards``: their compute capabilities; ``fault``: the
    code with which it did not start."""

    version: tuple[int, int]
    cards: tuple[tuple[int, int], ...] = ()
    fault: int = 0


def read_driver(load: Callable[[str], Any] = ctypes.CDLL) -> Driver | None:
    """None: there is no driver."""
    try:
        library = load(_LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int()

    def ask(function: str, *arguments: Any) -> int:
        code = getattr(library, function)(ctypes.byref(number), *arguments)
        return 0 if code else number.value

    newest = ask("cuDriverGetVersion")
    version = (newest // 1000, newest % 1000 // 10)
    fault = int(library.cuInit(0))
    if fault:
        return Driver(version, (), 0 if fault == _NO_DEVICE else fault)
    cards = []
    for index in range(ask("cuDeviceGetCount")):
        card = ask("cuDeviceGet", index)
        cards.append((ask("cuDeviceGetAttribute", _MAJOR, card), ask("cuDeviceGetAttribute", _MINOR, card)))
    return Driver(version, tuple(cards))


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
        return f"no NVIDIA driver was found ({_LIBRARY}); install the driver, or {_CPU_INSTEAD}"
    if driver.fault and driver.fault != _OLD_DRIVER:
        return f"the NVIDIA driver does not start (code {driver.fault}); see nvidia-smi, or {_CPU_INSTEAD}"
    if not driver.cards and not driver.fault:
        return f"the NVIDIA driver sees no card; see nvidia-smi, or {_CPU_INSTEAD}"
    if number >= len(driver.cards) and not driver.fault:
        there = ", ".join(f"cuda:{k}" for k in range(len(driver.cards)))
        return f"there is no such card; there is {there}"
    if driver.fault == _OLD_DRIVER or (cupy and driver.version[0] < cupy):
        served = ".".join(map(str, driver.version))
        return (
            f"the NVIDIA driver is too old: it serves CUDA {served}, the installed CuPy needs {cupy or 12}; update the "
            f"driver, install cuzk[cuda12] for CUDA 12, or {_CPU_INSTEAD}"
        )
    found = driver.cards[number]
    if found < LEAST_CAPABILITY:
        have, need = (".".join(map(str, version)) for version in (found, LEAST_CAPABILITY))
        return f"the card has compute capability {have}, {need} or higher is needed; {_CPU_INSTEAD}"
    if cupy == 0:
        extra = "cuda13" if driver.version[0] >= 13 else "cuda12"
        return f"CuPy is not installed; pip install 'cuzk[{extra}]', or {_CPU_INSTEAD}"
    return None


def usable(driver: Driver | None, cupy: int | None) -> list[int]:
    """The numbers of the cards that can be used."""
    return [k for k in range(len(driver.cards)) if refusal(k, driver, cupy) is None] if driver is not None else []


@dataclass(frozen=True, slots=True)
class CardName:
    """What else a card is called; "" where the driver does not say. ``uuid``: "GPU-…"; ``bus_id``: "0000:3b:00.0"."""

    uuid: str = ""
    bus_id: str = ""


def card_names(load: Callable[[str], Any] = ctypes.CDLL) -> list[CardName]:
    """Of the cards that CUDA numbers, in its order: that which CUDA_VISIBLE_DEVICES makes."""
    driver = read_driver(load)
    if driver is None or not driver.cards:
        return []
    library = load(_LIBRARY)
    return [_card_name(library, number) for number in range(len(driver.cards))]


def _card_name(library: Any, number: int) -> CardName:
    card, uuid, bus_id = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
    if library.cuDeviceGet(ctypes.byref(card), number):
        return CardName()
    has_uuid = library.cuDeviceGetUuid_v2(uuid, card) == 0
    raw = bytes(uuid).hex() if has_uuid else ""
    named = library.cuDeviceGetPCIBusId(bus_id, len(bus_id), card) == 0
    return CardName(
        "-".join(("GPU", raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])) if raw else "",
        bus_id.value.decode("ascii", "replace").lower() if named else "",
    )
