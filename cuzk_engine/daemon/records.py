"""What the daemon remembers of a job: the job, its partitions, and the circuits that it knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cuzk_engine.client.types import CircuitInfo, JobInfo, JobState, PhaseTime, Priority

CIRCUIT_KIND: Final = "circom"
"""The kind of a job that proves a registered circuit; other kinds are those of cuzk.v1."""

# What each phase of the pipeline counts as for clients of cuzk.v1 and in /status.
SRS_PHASES: Final = frozenset({"load_key"})
SYNTHESIS_PHASES: Final = frozenset({"read_witness", "evaluate"})
_PREPARING: Final = frozenset({"", "load_key", "read_witness", "memory", "evaluate"})
_WAITS: Final = frozenset({"memory", "lock"})
_BETWEEN: Final = frozenset({"upload", "lock"})


MAX_DEATHS: Final = 2
"""Processes that may die while they run a partition, until it counts as the cause."""
_MAX_UNVERIFIED: Final = 2
_MAX_SHORT: Final = 2


class Fault(StrEnum):
    """Why a partition failed, as far as it matters for what comes next."""

    ERROR = "error"
    MEMORY = "memory"  # an allocation failed
    PLAN = "plan"  # it can never fit on that device
    UNVERIFIED = "unverified"  # the proof did not verify


@dataclass(frozen=True, slots=True)
class Failure:
    """How a partition failed. ``never``: no proof of its circuit will ever fit on that device. ``reduced``: the next
    smaller mode for a second try, None where there is none."""

    error: str
    fault: Fault = Fault.ERROR
    never: bool = False
    reduced: int | None = None


class PartitionState(StrEnum):
    """As /status words it. FAILED is also what was cancelled, or never ran because its job had ended."""

    PENDING = "pending"
    SYNTHESIZING = "synthesizing"
    SYNTH_DONE = "synth_done"
    GPU = "gpu"
    DONE = "done"
    FAILED = "failed"

    @property
    def runs(self) -> bool:
        return self in (PartitionState.SYNTHESIZING, PartitionState.SYNTH_DONE, PartitionState.GPU)

    def after(self, phase: str) -> PartitionState:
        """The state of a running partition that has come to ``phase``; never one that it has left."""
        if self is PartitionState.SYNTHESIZING and phase in _PREPARING:
            return self
        if self is not PartitionState.GPU and phase in _BETWEEN:
            return PartitionState.SYNTH_DONE
        return PartitionState.GPU


@dataclass(frozen=True, slots=True)
class Kept:
    """A result that came into the store ahead of its partition's end; ``nbytes``: of both texts."""

    nbytes: int


@dataclass(slots=True, eq=False)
class Partition:
    """One witness of a job, and what became of it.

    ``witness_identity``: the state of its file when the job was accepted, kept for jobs that have a request id.
    ``attempts``: how often it was started. ``deaths``: how often the process that ran it died. ``short``: how often its
    memory was; ``reduced``: how many modes further down than was asked for it begins since then. ``unverified``: proofs
    that did not verify. ``alone``: it runs with nothing else on its device, for the process that ran it has died.
    ``avoid``: the device that it failed on. ``refused``: device → why its memory can never be enough. ``proof``:
    proof.json and public.json, until they are in the store; ``result_bytes``: of both.
    """

    number: int = 0
    witness_path: str = ""
    witness_identity: tuple[int, ...] = ()
    state: PartitionState = PartitionState.PENDING
    phase: str = ""
    progress: float = 0.0
    device: str = ""
    attempts: int = 0
    deaths: int = 0
    short: int = 0
    reduced: int = 0
    unverified: int = 0
    started_unix_ns: int = 0
    alone: bool = False
    avoid: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    phases: list[PhaseTime] = field(default_factory=list)
    proof: tuple[str, str] | None = None
    result_bytes: int = 0

    def done(self, result: tuple[str, str] | Kept, phases: list[PhaseTime]) -> None:
        """It is proved."""
        self.state, self.phase, self.progress, self.phases = PartitionState.DONE, "", 1.0, phases
        if isinstance(result, Kept):
            self.proof, self.result_bytes = None, result.nbytes
        else:
            self.proof, self.result_bytes = result, len(result[0]) + len(result[1])

    def wait_again(self) -> None:
        """As if it had not been started; what it has been through stays known."""
        self.state, self.phase, self.progress = PartitionState.PENDING, "", 0.0

    def died(self) -> bool:
        """Its process died: takes note, and says whether it may be tried again."""
        self.deaths += 1
        self.alone, self.avoid = True, self.device
        return self.deaths < MAX_DEATHS

    def failed(self, failure: Failure) -> bool:
        """Takes note, and says whether it may be tried again: in a smaller mode, on another device, or as it was."""
        self.avoid = self.device
        match failure.fault:
            case Fault.MEMORY:
                self.short += 1
                self.reduced = self.reduced if failure.reduced is None else failure.reduced
                return failure.reduced is not None and self.short < _MAX_SHORT
            case Fault.PLAN:
                self.refused[self.device] = failure.error
                return True
            case Fault.UNVERIFIED:
                self.unverified += 1
                return self.unverified < _MAX_UNVERIFIED
        return False


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job. ``order`` grows with each accepted job; ``since_ns``: since when it waits, on a clock that nobody sets, of
    this start of the daemon; ``parts`` are empty in a record that was read for its summary. ``result_bytes``: of its
    proofs and public signals, 0 where a build before this one made them."""

    id: str
    kind: str = CIRCUIT_KIND
    request_id: str = ""
    circuit_id: str = ""
    circuit_name: str = ""
    curve: str = ""
    label: str = ""
    key_path: str = ""
    key_identity: tuple[int, ...] = ()
    spooled: bool = False
    wanted_device: str = ""
    state: JobState = JobState.QUEUED
    priority: Priority = Priority.NORMAL
    order: int = 0
    since_ns: int = 0
    phase: str = ""
    progress: float = 0.0
    device: str = ""
    partitions: int = 1
    partitions_done: int = 0
    error: str = ""
    submitted_unix_ns: int = 0
    started_unix_ns: int = 0
    finished_unix_ns: int = 0
    last_activity_unix_ns: int = 0
    phases: list[PhaseTime] = field(default_factory=list)
    attempts: int = 0
    cancelling: bool = False
    result_bytes: int = 0
    parts: list[Partition] = field(default_factory=lambda: [Partition()])

    def summarise(self) -> None:
        """Makes the job's own figures from those of its partitions."""
        parts = self.parts
        self.partitions = len(parts)
        self.partitions_done = sum(part.state is PartitionState.DONE for part in parts)
        self.progress = sum(part.progress for part in parts) / len(parts)
        self.attempts = max(part.attempts for part in parts)
        self.result_bytes = sum(part.result_bytes for part in parts)
        self.device = ", ".join(sorted({part.device for part in parts if part.device}))
        self.phases = add_phases(part.phases for part in parts)

    def info(self, queue_position: int) -> JobInfo:
        """As clients see it."""
        return JobInfo(
            id=self.id,
            request_id=self.request_id,
            circuit_id=self.circuit_id,
            circuit_name=self.circuit_name,
            curve=self.curve,
            label=self.label,
            state=self.state,
            priority=self.priority,
            queue_position=queue_position,
            phase=self.phase,
            progress=self.progress,
            device=self.device,
            partitions=self.partitions,
            partitions_done=self.partitions_done,
            error=self.error,
            submitted_unix_ns=self.submitted_unix_ns,
            started_unix_ns=self.started_unix_ns,
            finished_unix_ns=self.finished_unix_ns,
            last_activity_unix_ns=self.last_activity_unix_ns,
            phases=tuple(self.phases),
            attempts=self.attempts,
        )


@dataclass(slots=True)
class Totals:
    """Since the daemon started, by kind of job; ``retried`` counts partitions, by Fault and "died"."""

    completed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    partitions: int = 0
    retried: Counter[str] = field(default_factory=Counter)

    def count(self, job: JobRecord) -> None:
        """A job that has ended."""
        if job.state is JobState.COMPLETED:
            self.completed[job.kind] += 1
            # The clock may have been set back meanwhile; a sum for monitors never falls.
            self.seconds[job.kind] += max(0, job.finished_unix_ns - job.started_unix_ns) / 1e9
        elif job.state is JobState.FAILED:
            self.failed[job.kind] += 1
        else:
            self.cancelled[job.kind] += 1


@dataclass(frozen=True, slots=True)
class CircuitRecord:
    """A registered key: what the client sees and the state of the file when it was looked at."""

    info: CircuitInfo
    identity: tuple[int, ...]  # device, inode, size, mtime, ctime


@dataclass(frozen=True, slots=True)
class PhaseSums:
    """Milliseconds, as cuzk.v1 divides them; waits for memory and for the device's lock are in none."""

    srs: int
    synthesis: int
    device: int

    @classmethod
    def of(cls, phases: Iterable[PhaseTime]) -> PhaseSums:
        named = {phase.name: phase.nanoseconds for phase in add_phases([phases])}
        srs = sum(named.get(name, 0) for name in SRS_PHASES)
        synthesis = sum(named.get(name, 0) for name in SYNTHESIS_PHASES)
        waits = sum(named.get(name, 0) for name in _WAITS)
        return cls(srs // 10**6, synthesis // 10**6, (sum(named.values()) - srs - synthesis - waits) // 10**6)


def add_phases(lists: Iterable[Iterable[PhaseTime]]) -> list[PhaseTime]:
    """Phases of the same name added up, in the order in which they first come."""
    sums: dict[str, int] = {}
    for phases in lists:
        for phase in phases:
            sums[phase.name] = sums.get(phase.name, 0) + phase.nanoseconds
    return [PhaseTime(name, nanoseconds) for name, nanoseconds in sums.items()]


def no_synthesiser(kind: str) -> str:
    """Why a job of a cuzk.v1 kind fails."""
    return (
        f"no synthesiser for {kind} is installed: this engine proves registered circom circuits, "
        "through cuzk.engine.v1; the request was understood, but nothing here can make its witness"
    )
