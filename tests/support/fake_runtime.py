"""A device that does as it is told: put in a device process's place by CUZK_TEST_RUNTIME, for faults that real proofs
do not have.

What to do stands in a JSON file beside the witness (`<witness>.todo`): {"seconds": …} proves for that long, "error"
fails, "crash" raises what nobody expects, "memory" runs out of device memory (with "reduced": only in modes that were
reduced less than that), "needs" bytes that the device must have, "unverified" makes a proof that does not verify,
"lost" loses the device, "die" kills the process, "stop" has it stand still, "block" ignores cancellation. "unverified",
"lost", "die" and "stop" are "always", or once: where a file of that name is not there yet. Key and witness are opened
and checked as by the real one.

A device does not open while the file exists that the variable CUZK_TEST_BUSY names. The variable CUZK_TEST_OPENING
has, for a device, how many steps of 0.25 s its opening has ("steps"), and whether it never ends ("hang": "always" or
once, as above). Its capacity is that of its place
in the variable CUZK_TEST_CAPACITIES, a JSON list, else that of cpu.arena.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.runtime import HostUse, KeyState, Opening, Order, Outcome, Progress
from cuzk_engine.devices.base import CancelToken, DeviceInfo, EventSink
from cuzk_engine.errors import (
    CuzkError,
    DeviceFaultError,
    DeviceLostError,
    MemoryPlanError,
    OutOfDeviceMemoryError,
    ProofInvalidError,
)
from cuzk_engine.events import Allocation, Holding, Incident, Kind, Lane, Picture, Purpose, Span
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.units import parse_size

CAPACITY = 1 << 30


class NoRoomError(OutOfDeviceMemoryError):
    def __init__(self, device: str, reduced: int) -> None:
        super().__init__(device, "msm", 2000, 10, CAPACITY)
        self.reduced: int | None = reduced + 1


class FakeRuntime:
    def __init__(self, device: str, options: Mapping[str, Any], sink: EventSink, opening: Opening) -> None:
        _open_slowly(opening, **json.loads(os.environ.get("CUZK_TEST_OPENING", "{}")).get(device, {}))
        if os.environ.get("CUZK_TEST_REFUSE"):
            raise CuzkError("the fake device was told to refuse")
        if Path(os.environ.get("CUZK_TEST_BUSY", "/nowhere")).exists():
            raise DeviceFaultError(device, "busy", 46, "all of it is in use")
        self._device = device
        self._sink = sink
        arena = options["arena"]
        self._capacity = CAPACITY if arena == "auto" else parse_size(arena)
        capacities = json.loads(os.environ.get("CUZK_TEST_CAPACITIES", "[]"))
        number = device.partition(":")[2]
        if number and int(number) < len(capacities):
            self._capacity = capacities[int(number)]
        self._threads = options["threads"], options["evaluation_threads"]
        self._keys: dict[str, int] = {}
        self._tiers: dict[str, str] = {}
        self._budget = 8 << 30 if options["budget"] == "auto" else parse_size(options["budget"])
        self._started = time.monotonic_ns()

    @property
    def info(self) -> DeviceInfo:
        kind = self._device.partition(":")[0]
        return DeviceInfo(self._device, kind, "fake device", self._capacity, "test")

    def prove(self, order: Order, progress: Progress, cancel: CancelToken) -> Outcome:
        start = time.monotonic_ns()
        progress("load_key", 0.0)
        key = ZKey.open(order.key_path)
        witness = Witness.open(order.witness_path)
        check_witness(key, witness)
        todo = _todo(order.witness_path)
        self._keys[order.key_path] = key.file_bytes
        self._emit(Allocation(time.monotonic_ns(), self._device, 1000, Purpose.WITNESS, order.worker, order.job))
        try:
            if not todo.get("preparing"):
                progress("msm", 0.5)
            self._obey(order, todo, cancel)
        finally:
            self._emit(Allocation(time.monotonic_ns(), self._device, -1000, Purpose.WITNESS, order.worker, order.job))
        end = time.monotonic_ns()
        for kind, lane in ((Kind.EVALUATE, f"host:{order.worker}"), (Kind.LOCK_HELD, Lane.LOCK)):
            self._emit(Span(start, end, self._device, lane, kind, order.job, order.partition, order.worker))
        told = {"partition": order.partition, "partitions": order.partitions, "reduced": order.reduced}
        where = {"device": self._device, "pid": os.getpid(), "threads": self._threads}
        proof = json.dumps({**dict(order.settings), **told, **where, "witness": order.witness_path})
        public = order.worker.to_bytes(32, "little")
        if "signals" in todo:  # so many of the largest there are
            public = (bytes([order.partition + 1]) * 31 + b"\x20") * todo["signals"]
        return Outcome(proof, public, [("evaluate", 2_000_000), ("msm", end - start)])

    def load_key(self, path: str, settings: Mapping[str, str]) -> bool:
        known = path in self._keys
        self._keys[path] = ZKey.open(path).file_bytes
        self._tiers[path] = "hot" if settings["srs.residency"] == "host" else "warm"
        return known

    def evict_key(self, path: str) -> int | None:
        return self._keys.pop(path, None)

    def loaded_keys(self) -> list[KeyState]:
        return [
            KeyState(path, nbytes, self._tiers.get(path, "warm"), 0, self._started)
            for path, nbytes in list(self._keys.items())
        ]

    def host_use(self) -> HostUse:
        return HostUse(sum(n for path, n in self._keys.items() if self._tiers.get(path) == "hot"), self._budget)

    def plan(self, key_path: str, settings: Mapping[str, str], workers: int) -> MemoryPlanInfo:
        ZKey.open(key_path)
        peak = 2000 if settings["pipeline.prestage"] == "ahead" else 1000
        choices = tuple(
            PlanChoice({"pipeline.prestage": name}, text, size, size * workers, True, size * workers <= self._capacity)
            for name, text, size in (("ahead", "", 2000), ("off", "no upload ahead", 1000))
        )
        return MemoryPlanInfo(
            device=self._device,
            capacity=self._capacity,
            peak=peak,
            fits=peak <= self._capacity,
            by_purpose={Purpose.WITNESS: peak},
            total=peak * workers,
            free=self._capacity - 500,
            others=None if self._device == "cpu" else 500,
            workers=workers,
            stages={"upload": {Purpose.WITNESS: peak}},
            choices=choices,
            chosen=0 if peak == 2000 else 1,
            host_peak=3000,
            host_capacity=1 << 40,
        )

    def close(self) -> None:
        self._keys.clear()

    def _emit(self, event: Any) -> None:
        self._sink(event)

    def _obey(self, order: Order, todo: dict[str, Any], cancel: CancelToken) -> None:
        deadline = time.monotonic() + todo.get("seconds", 0.0)
        while time.monotonic() < deadline:
            time.sleep(0.005)
            if not todo.get("block"):
                cancel.check()
        if _is_due(todo.get("die")):
            os.kill(os.getpid(), signal.SIGKILL)
        if _is_due(todo.get("stop")):
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # another thread may hear of it, this one must not get any further before it does
        if _is_due(todo.get("lost")):
            raise DeviceLostError(self._device, "CUDA_ERROR_ILLEGAL_ADDRESS", 700, "a kernel read where nothing is")
        if _is_due(todo.get("unverified")):
            raise ProofInvalidError("proof did not verify: the test said so")
        if "error" in todo:
            raise CuzkError(todo["error"])
        if "crash" in todo:
            raise ZeroDivisionError(todo["crash"])
        if todo.get("needs", 0) > self._capacity:
            raise MemoryPlanError(self._device, todo["needs"], self._capacity, self._capacity)
        if todo.get("memory") and order.reduced < todo.get("reduced", 1 << 30):
            self._emit(self._incident(order))
            raise NoRoomError(self._device, order.reduced)

    def _incident(self, order: Order) -> Incident:
        holding = Holding(Purpose.WITNESS, order.worker, order.job, 1000)
        picture = Picture(self._capacity, 10, (holding,), purpose=Purpose.MSM, worker=order.worker)
        now = time.monotonic_ns()
        return Incident(now, self._device, "out-of-memory", order.job, "no room", 2000, 10, picture)


def _is_due(when: str | None) -> bool:
    if when in (None, "always"):
        return when is not None
    flag = Path(when)
    if flag.exists():
        return False
    flag.touch()
    return True


def _open_slowly(opening: Opening, steps: int = 0, hang: str | None = None) -> None:
    for number in range(steps):
        opening(f"step {number}")
        time.sleep(0.25)
    if _is_due(hang):
        opening("asking what does not answer")
        time.sleep(600)


def make(device: str, options: Mapping[str, Any], sink: EventSink, opening: Opening) -> FakeRuntime:
    return FakeRuntime(device, options, sink, opening)


def _todo(witness: str) -> dict[str, Any]:
    path = Path(witness + ".todo")
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
