"""The running engine's diagnosis: takes what the supervisor publishes, and gives it gaps and findings to publish."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cuzk_engine.client.convert import job_from_wire
from cuzk_engine.diagnosis.live import LiveDiagnosis
from cuzk_engine.diagnosis.remedies import WORKERS, Situation
from cuzk_engine.diagnosis.room import Plan, admitted_by
from cuzk_engine.events import EventBatch
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.rows import incident_from_wire, sample_from_wire
from cuzk_engine.telemetry.tables import span_table

log = logging.getLogger("cuzk")

SETTINGS: Final = (
    "pipeline.prestage",
    "pipeline.double_buffer",
    "pipeline.evaluate",
    "srs.residency",
    "cpu.arena",
    WORKERS,
)
"""What the diagnosis may recommend to change."""

DeviceFacts = Callable[[str], tuple[int, bool, Iterable[str]] | None]
"""Of a device: its workers, whether it is a GPU, its inert settings. None for one that is not there."""


PlanOf = Callable[[str], Plan | None]
"""The memory plan of what a device proves, None where none is known."""


class Diagnosing:
    """Works on the event loop. ``settings``: texts of ``SETTINGS`` as they are now."""

    def __init__(self, settings: Callable[[], Mapping[str, str]], facts: DeviceFacts, plan_of: PlanOf) -> None:
        self._settings = settings
        self._facts = facts
        self._plan_of = plan_of
        self._live = LiveDiagnosis(self._situation)

    def take(self, batch: pb.TelemetryBatch) -> None:
        """A batch that was published, with its time. A fault in it is logged and goes no further."""
        live = self._live
        try:
            if batch.HasField("spans") or batch.samples or batch.incidents:
                spans = span_table(batch.spans, batch.strings, live.names)
                incidents = map(incident_from_wire, batch.incidents)
                live.feed(spans, batch.time_ns, map(sample_from_wire, batch.samples), incidents)
            if batch.jobs:
                live.feed_jobs(map(job_from_wire, batch.jobs), batch.wall_ns - batch.time_ns)
        except Exception:
            log.exception("the diagnosis of a batch of events failed")

    def poll(self, now_ns: int) -> EventBatch:
        """What is new, see ``LiveDiagnosis.poll``."""
        return self._live.poll(now_ns)

    def forget_device(self, device: str) -> None:
        self._live.forget_device(device)

    def _situation(self, device: str) -> Situation:
        facts = self._facts(device)
        if facts is None:
            return Situation(device, device != "cpu")
        workers, is_card, inert = facts
        settings = {**self._settings(), WORKERS: str(workers)}
        return Situation(device, is_card, settings, frozenset(inert), admitted_by(self._plan_of(device), settings))
