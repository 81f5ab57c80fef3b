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
from cuzk_engine.config import FROM_FILE, Settings
from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.errors import UsageError
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.process_options import PROCESS_KEYS, ProcessOptions, pipeline_texts
from cuzk_engine.proving_process import OpenedDevice, pipeline_settings, workers_of
from cuzk_engine.runner import PipelineSettings, Runner
from cuzk_engine.settings import PIPELINE_KEYS, WORKERS_KEY
from cuzk_engine.units import parse_duration

_USED: Final = frozenset({*PIPELINE_KEYS, *PROCESS_KEYS, WORKERS_KEY})
_PROC: Final = Path("/proc/self")


class LocalEngine:
    """Proves in this process on ``device`` (cpu or cuda:N), with ``settings`` but for what a variation changes. A
    context manager: leaving it ends what runs and closes the device."""

    def __init__(self, key: Path, witness: Path, device: str, settings: Settings, interruption: Interruption) -> None:
        self._key, self._witness = key, witness
        self._interruption = interruption
        self._meter = Meter()
        self._settings = settings
        options = ProcessOptions.of(settings)
        self._opened = opened = OpenedDevice.open(device, options, self._meter)
        self._device = opened.device
        tiers = KeyTiers(opened.device, opened.host, opened.threads)
        keys = KeyCache(threads=opened.threads, tiers=tiers, min_idle_ns=parse_duration(options.min_idle))
        self._runner = Runner(opened.device, keys, self._meter, opened.threads, options.evaluation_threads)
        self._cancel = CancelToken()
        self._numbers = itertools.count()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self._cancel.set()
        self._runner.release_caches()
        self._opened.close()

    def check(self, variation: Variation) -> None:
        """Raises UsageError for a setting that has no meaning here."""
        for key, _ in variation.settings:
            if key not in (*PIPELINE_KEYS, WORKERS_KEY):
                raise UsageError(f"--vary: {key} can be varied through a running engine only (--daemon)")

    def describe(self) -> dict[str, Any]:
        info = self._device.info
        return {"where": "in this process", "device": info.id, "device_name": info.name, "isa": info.isa}

    def notes(self, variations: list[Variation]) -> list[str]:
        """What a reader of the figures should know: settings that make no difference here."""
        inert = set(self._device.info.inert_settings)
        varied = {key for variation in variations for key, _ in variation.settings}
        found = [f"{key} makes no difference on {self._device.info.id}" for key in sorted(varied & inert)]
        given = sorted(key for key, source in self._settings.sources.items() if source == FROM_FILE and key in _USED)
        given = [key for key in given if key not in varied]
        return [*found, f"{', '.join(given)} as in {self._settings.path}"] if given else found

    def run(self, variation: Variation, count: int, concurrency: int) -> Round:
        """``count`` proofs, at most ``concurrency`` of them submitted at once. Raises what the first one that failed
        raised; the others are cancelled, and the engine is of no use then."""
        workers = min(concurrency, self._workers(variation))
        settings = pipeline_settings({**pipeline_texts(self._settings), **dict(variation.settings)})

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

    def _workers(self, variation: Variation) -> int:
        varied = variation.value(WORKERS_KEY)
        return workers_of(self._settings, self._device.info) if varied is None else int(varied)

    def _prove(self, job: str, worker: int, settings: PipelineSettings) -> ProofTime:
        start = time.monotonic_ns()
        owner = Owner(job, 0, worker)
        outcome = self._runner.prove(self._key, self._witness, owner, settings, cancel=self._cancel)
        seconds = (time.monotonic_ns() - start) / 1e9
        phases = {name: ns / 1e9 for name, ns in outcome.phases.items()}
        return ProofTime(seconds, phases, outcome.prestage, settings.prestage)


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
