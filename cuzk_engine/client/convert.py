"""Messages of ``cuzk.engine.v1`` as the client's plain types, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cuzk_engine.client.types import (
    CircuitInfo,
    DeviceDescription,
    EngineIdentity,
    JobInfo,
    JobState,
    MemoryPlanInfo,
    PhaseTime,
    PlanChoice,
    Priority,
    SettingInfo,
    SpanColumns,
    TelemetryUpdate,
)
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_events, span_columns

_STATES = {
    pb.JOB_STATE_QUEUED: JobState.QUEUED,
    pb.JOB_STATE_RUNNING: JobState.RUNNING,
    pb.JOB_STATE_COMPLETED: JobState.COMPLETED,
    pb.JOB_STATE_FAILED: JobState.FAILED,
    pb.JOB_STATE_CANCELLED: JobState.CANCELLED,
}
_PRIORITIES = {
    pb.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    pb.PRIORITY_LOW: Priority.LOW,
    pb.PRIORITY_NORMAL: Priority.NORMAL,
    pb.PRIORITY_HIGH: Priority.HIGH,
    pb.PRIORITY_CRITICAL: Priority.CRITICAL,
}
_STATES_BACK = {ours: wire for wire, ours in _STATES.items()}
_PRIORITIES_BACK = {ours: wire for wire, ours in _PRIORITIES.items() if wire != pb.PRIORITY_UNSPECIFIED}


def priority_to_wire(priority: Priority) -> pb.Priority.ValueType:
    return _PRIORITIES_BACK[priority]


def priority_from_wire(value: int) -> Priority | None:
    """None for a number that is no priority."""
    return {int(wire): ours for wire, ours in _PRIORITIES.items()}.get(value)


def job_from_wire(job: pb.Job) -> JobInfo:
    return JobInfo(
        id=job.id,
        request_id=job.request_id,
        circuit_id=job.circuit_id,
        circuit_name=job.circuit_name,
        curve=job.curve,
        label=job.label,
        state=_STATES.get(job.state, JobState.QUEUED),
        priority=_PRIORITIES.get(job.priority, Priority.NORMAL),
        queue_position=job.queue_position,
        phase=job.phase,
        progress=job.progress,
        device=job.device,
        partitions=job.partitions,
        partitions_done=job.partitions_done,
        error=job.error,
        submitted_unix_ns=job.submitted_unix_ns,
        started_unix_ns=job.started_unix_ns,
        finished_unix_ns=job.finished_unix_ns,
        last_activity_unix_ns=job.last_activity_unix_ns,
        phases=tuple(PhaseTime(phase.name, phase.nanoseconds) for phase in job.phases),
        attempts=job.attempts,
    )


def job_to_wire(job: JobInfo) -> pb.Job:
    return pb.Job(
        id=job.id,
        request_id=job.request_id,
        circuit_id=job.circuit_id,
        circuit_name=job.circuit_name,
        curve=job.curve,
        label=job.label,
        state=_STATES_BACK[job.state],
        priority=_PRIORITIES_BACK[job.priority],
        queue_position=job.queue_position,
        phase=job.phase,
        progress=job.progress,
        device=job.device,
        partitions=job.partitions,
        partitions_done=job.partitions_done,
        error=job.error,
        submitted_unix_ns=job.submitted_unix_ns,
        started_unix_ns=job.started_unix_ns,
        finished_unix_ns=job.finished_unix_ns,
        last_activity_unix_ns=job.last_activity_unix_ns,
        phases=[pb.PhaseTime(name=phase.name, nanoseconds=phase.nanoseconds) for phase in job.phases],
        attempts=job.attempts,
    )


def circuit_from_wire(circuit: pb.Circuit) -> CircuitInfo:
    return CircuitInfo(
        id=circuit.id,
        name=circuit.name,
        key_path=circuit.key_path,
        curve=circuit.curve,
        n_vars=circuit.n_vars,
        n_public=circuit.n_public,
        domain_size=circuit.domain_size,
        key_bytes=circuit.key_bytes,
        last_used_unix_ns=circuit.last_used_unix_ns,
    )


def circuit_to_wire(circuit: CircuitInfo) -> pb.Circuit:
    return pb.Circuit(
        id=circuit.id,
        name=circuit.name,
        key_path=circuit.key_path,
        curve=circuit.curve,
        n_vars=circuit.n_vars,
        n_public=circuit.n_public,
        domain_size=circuit.domain_size,
        key_bytes=circuit.key_bytes,
        last_used_unix_ns=circuit.last_used_unix_ns,
    )


def device_from_wire(device: pb.DeviceInfo) -> DeviceDescription:
    return DeviceDescription(
        id=device.id,
        name=device.name,
        kind=device.kind,
        capacity=device.capacity,
        capacity_source=device.capacity_source,
        uuid=device.uuid,
        bus_id=device.bus_id,
        isa=device.isa,
        workers=device.workers,
        state=device.state,
        reason=device.reason,
        pid=device.pid,
        inert_settings=tuple(device.inert_settings),
    )


def device_to_wire(device: DeviceDescription) -> pb.DeviceInfo:
    return pb.DeviceInfo(
        id=device.id,
        name=device.name,
        kind=device.kind,
        capacity=device.capacity,
        capacity_source=device.capacity_source,
        uuid=device.uuid,
        bus_id=device.bus_id,
        isa=device.isa,
        workers=device.workers,
        state=device.state,
        reason=device.reason,
        pid=device.pid,
        inert_settings=device.inert_settings,
    )


def identity_from_wire(identity: pb.Identity) -> EngineIdentity:
    return EngineIdentity(
        build=identity.build,
        version=identity.version,
        pid=identity.pid,
        started_unix_ns=identity.started_unix_ns,
        configuration_hash=identity.configuration_hash,
        state=identity.state,
        address=identity.address,
        devices=tuple(map(device_from_wire, identity.devices)),
        started_by=identity.started_by,
        home=identity.home,
        log_path=identity.log_path,
        jobs_running=identity.jobs_running,
        jobs_queued=identity.jobs_queued,
    )


def identity_to_wire(identity: EngineIdentity) -> pb.Identity:
    return pb.Identity(
        build=identity.build,
        version=identity.version,
        pid=identity.pid,
        started_unix_ns=identity.started_unix_ns,
        configuration_hash=identity.configuration_hash,
        state=identity.state,
        address=identity.address,
        devices=map(device_to_wire, identity.devices),
        started_by=identity.started_by,
        home=identity.home,
        log_path=identity.log_path,
        jobs_running=identity.jobs_running,
        jobs_queued=identity.jobs_queued,
    )


def setting_from_wire(setting: pb.Setting) -> SettingInfo:
    return SettingInfo(
        key=setting.key,
        value=setting.value,
        default=setting.default,
        title=setting.title,
        help=setting.help,
        type=setting.type,
        choices=tuple(setting.choices),
        minimum=setting.minimum if setting.HasField("minimum") else None,
        maximum=setting.maximum if setting.HasField("maximum") else None,
        live=setting.live,
        source=setting.source,
        device=setting.device,
    )


def setting_to_wire(setting: SettingInfo) -> pb.Setting:
    return pb.Setting(
        key=setting.key,
        value=setting.value,
        default=setting.default,
        title=setting.title,
        help=setting.help,
        type=setting.type,
        choices=setting.choices,
        minimum=setting.minimum,
        maximum=setting.maximum,
        live=setting.live,
        source=setting.source,
        device=setting.device,
    )


def plan_from_wire(plan: pb.MemoryPlan) -> MemoryPlanInfo:
    return MemoryPlanInfo(
        device=plan.device,
        capacity=plan.capacity,
        peak=plan.peak,
        fits=plan.fits,
        by_purpose=_by_purpose(plan.by_purpose),
        total=plan.total,
        free=plan.free,
        others=plan.others if plan.HasField("others") else None,
        workers=plan.workers,
        stages={stage.name: _by_purpose(stage.by_purpose) for stage in plan.stages},
        choices=tuple(PlanChoice(dict(c.settings), c.text, c.peak, c.total, c.fits, c.all_fit) for c in plan.choices),
        chosen=plan.chosen,
        host_peak=plan.host_peak,
        host_capacity=plan.host_capacity,
    )


def plan_to_wire(plan: MemoryPlanInfo) -> pb.MemoryPlan:
    def rows(by_purpose: Mapping[str, int]) -> list[pb.MemoryByPurpose]:
        return [pb.MemoryByPurpose(device=plan.device, purpose=name, bytes=size) for name, size in by_purpose.items()]

    return pb.MemoryPlan(
        device=plan.device,
        capacity=plan.capacity,
        peak=plan.peak,
        fits=plan.fits,
        by_purpose=rows(plan.by_purpose),
        total=plan.total,
        free=plan.free,
        others=plan.others,
        workers=plan.workers,
        stages=[pb.PlanStage(name=name, by_purpose=rows(sizes)) for name, sizes in plan.stages.items()],
        choices=[
            pb.PlanChoice(settings=c.settings, text=c.text, peak=c.peak, total=c.total, fits=c.fits, all_fit=c.all_fit)
            for c in plan.choices
        ],
        chosen=plan.chosen,
        host_peak=plan.host_peak,
        host_capacity=plan.host_capacity,
    )


def _by_purpose(rows: Iterable[pb.MemoryByPurpose]) -> dict[str, int]:
    return {row.purpose: row.bytes for row in rows}


def proofs_from_wire(proof: pb.Proof) -> list[tuple[str, str]]:
    """proof.json and public.json of each partition; an engine before this one sends no pages, but all of them."""
    several = [(part.proof_json, part.public_json) for part in proof.partitions]
    return several or [(proof.proof_json, proof.public_json)]


def update_from_wire(batch: pb.TelemetryBatch, *, columns: bool = False) -> TelemetryUpdate:
    """``columns``: spans are left as they come, which takes a small part of the time. Raises ValueError for columns
    that do not fit together."""
    spans = None
    if columns:
        strings = tuple(batch.strings)
        spans = SpanColumns(strings, *span_columns(batch.spans, len(strings)))
    return TelemetryUpdate(
        time_ns=batch.time_ns,
        wall_ns=batch.wall_ns,
        events=decode_events(batch, spans=not columns),
        jobs=[job_from_wire(job) for job in batch.jobs],
        identity=identity_from_wire(batch.identity) if batch.HasField("identity") else None,
        settings=[setting_from_wire(setting) for setting in batch.settings] or None,
        memory={(row.device, row.purpose): row.bytes for row in batch.memory} if batch.memory_is_set else None,
        spans=spans,
        since_ns=batch.since_ns,
    )
