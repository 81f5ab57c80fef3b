"""A recording in the trace event format, which ui.perfetto.dev and chrome://tracing open.

Devices are processes, lanes are threads; memory by purpose, transfers and readings are counters; marks, incidents and
gaps are there too. Times are microseconds from the recording's start. What ended before it is left out, or a viewer
would begin there: an engine tells every reader the incidents that it keeps, however old.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cuzk_engine.client.recording import Recording
from cuzk_engine.client.types import TelemetryUpdate
from cuzk_engine.diagnosis.words import kind_words
from cuzk_engine.events import HOST_LANE_PREFIX, Allocation, Gap, Kind, Lane, Sample, Span, host_lane

Event = dict[str, Any]
_LANES: Final = {
    Lane.COMPUTE: (1, "kernels"),
    Lane.LOCK: (2, "lock"),
    Lane.H2D: (3, "copies to the device"),
    Lane.D2H: (4, "copies from the device"),
}
_GAPS: Final = 5
_FIRST_WORKER: Final = 10
_LAST_FIXED: Final = 1000  # lanes that are not known here come behind the workers
_READINGS: Final = {
    "utilisation": ("utilisation", 100.0, "%"),
    "power": ("power", 1.0, "W"),
    "clock": ("clock", 1.0, "MHz"),
    "temperature": ("temperature", 1.0, "°C"),
    "memory_other": ("memory of other programs", 1.0, "bytes"),
}


class Text(Protocol):
    """Where the trace goes, piece by piece; a text file is one."""

    def write(self, text: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Exported:
    """``events``: of the trace; ``left_out``: of the recording, those that ended before its start."""

    events: int
    left_out: int


def export(recording: Recording, out: Text) -> Exported:
    """Writes the trace, piece by piece."""
    trace = _Trace(recording)
    count = 0
    out.write('{"displayTimeUnit":"ms","otherData":')
    identity = recording.info.identity
    json.dump({"engine": f"cuzk {identity.version}", "build": identity.build}, out, ensure_ascii=False)
    out.write(',"traceEvents":[')
    for event in trace.events():
        out.write(",\n" if count else "\n")
        json.dump(event, out, ensure_ascii=False, separators=(",", ":"))
        count += 1
    out.write("\n]}\n")
    return Exported(count, trace.left_out)


class _Trace:
    def __init__(self, recording: Recording) -> None:
        self.left_out = 0
        self._recording = recording
        self._start = recording.info.start_ns
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, int], str] = {}
        self._others: dict[tuple[int, str], int] = {}
        self._used: dict[tuple[str, str], int] = {}

    def events(self) -> Iterator[Event]:
        for device in self._recording.info.identity.devices:
            yield from self._process(device.id, device.name)
        for update in self._recording.updates():
            yield from self._update(update)

    def _update(self, update: TelemetryUpdate) -> Iterator[Event]:
        if update.memory is not None:
            self._used = dict(update.memory)
            for device, purpose in self._used:
                yield from self._memory(update.time_ns, device, purpose)
        for span in update.events.spans:
            if self._reaches(span.end_ns):
                yield from self._span(span)
        for allocation in update.events.allocations:
            yield from self._allocation(allocation)
        for sample in update.events.samples:
            if self._reaches(sample.time_ns):
                yield from self._sample(sample)
        for gap in update.events.gaps:
            if self._reaches(gap.end_ns):
                yield from self._gap(gap)
        for mark in update.events.marks:
            if self._reaches(mark.time_ns):
                yield self._instant(mark.time_ns, f"{mark.kind}: {mark.text}", mark.device, {})
        for incident in update.events.incidents:
            if self._reaches(incident.time_ns):
                details = {"message": incident.message, "job": incident.job}
                yield self._instant(incident.time_ns, f"incident: {incident.kind}", incident.device, details)

    def _reaches(self, end_ns: int) -> bool:
        """Whether what ended then reaches into the recording; counts what does not."""
        reaches = end_ns >= self._start
        self.left_out += not reaches
        return reaches

    def _span(self, span: Span) -> Iterator[Event]:
        lane = host_lane(span.worker) if span.kind == Kind.LOCK_WAIT and span.worker >= 0 else span.lane
        known = _LANES.get(Lane(lane)) if lane in _LANES else None
        pid = yield from self._process(span.device)
        number, name = known if known is not None else self._other_lane(pid, lane)
        details: dict[str, Any] = {"job": span.job, "partition": span.partition, "worker": span.worker}
        if span.bytes:
            details["bytes"] = span.bytes
        if span.pinned is not None:
            details["memory"] = "page-locked" if span.pinned else "pageable"
        yield from self._slice(span.device, number, name, span.kind, span.start_ns, span.end_ns, details)

    def _other_lane(self, pid: int, lane: str) -> tuple[int, str]:
        worker = lane.removeprefix(HOST_LANE_PREFIX)
        if lane.startswith(HOST_LANE_PREFIX) and worker.isascii() and worker.isdecimal() and len(worker) < 3:
            return _FIRST_WORKER + int(worker), f"worker {worker}"
        return self._others.setdefault((pid, lane), _LAST_FIXED + len(self._others)), lane

    def _gap(self, gap: Gap) -> Iterator[Event]:
        details = {"evidence": gap.evidence}
        yield from self._slice(gap.device, _GAPS, "idle", gap.cause, gap.start_ns, gap.end_ns, details)

    def _slice(
        self, device: str, tid: int, lane: str, kind: str, start: int, end: int, details: dict[str, Any]
    ) -> Iterator[Event]:
        pid = yield from self._process(device)
        if (pid, tid) not in self._threads:
            self._threads[pid, tid] = lane
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
        words = kind_words(kind)
        yield {
            "ph": "X",
            "name": kind if words == kind else f"{kind} ({words})",
            "cat": kind.partition(".")[0],
            "ts": self._time(start),
            "dur": max(0, end - start) / 1000,
            "pid": pid,
            "tid": tid,
            "args": details,
        }

    def _allocation(self, row: Allocation) -> Iterator[Event]:
        key = (row.device, row.purpose)
        self._used[key] = self._used.get(key, 0) + row.delta
        yield from self._memory(row.time_ns, row.device, row.purpose)

    def _memory(self, time_ns: int, device: str, purpose: str) -> Iterator[Event]:
        """What was allotted earlier is in use at the start."""
        time_ns = max(time_ns, self._start)
        yield from self._counter(time_ns, device, f"memory: {purpose}", "bytes", self._used[device, purpose])

    def _sample(self, sample: Sample) -> Iterator[Event]:
        """A reading that is absent is left out: the counter keeps what it was, and is never zero for it."""
        for field, (name, factor, unit) in _READINGS.items():
            value = getattr(sample, field)
            if value is not None:
                yield from self._counter(sample.time_ns, sample.device, name, unit, value * factor)
        for field, name in (("pcie_rx", "PCIe received"), ("pcie_tx", "PCIe sent")):
            value = getattr(sample, field)
            if value is not None:
                yield from self._counter(sample.time_ns, sample.device, name, "bytes/s", value)

    def _counter(self, time_ns: int, device: str, name: str, unit: str, value: float) -> Iterator[Event]:
        pid = yield from self._process(device)
        yield {"ph": "C", "name": name, "ts": self._time(time_ns), "pid": pid, "args": {unit: value}}

    def _instant(self, time_ns: int, name: str, device: str, details: dict[str, str]) -> Event:
        pid = self._processes.get(device)
        scope = {"s": "g"} if pid is None else {"s": "p", "pid": pid}
        return {"ph": "i", "name": name, "ts": self._time(time_ns), "pid": 0, "tid": 0, **scope, "args": details}

    def _process(self, device: str, name: str = "") -> Any:
        """A generator that returns the process id of a device; the first time it gives the events that name it."""
        pid = self._processes.get(device)
        if pid is None:
            pid = self._processes[device] = len(self._processes) + 1
            label = f"{device} ({name})" if name else device
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": label}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        return pid

    def _time(self, time_ns: int) -> float:
        return (time_ns - self._start) / 1000
