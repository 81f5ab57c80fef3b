"""The runtime of a device process: one device, its runner and its loaded keys."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, astuple, fields
from typing import Any, Final

from cuzk_engine import native
from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.runtime import HostUse, KeyState, Opening, Order, Outcome, Progress
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import CancelToken, Device, DeviceInfo, EventSink, Owner
from cuzk_engine.devices.cuda.compiling import progress_text
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.select import open_device
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.source import FileIdentity
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from cuzk_engine.units import parse_duration

NO_PLAN: Final = (
    "the memory plan is off (CUZK_TEST_NO_PLAN=1): partitions start whatever they need, and some may fail for want of "
    "memory"
)


class _Phases(threading.local):
    """The progress of the job that this thread works on, for what the device tells without knowing of jobs;
    ``opening`` hears of it where there is no job yet."""

    progress: Progress | None = None
    share = 0.0

    def __init__(self, opening: Opening = lambda step: None) -> None:
        self._opening = opening

    def of_this_thread(self, progress: Progress) -> Progress:
        self.progress, self.share = progress, 0.0

        def report(phase: str, share: float) -> None:
            self.share = share
            progress(phase, share)

        return report

    def compiling(self, architecture: str, done: int, total: int) -> None:
        text = progress_text(architecture, done, total)
        if self.progress is not None:
            self.progress(text, self.share)
        else:
            self._opening(text)


class RunnerRuntime:
    """See DeviceRuntime."""

    def __init__(
        self,
        device: Device,
        host: HostMemory,
        sink: EventSink,
        threads: int,
        evaluation_threads: int = 0,
        min_idle_ns: int = 0,
        phases: _Phases | None = None,
    ) -> None:
        self._device = device
        self._host = host
        self._phases = phases or _Phases()
        tiers = KeyTiers(device, host, threads)
        self._keys = KeyCache(threads=threads, tiers=tiers, min_idle_ns=min_idle_ns)
        self._runner = Runner(device, self._keys, sink, threads, evaluation_threads)

    @classmethod
    def open(
        cls, name: str, options: Mapping[str, Any], sink: EventSink, opening: Opening = lambda step: None
    ) -> RunnerRuntime:
        """Raises CuzkError."""
        threads, processes = int(options["threads"]), int(options["processes"])
        if not threads and processes > 1:
            threads = max(1, native.library().threads() // processes)
        budget = host_budget(options["budget"], options["margin"], processes)
        host, phases = HostMemory(budget.nbytes, sink, device=name, threads=threads), _Phases(opening)
        opening("waiting for the driver" if name != "cpu" else "opening the device")
        device = open_device(name, sink, options["arena"], threads, host, phases.compiling)
        min_idle = parse_duration(options["min_idle"])
        return cls(device, host, sink, threads, int(options["evaluation_threads"]), min_idle, phases)

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
            self._phases.of_this_thread(progress),
            cancel,
        )
        return Outcome(outcome.proof.to_json(), outcome.public.to_json(), list(outcome.phases.items()))

    def load_key(self, path: str, settings: Mapping[str, str]) -> bool:
        return self._keys.load(path, hot=pipeline_settings(settings).residency is Residency.HOST)

    def evict_key(self, path: str) -> int | None:
        return self._keys.evict(path)

    def loaded_keys(self) -> list[KeyState]:
        return [KeyState(**asdict(state)) for state in self._keys.states()]

    def host_use(self) -> HostUse:
        return HostUse(self._host.pool().pinned, self._host.budget)

    def plan(self, key_path: str, settings: Mapping[str, str], workers: int) -> MemoryPlanInfo:
        if not self._runner.plans:
            raise CuzkError(NO_PLAN)
        report = self._runner.report(key_path, pipeline_settings(settings), workers)
        values = {item.name: getattr(report, item.name) for item in fields(MemoryPlanInfo)}
        names = [item.name for item in fields(PlanChoice)]
        values["choices"] = tuple(PlanChoice(**{name: getattr(c, name) for name in names}) for c in report.choices)
        return MemoryPlanInfo(**values)

    def close(self) -> None:
        self._runner.release_caches()
        self._device.close()
        self._host.close()


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
