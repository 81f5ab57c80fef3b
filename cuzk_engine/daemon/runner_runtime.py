"""The runtime of a device process: one device, its runner and its loaded keys."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from cuzk_engine.daemon.runtime import KeyState, Order, Outcome, PlanResult, Progress
from cuzk_engine.devices.base import CancelToken, Device, DeviceInfo, EventSink, Owner
from cuzk_engine.devices.cuda.compiling import progress_text
from cuzk_engine.devices.select import open_device
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.source import FileIdentity
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import CircuitSizes
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner


class _Phases(threading.local):
    """The progress of the job that this thread works on, for what the device tells without knowing of jobs."""

    progress: Progress | None = None
    share = 0.0

    def of_this_thread(self, progress: Progress) -> Progress:
        self.progress, self.share = progress, 0.0

        def report(phase: str, share: float) -> None:
            self.share = share
            progress(phase, share)

        return report

    def compiling(self, architecture: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(progress_text(architecture, done, total), self.share)


class RunnerRuntime:
    """See DeviceRuntime."""

    def __init__(self, device: Device, sink: EventSink, threads: int, phases: _Phases | None = None) -> None:
        self._device = device
        self._phases = phases or _Phases()
        self._keys = KeyCache(threads=threads)
        self._runner = Runner(device, self._keys, sink, threads)

    @classmethod
    def open(cls, name: str, options: Mapping[str, Any], sink: EventSink) -> RunnerRuntime:
        """Raises CuzkError."""
        threads, phases = int(options["threads"]), _Phases()
        return cls(open_device(name, sink, options["arena"], threads, phases.compiling), sink, threads, phases)

    @property
    def info(self) -> DeviceInfo:
        return self._device.info

    def prove(self, order: Order, progress: Progress, cancel: CancelToken) -> Outcome:
        identity = FileIdentity.of(order.key_path)
        if order.key_identity and identity is not None and astuple(identity) != order.key_identity:
            raise CuzkError(
                f"{order.key_path}: the key changed after the job was accepted; submit the job again for the new key"
            )
        outcome = self._runner.prove(
            order.key_path,
            order.witness_path,
            Owner(order.job, 0, order.worker),
            pipeline_settings(order.settings),
            self._phases.of_this_thread(progress),
            cancel,
        )
        return Outcome(outcome.proof.to_json(), outcome.public.to_json(), list(outcome.phases.items()))

    def load_key(self, path: str) -> bool:
        known = any(key.path == path and key.is_unchanged() for key in self._keys.loaded())
        self._keys.get(path)
        return known

    def evict_key(self, path: str) -> int | None:
        found = next((key for key in self._keys.loaded() if key.path == path), None)
        if found is None:
            return None
        self._keys.evict(path)
        return found.file_bytes

    def loaded_keys(self) -> list[KeyState]:
        return [KeyState(key.path, key.file_bytes) for key in self._keys.loaded()]

    def plan(self, key_path: str, settings: Mapping[str, str]) -> PlanResult:
        plan = self._runner.plan(CircuitSizes.of(ZKey.open(key_path)), pipeline_settings(settings))
        capacity = self._device.info.capacity
        by_purpose = {str(purpose): nbytes for purpose, nbytes in plan.by_purpose.items()}
        return PlanResult(capacity, plan.peak, plan.peak <= capacity, by_purpose)

    def close(self) -> None:
        self._runner.release_caches()
        self._device.close()


def pipeline_settings(texts: Mapping[str, str]) -> PipelineSettings:
    return PipelineSettings(
        prestage=Prestage(texts["pipeline.prestage"]),
        double_buffer=texts["pipeline.double_buffer"] == "true",
        evaluate=Evaluation(texts["pipeline.evaluate"]),
        residency=Residency(texts["srs.residency"]),
    )
