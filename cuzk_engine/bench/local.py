"""Rounds in this process: one runner, as many worker threads as the setting says."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Any, Final

from cuzk_engine.bench.crew import Crew
from cuzk_engine.bench.interruption import Interruption
from cuzk_engine.bench.meter import Meter
from cuzk_engine.bench.results import ProofTime, Round
from cuzk_engine.bench.variations import Variation
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.select import open_device, resolve_name
from cuzk_engine.errors import UsageError
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from cuzk_engine.settings import WORKERS_KEY, definition, value_text

_PIPELINE_KEYS: Final = ("pipeline.prestage", "pipeline.double_buffer", "pipeline.evaluate", "srs.residency")
_PROC: Final = Path("/proc/self")


class LocalEngine:
    """Proves in this process. A context manager: leaving it ends what runs and closes the device."""

    def __init__(self, key: Path, witness: Path, device: str, interruption: Interruption) -> None:
        self._key, self._witness = key, witness
        self._interruption = interruption
        self._meter = Meter()
        name = resolve_name(device)
        self._host = HostMemory(host_budget().nbytes, self._meter, device=name)
        self._device = open_device(name, self._meter, host=self._host)
        keys = KeyCache(tiers=KeyTiers(self._device, self._host))
        self._runner = Runner(self._device, keys, self._meter)
        self._cancel = CancelToken()
        self._numbers = itertools.count()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self._cancel.set()
        self._runner.release_caches()
        self._device.close()
        self._host.close()

    def check(self, variation: Variation) -> None:
        """Raises UsageError for a setting that has no meaning here."""
        for key, _ in variation.settings:
            if key not in (*_PIPELINE_KEYS, WORKERS_KEY):
                raise UsageError(f"--vary: {key} can be varied through a running engine only (--daemon)")

    def describe(self) -> dict[str, Any]:
        info = self._device.info
        return {"where": "in this process", "device": info.id, "device_name": info.name, "isa": info.isa}

    def notes(self, variations: list[Variation]) -> list[str]:
        """What a reader of the figures should know: settings that make no difference here."""
        inert = set(self._device.info.inert_settings)
        varied = {key for variation in variations for key, _ in variation.settings}
        return [f"{key} makes no difference on {self._device.info.id}" for key in sorted(varied & inert)]

    def run(self, variation: Variation, count: int, concurrency: int) -> Round:
        """``count`` proofs, at most ``concurrency`` of them submitted at once. Raises what the first one that failed
        raised; the others are cancelled, and the engine is of no use then."""
        workers = min(concurrency, int(variation.value(WORKERS_KEY) or value_text(definition(WORKERS_KEY).default)))
        settings = pipeline_settings(variation)

        def work(job: str, worker: int) -> ProofTime:
            return self._prove(job, worker, settings)

        crew = Crew(workers, work, self._cancel.set, self._interruption)
        self._meter.begin()
        is_reset = reset_resident_peak()
        start = time.monotonic_ns()
        proofs = crew.run(f"bench-{number}" for number in itertools.islice(self._numbers, count))
        end = time.monotonic_ns()
        devices = (self._device.info.id,)
        return Round(
            tuple(proofs),
            (end - start) / 1e9,
            self._meter.use(start, end, devices),
            self._meter.peak(devices),
            resident_peak() if is_reset else None,
        )

    def _prove(self, job: str, worker: int, settings: PipelineSettings) -> ProofTime:
        start = time.monotonic_ns()
        owner = Owner(job, 0, worker)
        outcome = self._runner.prove(self._key, self._witness, owner, settings, cancel=self._cancel)
        seconds = (time.monotonic_ns() - start) / 1e9
        return ProofTime(seconds, {name: ns / 1e9 for name, ns in outcome.phases.items()}, outcome.prestage)


def pipeline_settings(variation: Variation) -> PipelineSettings:
    """The defaults, with what the variation changes."""
    texts = {key: variation.value(key) or value_text(definition(key).default) for key in _PIPELINE_KEYS}
    return PipelineSettings(
        prestage=Prestage(texts["pipeline.prestage"]),
        double_buffer=texts["pipeline.double_buffer"] == "true",
        evaluate=Evaluation(texts["pipeline.evaluate"]),
        residency=Residency(texts["srs.residency"]),
    )


def reset_resident_peak(process: Path = _PROC) -> bool:
    """Has the kernel measure the peak of resident memory anew; False where it does not let us."""
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident_peak(process: Path = _PROC) -> int | None:
    """The largest resident set since the last reset, in bytes."""
    return _kilobytes(process, "VmHWM")


def resident_now(process: Path = _PROC) -> int | None:
    return _kilobytes(process, "VmRSS")


def _kilobytes(process: Path, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB$", (process / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None
