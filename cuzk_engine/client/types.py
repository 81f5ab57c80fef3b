"""What the client returns: plain frozen data, no generated classes, nothing of the engine's inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.events import EventBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Array = npt.NDArray[np.integer[Any]]

DEFAULT_ADDRESS: Final = "127.0.0.1:9820"
REFUSED: Final = ("cuzk-refused", "1")
"""Trailing metadata of calls that the engine itself refuses: gRPC gives some of their statuses to lost connections."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)


class Priority(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class PhaseTime:
    name: str
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it is now. Times are Unix nanoseconds, 0 where not reached; ``progress`` 0…1."""

    id: str
    request_id: str
    circuit_id: str
    circuit_name: str
    curve: str
    label: str
    state: JobState
    priority: Priority
    queue_position: int
    phase: str
    progress: float
    device: str
    partitions: int
    partitions_done: int
    error: str
    submitted_unix_ns: int
    started_unix_ns: int
    finished_unix_ns: int
    last_activity_unix_ns: int
    phases: tuple[PhaseTime, ...] = ()
    attempts: int = 0

    @property
    def retried(self) -> str:
        """How often it was tried again, in words; of several partitions the one that was most often. "" for never."""
        if self.attempts <= 1:
            return ""
        often = "once" if self.attempts == 2 else f"{self.attempts - 1:,} times"
        return f"partitions, each at most {often}" if self.partitions > 1 else often


@dataclass(frozen=True, slots=True)
class CircuitInfo:
    id: str
    name: str
    key_path: str
    curve: str
    n_vars: int
    n_public: int
    domain_size: int
    key_bytes: int
    last_used_unix_ns: int


@dataclass(frozen=True, slots=True)
class ProofResult:
    """Texts exactly as snarkjs writes proof.json and public.json; of a job with several partitions those of the
    first."""

    proof_json: str
    public_json: str
    curve: str
    partitions: tuple[tuple[str, str], ...] = ()  # (proof.json, public.json) of each, in order, where a job has several


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """A device of the engine; ``capacity`` bytes; ``state`` "starting" | "ready" | "restarting" | "failed"."""

    id: str
    name: str
    kind: str
    capacity: int
    capacity_source: str
    uuid: str
    bus_id: str
    isa: str
    workers: int
    state: str
    reason: str
    pid: int
    inert_settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Who answers on the port."""

    build: str
    version: str
    pid: int
    started_unix_ns: int
    configuration_hash: str
    state: str  # "starting" | "ready" | "draining" | "stopping"
    address: str
    devices: tuple[DeviceDescription, ...]
    started_by: str
    home: str
    log_path: str
    jobs_running: int = 0
    jobs_queued: int = 0


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting with its value and everything a form needs; texts of values are as TOML writes them, without
    quotes.
    """

    key: str
    value: str
    default: str
    title: str
    help: str
    type: str  # "bool" | "int" | "enum" | "size" | "duration" | "string" | "list"
    choices: tuple[str, ...]
    minimum: int | None
    maximum: int | None
    live: bool
    source: str
    device: str  # of a per-device override, else ""


@dataclass(frozen=True, slots=True)
class SettingChange:
    key: str
    value: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """One way to run a partition, in the order in which the engine tries them. ``text``: what it gives up, "" for what
    was asked for. ``peak``: bytes of one partition, ``total`` of all workers together; ``fits``: one partition alone,
    ``all_fit``: all workers at once."""

    settings: dict[str, str]
    text: str
    peak: int
    total: int
    fits: bool
    all_fit: bool


@dataclass(frozen=True, slots=True)
class MemoryPlanInfo:
    """What a circuit's partitions need on a device. ``peak`` and ``by_purpose``: of one partition in the way that was
    chosen; ``stages``: stage → purpose → bytes; ``free``: what of ``capacity`` the engine may have at present, what its
    partitions use included: the rest is other programs' or a margin; ``chosen``: index into ``choices``, -1 where none
    fits."""

    device: str
    capacity: int
    peak: int
    fits: bool
    by_purpose: dict[str, int] = field(default_factory=dict)
    total: int = 0
    free: int = 0
    others: int | None = None
    workers: int = 1
    stages: dict[str, dict[str, int]] = field(default_factory=dict)
    choices: tuple[PlanChoice, ...] = ()
    chosen: int = -1
    host_peak: int = 0
    host_capacity: int = 0


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """Spans as arrays of one length, not to be written to: ``start``, ``end`` int64 nanoseconds; ``device``, ``lane``,
    ``kind``, ``job`` uint32 places in ``strings``; ``partition``, ``worker`` int32; ``size`` int64 bytes; ``pinned``
    int8: 1, 0, anything else for no transfer."""

    strings: tuple[str, ...]
    start: _Array
    end: _Array
    device: _Array
    lane: _Array
    kind: _Array
    job: _Array
    partition: _Array
    worker: _Array
    size: _Array
    pinned: _Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class TelemetryUpdate:
    """One message of the telemetry stream. ``time_ns``/``wall_ns``: the same moment on the engine's clock and on
    the wall clock. ``identity``, ``settings`` and ``memory`` ((device, purpose) → bytes, the ledger before the
    allocations that follow in this update and later ones) are None unless sent. ``spans``: where columns were asked
    for, in the place of ``events.spans``, which are none then. ``since_ns``: in the first one, from when on the engine
    still has what it sent; 0: from its start."""

    time_ns: int
    wall_ns: int
    events: EventBatch
    jobs: list[JobInfo]
    identity: EngineIdentity | None
    settings: list[SettingInfo] | None
    memory: dict[tuple[str, str], int] | None
    spans: SpanColumns | None = None
    since_ns: int = 0


class ProcessState(StrEnum):
    """States of the daemon's process; worded here once."""

    STOPPED = "stopped"  # nothing holds the lock or the port
    STARTING = "starting"  # the process lives, the health call does not answer yet
    READY = "ready"  # the health call answered
    DRAINING = "draining"  # finishing what runs, taking nothing new
    STOPPING = "stopping"
    CRASHED = "crashed"  # it ended without being asked to
    FOREIGN = "foreign"  # another program holds the port


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The daemon as seen from outside. ``message`` is one sentence for people; ``stale``: the running build is not
    the installed one.
    """

    state: ProcessState
    address: str
    message: str
    pid: int | None = None
    build: str | None = None
    installed_build: str | None = None
    stale: bool = False
    version: str | None = None
    started_unix_ns: int | None = None
    started_by: str | None = None
    devices: tuple[DeviceDescription, ...] = ()
    jobs_running: int | None = None
    jobs_queued: int | None = None
    log_path: str | None = None
