"""The supervisor: holds the parts together on one event loop. It touches no device and no witness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from typing import Final

from cuzk_engine import __version__, paths
from cuzk_engine.client.types import EngineIdentity, SettingInfo
from cuzk_engine.config import Settings
from cuzk_engine.daemon.background import Background, every
from cuzk_engine.daemon.channel import Message
from cuzk_engine.daemon.circuits import Circuits
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.device_names import DeviceNames
from cuzk_engine.daemon.devices import Devices
from cuzk_engine.daemon.diagnosing import SETTINGS as DIAGNOSED_KEYS
from cuzk_engine.daemon.diagnosing import Diagnosing
from cuzk_engine.daemon.files import AllowedPaths, Spool
from cuzk_engine.daemon.incidents import Incidents, last_picture
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.live_plans import LivePlans
from cuzk_engine.daemon.live_settings import LiveSettings
from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.daemon.publisher import Publisher
from cuzk_engine.daemon.records import Failure, Fault, JobRecord
from cuzk_engine.daemon.repetition import Repetition
from cuzk_engine.daemon.results import Results
from cuzk_engine.daemon.sampling import Sampling
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.store import Store
from cuzk_engine.daemon.timeline import Timeline
from cuzk_engine.daemon.watchdog import LOOK_SECONDS
from cuzk_engine.events import Incident
from cuzk_engine.process_options import pipeline_texts
from cuzk_engine.settings import value_text
from cuzk_engine.telemetry.hub import Hub
from cuzk_engine.units import parse_duration

log = logging.getLogger("cuzk")

_FLUSH_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 0.5
_PLAN_SECONDS: Final = 3.0
_HOUSEKEEPING_SECONDS: Final = 2.0
_SAME_FAULT_NS: Final = 5 * 10**9


@dataclass(frozen=True, slots=True)
class Birth:
    """What is fixed when the daemon starts."""

    build: str
    started_unix_ns: int
    started_by: str
    started_ns: int


class Supervisor:
    """Owns the parts. ``start`` begins, ``drain`` and ``stop`` end; services call the rest."""

    def __init__(self, settings: Settings, store: Store, daemon_log: DaemonLog, birth: Birth, address: str) -> None:
        self.settings = settings
        self.birth = birth
        self.address = address
        self.state = "starting"
        self.hub = Hub()
        folders, cache = settings.texts("daemon.allowed_paths"), settings.text("srs.param_cache")
        self.allowed = AllowedPaths(folders, cache, settings.path)
        self.circuits = Circuits(store, self.allowed)
        self.repetition = Repetition()
        self.spool = Spool()
        self.jobs = JobManager(
            store,
            policy=Policy.of(settings),
            changed=lambda job: self.publisher.job_changed(job),
            settle=self._job_settled,
        )
        self.results = Results(store, self.jobs)
        self.dispatcher = self.jobs.dispatcher
        self.devices = Devices(settings, DeviceNames.of_machine(), self)
        self.live_settings = LiveSettings(settings, self.devices, self.dispatcher, daemon_log)
        data = paths.data_dir()
        self._home = str(data)
        self.incidents = Incidents(data / "incidents")
        self._log = daemon_log
        self._plans = LivePlans(self.pipeline_texts)
        self._sampling = Sampling(self.devices, self.hub.memory)
        self._background = Background()
        diagnosing = Diagnosing(self._diagnosed_texts, self.devices.facts, self._plans.of)
        self.publisher = Publisher(
            self,
            self.hub,
            self.incidents,
            diagnosing,
            Timeline(daemon_log, self._wire_name),
            self._sampling,
            self._background,
        )
        self.state_changed = asyncio.Event()  # replaced with each change
        self.stop_requested = asyncio.Event()
        self.stop_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: set[str] = set()  # devices whose keys were asked for lately
        self._stale: set[str] = set()  # and have changed since
        self._loop = asyncio.get_running_loop()

    # ---- life ----

    def start(self) -> None:
        """Takes over stored jobs and starts the device processes."""
        self._log.send_to(self.publisher.log_line)
        self.publisher.mark("daemon", f"daemon started, build {self.birth.build}")
        self.devices.say_why_cpu()
        self.live_settings.warn()
        self.incidents.load()
        self.jobs.recover()
        self.spool.clean(self.jobs.spooled())
        for device in self.devices:
            self.dispatcher.add_device(device)
            self._tasks.append(asyncio.create_task(device.run(), name=f"device {device.id}"))
        for work, seconds in (
            (self.publisher.flush, _FLUSH_SECONDS),
            (self._sampling.look, _SAMPLE_SECONDS),
            (self._look, LOOK_SECONDS),
            (self._refresh_stale, LOOK_SECONDS),
            (self._plan, _PLAN_SECONDS),
            (self._keep_house, _HOUSEKEEPING_SECONDS),
        ):
            self._tasks.append(asyncio.create_task(every(seconds, work)))

    def begin_drain(self) -> None:
        """No new jobs; what waits stays in the store for the next start."""
        if not self.jobs.draining:
            self.jobs.drain()
            self.set_state("draining")
            log.info("draining: %d jobs run, %d wait for the next start", self.jobs.running, self.jobs.queued)

    async def stop(self) -> None:
        """Ends the device processes; what still runs is queued for the next start."""
        self.set_state("stopping")
        self.jobs.drain()
        self.circuits.stop()
        self.repetition.stop()
        self.jobs.put_back()
        for device in self.devices:
            await device.end()
        for task in self._tasks:
            if not task.get_name().startswith("device "):
                task.cancel()
        _, alive = await asyncio.wait(self._tasks, timeout=5.0)
        for task in alive:
            task.cancel()
        for device in self.devices:
            device.kill()
        self.publisher.flush()
        await asyncio.to_thread(self._sampling.stop)

    def request_stop(self, *, drain: bool, timeout: float | None = None) -> None:
        """``timeout``: seconds that the drain may take."""
        self.begin_drain()
        self.stop_requested.set()
        if not drain:
            self.stop_now.set()
        elif timeout is not None:
            self._loop.call_later(timeout, self.stop_now.set)

    def set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.publisher.identity_changed()
            changed, self.state_changed = self.state_changed, asyncio.Event()
            changed.set()

    # ---- what services ask ----

    def identity(self) -> EngineIdentity:
        return EngineIdentity(
            build=self.birth.build,
            version=__version__,
            pid=os.getpid(),
            started_unix_ns=self.birth.started_unix_ns,
            configuration_hash=self.settings.fingerprint(),
            state=self.state,
            address=self.address,
            devices=tuple(device.description() for device in self.devices),
            started_by=self.birth.started_by,
            home=self._home,
            log_path=str(self._log.path),
            jobs_running=self.jobs.running,
            jobs_queued=self.jobs.queued,
        )

    def setting_infos(self) -> list[SettingInfo]:
        return self.live_settings.infos()

    def apply_settings(self, changes: list[tuple[str, str, str]]) -> None:
        """All or nothing. Raises SettingError."""
        made = self.live_settings.apply(changes)
        for change in made:
            self.publisher.mark("setting", change.text, change.device)
        if made:
            self.publisher.settings_changed()
            self.dispatcher.pump()

    def pipeline_texts(self) -> dict[str, str]:
        return pipeline_texts(self.settings)

    def _refresh_soon(self, device: DeviceHandle) -> None:
        """At once, or at the end of a second in which it was asked already: its process has proofs to drive."""
        if device.id in self._asked:
            self._stale.add(device.id)
        else:
            self._asked.add(device.id)
            self._background.start(self.devices.refresh_keys(device))

    def _refresh_stale(self) -> None:
        self._asked, self._stale = self._stale, set()
        stale = [device for device in self.devices if device.id in self._asked]
        if stale:
            self._background.start(self.devices.refresh_keys(*stale))

    @property
    def uptime_seconds(self) -> int:
        return (time.monotonic_ns() - self.birth.started_ns) // 10**9

    # ---- device processes ----

    def device_changed(self, device: DeviceHandle) -> None:
        self.publisher.identity_changed()
        if device.is_ready:
            log.info("device %s is ready: %s (pid %d)", device.id, device.info.get("name", ""), device.pid)
        if self.state == "starting" and self.devices.are_started:
            self.devices.warn_of_unknown()
            self.set_state("ready")
        device.renew_when_idle(
            self.dispatcher.is_busy(device.id)
        )  # a change may have come while it could not hear of it
        self.dispatcher.pump()

    def device_renewed(self, device: DeviceHandle) -> None:
        self.dispatcher.forget_fits(device.id)
        self._forget_memory(device)
        self.publisher.identity_changed()

    def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
        if self.state == "stopping":
            return
        log.error("%s; it is started again", reason)
        self._note_death(device, reason, "device-lost" if lost else "worker-died")
        self._forget_memory(device)
        self.dispatcher.device_died(device.id, reason, device.blamed)

    def device_failed(self, device: DeviceHandle, reason: str) -> None:
        self.dispatcher.fail_impossible(f"device {device.id} does not start: {reason}")

    def partition_progress(self, device: DeviceHandle, message: Message) -> None:
        for job, partition, phase, fraction in message["parts"]:
            self.dispatcher.progress(device.id, (job, partition), phase, fraction)

    async def partition_done(self, device: DeviceHandle, message: Message, public: bytes) -> None:
        part = message["job"], message["partition"]
        match message["outcome"]:
            case "completed":
                phases = [(str(name), int(duration)) for name, duration in message["phases"]]
                proof = await self.results.take(*part, message["proof"], public)
                self.dispatcher.completed(device.id, part, proof, phases)
            case "cancelled":
                self.dispatcher.cancelled(device.id, part)
            case _:
                never = message.get("needed", 0) > int(device.info.get("capacity", 0))
                fault, reduced = Fault(message["fault"]), message.get("reduced")
                self.dispatcher.failed(device.id, part, Failure(message["error"], fault, never, reduced))
        device.workers_changed()
        device.renew_when_idle(self.dispatcher.is_busy(device.id))
        self._refresh_soon(device)

    def events(self, device: DeviceHandle, columns: bytes) -> None:
        self.publisher.device_events(device.id, columns)

    # ---- inside ----

    def _note_death(self, device: DeviceHandle, reason: str, kind: str) -> None:
        now = time.monotonic_ns()
        if self.incidents.knows(device.id, kind, now - _SAME_FAULT_NS):  # its process may have told it itself
            return
        running = [job.id for job, _ in self.dispatcher.running_on(device.id).values()]
        blamed = [job for job, _ in device.blamed] if device.blamed is not None else running
        job = blamed[0] if len(blamed) == 1 else ""
        capacity = int(device.info.get("capacity", 0))
        picture = last_picture(self.hub, device.id, capacity, self.pipeline_texts(), now)
        self.publisher.incident(Incident(now, device.id, kind, job, reason, picture=picture))

    def _forget_memory(self, device: DeviceHandle) -> None:
        self.publisher.forget_device(device.id, with_host=len(self.devices) == 1)

    def _diagnosed_texts(self) -> dict[str, str]:
        return {key: value_text(self.settings.values[key]) for key in DIAGNOSED_KEYS}

    def _wire_name(self, job_id: str) -> tuple[str, int] | None:
        """The caller's request id, else the job's own, and its partitions; None for a job that is unknown by now."""
        with contextlib.suppress(Exception):
            job = self.jobs.get(job_id)
            return job.request_id or job.id, job.partitions
        return None

    def _job_settled(self, job: JobRecord) -> None:
        if job.spooled:
            for part in job.parts:
                self.spool.remove(part.witness_path)
        if job.circuit_id and job.state == "completed":
            with contextlib.suppress(sqlite3.Error):
                self.circuits.used(job.circuit_id)
        if job.error:
            log.warning("job %s failed: %s", job.id, job.error)
        elif job.state == "completed":
            seconds = (job.finished_unix_ns - job.started_unix_ns) / 1e9
            log.info("job %s: %s proved in %.2f s on %s", job.id, job.circuit_name, seconds, job.device)
        else:
            log.info("job %s %s", job.id, job.state)

    # ---- regular work ----

    def _look(self) -> None:
        for device in self.devices:
            device.look(self.dispatcher.stopping(device.id), ending=self.jobs.draining)

    def _plan(self) -> None:
        self._background.start(self._plans.refresh([d for d in self.devices if self.dispatcher.is_busy(d.id)]))

    def _keep_house(self) -> None:
        self._log.tick()
        try:
            self.jobs.housekeeping(
                parse_duration(self.settings.text("jobs.retention")), self.settings.number("jobs.keep_finished")
            )
        except sqlite3.Error as error:
            log.warning("the job store cannot be written: %s", error)
