"""The live diagnosis tells what the one of the whole would, once and in order, and no more than it can be sure of."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client.types import JobInfo, JobState, Priority
from cuzk_engine.diagnosis import intervals
from cuzk_engine.diagnosis.gaps import find_gaps, idle_set
from cuzk_engine.diagnosis.live import LiveDiagnosis
from cuzk_engine.diagnosis.remedies import Situation
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Cause, EventBatch, Gap, Incident, Kind, Lane, Sample, Span, host_lane
from tests.diagnosis.story import GPU, MS

S = 1000 * MS
SETTINGS = {
    "gpus.gpu_workers_per_device": "1",
    "pipeline.evaluate": "host",
    "pipeline.prestage": "off",
    "pipeline.double_buffer": "true",
    "srs.residency": "host",
}


def situation(device: str) -> Situation:
    return Situation(device, True, SETTINGS)


def kernel(start: float, end: float, job: str = "a") -> Span:
    return Span(round(start * S), round(end * S), GPU, Lane.COMPUTE, Kind.NTT, job, 0, 0)


def evaluation(start: float, end: float, job: str = "a", worker: int = 0) -> Span:
    return Span(round(start * S), round(end * S), GPU, host_lane(worker), Kind.EVALUATE, job, 0, worker)


class Engine:
    """Feeds spans when they would be told of, and polls as the supervisor does."""

    def __init__(self, delay: float = 0.1) -> None:
        self.diagnosis = LiveDiagnosis(situation)
        self.told = EventBatch.empty()
        self._delay = round(delay * S)

    def run(self, spans: list[Span], until: float) -> EventBatch:
        """All that is told up to ``until`` seconds."""
        waiting = sorted(spans, key=lambda span: span.end_ns)
        for tick in range(round(until * 10) + 1):
            now = tick * S // 10
            due = [span for span in waiting if span.end_ns + self._delay <= now]
            waiting = waiting[len(due) :]
            if due:
                self.diagnosis.feed(SpanTable.of(due, self.diagnosis.names), now)
            self._take(self.diagnosis.poll(now))
        return self.told

    def _take(self, events: EventBatch) -> None:
        self.told.gaps += events.gaps
        self.told.findings += events.findings


def job(state: JobState, submitted: float, started: float = 0, finished: float = 0, device: str = GPU) -> JobInfo:
    times = (round(submitted * S), round(started * S), round(finished * S), 0)
    return JobInfo("a", "", "", "", "", "", state, Priority.NORMAL, 0, "", 0, device, 1, 0, "", *times)


def test_a_gap_is_told_when_the_kernel_that_ended_it_is_known_for_a_second() -> None:
    engine = Engine()
    spans = [kernel(0, 1), evaluation(1, 2), kernel(2, 3)]
    assert engine.run(spans, 4.0).gaps == []  # the kernel was told of at 3.1
    (gap,) = engine.run([], 5.0).gaps
    assert (gap.start_ns, gap.end_ns, gap.cause) == (1 * S, 2 * S, Cause.HOST_STARVED)
    assert engine.run([], 9.0).gaps == [gap]  # once


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.01, 2)), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 4), st.integers(0, 2)), max_size=6),
    st.floats(0, 0.9),
)
def test_gaps_are_those_of_the_whole(
    kernels: list[tuple[float, float]], work: list[tuple[float, float, int]], delay: float
) -> None:
    spans, at = [], 0.0
    for number, (pause, length) in enumerate(kernels):
        spans.append(kernel(at + pause, at + pause + length, f"job {number}"))
        at += pause + length
    spans += [evaluation(start, start + length, "x", worker) for start, length, worker in work]
    told = Engine(delay).run(spans, at + 8).gaps
    first = spans[0].start_ns
    last = max(span.start_ns for span in spans if span.lane == Lane.COMPUTE)
    whole = find_gaps(SpanTable.of(spans), first, last, device=GPU).gaps
    assert _covered(told) == _covered(whole)
    assert [gap.start_ns for gap in told] == sorted(gap.start_ns for gap in told)


def _covered(gaps: list[Gap]) -> list[list[int]]:
    rows = idle_set(gaps)
    found: list[list[int]] = intervals.normalise(rows[:, 0], rows[:, 1]).tolist()
    return found


def test_idle_time_is_told_in_steps_while_no_job_runs() -> None:
    engine = Engine()
    engine.diagnosis.feed_jobs([job(JobState.COMPLETED, 0, 0.1, 1.0)], 0)
    engine.run([kernel(0.2, 1)], 20)
    gaps = engine.told.gaps
    assert {gap.cause for gap in gaps} == {Cause.QUEUE_EMPTY}
    assert _covered(gaps)[0][0] == 1 * S
    assert 14 * S <= _covered(gaps)[0][1] <= 19 * S


def test_idle_time_is_not_told_while_a_job_may_run_kernels() -> None:
    for jobs in ([], [job(JobState.RUNNING, 0, 0.1)], [job(JobState.QUEUED, 0, device="")]):
        engine = Engine()
        if jobs:
            engine.diagnosis.feed_jobs(jobs, 0)
        assert engine.run([kernel(0.2, 1)], 20).gaps == []


def busy_engine(seconds: int) -> list[Span]:
    """Half of each second an evaluation, half a kernel."""
    return [
        span
        for second in range(seconds)
        for span in (evaluation(second, second + 0.5, f"j{second}"), kernel(second + 0.5, second + 1, f"j{second}"))
    ]


def test_findings_come_when_they_change() -> None:
    engine = Engine()
    findings = engine.run(busy_engine(60), 62).findings
    assert {finding.kind for finding in findings} == {Cause.HOST_STARVED}
    assert {remedy.key for remedy in findings[0].remedies} == {"gpus.gpu_workers_per_device", "pipeline.evaluate"}
    assert 2 <= len(findings) <= 5  # the first ones change, then one in half a minute
    assert findings[-1].end_ns - findings[-1].start_ns <= 60 * S


def test_findings_begin_anew_after_a_change_of_settings() -> None:
    settings = dict(SETTINGS)
    engine = Engine()
    engine.diagnosis = LiveDiagnosis(lambda device: Situation(device, True, dict(settings)))
    before = engine.run(busy_engine(20), 22).findings
    assert {remedy.key for remedy in before[-1].remedies} >= {"gpus.gpu_workers_per_device"}
    engine.told = EventBatch.empty()
    settings["pipeline.evaluate"] = "device"
    later = [span for span in busy_engine(40) if span.start_ns >= 25 * S]
    after = Engine.run(engine, later, 42).findings
    assert after
    assert all(finding.start_ns >= 22 * S for finding in after)
    assert all(remedy.key != "pipeline.evaluate" for finding in after for remedy in finding.remedies)


def test_findings_of_an_incident_come_at_once() -> None:
    diagnosis = LiveDiagnosis(situation)
    incident = Incident(5 * S, GPU, "out-of-memory", "a", "out of memory", 10, 5)
    diagnosis.feed(SpanTable.of([], diagnosis.names), 5 * S, incidents=[incident])
    (finding,) = diagnosis.poll(5 * S).findings
    assert (finding.kind, finding.title) == ("out-of-memory", "out of memory")
    assert diagnosis.poll(6 * S).findings == []


def test_a_device_that_has_gone_is_forgotten() -> None:
    engine = Engine()
    engine.run([kernel(0, 1), kernel(2, 3)], 3.5)
    engine.diagnosis.forget_device(GPU)
    assert engine.run([kernel(9, 10)], 12).gaps == []


def test_what_is_kept_is_bounded() -> None:
    """Ten minutes of jobs, each with a name of its own: more names than are kept."""
    diagnosis = LiveDiagnosis(situation)
    rng = np.random.default_rng(7)
    for second in range(600):
        now = (second + 1) * S
        parts = [round(second * S + at * S / 1000) for at in sorted(rng.integers(0, 900, 4).tolist())]
        spans = [
            Span(start, start + 20 * MS, GPU, Lane.COMPUTE, Kind.NTT, f"job {second}.{number}", 0, 0)
            for number, start in enumerate(parts)
        ]
        spans += [evaluation(second, second + 0.01, f"job {second}")]
        diagnosis.feed(SpanTable.of(spans, diagnosis.names), now, [Sample(now, GPU, memory_used=1)])
        done = replace(job(JobState.COMPLETED, second, second, second + 0.9), id=f"job {second}")
        diagnosis.feed_jobs([done], 0)
        diagnosis.poll(now)
    (device,) = diagnosis._devices.values()
    assert len(device._spans) < 1000
    assert len(device._gaps) < 1000
    assert len(diagnosis._jobs) < 200
    assert len(diagnosis.names.texts) <= 2_000


def test_names_that_are_in_use_are_not_sorted_out_with_each_look() -> None:
    diagnosis = LiveDiagnosis(situation)
    spans = [evaluation(1, 1.5, f"job {number}") for number in range(3_000)]
    diagnosis.feed(SpanTable.of([kernel(0, 2), *spans], diagnosis.names), 3 * S)
    diagnosis.poll(3 * S)
    names = diagnosis.names
    assert len(names.texts) > 3_000
    diagnosis.feed(SpanTable.of([kernel(3, 4)], names), 5 * S)
    diagnosis.poll(5 * S)
    assert diagnosis.names is names
