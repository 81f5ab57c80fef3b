"""What happened, as seen by charts, recordings and the diagnosis.

Times are int64 nanoseconds of one monotonic clock (CLOCK_MONOTONIC, the same for all processes of a machine since
boot). A frozen dataclass is the view of one row, a named tuple where there are hundreds in each proof. Storage and wire
are columns: see ``cuzk_engine.telemetry.columns``.
A value that could not be read is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple


class Name(StrEnum):
    """A text that is looked up often: an enumeration's own hash is computed by the interpreter."""

    __hash__ = str.__hash__


class Purpose(Name):
    """Who a byte of device memory belongs to."""

    SRS = "srs"
    MATRICES = "matrices"
    WITNESS = "witness"
    ABC = "abc"
    NTT = "ntt"
    MSM = "msm"
    SCRATCH = "scratch"
    RESULT = "result"
    CONTEXT = "context"


class Lane(Name):
    """A row of a device's timeline. Host threads have lanes ``host:W``, W the worker's number."""

    COMPUTE = "compute"
    H2D = "h2d"
    D2H = "d2h"
    LOCK = "lock"


HOST_LANE_PREFIX: Final = "host:"


def host_lane(worker: int) -> str:
    """The lane of worker ``worker``'s host thread."""
    return f"{HOST_LANE_PREFIX}{worker}"


class Kind(Name):
    """What a span did. The part before the dot groups kinds for colours and legends."""

    NTT = "ntt"
    NTT_COSET = "ntt.coset"
    POINTWISE = "pointwise"
    SPMV = "spmv"
    MSM_DIGITS = "msm.digits"
    MSM_ACCUMULATE = "msm.accumulate"
    MSM_REDUCE = "msm.reduce"
    CHECK = "check"
    UPLOAD_WITNESS = "upload.witness"
    UPLOAD_ABC = "upload.abc"
    UPLOAD_SRS = "upload.srs"
    DOWNLOAD_RESULT = "download.result"
    LOCK_WAIT = "lock.wait"
    LOCK_HELD = "lock.held"
    LOAD_KEY = "host.load_key"
    READ_WITNESS = "host.read_witness"
    EVALUATE = "host.evaluate"
    ASSEMBLE = "host.assemble"
    VERIFY = "host.verify"
    DELIVER = "host.deliver"
    RESULT_SYNC = "host.result_sync"  # the host waited for an MSM's result while nothing else was enqueued
    PAGE_LOCK = "host.page_lock"
    COMPILE = "host.compile"
    POOL_TRIM = "host.pool_trim"
    MEMORY_WAIT = "memory.wait"


class Span(NamedTuple):
    """Something that lasted. ``worker``, ``partition`` -1 and ``job`` "" where it belongs to none."""

    start_ns: int
    end_ns: int
    device: str
    lane: str
    kind: str
    job: str = ""
    partition: int = -1
    worker: int = -1
    bytes: int = 0
    pinned: bool | None = None  # of a transfer: page-locked or pageable host memory; None: no transfer


new_span: Final[Callable[[tuple[object, ...]], Span]] = partial(tuple.__new__, Span)
"""A span from all of its fields: a fraction of what its own constructor takes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Readings of a device at one time. Bytes, bytes a second, shares 0…1, watts, MHz, °C. ``throttle``: what keeps the
    clock down, names with commas (``nvml.THROTTLE_REASONS``), "" for nothing.
    """

    time_ns: int
    device: str
    memory_used: int | None = None
    memory_reserved: int | None = None
    memory_other: int | None = None
    memory_capacity: int | None = None
    pcie_rx: float | None = None
    pcie_tx: float | None = None
    utilisation: float | None = None
    power: float | None = None
    clock: float | None = None
    temperature: float | None = None
    throttle: str | None = None


class Allocation(NamedTuple):
    """Device memory taken (delta > 0) or given back (delta < 0)."""

    time_ns: int
    device: str
    delta: int
    purpose: str
    worker: int = -1
    job: str = ""


new_allocation: Final[Callable[[tuple[object, ...]], Allocation]] = partial(tuple.__new__, Allocation)
"""The same for an allocation."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point on the time axis: a setting changed, the daemon started, a recording began. ``device`` "" means all."""

    time_ns: int
    kind: str  # "setting" | "daemon" | "recording"
    text: str  # e.g. "pre-staging → ahead"
    device: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of a ledger that belong together. ``worker`` -1 and ``job`` "" where they belong to none."""

    purpose: str
    worker: int
    job: str
    bytes: int


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A program besides the engine that holds memory of a device; ``name`` "" where it is not visible here."""

    pid: int
    name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of settings that would have helped. ``text``: what it does, one sentence. ``peak``: the bytes that
    would be needed with it, None where memory is not the matter. ``gain``: share of the device's idle time that it
    would save, None where it is not known."""

    key: str
    value: str
    text: str
    device: str = ""  # of a per-device override, else ""
    peak: int | None = None
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What was, when an incident happened: frozen, so that it can be looked at later.

    ``capacity``, ``free``: of the device, bytes. ``holdings``: of the device's ledger; ``host``: of the host's.
    ``purpose``, ``worker``: of the request that failed. ``settings``: (key, value) of the pipeline. ``remedies``:
    smallest change first. ``since_ns``: the events from then to the incident belong to the picture (the last ten
    seconds).
    """

    capacity: int
    free: int
    holdings: tuple[Holding, ...] = ()
    host: tuple[Holding, ...] = ()
    others: tuple[OtherProcess, ...] = ()
    purpose: str = ""
    worker: int = -1
    settings: tuple[tuple[str, str], ...] = ()
    remedies: tuple[Remedy, ...] = ()
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault worth a flag: kind "out-of-memory" | "device-lost" | "worker-died" | "verification-failed"."""

    time_ns: int
    device: str
    kind: str
    job: str
    message: str
    requested: int | None = None
    free: int | None = None
    picture: Picture | None = None


class Cause(StrEnum):
    """Why a device's compute lane was idle."""

    QUEUE_EMPTY = "queue-empty"
    HOST_STARVED = "host-starved"
    SRS_COLD = "srs-cold"
    LOCK_HANDOVER = "lock-handover"
    PAGEABLE_UPLOAD = "pageable-upload"
    RESULT_SYNC = "result-sync"
    MEMORY_WAIT = "memory-wait"
    POOL_TRIM = "pool-trim"
    KERNEL_COMPILE = "kernel-compile"
    OTHER_PROCESS = "other-process"
    THROTTLED = "throttled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a device ran no kernel, and why. ``evidence``: one sentence with figures."""

    start_ns: int
    end_ns: int
    device: str
    cause: str
    evidence: str
    job: str = ""
    worker: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """What the diagnosis concludes from a stretch of time. ``kind``: a Cause or an incident's kind; ``title``: one
    line; ``evidence``: sentences with figures; ``remedies``: most gain first."""

    time_ns: int
    device: str
    kind: str
    title: str
    evidence: tuple[str, ...]
    start_ns: int
    end_ns: int
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the engine's log. ``wall_ns`` is the wall clock (Unix epoch), for display."""

    time_ns: int
    wall_ns: int
    level: str  # "DEBUG" | "INFO" | "WARNING" | "ERROR"
    message: str


Event = Span | Sample | Allocation | Mark | Incident | LogLine | Gap | Finding


@dataclass(slots=True)
class EventBatch:
    """Events of one moment, of every kind; what a telemetry stream yields. ``dropped``: events lost before this
    batch.
    """

    spans: list[Span]
    samples: list[Sample]
    allocations: list[Allocation]
    marks: list[Mark]
    incidents: list[Incident]
    logs: list[LogLine]
    gaps: list[Gap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    dropped: int = 0

    @classmethod
    def empty(cls) -> EventBatch:
        return cls([], [], [], [], [], [])

    def __len__(self) -> int:
        return (
            len(self.spans)
            + len(self.samples)
            + len(self.allocations)
            + len(self.marks)
            + len(self.incidents)
            + len(self.logs)
            + len(self.gaps)
            + len(self.findings)
        )
