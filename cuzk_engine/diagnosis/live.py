"""The diagnosis of a running engine: gaps when they are sure, findings of the last minute when they change.

A span is known when it has ended, and comes up to a second later. So a gap is sure a second after the kernel that ended
it was told of. Idle time that no kernel has ended yet is told in steps while no job runs or waits: then nothing can be
under way. Not thread-safe: its owner's thread feeds and asks.

A finding takes the place of the earlier one of its device and cause; one that is not told again for longer than
``REPEAT_NS`` is over. After a change of settings findings begin anew: what was before it says nothing of what is set.
Findings of incidents stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from cuzk_engine.client.types import JobInfo
from cuzk_engine.diagnosis.findings import find, of_incident
from cuzk_engine.diagnosis.gaps import Idleness, find_gaps
from cuzk_engine.diagnosis.jobs import JobTable
from cuzk_engine.diagnosis.remedies import Situation
from cuzk_engine.diagnosis.table import Names, SpanTable, joined
from cuzk_engine.events import EventBatch, Finding, Gap, Incident, Kind, Lane, Sample

SETTLE_NS: Final = 1_000_000_000
WINDOW_NS: Final = 60_000_000_000
LOOK_NS: Final = 500_000_000  # between two looks for gaps
FINDINGS_NS: Final = 3_000_000_000  # between two looks for findings
REPEAT_NS: Final = 30_000_000_000  # a finding that stays is told again after this time
STEP_NS: Final = 5_000_000_000  # of idle time without a job
CHANGED: Final = 0.02  # of the window: a smaller change of a cause's share is none
MOST_SPANS: Final = 20_000  # kept a device
MOST_GAPS: Final = 5_000
MOST_DEVICES: Final = 64
_MOST_NAMES: Final = 500  # or twice as many as are in use: each job brings its own

SituationOf = Callable[[str], Situation]
"""The present settings of a device."""


class LiveDiagnosis:
    """``feed`` takes what happens; ``poll`` gives what follows from it. Tables that are fed share ``names``, which
    changes now and then: ask for it each time."""

    def __init__(self, situation: SituationOf) -> None:
        self.names = Names()
        self._situation = situation
        self._jobs = JobTable()
        self._devices: dict[str, _Device] = {}
        self._incidents: list[Incident] = []
        self._most_names = _MOST_NAMES

    def feed(
        self, spans: SpanTable, now_ns: int, samples: Iterable[Sample] = (), incidents: Iterable[Incident] = ()
    ) -> None:
        """``now_ns``: when they came, on the events' clock."""
        for name in spans.devices():
            if name not in self._devices and len(self._devices) < MOST_DEVICES:
                self._devices[name] = _Device(name, now_ns, self.names)
            if name in self._devices:
                self._devices[name].add(spans.of_device(name))
        for sample in samples:
            if sample.device in self._devices:
                self._devices[sample.device].samples.append(sample)
        self._incidents += incidents

    def feed_jobs(self, jobs: Iterable[JobInfo], wall_offset_ns: int) -> None:
        """Jobs that changed. ``wall_offset_ns``: the wall clock minus the events' clock."""
        self._jobs.update(jobs, wall_offset_ns)

    def forget_device(self, device: str) -> None:
        """Its process has gone: of what was under way nothing will be told."""
        self._devices.pop(device, None)

    def poll(self, now_ns: int) -> EventBatch:
        """Gaps that became sure and findings that changed since the last call; empty more often than not."""
        found = EventBatch.empty()
        for name, device in self._devices.items():
            if now_ns >= device.next_look:
                device.next_look = now_ns + LOOK_NS
                device.see_settings(self._situation(name).settings, now_ns)
                found.gaps += device.look(now_ns, self._jobs)
            if now_ns >= device.next_findings:
                device.next_findings = now_ns + FINDINGS_NS
                self._jobs.forget(now_ns - 2 * WINDOW_NS)
                found.findings += device.findings(now_ns, self._jobs, self._situation(name))
        for incident in self._incidents:
            found.findings.append(of_incident(incident))
        self._incidents = []
        if len(self.names.texts) > self._most_names:
            self.names = Names()
            for device in self._devices.values():
                device.rename(self.names)
            self._most_names = max(_MOST_NAMES, 2 * len(self.names.texts))
        return found


class _Device:
    """``_sure_until``: all time before it has been told of."""

    def __init__(self, name: str, now_ns: int, names: Names) -> None:
        self.name = name
        self.samples: deque[Sample] = deque(maxlen=512)
        self.next_look = now_ns + LOOK_NS
        self.next_findings = now_ns + FINDINGS_NS
        self._names = names
        self._spans = SpanTable.of((), names)
        self._new: list[SpanTable] = []
        self._first: int | None = None
        self._sure_until = 0
        self._reaches: deque[tuple[int, int]] = deque()  # (when told, start of the newest kernel known then)
        self._gaps: deque[Gap] = deque(maxlen=MOST_GAPS)
        self._short: deque[tuple[int, int]] = deque(maxlen=MOST_GAPS)  # (until, idle time too short to be a gap)
        self._said: dict[str, tuple[Finding, float]] = {}
        self._settings: Mapping[str, str] | None = None
        self._changed_ns = 0  # when they changed last

    def add(self, spans: SpanTable) -> None:
        self._new.append(spans)

    def see_settings(self, settings: Mapping[str, str], now_ns: int) -> None:
        if self._settings is not None and settings != self._settings:
            self._changed_ns, self._said = now_ns, {}
        self._settings = settings

    def rename(self, names: Names) -> None:
        self._names = names
        self._spans = self._spans.renamed(names)
        self._new = [table.renamed(names) for table in self._new]

    def look(self, now_ns: int, jobs: JobTable) -> Sequence[Gap]:
        """The gaps up to the last moment that is sure by now."""
        self._take_new(now_ns)
        if self._first is None:
            return ()
        until = self._sure_until
        while self._reaches and self._reaches[0][0] + SETTLE_NS <= now_ns:
            until = max(until, self._reaches.popleft()[1])
        if not self._reaches:
            until = max(until, self._idle_until(now_ns, jobs))
        if until <= self._sure_until:
            return ()
        found = find_gaps(
            self._spans,
            self._sure_until,
            until,
            device=self.name,
            queue=jobs.queue(self.name),
            samples=list(self.samples),
        )
        self._sure_until = until
        self._gaps += found.gaps
        self._short.append((until, found.short_ns))
        self._forget()
        return found.gaps

    def findings(self, now_ns: int, jobs: JobTable, situation: Situation) -> list[Finding]:
        """Of the last minute, those that are new, changed, or have not been told for a while."""
        end = self._sure_until
        start = max(self._first or 0, end - WINDOW_NS, self._changed_ns)
        gaps = [gap for gap in self._gaps if gap.start_ns >= start]
        if end - start < SETTLE_NS or end < now_ns - WINDOW_NS:
            return []
        idle = Idleness(gaps, sum(short for until, short in self._short if until > start))
        shares = {cause: took / (end - start) for cause, took in idle.by_cause().items()}
        found = find(idle, self._spans, start, end, situation, jobs.queue(self.name))
        fresh = [finding for finding in found if self._is_news(finding, shares[finding.kind])]
        told = {finding.kind: (finding, shares[finding.kind]) for finding in fresh}
        self._said = {finding.kind: told.get(finding.kind) or self._said[finding.kind] for finding in found}
        return fresh

    def _is_news(self, finding: Finding, share: float) -> bool:
        said = self._said.get(finding.kind)
        if said is None:
            return True
        before, share_before = said
        changes = [(remedy.key, remedy.value) for remedy in finding.remedies]
        return (
            finding.time_ns - before.time_ns >= REPEAT_NS
            or changes != [(remedy.key, remedy.value) for remedy in before.remedies]
            or abs(share - share_before) >= CHANGED
        )

    def _take_new(self, now_ns: int) -> None:
        if not self._new:
            return
        new = joined(self._new, self._names)
        self._new = []
        kernels = new.start[new.in_lane(Lane.COMPUTE)]
        if len(kernels):
            if self._first is None:
                self._first = self._sure_until = int(kernels[0])
            self._reaches.append((now_ns, int(kernels[-1])))
        self._spans = joined([self._spans, new], self._names)
        if len(self._spans) > MOST_SPANS:
            self._spans = self._spans.where(np.sort(np.argsort(self._spans.end)[-MOST_SPANS:]))

    def _idle_until(self, now_ns: int, jobs: JobTable) -> int:
        """Up to when it is sure that no kernel ran, because no job did; 0 where that is not known."""
        since = jobs.idle_since(self.name)
        until = now_ns - SETTLE_NS
        if since is None or since > until or until - self._sure_until < STEP_NS:
            return 0
        return until

    def _forget(self) -> None:
        """Kernels before the moment that is sure, and what is older than the findings' window.

        Waits for the lock are kept as long: they tell that it is held until the hold itself is known."""
        spans = self._spans
        oldest = self._sure_until - WINDOW_NS
        kept = (spans.end >= self._sure_until) | (~spans.in_lane(Lane.COMPUTE) & (spans.end >= oldest))
        newest = spans.of_kind(Kind.LOCK_WAIT) & (spans.end >= oldest - 9 * WINDOW_NS)
        self._spans = spans.where(kept | newest)
        while self._gaps and self._gaps[0].end_ns < oldest:
            self._gaps.popleft()
        while self._short and self._short[0][0] < oldest:
            self._short.popleft()
