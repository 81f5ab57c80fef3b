"""Rounds through a running engine. Its settings are changed while a variation runs, and put back afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Final

from cuzk_engine.bench.crew import Crew
from cuzk_engine.bench.interruption import Interruption
from cuzk_engine.bench.local import resident_now
from cuzk_engine.bench.meter import Meter
from cuzk_engine.bench.results import ProofTime, Round
from cuzk_engine.bench.variations import Variation
from cuzk_engine.client import DaemonError, EngineClient, JobInfo, JobState, SettingChange, TelemetryUpdate
from cuzk_engine.client.address import parse_address
from cuzk_engine.diagnosis.jobs import JobTable
from cuzk_engine.diagnosis.queue import Queue
from cuzk_engine.errors import CancelledError, CuzkError

_TELEMETRY_TIME: Final = 5.0  # seconds until the events of a job that has ended must be here
_LABEL: Final = "bench"


class RemoteEngine:
    """Has ``client``'s engine prove, and closes it. A context manager: leaving it cancels its jobs that still run and
    puts the settings back, whatever happened."""

    def __init__(self, key: Path, witness: Path, device: str, client: EngineClient, interruption: Interruption) -> None:
        self._key, self._witness = key.absolute(), witness.absolute()
        self._device = "" if device == "auto" else device
        self._interruption = interruption
        self._client = client
        self._is_local = parse_address(client.address).is_here
        try:
            self._identity = self._client.identify()
        except BaseException:
            self._client.close()
            raise
        self._before: dict[tuple[str, str], str] = {}
        self._listener = _Listener(self._client, self._pids())
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._stopped = False

    def __enter__(self) -> RemoteEngine:
        self._listener.start()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._stop()
            self._put_back()
        finally:
            self._listener.stop()
            self._client.close()

    def check(self, variation: Variation) -> None:
        """Every setting that may vary can be changed in a running engine."""

    def describe(self) -> dict[str, Any]:
        identity = self._identity
        devices = [device for device in identity.devices if device.id in self._devices()]
        return {
            "where": f"engine at {self._client.address}",
            "build": identity.build,
            "device": ", ".join(device.id for device in devices),
            "device_name": ", ".join(device.name for device in devices),
            "isa": ", ".join(device.isa for device in devices if device.isa),
        }

    def notes(self, variations: list[Variation]) -> list[str]:
        found = []
        others = self._identity.jobs_running + self._identity.jobs_queued
        if others:
            found.append(f"the engine has {others} other jobs: the figures include their load")
        varied = {key for variation in variations for key, _ in variation.settings}
        for device in self._identity.devices:
            if device.id in self._devices():
                inert = sorted(varied & set(device.inert_settings))
                found += [f"{key} makes no difference on {device.id}" for key in inert]
        return found

    def run(self, variation: Variation, count: int, concurrency: int) -> Round:
        """``count`` jobs, ``concurrency`` of them in the engine at once. Raises CuzkError when one fails."""
        self._apply(variation)
        crew: Crew[int, tuple[str, ProofTime]] = Crew(
            min(count, concurrency), self._prove, self._stop, self._interruption
        )
        self._listener.begin()
        start = time.monotonic_ns()
        proofs = crew.run(range(count))
        end = time.monotonic_ns()
        is_whole = self._listener.await_jobs({job for job, _ in proofs}, _TELEMETRY_TIME)
        devices, meter = self._devices(), self._listener.meter
        return Round(
            tuple(proof for _, proof in proofs),
            (end - start) / 1e9,
            # Only the processes of one machine share a clock.
            meter.use(start, end, devices, self._listener.queue) if is_whole and self._is_local else None,
            meter.peak(devices) if is_whole else None,
            self._listener.resident_peak if self._is_local else None,
        )

    def _devices(self) -> tuple[str, ...]:
        return tuple(device.id for device in self._identity.devices if self._device in ("", device.id))

    def _pids(self) -> tuple[int, ...]:
        return tuple(device.pid for device in self._identity.devices if device.pid and self._device in ("", device.id))

    def _prove(self, number: int, thread: int) -> tuple[str, ProofTime]:
        client = self._client
        job = client.submit(key_path=self._key, witness_path=self._witness, device=self._device, label=_LABEL)
        with self._lock:
            self._running.add(job.id)
            stopped = self._stopped
        if stopped:
            client.cancel(job.id)
        with client.watch(job.id) as updates:
            for update in updates:
                job = update
        with self._lock:
            self._running.discard(job.id)
        if job.state is JobState.CANCELLED:
            raise CancelledError(f"job {job.id} was cancelled")
        if job.state is not JobState.COMPLETED:
            raise CuzkError(job.error or f"job {job.id} ended as {job.state.value}")
        return job.id, _time_of(job)

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for job in running:
            with contextlib.suppress(CuzkError):  # it has ended meanwhile, or the engine has
                self._client.cancel(job)

    def _apply(self, variation: Variation) -> None:
        if not variation.settings:
            return
        known = self._client.settings()
        changes = []
        for key, text in variation.settings:
            # A device with a value of its own does not follow the common one.
            for setting in known:
                if setting.key == key:
                    self._before.setdefault((key, setting.device), setting.value)
                    changes.append(SettingChange(key, text, setting.device))
        self._client.apply_settings(changes)

    def _put_back(self) -> None:
        if not self._before:
            return
        changes = [SettingChange(key, text, device) for (key, device), text in self._before.items()]
        try:
            self._client.apply_settings(changes)
        except CuzkError as error:
            words = ", ".join(f"{change.key} = {change.value}" for change in changes)
            raise DaemonError(f"the engine's settings could not be put back to {words}: {error}") from error


class _Listener:
    """Reads the engine's telemetry in a thread of its own."""

    def __init__(self, client: EngineClient, pids: tuple[int, ...]) -> None:
        self.meter = Meter()
        self.resident_peak: int | None = None
        self._pids = pids
        self._stream = client.telemetry()
        self._changed = threading.Condition()
        self._ended: set[str] = set()
        self._jobs = JobTable()
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, name="bench telemetry")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stream.cancel()
        if self._thread.ident is not None:
            self._thread.join()

    def begin(self) -> None:
        with self._changed:
            self._ended.clear()
            self.resident_peak = None
        self.meter.begin()

    def queue(self, device: str) -> Queue:
        """When there was something to prove."""
        with self._changed:
            return self._jobs.queue(device)

    def await_jobs(self, jobs: set[str], seconds: float) -> bool:
        """Whether the events of all ``jobs`` came; what a job did is sent before that it ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or jobs <= self._ended, seconds)
            return jobs <= self._ended

    def _listen(self) -> None:
        try:
            for update in self._stream:
                self._take(update)
        except CuzkError:
            pass  # the calls of the round tell what happened to the engine
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _take(self, update: TelemetryUpdate) -> None:
        if update.memory is not None:
            used: dict[str, int] = {}
            for (device, _), nbytes in update.memory.items():
                used[device] = used.get(device, 0) + nbytes
            self.meter.set_used(used)
        if update.events.dropped:
            self.meter.lose()
        for span in update.events.spans:
            self.meter(span)
        for allocation in update.events.allocations:
            self.meter(allocation)
        sizes = [resident_now(Path(f"/proc/{pid}")) for pid in self._pids]
        resident = [size for size in sizes if size is not None]
        with self._changed:
            self._jobs.update(update.jobs, update.wall_ns - update.time_ns)
            self._ended.update(job.id for job in update.jobs if job.state.ended)
            if resident:
                self.resident_peak = max(self.resident_peak or 0, *resident)
            self._changed.notify_all()


def _time_of(job: JobInfo) -> ProofTime:
    seconds = (job.finished_unix_ns - job.started_unix_ns) / 1e9
    return ProofTime(seconds, {phase.name: phase.nanoseconds / 1e9 for phase in job.phases})
