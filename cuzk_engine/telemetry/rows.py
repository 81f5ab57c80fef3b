"""Events that are few, one message each: samples, marks, incidents, gaps, findings, lines of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cuzk_engine.events import (
    Finding,
    Gap,
    Holding,
    Incident,
    LogLine,
    Mark,
    OtherProcess,
    Picture,
    Remedy,
    Sample,
)
from cuzk_engine.proto import engine_v1_pb2 as pb

SAMPLE_FIELDS: Final = (
    "memory_used",
    "memory_reserved",
    "memory_other",
    "memory_capacity",
    "pcie_rx",
    "pcie_tx",
    "utilisation",
    "power",
    "clock",
    "temperature",
    "throttle",
)


def sample_to_wire(sample: Sample) -> pb.Sample:
    return pb.Sample(
        time_ns=sample.time_ns, device=sample.device, **{name: getattr(sample, name) for name in SAMPLE_FIELDS}
    )


def sample_from_wire(sample: pb.Sample) -> Sample:
    values: dict[str, Any] = {name: getattr(sample, name) for name in SAMPLE_FIELDS if sample.HasField(name)}
    return Sample(sample.time_ns, sample.device, **values)


def mark_to_wire(mark: Mark) -> pb.Mark:
    return pb.Mark(time_ns=mark.time_ns, kind=mark.kind, text=mark.text, device=mark.device)


def mark_from_wire(mark: pb.Mark) -> Mark:
    return Mark(mark.time_ns, mark.kind, mark.text, mark.device)


def log_to_wire(line: LogLine) -> pb.LogLine:
    return pb.LogLine(time_ns=line.time_ns, wall_ns=line.wall_ns, level=line.level, message=line.message)


def log_from_wire(line: pb.LogLine) -> LogLine:
    return LogLine(line.time_ns, line.wall_ns, line.level, line.message)


def incident_to_wire(incident: Incident) -> pb.Incident:
    return pb.Incident(
        time_ns=incident.time_ns,
        device=incident.device,
        kind=incident.kind,
        job=incident.job,
        message=incident.message,
        requested=incident.requested,
        free=incident.free,
        picture=None if incident.picture is None else picture_to_wire(incident.picture),
    )


def incident_from_wire(incident: pb.Incident) -> Incident:
    return Incident(
        incident.time_ns,
        incident.device,
        incident.kind,
        incident.job,
        incident.message,
        incident.requested if incident.HasField("requested") else None,
        incident.free if incident.HasField("free") else None,
        picture_from_wire(incident.picture) if incident.HasField("picture") else None,
    )


def picture_to_wire(picture: Picture) -> pb.Picture:
    return pb.Picture(
        capacity=picture.capacity,
        free=picture.free,
        holdings=map(_holding_to_wire, picture.holdings),
        host=map(_holding_to_wire, picture.host),
        others=[pb.OtherProcess(pid=o.pid, name=o.name, bytes=o.bytes) for o in picture.others],
        purpose=picture.purpose,
        worker=picture.worker,
        settings=dict(picture.settings),
        remedies=map(remedy_to_wire, picture.remedies),
        since_ns=picture.since_ns,
    )


def picture_from_wire(picture: pb.Picture) -> Picture:
    """The settings come in the order of their keys: the wire keeps none."""
    return Picture(
        capacity=picture.capacity,
        free=picture.free,
        holdings=_holdings_from_wire(picture.holdings),
        host=_holdings_from_wire(picture.host),
        others=tuple(OtherProcess(o.pid, o.name, o.bytes if o.HasField("bytes") else None) for o in picture.others),
        purpose=picture.purpose,
        worker=picture.worker,
        settings=tuple(sorted(picture.settings.items())),
        remedies=tuple(map(remedy_from_wire, picture.remedies)),
        since_ns=picture.since_ns,
    )


def remedy_to_wire(remedy: Remedy) -> pb.Remedy:
    return pb.Remedy(
        key=remedy.key,
        value=remedy.value,
        text=remedy.text,
        device=remedy.device,
        peak=remedy.peak,
        gain=remedy.gain,
    )


def remedy_from_wire(remedy: pb.Remedy) -> Remedy:
    return Remedy(
        remedy.key,
        remedy.value,
        remedy.text,
        remedy.device,
        remedy.peak if remedy.HasField("peak") else None,
        remedy.gain if remedy.HasField("gain") else None,
    )


def gap_to_wire(gap: Gap) -> pb.Gap:
    return pb.Gap(
        start_ns=gap.start_ns,
        end_ns=gap.end_ns,
        device=gap.device,
        cause=gap.cause,
        evidence=gap.evidence,
        job=gap.job,
        worker=gap.worker,
    )


def gap_from_wire(gap: pb.Gap) -> Gap:
    return Gap(gap.start_ns, gap.end_ns, gap.device, gap.cause, gap.evidence, gap.job, gap.worker)


def finding_to_wire(finding: Finding) -> pb.Finding:
    return pb.Finding(
        time_ns=finding.time_ns,
        device=finding.device,
        kind=finding.kind,
        title=finding.title,
        evidence=finding.evidence,
        start_ns=finding.start_ns,
        end_ns=finding.end_ns,
        remedies=map(remedy_to_wire, finding.remedies),
    )


def finding_from_wire(finding: pb.Finding) -> Finding:
    return Finding(
        finding.time_ns,
        finding.device,
        finding.kind,
        finding.title,
        tuple(finding.evidence),
        finding.start_ns,
        finding.end_ns,
        tuple(map(remedy_from_wire, finding.remedies)),
    )


def _holding_to_wire(holding: Holding) -> pb.Holding:
    return pb.Holding(purpose=holding.purpose, worker=holding.worker, job=holding.job, bytes=holding.bytes)


def _holdings_from_wire(rows: Iterable[pb.Holding]) -> tuple[Holding, ...]:
    return tuple(Holding(row.purpose, row.worker, row.job, row.bytes) for row in rows)
