"""Readings of GPUs, taken in a thread a card: whatever NVML does, the daemon's loop waits for none of it.

A card is known by its UUID, or its bus id, and stays known when it has gone: then there are no samples of it, one
warning, one incident, and a look twice a minute whether it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cuzk_engine import nvml
from cuzk_engine.events import EventBatch, Incident, Sample
from cuzk_engine.nvml import CardLostError, Memory, Nvml, NvmlError, Reading
from cuzk_engine.telemetry.pcie_meter import PcieMeter

log = logging.getLogger("cuzk")

SAMPLE_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 30.0
_STALLED_SECONDS: Final = 5.0
_END_SECONDS: Final = 2.0
_MOST_WAITING: Final = 1000  # samples that nobody collects


@dataclass(frozen=True, slots=True)
class Target:
    """A card and the engine's processes on it."""

    uuid: str
    bus_id: str
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """Why there are no readings of a card: "lost", "stalled" or "unreadable", since when, and the reason."""

    kind: str
    since_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """All that was read of a card at one time."""

    time_ns: int
    memory: Memory | None
    processes: dict[int, int | None] | None
    reading: Reading
    pcie_rx: float | None
    pcie_tx: float | None


class GpuSampler:
    """Samples of the cards that ``watch`` names. ``library`` stands for pynvml in tests."""

    def __init__(
        self,
        library: Any = None,
        sample_seconds: float = SAMPLE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        stalled_seconds: float = _STALLED_SECONDS,
    ) -> None:
        self._library = library
        self._sample_seconds, self._retry_seconds = sample_seconds, retry_seconds
        self._stalled_ns = int(stalled_seconds * 1e9)
        self._cards: dict[str, CardThread] = {}
        self._ending: list[CardThread] = []
        self._told: dict[str, str] = {}  # the condition that was last told of, by device

    def watch(self, targets: Mapping[str, Target]) -> None:
        """The cards to read from now on, by device; a device whose process is started again keeps its thread."""
        for device, target in targets.items():
            card = self._cards.get(device)
            if card is None or (card.target.uuid, card.target.bus_id) != (target.uuid, target.bus_id):
                if card is not None:
                    self._let_go(card)
                card = CardThread(device, target, self._library, self._sample_seconds, self._retry_seconds)
                self._cards[device] = card
                card.start()
            card.target = target
        for device in self._cards.keys() - targets.keys():
            self._let_go(self._cards.pop(device))

    def collect(self, batch: EventBatch, ledger: Callable[[str], int]) -> None:
        """Adds what was read since the last call. ``ledger``: bytes in use of a device, as its allocations add up.
        Never waits."""
        for device, card in self._cards.items():
            if looks := card.take():
                pids, used = card.target.pids, ledger(device)
                batch.samples += [sample_of(device, look, pids, used) for look in looks]
            condition = self.condition(device)
            kind = condition.kind if condition is not None else ""
            if kind != self._told.get(device, ""):
                self._told[device] = kind
                self._tell(device, card.target, condition, batch)

    def condition(self, device: str) -> Condition | None:
        """None while readings come."""
        card = self._cards.get(device)
        if card is None:
            return None
        now = time.monotonic_ns()
        if now - card.alive_ns > self._stalled_ns:
            return Condition("stalled", card.alive_ns, "NVML does not answer")
        return card.condition

    def stop(self) -> None:
        """Ends the threads; one that hangs in NVML is left to end with the process."""
        self.watch({})
        end = time.monotonic() + _END_SECONDS
        for card in self._ending:
            card.join(max(0.0, end - time.monotonic()))
        self._ending.clear()

    def _let_go(self, card: CardThread) -> None:
        card.stop()
        self._ending = [*(other for other in self._ending if other.is_alive()), card]

    def _tell(self, device: str, target: Target, condition: Condition | None, batch: EventBatch) -> None:
        name = f"{device} ({target.uuid or target.bus_id})"
        if condition is None:
            log.info("%s can be read again", name)
            return
        log.warning("%s: no readings: %s", name, condition.reason)
        if condition.kind == "lost":
            message = f"{name} has gone: {condition.reason}"
            batch.incidents.append(Incident(condition.since_ns, device, "device-lost", "", message))


class CardThread(threading.Thread):
    """Reads one card until it is stopped."""

    def __init__(self, device: str, target: Target, library: Any, sample_seconds: float, retry_seconds: float) -> None:
        super().__init__(name=f"nvml {device}", daemon=True)
        self.target = target
        self.condition: Condition | None = None
        self.alive_ns = time.monotonic_ns()  # when NVML last answered, or was not asked
        self._library = library
        self._sample_seconds, self._retry_seconds = sample_seconds, retry_seconds
        self._lock = threading.Lock()
        self._looks: list[Look] = []
        self._stopping = threading.Event()
        self._was_there = False

    def take(self) -> list[Look]:
        with self._lock:
            looks, self._looks = self._looks, []
        return looks

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_on()
            except CardLostError as error:
                self._fail("lost", str(error))
            except NvmlError as error:
                self._fail("unreadable", str(error))
            except Exception as error:  # a library of another kind than was thought of
                self._fail("unreadable", f"{type(error).__name__}: {' '.join(str(error).split())}")
            self._rest()

    def _read_on(self) -> None:
        """Until the card, or NVML, gives up."""
        library = Nvml.open(self._library)
        try:
            handle = library.find(self.target.uuid, self.target.bus_id)
            if handle is None:
                if self._was_there:
                    raise CardLostError("NVML does not list the card any more")
                raise NvmlError("NVML does not know the card")
            meter = PcieMeter(library.link_bytes(handle))
            due = time.monotonic()
            while True:
                meter.add(library.counters(handle))
                if time.monotonic() >= due:
                    self._keep(self._look(library, handle, meter))
                    due = max(due + self._sample_seconds, time.monotonic())
                self.alive_ns = time.monotonic_ns()
                wait = meter.period if meter.counts else max(0.0, due - time.monotonic())
                if self._stopping.wait(min(wait, self._sample_seconds)):
                    return
        finally:
            library.close()

    def _look(self, library: Nvml, handle: Any, meter: PcieMeter) -> Look:
        memory, reading = library.memory(handle), library.read(handle)
        rx, tx = meter.rates()
        look = Look(time.monotonic_ns(), memory, library.processes(handle), reading, rx, tx)
        if memory is None and reading == NOTHING and look.processes is None and not meter.counts:
            raise NvmlError("NVML gives no values any more (in a container: access to the card may be lost)")
        return look

    def _keep(self, look: Look) -> None:
        self.condition, self._was_there = None, True
        with self._lock:
            self._looks = [*self._looks[-_MOST_WAITING + 1 :], look]

    def _fail(self, kind: str, reason: str) -> None:
        before = self.condition
        since = before.since_ns if before is not None and before.kind == kind else time.monotonic_ns()
        self.condition = Condition(kind, since, reason)

    def _rest(self) -> None:
        end = time.monotonic() + self._retry_seconds
        while not self._stopping.is_set() and (left := end - time.monotonic()) > 0:
            self.alive_ns = time.monotonic_ns()
            self._stopping.wait(min(left, 1.0))


NOTHING: Final = Reading(None, None, None, None, None)


def sample_of(device: str, look: Look, pids: Collection[int], used: int) -> Sample:
    """``used``: the ledger's bytes. What the engine's process holds beyond them is memory that the driver's pool
    keeps."""
    memory, reading = look.memory, look.reading
    own = own_bytes(look.processes, pids, used)
    return Sample(
        look.time_ns,
        device,
        memory_used=used,
        memory_reserved=None if own is None else max(0, own - used),
        memory_other=None if memory is None or own is None else max(0, memory.used - own),
        memory_capacity=None if memory is None else memory.total,
        pcie_rx=look.pcie_rx,
        pcie_tx=look.pcie_tx,
        utilisation=reading.utilisation,
        power=reading.power,
        clock=reading.clock,
        temperature=reading.temperature,
        throttle=reading.throttle,
    )


def own_bytes(processes: Mapping[int, int | None] | None, pids: Collection[int], used: int) -> int | None:
    """What the engine's processes hold on a card; None where that cannot be told. In a container NVML's numbers are
    the machine's: then the engine is the only one that is not visible here, if there is only one."""
    if processes is None:
        return None
    if not processes:
        return 0 if used == 0 else None
    seen = [processes[pid] for pid in pids if pid in processes]
    if not seen and used:
        hidden = [nbytes for pid, nbytes in processes.items() if not nvml.process_name(pid)]
        seen = hidden if len(hidden) == 1 else [None]
    known = [nbytes for nbytes in seen if nbytes is not None]
    return sum(known) if len(known) == len(seen) else None
