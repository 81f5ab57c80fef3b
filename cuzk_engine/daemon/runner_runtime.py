"""The runtime of a device process: one device, its runner and its loaded keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.runtime import HostUse, KeyState, Opening, Order, Outcome, Progress
from cuzk_engine.devices.base import CancelToken, DeviceInfo, EventSink, Owner
from cuzk_engine.devices.cuda.compiling import progress_text
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.source import FileIdentity
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.process_options import ProcessOptions
from cuzk_engine.proving_process import OpenedDevice, pipeline_settings
from cuzk_engine.runner import Residency, Runner
from cuzk_engine.units import parse_duration

if TYPE_CHECKING:
    from cuzk_engine.pipeline.report import PlanReport

NO_PLAN: Final = (
    "the memory plan is off (CUZK_TEST_NO_PLAN=1): partitions start whatever they need, and some may fail for want of "
    "memory"
)


class _Compiling:
    """Kernels that are compiled: a phase of the job that waits for them; ``opening`` hears of it where there is no job
    yet."""

    runner: Runner | None = None

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def __call__(self, architecture: str, done: int, total: int) -> None:
        text = progress_text(architecture, done, total)
        if self.runner is None or not self.runner.restate(text):
            self._opening(text)


class RunnerRuntime:
    """See DeviceRuntime."""

    def __init__(
        self,
        opened: OpenedDevice,
        sink: EventSink,
        evaluation_threads: int = 0,
        min_idle_ns: int = 0,
    ) -> None:
        self._opened = opened
        self._device, self._host = opened.device, opened.host
        tiers = KeyTiers(opened.device, opened.host, opened.threads)
        self._told: tuple[PlanReport, MemoryPlanInfo] | None = None  # the last plan
        self._keys = KeyCache(threads=opened.threads, tiers=tiers, min_idle_ns=min_idle_ns)
        self._runner = Runner(opened.device, self._keys, sink, opened.threads, evaluation_threads)

    @classmethod
    def open(
        cls, name: str, options: Mapping[str, Any], sink: EventSink, opening: Opening = lambda step: None
    ) -> RunnerRuntime:
        """Raises CuzkError."""
        from cuzk_engine.pipeline import report  # noqa: F401 - a plan is asked for while others prove

        compiling, chosen = _Compiling(opening), ProcessOptions(**options)
        opening("waiting for the driver" if name != "cpu" else "opening the device")
        opened = OpenedDevice.open(name, chosen, sink, compiling)
        runtime = cls(opened, sink, chosen.evaluation_threads, parse_duration(chosen.min_idle))
        compiling.runner = runtime._runner
        return runtime

    @property
    def info(self) -> DeviceInfo:
        return self._device.info

    def prove(self, order: Order, progress: Progress, cancel: CancelToken) -> Outcome:
        identity = FileIdentity.of(order.key_path)
        if order.key_identity and identity is not None and identity != order.key_identity:
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
        return Outcome(outcome.proof.to_json(), outcome.public_bytes, list(outcome.phases.items()))

    def load_key(self, path: str, settings: Mapping[str, str]) -> bool:
        return self._keys.load(path, hot=pipeline_settings(settings).residency is Residency.HOST)

    def evict_key(self, path: str) -> int | None:
        return self._keys.evict(path)

    def loaded_keys(self) -> list[KeyState]:
        return [KeyState(*state) for state in self._keys.states()]

    def host_use(self) -> HostUse:
        return HostUse(self._host.pool().pinned, self._host.budget)

    def plan(self, key_path: str, settings: Mapping[str, str], workers: int) -> MemoryPlanInfo:
        if not self._runner.plans:
            raise CuzkError(NO_PLAN)
        report = self._runner.report(key_path, pipeline_settings(settings), workers)
        told = self._told
        if told is None or told[0] is not report:
            self._told = told = report, _told(report)
        return told[1]

    def close(self) -> None:
        self._runner.release_caches()
        self._opened.close()


def _told(report: PlanReport) -> MemoryPlanInfo:
    values = {item.name: getattr(report, item.name) for item in fields(MemoryPlanInfo)}
    names = [item.name for item in fields(PlanChoice)]
    values["choices"] = tuple(PlanChoice(**{name: getattr(c, name) for name in names}) for c in report.choices)
    return MemoryPlanInfo(**values)
