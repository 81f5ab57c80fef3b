"""An engine that does not exist: states, jobs and telemetry as a real one sends them, in memory and on demand."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cuzk_engine.client import (
    CircuitInfo,
    CuzkError,
    DaemonError,
    DaemonStatus,
    DeviceDescription,
    EngineIdentity,
    JobInfo,
    JobState,
    MemoryPlanInfo,
    PhaseTime,
    Priority,
    ProcessState,
    ProofResult,
    SettingChange,
    SettingInfo,
    TelemetryUpdate,
)
from cuzk_engine.events import EventBatch, Mark
from tests.gui.plans import memory_plan

MIB = 2**20
GIB = 2**30
BUILD = "77c1e4a0b2"
ADDRESS = "127.0.0.1:9820"


def device(device_id: str = "cpu", **changes: object) -> DeviceDescription:
    made = DeviceDescription(
        id=device_id,
        name="AMD EPYC 9654 96-Core Processor",
        kind="cpu" if device_id == "cpu" else "cuda",
        capacity=8 * GIB,
        capacity_source="memory of the machine",
        uuid="",
        bus_id="",
        isa="x86-64, ADX",
        workers=2,
        state="ready",
        reason="",
        pid=4242,
        inert_settings=("pipeline.evaluate", "srs.residency") if device_id == "cpu" else (),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def setting(key: str, value: str, title: str, type_: str, choices: tuple[str, ...] = (), **more: object) -> SettingInfo:
    made = SettingInfo(
        key=key,
        value=value,
        default=value,
        title=title,
        help=f"What {title.lower()} does.",
        type=type_,
        choices=choices,
        minimum=None,
        maximum=None,
        live=True,
        source="default",
        device="",
    )
    return replace(made, **more)  # type: ignore[arg-type]


def settings() -> list[SettingInfo]:
    return [
        setting("gpus.gpu_workers_per_device", "2", "Workers per device", "int", minimum=1, maximum=8),
        setting("pipeline.prestage", "ahead", "Pre-staging", "enum", ("off", "locked", "ahead")),
        setting("pipeline.double_buffer", "true", "Double buffering", "bool"),
        setting("pipeline.evaluate", "auto", "Evaluation", "enum", ("host", "device", "auto")),
        setting("srs.residency", "auto", "Key residency", "enum", ("host", "device", "auto")),
        setting("daemon.listen", ADDRESS, "Address", "string", live=False),
    ]


def identity(**changes: object) -> EngineIdentity:
    made = EngineIdentity(
        build=BUILD,
        version="0.1.0",
        pid=41873,
        started_unix_ns=time.time_ns() - 8_040_000_000_000,
        configuration_hash="c0ffee",
        state="ready",
        address=ADDRESS,
        devices=(device(),),
        started_by="window",
        home="/home/somebody",
        log_path="",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def job(job_id: str = "job-1", **changes: object) -> JobInfo:
    now = time.time_ns()
    made = JobInfo(
        id=job_id,
        request_id="",
        circuit_id="c1",
        circuit_name="merkle10",
        curve="bn128",
        label="",
        state=JobState.RUNNING,
        priority=Priority.NORMAL,
        queue_position=0,
        phase="msm",
        progress=0.5,
        device="cpu",
        partitions=1,
        partitions_done=0,
        error="",
        submitted_unix_ns=now,
        started_unix_ns=now,
        finished_unix_ns=0,
        last_activity_unix_ns=now,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def update(time_ns: int, events: EventBatch | None = None, **more: object) -> TelemetryUpdate:
    offset = time.time_ns() - time.monotonic_ns()
    made = TelemetryUpdate(time_ns, time_ns + offset, events or EventBatch.empty(), [], None, None, None)
    for name, value in more.items():
        setattr(made, name, value)
    return made


PHASES = (
    ("host.read_witness", 0.05),
    ("host.evaluate", 0.14),
    ("upload", 0.05),
    ("ntt", 0.2),
    ("msm", 0.5),
    ("host.assemble", 0.02),
    ("host.verify", 0.04),
)


class FakeStream:
    """What ``push`` gives it, until it is cancelled or broken."""

    def __init__(self) -> None:
        self._queue: queue.Queue[TelemetryUpdate | Exception | None] = queue.Queue()

    def __iter__(self) -> Iterator[TelemetryUpdate]:
        while (item := self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def push(self, item: TelemetryUpdate) -> None:
        self._queue.put(item)

    def fail(self, error: Exception) -> None:
        self._queue.put(error)

    def cancel(self) -> None:
        self._queue.put(None)


class FakeConnection:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.closed = False

    def telemetry(self, history_ns: int = 0, *, columns: bool = False) -> FakeStream:
        self.engine.histories.append(history_ns)
        return self.engine.open_stream()

    def apply_settings(self, changes: Iterable[SettingChange]) -> list[SettingInfo]:
        return self.engine.apply(list(changes))

    def plan(self, *, circuit_id: str = "", device: str = "", settings: Iterable[SettingChange] = ()) -> MemoryPlanInfo:
        return self.engine.plan(circuit_id, device, list(settings))

    def register_circuit(self, path: str | Path, name: str = "") -> CircuitInfo:
        return self.engine.register(str(path), name)

    def circuits(self) -> list[CircuitInfo]:
        return list(self.engine.known_circuits)

    def submit(self, *, key_path: str | Path = "", witness_path: str | Path, label: str = "") -> JobInfo:
        return self.engine.submit(str(key_path), str(witness_path), label)

    def submit_stream(self, data: Iterable[bytes], *, key_path: str | Path = "", label: str = "") -> JobInfo:
        self.engine.sent = b"".join(data)
        return self.engine.submit(str(key_path), "", label)

    def jobs(self, limit: int = 0) -> list[JobInfo]:
        return list(self.engine.jobs.values())

    def fetch(self, job_id: str) -> ProofResult:
        return ProofResult('{"protocol": "groth16"}', '["1"]', "bn128")

    def cancel(self, job_id: str) -> bool:
        self.engine.set_job(
            replace(self.engine.jobs[job_id], state=JobState.CANCELLED, finished_unix_ns=time.time_ns())
        )
        return True

    def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> None:
        self.engine.calls.append("shutdown")
        self.engine.set_state(ProcessState.STOPPED)

    def close(self) -> None:
        self.closed = True


class FakeEngine:
    """An engine of the window. ``hang`` makes its calls wait until ``release``."""

    def __init__(self, state: ProcessState = ProcessState.STOPPED, elsewhere: str = "") -> None:
        self.state = state
        self.elsewhere = elsewhere
        self.sent = b""  # the witness that came over the connection
        self.calls: list[str] = []
        self.changes: list[SettingChange] = []
        self.settings = settings()
        self.identity = identity()
        self.known_circuits: list[CircuitInfo] = []
        self.plans_asked: list[tuple[str, str, tuple[SettingChange, ...]]] = []
        self.plan_peak = 2 * GIB
        self.free: int | None = None
        self.others: int | None = None
        self.jobs: dict[str, JobInfo] = {}
        self.streams: list[FakeStream] = []
        self.histories: list[int] = []  # asked for, nanoseconds
        self.memory: dict[tuple[str, str], int] = {("cpu", "context"): 64 * MIB, ("cpu", "srs"): 900 * MIB}
        self.stale = False
        self.message = ""
        self.log_path: str | None = None
        self.submit_error = ""
        self.refuse_settings = ""
        self.hang = False
        self._released = threading.Event()
        self._lock = threading.Lock()

    # ---- Engine ----

    def status(self) -> DaemonStatus:
        self._maybe_hang()
        up = self.state not in (ProcessState.STOPPED, ProcessState.CRASHED, ProcessState.FOREIGN)
        return DaemonStatus(
            self.state,
            ADDRESS,
            self.message or f"the engine is {self.state.value}",
            pid=self.identity.pid if up else None,
            build=BUILD if up else None,
            installed_build="99aa00bb11" if self.stale else BUILD,
            stale=self.stale and up,
            started_unix_ns=self.identity.started_unix_ns if up else None,
            started_by="window" if up else None,
            log_path=self.log_path,
        )

    def start(self) -> DaemonStatus:
        self.calls.append("start")
        self._maybe_hang()
        self.state = ProcessState.READY
        return self.status()

    def stop(self) -> DaemonStatus:
        self.calls.append("stop")
        self._maybe_hang()
        self.set_state(ProcessState.STOPPED)
        return self.status()

    def restart(self) -> DaemonStatus:
        self.calls.append("restart")
        self.set_state(ProcessState.STOPPED)
        self.stale = False
        self.state = ProcessState.READY
        return self.status()

    def connect(self, address: str) -> FakeConnection:
        if self.state is ProcessState.STOPPED:
            raise DaemonError("no engine answers")
        return FakeConnection(self)

    # ---- what it does ----

    def open_stream(self) -> FakeStream:
        stream = FakeStream()
        with self._lock:
            self.streams.append(stream)
        stream.push(
            update(
                time.monotonic_ns(),
                identity=self.identity,
                settings=list(self.settings),
                memory=dict(self.memory),
                jobs=list(self.jobs.values()),
            )
        )
        return stream

    def push(self, item: TelemetryUpdate) -> None:
        with self._lock:
            for stream in self.streams:
                stream.push(item)

    def set_state(self, state: ProcessState, error: Exception | None = None) -> None:
        """A state in which nothing answers ends the streams."""
        self.state = state
        if state in (ProcessState.STOPPED, ProcessState.CRASHED, ProcessState.FOREIGN):
            with self._lock:
                for stream in self.streams:
                    stream.fail(error or DaemonError("the engine has gone"))
                self.streams.clear()

    def apply(self, changes: list[SettingChange]) -> list[SettingInfo]:
        if self.refuse_settings:
            raise CuzkError(self.refuse_settings)
        self.changes += changes
        for change in changes:
            known = [s for s in self.settings if (s.key, s.device) == (change.key, change.device)]
            if known:
                self.settings[self.settings.index(known[0])] = replace(known[0], value=change.value)
            else:
                base = next(s for s in self.settings if s.key == change.key)
                self.settings.append(replace(base, value=change.value, device=change.device))
            events = EventBatch.empty()
            name = next(s.title for s in self.settings if s.key == change.key)
            events.marks.append(Mark(time.monotonic_ns(), "setting", f"{name.lower()} → {change.value}", change.device))
            self.push(update(time.monotonic_ns(), events, settings=list(self.settings)))
        return list(self.settings)

    def plan(self, circuit: str, device_id: str, changes: list[SettingChange]) -> MemoryPlanInfo:
        """As the engine answers: what is set, with ``changes`` on top."""
        self.plans_asked.append((circuit, device_id, tuple(changes)))
        values = {s.key: s.value for s in self.settings if not s.device}
        values |= {s.key: s.value for s in self.settings if s.device == device_id}
        values |= {c.key: c.value for c in changes}
        capacity = next(d.capacity for d in self.identity.devices if d.id == device_id)
        return memory_plan(
            device_id,
            capacity=capacity,
            peak=self.plan_peak,
            workers=int(values["gpus.gpu_workers_per_device"]),
            prestage=values["pipeline.prestage"],
            free=self.free if self.free is not None else capacity - 2 * GIB,
            others=self.others,
        )

    def register(self, path: str, name: str) -> CircuitInfo:
        circuit = CircuitInfo(
            f"c{len(self.known_circuits)}",
            name or Path(path).stem,
            path,
            "bn128",
            2900,
            3,
            4096,
            1_683_209,
            time.time_ns(),
        )
        self.known_circuits.append(circuit)
        return circuit

    def submit(self, key: str, witness: str, label: str) -> JobInfo:
        self.calls.append("submit")
        if self.submit_error:
            raise CuzkError(self.submit_error)
        made = job(f"job-{len(self.jobs) + 1}", label=label, state=JobState.QUEUED, queue_position=1, started_unix_ns=0)
        self.set_job(made)
        return made

    def set_job(self, changed: JobInfo) -> None:
        self.jobs[changed.id] = changed
        self.push(update(time.monotonic_ns(), jobs=[changed]))

    def complete(self, job_id: str) -> None:
        now = time.time_ns()
        phases = tuple(PhaseTime(name, round(share * 4e8)) for name, share in PHASES)
        self.set_job(
            replace(
                self.jobs[job_id],
                state=JobState.COMPLETED,
                progress=1.0,
                started_unix_ns=now - 400_000_000,
                finished_unix_ns=now,
                phases=phases,
            )
        )

    def release(self) -> None:
        self._released.set()

    def _maybe_hang(self) -> None:
        if self.hang:
            self._released.wait(60)
