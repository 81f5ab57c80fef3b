"""All of a recording, or a part of its time, as the diagnosis wants it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuzk_engine.client.convert import job_from_wire, setting_from_wire
from cuzk_engine.client.recording import Recording, RecordingInfo
from cuzk_engine.client.types import DeviceDescription, SettingInfo
from cuzk_engine.diagnosis.jobs import JobTable
from cuzk_engine.diagnosis.memory import PeakMeter
from cuzk_engine.diagnosis.remedies import WORKERS, Situation
from cuzk_engine.diagnosis.summary import Summary, summarise
from cuzk_engine.diagnosis.table import Names, SpanTable, joined
from cuzk_engine.errors import FormatError
from cuzk_engine.events import Incident, Mark, Sample
from cuzk_engine.recording.in_force import InForce, in_force
from cuzk_engine.telemetry.columns import decode_allocations
from cuzk_engine.telemetry.rows import incident_from_wire, mark_from_wire, sample_from_wire

_MOST_JOBS = 1_000_000


@dataclass(slots=True)
class Contents:
    """``spans`` of all devices; ``settings``: those in force at ``end_ns``; ``damage``: one sentence, where the file
    could not be read to its end: ``end_ns`` is then up to when it could."""

    info: RecordingInfo
    start_ns: int
    end_ns: int
    spans: SpanTable
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    jobs: JobTable = field(default_factory=lambda: JobTable(_MOST_JOBS))
    peaks: PeakMeter = field(default_factory=PeakMeter)
    settings: InForce = field(default_factory=InForce)
    damage: str | None = None

    @classmethod
    def load(cls, recording: Recording, start_ns: int | None = None, end_ns: int | None = None) -> Contents:
        """What lies in [start_ns, end_ns]; jobs are those of the whole file. Raises FormatError for columns that do not
        fit together."""
        info = recording.info
        start = info.start_ns if start_ns is None else max(info.start_ns, start_ns)
        end = info.end_ns if end_ns is None else min(info.end_ns, end_ns)
        names = Names()
        found = cls(info, start, end, SpanTable.of((), names), peaks=PeakMeter(start))
        tables: list[SpanTable] = []
        told: list[tuple[int, list[SettingInfo]]] = []  # the first ones, where nothing dates them, are the last
        changes: list[Mark] = []
        read_until = start
        for table, batch in recording.reader.span_tables(names):
            read_until = max(read_until, batch.time_ns)
            found.jobs.update(map(job_from_wire, batch.jobs), batch.wall_ns - batch.time_ns)
            tables.append(table.within(start, end + 1))
            try:
                allocations = decode_allocations(batch.allocations, list(batch.strings))
            except ValueError as error:
                raise FormatError(info.path, f"is damaged: {error}") from error
            if batch.memory_is_set:
                ledger = {(row.device, row.purpose): row.bytes for row in batch.memory}
                found.peaks.start(ledger)
            found.peaks.add(row for row in allocations if row.time_ns <= end)
            found.samples += (s for s in map(sample_from_wire, batch.samples) if start <= s.time_ns <= end)
            marks = [mark_from_wire(mark) for mark in batch.marks]
            found.marks += (mark for mark in marks if start <= mark.time_ns <= end)
            changes += (mark for mark in marks if mark.kind == "setting")
            began = [mark.time_ns for mark in marks if mark.kind == "recording"]
            if began and told:  # the stream began then; the history before it was told with the settings of then
                told[0] = max(batch.time_ns, *began), told[0][1]
            if batch.settings:
                told.append(
                    (batch.time_ns if told else info.end_ns, [setting_from_wire(one) for one in batch.settings])
                )
            found.incidents += (i for i in map(incident_from_wire, batch.incidents) if start <= i.time_ns <= end)
        if recording.damage:  # nobody knows what was in the rest: it is no idle time
            found.end_ns = end = min(end, read_until)
        found.settings = in_force(told, changes, end)
        found.peaks.look()
        found.spans = joined(tables, names)
        found.damage = recording.damage
        return found

    @property
    def devices(self) -> list[str]:
        """Those that the engine named, then others that have spans."""
        named = [device.id for device in self.info.identity.devices]
        return named + [name for name in self.spans.devices() if name not in named]

    def describe(self, device: str) -> DeviceDescription | None:
        return next((one for one in self.info.identity.devices if one.id == device), None)

    def situation(self, device: str) -> Situation:
        """With the settings as they were at the end."""
        described = self.describe(device)
        settings = dict(self.settings.of(device))
        if not settings and described is not None and described.workers:
            settings[WORKERS] = str(described.workers)
        inert = frozenset(described.inert_settings) if described is not None else frozenset()
        is_card = device != "cpu" if described is None else described.kind != "cpu"
        changed = any(mark.kind == "setting" for mark in self.marks)
        return Situation(device, is_card, settings, inert, changed=changed)

    def summary(self, device: str) -> Summary:
        return summarise(
            self.spans,
            self.start_ns,
            self.end_ns,
            device=device,
            queue=self.jobs.queue(device),
            samples=self.samples,
            incidents=self.incidents,
            situation=self.situation(device),
        )
