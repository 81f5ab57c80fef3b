"""What NVIDIA's management library (NVML) says of the cards, through nvidia-ml-py.

Every value may be missing: a card without a sensor, an old library, a container. Missing is None, never zero. A card is
found by its UUID or its bus id, never by NVML's number, which is another than CUDA's and moves when a card falls off
the bus. A call may hang where a card has died, so callers keep to threads of their own, or to ``within``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cuzk_engine.events import OtherProcess

T = TypeVar("T")

ANSWER_SECONDS: Final = 5.0
_BUS_ID: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.ASCII)
_COUNTER_BITS: Final = 32
_PCIE_TX_BYTES, _PCIE_RX_BYTES = 197, 198  # NVML_FI_DEV_PCIE_COUNT_*
_INIT_NAMESPACE: Final = 0xEFFFFFFC  # inode of the pid namespace of the machine itself

# Codes after which nothing else of a card, or of the library, can be asked. The last one may be of one call alone.
_LOST: Final = {15: "the GPU is lost", 16: "the GPU needs a reset"}
_BROKEN: Final = {
    1: "NVML was shut down",
    9: "NVML says that the driver is not loaded",
    12: "NVML's library libnvidia-ml.so.1 was not found",
    18: "NVML's library and the kernel's module are of different versions (after an update: restart the machine)",
    999: "NVML fails for an unknown reason (in a container: it may have lost access to the card; restart it)",
}
_UNKNOWN: Final = 999
_FINDERS: Final = ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetCount")
_CLASSES: Final = {
    "NVMLError_LibraryNotFound": 12,
    "NVMLError_DriverNotLoaded": 9,
    "NVMLError_LibRmVersionMismatch": 18,
    "NVMLError_Uninitialized": 1,
    "NVMLError_Unknown": 999,
    "NVMLError_GpuIsLost": 15,
}

THROTTLE_REASONS: Final = {
    0x2: "user-clocks",
    0x4: "power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "software-thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
"""Names of the bits that keep a card's clock down; that it is idle (bit 0) is not one of them."""

_LANE_BYTES: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.88e9, 7: 15.8e9}
_FASTEST: Final = 16 * _LANE_BYTES[6]


class NvmlError(Exception):
    """NVML cannot be used; the text says why."""


class CardLostError(NvmlError):
    """This card has gone; NVML itself may still answer for others."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. ``reserved``: the driver's own, in neither of ``used`` and ``free``; None where ``used`` holds it."""

    total: int
    used: int
    free: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Share of time 0…1, watts, MHz, °C; ``throttle``: names of THROTTLE_REASONS with commas, "" for none."""

    utilisation: float | None
    power: float | None
    clock: float | None
    temperature: float | None
    throttle: str | None


@dataclass(frozen=True, slots=True)
class Counters:
    """PCIe bytes to (``rx``) and from (``tx``) the card, modulo 2^32; read between two times of CLOCK_MONOTONIC."""

    began_ns: int
    ended_ns: int
    rx: int
    tx: int


@dataclass(frozen=True, slots=True)
class Card:
    """``number``: as NVML and nvidia-smi count; ``instances``: UUIDs of MIG instances."""

    number: int
    name: str
    uuid: str
    bus_id: str
    memory: Memory | None = None
    mig: bool | None = None
    instances: tuple[str, ...] = ()


class Nvml:
    """An open NVML. Methods raise NvmlError when it does not work any more, CardLostError for a card that has gone.
    ``library`` is pynvml, or what stands for it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls, library: Any = None) -> Nvml:
        """Raises NvmlError."""
        library = library or _pynvml()
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise NvmlError(describe(error)) from error
        return cls(library)

    def close(self) -> None:
        self._ask("nvmlShutdown", fatal=False)

    # ---- which cards ----

    def driver_version(self) -> str:
        return _text(self._ask("nvmlSystemGetDriverVersion") or "")

    def cuda_version(self) -> int:
        """As 13000; 0 where not known."""
        return int(self._ask("nvmlSystemGetCudaDriverVersion_v2") or 0)

    def cards(self) -> tuple[Card, ...]:
        """All that NVML lists now; a card that answers nothing is left out."""
        found = []
        for number in range(int(self._ask("nvmlDeviceGetCount") or 0)):
            try:
                handle = self._ask("nvmlDeviceGetHandleByIndex", number)
                if handle is not None:
                    found.append(self._card(number, handle))
            except CardLostError:
                continue
        return tuple(found)

    def find(self, uuid: str, bus_id: str) -> Any | None:
        """The handle of a card, or of a MIG instance; None for one that is not there."""
        names = [uuid, uuid.replace("GPU-", "MIG-", 1)] if uuid else []
        for name in dict.fromkeys(names):
            handle = self._ask("nvmlDeviceGetHandleByUUID", name)
            if handle is not None:
                return handle
        return self._ask("nvmlDeviceGetHandleByPciBusId", bus_id) if bus_id else None

    def _card(self, number: int, handle: Any) -> Card:
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        mig = None if mode is None else bool(mode[0])
        pci = self._ask("nvmlDeviceGetPciInfo", handle)
        return Card(
            number,
            _text(self._ask("nvmlDeviceGetName", handle) or ""),
            _text(self._ask("nvmlDeviceGetUUID", handle) or ""),
            normal_bus_id(_text(pci.busId)) if pci is not None else "",
            self.memory(handle),
            mig,
            self._instances(handle) if mig else (),
        )

    def _instances(self, handle: Any) -> tuple[str, ...]:
        found = []
        for index in range(int(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if instance is not None:
                found.append(_text(self._ask("nvmlDeviceGetUUID", instance) or ""))
        return tuple(found)

    # ---- what a card says ----

    def memory(self, handle: Any) -> Memory | None:
        version = getattr(self._library, "nvmlMemory_v2", None)
        info = None if version is None else self._ask("nvmlDeviceGetMemoryInfo", handle, version)
        if info is None:
            info = self._ask("nvmlDeviceGetMemoryInfo", handle)
        if info is None or not int(info.total):
            return None
        reserved = getattr(info, "reserved", None)
        return Memory(int(info.total), int(info.used), int(info.free), None if reserved is None else int(reserved))

    def processes(self, handle: Any) -> dict[int, int | None] | None:
        """Bytes of each process on the card by its pid, as NVML numbers them; None where it cannot tell."""
        found: dict[int, int | None] = {}
        answered = False
        for kind in ("Compute", "Graphics", "MPSCompute"):
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses", handle)
            answered |= listed is not None
            for process in listed or ():
                nbytes = process.usedGpuMemory
                known = None if nbytes is None or not 0 <= int(nbytes) < 1 << 62 else int(nbytes)
                found[int(process.pid)] = max(found.get(int(process.pid)) or 0, known) if known is not None else None
        return found if answered else None

    def read(self, handle: Any) -> Reading:
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        share = None if rates is None or not 0 <= rates.gpu <= 100 else rates.gpu / 100
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        clock = self._ask("nvmlDeviceGetClockInfo", handle, self._constant("NVML_CLOCK_SM", 1))
        degrees = self._ask("nvmlDeviceGetTemperature", handle, self._constant("NVML_TEMPERATURE_GPU", 0))
        return Reading(
            share,
            None if power is None else power / 1000,
            None if not clock else float(clock),
            None if degrees is None else float(degrees),
            self._throttle(handle),
        )

    def counters(self, handle: Any) -> Counters | None:
        """The two counters together, in one call."""
        began = time.monotonic_ns()
        values = self._ask("nvmlDeviceGetFieldValues", handle, [_PCIE_RX_BYTES, _PCIE_TX_BYTES])
        ended = time.monotonic_ns()
        if values is None or any(value.nvmlReturn for value in values):
            return None
        rx, tx = (_field(value) % (1 << _COUNTER_BITS) for value in values)
        return Counters(began, ended, rx, tx)

    def link_bytes(self, handle: Any) -> float:
        """Most bytes a second that the card's PCIe link can carry in one direction; that of the fastest link where it
        is not known."""
        generation = self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        width = self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        lane = _LANE_BYTES.get(int(generation or 0))
        return int(width) * lane if lane and width else _FASTEST

    def _throttle(self, handle: Any) -> str | None:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return None
        return ",".join(name for bit, name in THROTTLE_REASONS.items() if int(bits) & bit)

    # ---- inside ----

    def _constant(self, name: str, value: int) -> int:
        return int(getattr(self._library, name, value))

    def _ask(self, function: str, *arguments: Any, fatal: bool = True) -> Any:
        """None for what this card or this library does not have."""
        called = getattr(self._library, function, None)
        if called is None:
            return None
        try:
            return called(*arguments)
        except self._library.NVMLError as error:
            code = _code(error)
            if not fatal:
                return None
            if code in _LOST:
                raise CardLostError(f"NVML says that {_LOST[code]} ({code})") from error
            if code in _BROKEN and (code != _UNKNOWN or function in _FINDERS):
                raise NvmlError(describe(error)) from error
            return None


class Asker:
    """Has NVML asked in a thread of its own, and waits for the answer only so long. As long as one question hangs, the
    next ones fail at once, so that no threads pile up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None]
        self._questions = queue.SimpleQueue()
        self._hangs = False

    def ask(self, seconds: float, question: Callable[[], T]) -> T:
        """What ``question`` gives or raises; NvmlError when that takes too long."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if self._hangs:
                raise NvmlError("NVML does not answer")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
                self._thread.start()
            self._hangs = True
            self._questions.put((question, answers))
        try:
            succeeded, result = answers.get(timeout=seconds)
        except queue.Empty:
            raise NvmlError(f"NVML does not answer ({seconds:g} s)") from None
        if not succeeded:
            raise result
        value: T = result
        return value

    def close(self) -> None:
        self._questions.put(None)

    def _serve(self) -> None:
        while (asked := self._questions.get()) is not None:
            question, answers = asked
            try:
                answer = (True, question())
            except BaseException as error:
                answer = (False, error)
            self._hangs = False
            answers.put(answer)


class CardView:
    """One card for one process, as long as it lives: opened when first asked, never waited for longer than
    ``seconds``, and left alone for half a minute after a fault. Safe from any thread; ``close`` ends it."""

    _REST_SECONDS: Final = 30.0

    def __init__(self, uuid: str, bus_id: str, seconds: float = 1.0, library: Any = None) -> None:
        self._uuid, self._bus_id, self._seconds, self._given = uuid, bus_id, seconds, library
        self._asker = Asker()
        self._lock = threading.Lock()
        self._nvml: Nvml | None = None
        self._rest_until = 0.0

    def memory(self) -> Memory | None:
        """None where it cannot be told now."""
        return self._with_card(lambda nvml, handle: nvml.memory(handle))

    def others(self, own_pids: Collection[int]) -> tuple[OtherProcess, ...] | None:
        """Programs besides ``own_pids``, most memory first; None where it cannot be told now."""

        def look(nvml: Nvml, handle: Any) -> tuple[OtherProcess, ...] | None:
            found = nvml.processes(handle)
            return None if found is None else others(found, own_pids)

        return self._with_card(look)

    def close(self) -> None:
        with self._lock, contextlib.suppress(NvmlError):
            self._rest_until = float("inf")
            self._asker.ask(self._seconds, self._shut)
        self._asker.close()

    def _with_card(self, question: Callable[[Nvml, Any], T | None]) -> T | None:
        with self._lock:
            if time.monotonic() < self._rest_until:
                return None
            try:
                return self._asker.ask(self._seconds, lambda: self._look(question))
            except NvmlError:
                self._rest_until = time.monotonic() + self._REST_SECONDS
                return None

    # In the asker's thread.

    def _look(self, question: Callable[[Nvml, Any], T | None]) -> T | None:
        if self._nvml is None:
            self._nvml = Nvml.open(self._given)
        try:
            handle = self._nvml.find(self._uuid, self._bus_id)
            return None if handle is None else question(self._nvml, handle)
        except NvmlError:
            self._shut()
            raise

    def _shut(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = None


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        raise NvmlError("nvidia-ml-py is not installed") from None
    return pynvml


def within(seconds: float, question: Callable[[], T]) -> T:
    """One question by an asker of its own."""
    asker = Asker()
    try:
        return asker.ask(seconds, question)
    finally:
        asker.close()


def others(processes: dict[int, int | None], own_pids: Collection[int]) -> tuple[OtherProcess, ...]:
    """Those of ``Nvml.processes`` that are not the engine's, most memory first."""
    found = [OtherProcess(pid, process_name(pid), n) for pid, n in processes.items() if pid not in own_pids]
    return tuple(sorted(found, key=lambda process: -(process.bytes or 0)))


def process_name(pid: int, proc: Path = Path("/proc")) -> str:
    """ "" for a process that is not visible here. NVML counts in the machine's numbers: in a container the same number
    is another process, unless that has a card open, too."""
    folder = proc / str(pid)
    try:
        if (proc / "self/ns/pid").stat().st_ino != _INIT_NAMESPACE and not _has_card_open(folder):
            return ""
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _has_card_open(folder: Path) -> bool:
    return any(os.readlink(link).startswith("/dev/nvidia") for link in (folder / "fd").iterdir())


def bus_id(text: str) -> str | None:
    """ "00000000:1b:00.0" whichever way it is written: CUDA has four digits of domain, NVML eight, people none and no
    function. None for what is no bus id."""
    match = _BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:08x}:{bus:02x}:{device:02x}.{function:x}"


def normal_bus_id(text: str) -> str:
    """The same; what is no bus id stays as it is."""
    return bus_id(text) or text.strip().lower()


def describe(error: Any) -> str:
    """Why NVML does not work, for people."""
    named = {"NVMLError_NoPermission": "NVML may not be used by this user", "NVMLError_NotFound": "no device was found"}
    return _BROKEN.get(_code(error)) or named.get(type(error).__name__) or f"NVML fails: {error}"


def _code(error: Any) -> int:
    value = getattr(error, "value", None)
    return int(value) if isinstance(value, int) else _CLASSES.get(type(error).__name__, -1)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _field(value: Any) -> int:
    """Of whatever type NVML says that it is: double, unsigned int, long, long long, signed long long."""
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal")
    kind = int(value.valueType)
    return int(getattr(value.value, names[kind] if kind < len(names) else "ullVal"))
