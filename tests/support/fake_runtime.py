"""A device that does as it is told: put in a device process's place by CUZK_TEST_RUNTIME, for faults that real proofs
do not have.

What to do stands in a JSON file beside the witness (`<witness>.todo`): {"seconds": …} proves for that long, "error"
fails, "crash" raises what nobody expects, "memory" runs out of device memory, "die" kills the process ("always", or
once: where a file of that name is not there yet), "block" ignores cancellation. Key and witness are opened and checked
as by the real one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuzk_engine.daemon.runtime import HostUse, KeyState, Order, Outcome, PlanResult, Progress
from cuzk_engine.devices.base import CancelToken, DeviceInfo, EventSink
from cuzk_engine.errors import CuzkError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Kind, Lane, Purpose, Span
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.units import parse_size

CAPACITY = 1 << 30


class FakeRuntime:
    def __init__(self, device: str, options: Mapping[str, Any], sink: EventSink) -> None:
        if os.environ.get("CUZK_TEST_REFUSE"):
            raise CuzkError("the fake device was told to refuse")
        self._device = device
        self._sink = sink
        arena = options["arena"]
        self._capacity = CAPACITY if arena == "auto" else parse_size(arena)
        self._keys: dict[str, int] = {}
        self._tiers: dict[str, str] = {}
        self._budget = 8 << 30 if options["budget"] == "auto" else parse_size(options["budget"])
        self._started = time.monotonic_ns()

    @property
    def info(self) -> DeviceInfo:
        return DeviceInfo(self._device, "cpu", "fake device", self._capacity, "test")

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
            progress("msm", 0.5)
            self._obey(todo, cancel)
        finally:
            self._emit(Allocation(time.monotonic_ns(), self._device, -1000, Purpose.WITNESS, order.worker, order.job))
        end = time.monotonic_ns()
        for kind, lane in ((Kind.EVALUATE, f"host:{order.worker}"), (Kind.LOCK_HELD, Lane.LOCK)):
            self._emit(Span(start, end, self._device, lane, kind, order.job, 0, order.worker))
        settings = json.dumps(dict(order.settings))
        return Outcome(settings, json.dumps([order.worker]), [("evaluate", 2_000_000), ("msm", end - start)])

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

    def plan(self, key_path: str, settings: Mapping[str, str]) -> PlanResult:
        return PlanResult(CAPACITY, 1000, True, {Purpose.WITNESS: 1000})

    def close(self) -> None:
        self._keys.clear()

    def _emit(self, event: Any) -> None:
        self._sink(event)

    def _obey(self, todo: dict[str, Any], cancel: CancelToken) -> None:
        deadline = time.monotonic() + todo.get("seconds", 0.0)
        while time.monotonic() < deadline:
            time.sleep(0.005)
            if not todo.get("block"):
                cancel.check()
        flag = Path(todo["die"]) if todo.get("die") not in (None, "always") else None
        if todo.get("die") == "always" or (flag is not None and not flag.exists()):
            if flag is not None:
                flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "error" in todo:
            raise CuzkError(todo["error"])
        if "crash" in todo:
            raise ZeroDivisionError(todo["crash"])
        if todo.get("memory"):
            raise OutOfDeviceMemoryError(self._device, "msm", 2000, 10, CAPACITY)


def make(device: str, options: Mapping[str, Any], sink: EventSink) -> FakeRuntime:
    return FakeRuntime(device, options, sink)


def _todo(witness: str) -> dict[str, Any]:
    path = Path(witness + ".todo")
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
