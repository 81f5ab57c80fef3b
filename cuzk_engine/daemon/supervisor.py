"""The supervisor: holds the parts together on one event loop. It touches no device and no witness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cuzk_engine import __version__, paths
from cuzk_engine.client.convert import identity_to_wire, job_to_wire, setting_to_wire
from cuzk_engine.client.types import EngineIdentity, SettingInfo
from cuzk_engine.config import Change, Settings
from cuzk_engine.daemon.channel import Message
from cuzk_engine.daemon.circuits import Circuits
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.device_log import write_lines
from cuzk_engine.daemon.device_names import DeviceNames
from cuzk_engine.daemon.diagnosing import SETTINGS as DIAGNOSED_KEYS
from cuzk_engine.daemon.diagnosing import Diagnosing
from cuzk_engine.daemon.files import AllowedPaths, Spool
from cuzk_engine.daemon.incidents import SECONDS, Incidents, since_of
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.live_plans import LivePlans
from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.daemon.records import Failure, Fault, JobRecord
from cuzk_engine.daemon.runtime import HostUse, KeyState
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.store import Store
from cuzk_engine.daemon.timeline import Timeline
from cuzk_engine.daemon.watchdog import LOOK_SECONDS
from cuzk_engine.errors import DaemonError
from cuzk_engine.events import EventBatch, Holding, Incident, LogLine, Mark, Picture
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.settings import PIPELINE_KEYS, TABLE, WORKERS_KEY, value_text
from cuzk_engine.telemetry.columns import decode_events, encode_events
from cuzk_engine.telemetry.gpu_sampler import GpuSampler, Target
from cuzk_engine.telemetry.hub import Hub
from cuzk_engine.telemetry.rows import log_from_wire
from cuzk_engine.telemetry.sampler import HostSampler
from cuzk_engine.units import parse_duration

log = logging.getLogger("cuzk")

_PROCESS_KEYS: Final = frozenset(
    {
        "cpu.arena",
        "gpus.gpu_threads",
        "synthesis.threads",
        "memory.total_budget",
        "memory.safety_margin",
        "memory.eviction_min_idle",
    }
)
_PLAN_KEYS: Final = frozenset({*PIPELINE_KEYS, "cpu.arena", "memory.total_budget", "memory.safety_margin"})
_FLUSH_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 0.5
_PLAN_SECONDS: Final = 3.0
_HOUSEKEEPING_SECONDS: Final = 2.0
_LOG_BACKLOG: Final = 2000
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
        self.spool = Spool()
        self.jobs = JobManager(
            store,
            policy=Policy.of(settings),
            changed=self._job_changed,
            settle=self._job_settled,
        )
        data = paths.data_dir()
        self._home = str(data)
        self.incidents = Incidents(data / "incidents")
        self._names = DeviceNames.of_machine()
        self.devices = [
            DeviceHandle(name, self._device_options, self, self.pipeline_texts, self._workers_of)
            for name in self._names.choose(settings.texts("gpus.devices"))
        ]
        settings.rename_devices(self._names.by_device(settings.device_workers))
        self.state_changed = asyncio.Event()  # replaced with each change
        self.stop_requested = asyncio.Event()
        self.stop_now = asyncio.Event()
        self._log = daemon_log
        self._timeline = Timeline(daemon_log, self._wire_name)
        self._plans = LivePlans(self.pipeline_texts)
        self._diagnosing = Diagnosing(
            lambda: {key: value_text(self.settings.values[key]) for key in DIAGNOSED_KEYS},
            self._device_facts,
            self._plans.of,
        )
        self._samplers: dict[str, HostSampler] = {}
        self._gpus = GpuSampler()
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed_jobs: dict[str, JobRecord] = {}
        self._pending = EventBatch.empty()
        self._identity_due = True
        self._settings_due = False
        self._loop = asyncio.get_running_loop()

    # ---- life ----

    def start(self) -> None:
        """Takes over stored jobs and starts the device processes."""
        self._log.send_to(self._log_line)
        self.mark("daemon", f"daemon started, build {self.birth.build}")
        if why := self._names.why_cpu(self.settings.texts("gpus.devices")):
            log.log(logging.WARNING if self._names.has_cards else logging.INFO, "proofs run on the CPU: %s", why)
        self.incidents.load()
        self.jobs.recover()
        self.spool.clean(self.jobs.spooled())
        for device in self.devices:
            self.jobs.add_device(device)
            self._tasks.append(asyncio.create_task(device.run(), name=f"device {device.id}"))
        for work, seconds in (
            (self._flush, _FLUSH_SECONDS),
            (self._sample, _SAMPLE_SECONDS),
            (self._look, LOOK_SECONDS),
            (self._plan, _PLAN_SECONDS),
            (self._keep_house, _HOUSEKEEPING_SECONDS),
        ):
            self._tasks.append(asyncio.create_task(_every(seconds, work)))

    def begin_drain(self) -> None:
        """No new jobs; what waits stays in the store for the next start."""
        if not self.jobs.draining:
            self.jobs.draining = True
            self.set_state("draining")
            log.info("draining: %d jobs run, %d wait for the next start", self.jobs.running, self.jobs.queued)

    async def stop(self) -> None:
        """Ends the device processes; what still runs is queued for the next start."""
        self.set_state("stopping")
        self.jobs.draining = True
        self.circuits.stop()
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
        self._flush()
        await asyncio.to_thread(self._gpus.stop)

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
            self._identity_due = True
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
        """All settings but old ones; then the workers of devices that have a number of their own."""
        infos = [self._setting_info(item.key) for item in TABLE if item.replacement is None]
        for device, count in self.settings.device_workers.items():
            infos.append(self._setting_info(WORKERS_KEY, device, count))
        return infos

    def apply_settings(self, changes: list[tuple[str, str, str]]) -> None:
        """All or nothing. Raises SettingError."""
        named = [(key, value, self._id_of(device)) for key, value, device in changes]
        made = self.settings.apply(named, [device.id for device in self.devices])
        for change in made:
            log.info("setting changed: %s%s", change.text, f" on {change.device}" if change.device else "")
            self._take_effect(change)
            self.mark("setting", change.text, change.device)
        if made:
            self._settings_due = self._identity_due = True
            self.jobs.pump()

    def pipeline_texts(self) -> dict[str, str]:
        return {key: value_text(self.settings.values[key]) for key in PIPELINE_KEYS}

    def find_device(self, name: str) -> DeviceHandle | None:
        """By any of its names."""
        found = self._id_of(name)
        return next((device for device in self.devices if device.id == found), None)

    @property
    def loaded_keys(self) -> dict[str, KeyState]:
        """By path, as the device processes last said."""
        states = [state for device in self.devices for state in device.loaded.values()]
        return {state.path: together(state.path, states) for state in states}

    @property
    def host_use(self) -> HostUse:
        """Of all device processes together, as they last said."""
        uses = [device.host for device in self.devices]
        return HostUse(sum(use.pinned for use in uses), sum(use.budget for use in uses))

    async def refresh_keys(self, *devices: DeviceHandle) -> None:
        """Asks the device processes, or some of them, which keys they have loaded."""
        for device in devices or self.devices:
            with contextlib.suppress(DaemonError):
                device.loaded = {key["path"]: KeyState(**key) for key in await device.call("keys")}
                device.host = HostUse(**await device.call("host"))

    def first_batch(
        self, ledger: Mapping[tuple[str, str], int], history: Iterable[pb.TelemetryBatch]
    ) -> pb.TelemetryBatch:
        """What a telemetry reader gets before anything else: the incidents too that are not in ``history``."""
        batch = pb.TelemetryBatch(
            time_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            identity=identity_to_wire(self.identity()),
            settings=map(setting_to_wire, self.setting_infos()),
            memory_is_set=True,
            since_ns=self.hub.past_since_ns,
        )
        for (device, purpose), nbytes in ledger.items():
            batch.memory.add(device=device, purpose=purpose, bytes=nbytes)
        batch.jobs.extend(job_to_wire(self.jobs.info(job)) for job in self.jobs.newest(200))
        told = {(one.time_ns, one.device, one.kind, one.job) for sent in history for one in sent.incidents}
        earlier = EventBatch.empty()
        earlier.incidents.extend(
            one for one in self.incidents.recent if (one.time_ns, one.device, one.kind, one.job) not in told
        )
        batch.incidents.extend(encode_events(earlier).incidents)
        return batch

    def mark(self, kind: str, text: str, device: str = "") -> None:
        self._pending.marks.append(Mark(time.monotonic_ns(), kind, text, device))

    @property
    def uptime_seconds(self) -> int:
        return (time.monotonic_ns() - self.birth.started_ns) // 10**9

    # ---- device processes ----

    def device_changed(self, device: DeviceHandle) -> None:
        self._identity_due = True
        if device.is_ready:
            log.info("device %s is ready: %s (pid %d)", device.id, device.info.get("name", ""), device.pid)
        if self.state == "starting" and all(item.state != "starting" for item in self.devices):
            self._warn_of_unknown_devices()
            self.set_state("ready")
        device.renew_when_idle(self.jobs.is_busy(device.id))  # a change may have come while it could not hear of it
        self.jobs.pump()

    def device_renewed(self, device: DeviceHandle) -> None:
        self.jobs.forget_fits(device.id)
        self._forget_memory(device)
        self._identity_due = True

    def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
        if self.state == "stopping":
            return
        log.error("%s; it is started again", reason)
        kind = "device-lost" if lost else "worker-died"
        now = time.monotonic_ns()
        if not self.incidents.knows(device.id, kind, now - _SAME_FAULT_NS):  # its process may have told it itself
            running = [job.id for job, _ in self.jobs.running_on(device.id).values()]
            blamed = [job for job, _ in device.blamed] if device.blamed is not None else running
            job = blamed[0] if len(blamed) == 1 else ""
            self._note(Incident(now, device.id, kind, job, reason, picture=self._last_picture(device, now)))
        self._forget_memory(device)
        self.jobs.device_died(device.id, reason, device.blamed)

    def device_failed(self, device: DeviceHandle, reason: str) -> None:
        self.jobs.fail_impossible(f"device {device.id} does not start: {reason}")

    def partition_progress(self, device: DeviceHandle, message: Message) -> None:
        part = message["job"], message["partition"]
        self.jobs.progress(device.id, part, message["phase"], message["fraction"])

    def partition_done(self, device: DeviceHandle, message: Message) -> None:
        part = message["job"], message["partition"]
        match message["outcome"]:
            case "completed":
                phases = [(str(name), int(duration)) for name, duration in message["phases"]]
                self.jobs.completed(device.id, part, (message["proof"], message["public"]), phases)
            case "cancelled":
                self.jobs.cancelled(device.id, part)
            case _:
                never = message.get("needed", 0) > int(device.info.get("capacity", 0))
                fault, reduced = Fault(message["fault"]), message.get("reduced")
                self.jobs.failed(device.id, part, Failure(message["error"], fault, never, reduced))
        device.workers_changed()
        device.renew_when_idle(self.jobs.is_busy(device.id))
        self._background(self.refresh_keys(device))

    def events(self, device: DeviceHandle, columns: bytes) -> None:
        batch = pb.TelemetryBatch.FromString(columns)
        write_lines(log, device.id, map(log_from_wire, batch.logs))
        batch.ClearField("logs")  # the log sends them on
        self.hub.publish(batch)
        self._timeline.spans(batch)
        self._diagnosing.take(batch)
        if batch.incidents:
            for incident in decode_events(pb.TelemetryBatch(incidents=batch.incidents)).incidents:
                self._keep(incident)

    # ---- inside ----

    def _forget_memory(self, device: DeviceHandle) -> None:
        """The process has gone, and with it all that it held."""
        self._diagnosing.forget_device(device.id)
        self.hub.forget_device(device.id)
        if len(self.devices) == 1:
            self.hub.forget_device("host")  # its buffers for transfers

    def _note(self, incident: Incident) -> None:
        """An incident that the supervisor saw itself."""
        self._pending.incidents.append(incident)
        self._flush()
        self._keep(incident)

    def _keep(self, incident: Incident) -> None:
        if self.incidents.note(incident):
            past = self.hub.past(since_of(incident))
            self._background(asyncio.to_thread(self.incidents.write, incident, past))

    def _last_picture(self, device: DeviceHandle, now_ns: int) -> Picture:
        """Of a process that cannot say any more who held what: as its allocations had added up."""
        held, host = self.hub.by_purpose(device.id), self.hub.by_purpose("host")
        capacity = int(device.info.get("capacity", 0))
        return Picture(
            capacity=capacity,
            free=max(0, capacity - sum(held.values())),
            holdings=tuple(Holding(purpose, -1, "", nbytes) for purpose, nbytes in held.items()),
            host=tuple(Holding(purpose, -1, "", nbytes) for purpose, nbytes in host.items()),
            settings=tuple(self.pipeline_texts().items()),
            since_ns=now_ns - round(SECONDS * 1e9),
        )

    def _id_of(self, name: str) -> str:
        """``cuda:N`` or ``cpu`` for any name of a device; what is none stays as it is."""
        return self._names.resolve(name) or name

    def _warn_of_unknown_devices(self) -> None:
        """What a device may be called is known only when it has started."""
        known = {device.id for device in self.devices}
        for name in self.settings.device_workers:
            if name not in known:
                there = ", ".join(device.id for device in self.devices)
                log.warning('[devices."%s"] has no effect: this engine has no such device; there is %s', name, there)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background_tasks.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._background_tasks.discard)

    def _device_options(self) -> dict[str, Any]:
        text, number = self.settings.text, self.settings.number
        return {
            "arena": text("cpu.arena"),
            "threads": number("gpus.gpu_threads"),
            "evaluation_threads": number("synthesis.threads"),
            "budget": text("memory.total_budget"),
            "margin": text("memory.safety_margin"),
            "min_idle": text("memory.eviction_min_idle"),
            "processes": len(self.devices),
        }

    def _device_facts(self, name: str) -> tuple[int, bool, tuple[str, ...]] | None:
        device = self.find_device(name)
        if device is None:
            return None
        return self._workers_of(device), device.info.get("kind") != "cpu", tuple(device.info.get("inert_settings", ()))

    def _workers_of(self, device: DeviceHandle) -> int:
        return self.settings.workers(device.id)

    def _take_effect(self, change: Change) -> None:
        if change.key.startswith(("scheduler.", "pipeline.")):
            self.jobs.set_policy(Policy.of(self.settings))
        if change.key in _PLAN_KEYS:
            self.jobs.forget_fits()
        match change.key:
            case "logging.level":
                self._log.set_level(str(change.value))
            case "logging.format":
                self._log.set_form(str(change.value))
            case key if key in _PROCESS_KEYS:
                for device in self.devices:
                    if key != "cpu.arena" or device.id == "cpu":
                        device.renew()
                        device.renew_when_idle(self.jobs.is_busy(device.id))
            case "gpus.gpu_workers_per_device":
                for device in self.devices:
                    device.workers_changed()

    def _setting_info(self, key: str, device: str = "", count: int | None = None) -> SettingInfo:
        item = next(entry for entry in TABLE if entry.key == key)
        value = self.settings.values[key] if count is None else count
        source = self.settings.source(key) if not device else self.settings.device_sources.get(device, "file")
        return SettingInfo(
            key=key,
            value=value_text(value),
            default=value_text(item.default),
            title=item.title,
            help=item.help + (" No effect in this version." if item.inert else ""),
            type=item.type,
            choices=item.choices,
            minimum=item.minimum,
            maximum=item.maximum,
            live=item.live,
            source=source,
            device=device,
        )

    def _wire_name(self, job_id: str) -> tuple[str, int] | None:
        """The caller's request id, else the job's own, and its partitions; None for a job that is unknown by now."""
        with contextlib.suppress(Exception):
            job = self.jobs.get(job_id)
            return job.request_id or job.id, job.partitions
        return None

    def _job_changed(self, job: JobRecord) -> None:
        self._changed_jobs[job.id] = job

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

    def _log_line(self, line: LogLine) -> None:
        """From any thread."""

        def add() -> None:
            if len(self._pending.logs) < _LOG_BACKLOG:
                self._pending.logs.append(line)
            else:
                self._pending.dropped += 1

        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(add)

    def _flush(self) -> None:
        """One batch of what happened in the supervisor itself."""
        self._gpus.collect(self._pending, self.hub.memory)
        pending, self._pending = self._pending, EventBatch.empty()
        found = self._diagnosing.poll(time.monotonic_ns())
        pending.gaps += found.gaps
        pending.findings += found.findings
        jobs, self._changed_jobs = self._changed_jobs, {}
        if not (len(pending) or pending.dropped or jobs or self._identity_due or self._settings_due):
            return
        batch = encode_events(pending)
        batch.jobs.extend(job_to_wire(self.jobs.info(job)) for job in jobs.values())
        if self._identity_due:
            batch.identity.CopyFrom(identity_to_wire(self.identity()))
        if self._settings_due:
            batch.settings.extend(map(setting_to_wire, self.setting_infos()))
        self._identity_due = self._settings_due = False
        self.hub.publish(batch)
        self._diagnosing.take(batch)

    def _sample(self) -> None:
        cards = [device for device in self.devices if device.info.get("kind") == "cuda"]
        self._gpus.watch(
            {card.id: Target(card.info["uuid"], card.info["bus_id"], (card.pid,) if card.pid else ()) for card in cards}
        )
        for device in self.devices:
            if device.is_ready and device.info.get("kind") == "cpu":
                used = self.hub.memory(device.id)
                sampler = self._samplers.setdefault(device.id, HostSampler())
                self._pending.samples.append(sampler.sample(device.id, used=used, capacity=device.info.get("capacity")))

    def _look(self) -> None:
        for device in self.devices:
            device.look(self.jobs.stopping(device.id), ending=self.jobs.draining)

    def _plan(self) -> None:
        self._background(self._plans.refresh([d for d in self.devices if self.jobs.is_busy(d.id)]))

    def _keep_house(self) -> None:
        self._log.tick()
        try:
            self.jobs.housekeeping(
                parse_duration(self.settings.text("jobs.retention")), self.settings.number("jobs.keep_finished")
            )
        except sqlite3.Error as error:
            log.warning("the job store cannot be written: %s", error)


def together(path: str, states: Iterable[KeyState]) -> KeyState:
    """What several processes say of the key at ``path``, as one: in the fastest of their tiers."""
    found = [state for state in states if state.path == path]
    tier = min((state.tier for state in found), key=["device", "hot", "warm"].index)
    in_tier = [state for state in found if state.tier == tier]
    nbytes = max(state.nbytes for state in found) if tier == "warm" else sum(state.nbytes for state in in_tier)
    users = sum(state.users for state in found)
    return KeyState(path, nbytes, tier, users, max(state.last_used_ns for state in found))


async def _every(seconds: float, work: Any) -> None:
    """Calls ``work`` for ever. A fault in it is logged and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            work()
        except Exception:
            log.exception("a regular task of the daemon failed")
