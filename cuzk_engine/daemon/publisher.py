"""What the engine says of itself: to readers of its telemetry, to the diagnosis, and to the files of its incidents.

Events of device processes go through it as they come; what happened in the supervisor is gathered and sent as one batch
after another. It knows how to say things, and asks others for them; why they happened it does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Final, Protocol

from cuzk_engine.client.convert import identity_to_wire, job_to_wire, setting_to_wire
from cuzk_engine.client.types import EngineIdentity, SettingInfo
from cuzk_engine.daemon.background import Background
from cuzk_engine.daemon.device_log import write_lines
from cuzk_engine.daemon.diagnosing import Diagnosing
from cuzk_engine.daemon.incidents import Incidents, since_of
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.records import JobRecord
from cuzk_engine.daemon.sampling import Sampling
from cuzk_engine.daemon.timeline import Timeline
from cuzk_engine.events import EventBatch, Incident, LogLine, Mark
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_events, encode_events
from cuzk_engine.telemetry.hub import Hub
from cuzk_engine.telemetry.rows import log_from_wire

log = logging.getLogger("cuzk")

_LOG_BACKLOG: Final = 2000
_FIRST_JOBS: Final = 200


class Subject(Protocol):
    """Whom it asks when it has something to say of them."""

    @property
    def jobs(self) -> JobManager: ...
    def identity(self) -> EngineIdentity: ...
    def setting_infos(self) -> list[SettingInfo]: ...


class Publisher:
    """Works on the event loop, ``log_line`` from any thread."""

    def __init__(
        self,
        subject: Subject,
        hub: Hub,
        incidents: Incidents,
        diagnosing: Diagnosing,
        timeline: Timeline,
        sampling: Sampling,
        background: Background,
    ) -> None:
        self._subject = subject
        self._hub = hub
        self._incidents = incidents
        self._diagnosing = diagnosing
        self._timeline = timeline
        self._sampling = sampling
        self._background = background
        self._changed_jobs: dict[str, JobRecord] = {}
        self._pending = EventBatch.empty()
        self._identity_due = True
        self._settings_due = False
        self._loop = asyncio.get_running_loop()

    # ---- what happened ----

    def identity_changed(self) -> None:
        self._identity_due = True

    def settings_changed(self) -> None:
        self._settings_due = self._identity_due = True

    def job_changed(self, job: JobRecord) -> None:
        self._changed_jobs[job.id] = job

    def mark(self, kind: str, text: str, device: str = "") -> None:
        self._pending.marks.append(Mark(time.monotonic_ns(), kind, text, device))

    def incident(self, incident: Incident) -> None:
        """One that the supervisor saw itself."""
        self._pending.incidents.append(incident)
        self.flush()

    def device_events(self, device: str, columns: bytes) -> None:
        """What a device process sent."""
        batch = pb.TelemetryBatch.FromString(columns)
        write_lines(log, device, map(log_from_wire, batch.logs))
        batch.ClearField("logs")  # the log sends them on
        self._hub.publish(batch)
        self._timeline.spans(batch)
        self._diagnosing.take(batch)
        if batch.incidents:
            for incident in decode_events(pb.TelemetryBatch(incidents=batch.incidents)).incidents:
                self._keep(incident)

    def log_line(self, line: LogLine) -> None:
        """From any thread."""

        def add() -> None:
            if len(self._pending.logs) < _LOG_BACKLOG:
                self._pending.logs.append(line)
            else:
                self._pending.dropped += 1

        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(add)

    def forget_device(self, device: str, *, with_host: bool) -> None:
        """Its process has gone, and with it all that it held; ``with_host``: its buffers for transfers too."""
        self._diagnosing.forget_device(device)
        self._hub.forget_device(device)
        if with_host:
            self._hub.forget_device("host")

    # ---- saying it ----

    def flush(self) -> None:
        """One batch of what happened in the supervisor itself."""
        self._sampling.collect(self._pending)
        pending, self._pending = self._pending, EventBatch.empty()
        found = self._diagnosing.poll(time.monotonic_ns())
        pending.gaps += found.gaps
        pending.findings += found.findings
        jobs, self._changed_jobs = self._changed_jobs, {}
        if not (len(pending) or pending.dropped or jobs or self._identity_due or self._settings_due):
            return
        batch = encode_events(pending)
        batch.jobs.extend(job_to_wire(self._subject.jobs.info(job)) for job in jobs.values())
        if self._identity_due:
            batch.identity.CopyFrom(identity_to_wire(self._subject.identity()))
        if self._settings_due:
            batch.settings.extend(map(setting_to_wire, self._subject.setting_infos()))
        self._identity_due = self._settings_due = False
        self._hub.publish(batch)
        self._diagnosing.take(batch)
        for incident in pending.incidents:  # the cards' too, which the sampling found
            self._keep(incident)

    def first_batch(self, ledger: Mapping[tuple[str, str], int], history_ns: int | None) -> pb.TelemetryBatch:
        """What a telemetry reader gets before anything else: the incidents too that are not in its history, which
        begins with the batch of ``history_ns``; None: it gets none."""
        subject = self._subject
        batch = pb.TelemetryBatch(
            time_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            identity=identity_to_wire(subject.identity()),
            settings=map(setting_to_wire, subject.setting_infos()),
            memory_is_set=True,
            since_ns=self._hub.past_since_ns,
        )
        for (device, purpose), nbytes in ledger.items():
            batch.memory.add(device=device, purpose=purpose, bytes=nbytes)
        batch.jobs.extend(job_to_wire(subject.jobs.info(job)) for job in subject.jobs.newest(_FIRST_JOBS))
        earlier = EventBatch.empty()
        earlier.incidents.extend(self._incidents.told_before(history_ns))
        batch.incidents.extend(encode_events(earlier).incidents)
        return batch

    def _keep(self, incident: Incident) -> None:
        """One of the batch that was sent last."""
        if self._incidents.note(incident, self._hub.sent_ns):
            past = self._hub.past(since_of(incident))
            self._background.start(asyncio.to_thread(self._incidents.write, incident, past))
