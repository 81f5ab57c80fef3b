"""The runtime of a device process: one device, its runner and its loaded keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any, Protocol, cast

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.runtime import KeyState, Order, Outcome, Progress
from cuzk_engine.devices.base import CancelToken, Device, DeviceInfo, EventSink, Owner
from cuzk_engine.devices.select import open_device
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.source import FileIdentity
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner


class RunnerRuntime:
    """See DeviceRuntime."""

    def __init__(self, device: Device, sink: EventSink, threads: int, synthesis_threads: int) -> None:
        self._device = device
        self._keys = KeyCache(threads=threads)
        self._runner = Runner(device, self._keys, sink, synthesis_threads)

    @classmethod
    def open(cls, name: str, options: Mapping[str, Any], sink: EventSink) -> RunnerRuntime:
        """Raises CuzkError."""
        threads = int(options["threads"])
        device = open_device(name, sink, options["arena"], threads)
        return cls(device, sink, threads, int(options["synthesis_threads"]))

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
            Owner(order.job, order.partition, order.worker),
            pipeline_settings(order.settings, order.reduced),
            progress,
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

    def plan(self, key_path: str, settings: Mapping[str, str], workers: int) -> MemoryPlanInfo:
        report = cast(_Reporting, self._runner).report(key_path, pipeline_settings(settings), workers)
        values = {item.name: getattr(report, item.name) for item in fields(MemoryPlanInfo)}
        names = [item.name for item in fields(PlanChoice)]
        values["choices"] = tuple(PlanChoice(**{name: getattr(c, name) for name in names}) for c in report.choices)
        return MemoryPlanInfo(**values)

    def close(self) -> None:
        self._runner.release_caches()
        self._device.close()


class _Reporting(Protocol):
    """The runner's side of ``plan``: an object with the fields of MemoryPlanInfo."""

    def report(self, key_path: str, settings: PipelineSettings, workers: int) -> Any: ...


def pipeline_settings(texts: Mapping[str, str], reduced: int = 0) -> PipelineSettings:
    values: dict[str, Any] = {
        "prestage": Prestage(texts["pipeline.prestage"]),
        "double_buffer": texts["pipeline.double_buffer"] == "true",
        "evaluate": Evaluation(texts["pipeline.evaluate"]),
        "residency": Residency(texts["srs.residency"]),
    }
    if reduced:
        values["reduced"] = reduced
    return PipelineSettings(**values)
