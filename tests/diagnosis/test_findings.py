"""What is recommended, and what is not."""

from dataclasses import dataclass, field, replace

import pytest

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.diagnosis.findings import find, of_incident, remedy_words
from cuzk_engine.diagnosis.remedies import Situation
from cuzk_engine.diagnosis.room import admitted_by
from cuzk_engine.diagnosis.summary import document, summarise
from cuzk_engine.events import Cause, Finding, Holding, Incident, Kind, OtherProcess, Picture, Remedy
from tests.diagnosis.story import GPU, MS, Story

WORKERS = "gpus.gpu_workers_per_device"
GIB = 1 << 30


@dataclass
class Setup:
    """Settings under which a story ran."""

    workers: int = 1
    prestage: str = "off"
    double_buffer: str = "false"
    evaluate: str = "host"
    residency: str = "host"
    arena: str = "auto"
    inert: tuple[str, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)

    def situation(self, device: str) -> Situation:
        settings = {
            WORKERS: str(self.workers),
            "pipeline.prestage": self.prestage,
            "pipeline.double_buffer": self.double_buffer,
            "pipeline.evaluate": self.evaluate,
            "srs.residency": self.residency,
            "cpu.arena": self.arena,
        }
        return Situation(device, device != "cpu", settings, frozenset(self.inert))


def findings(story: Story, setup: Setup) -> list[Finding]:
    return find(story.idleness(), story.table, 0, 100 * MS, setup.situation(story.device), story.queue)


def offered(story: Story, setup: Setup) -> dict[str, str]:
    (found,) = findings(story, setup)
    return {remedy.key: remedy.value for remedy in found.remedies}


def held(story: Story, kind: Kind, **more: object) -> Story:
    """A gap from 20 to 60 inside the lock, in which the worker does ``kind``."""
    story.kernel(0, 20).kernel(60, 100).did(Kind.LOCK_HELD, 0, 100)
    return story.did(kind, 20, 60, size=GIB, **more)  # type: ignore[arg-type]


def starved(story: Story, kind: Kind = Kind.EVALUATE) -> Story:
    return story.kernel(0, 20, "a").did(kind, 20, 60, "b").kernel(60, 100, "b")


def test_a_finding_has_figures() -> None:
    (found,) = findings(held(Story(), Kind.UPLOAD_ABC, pinned=False), Setup(workers=2))
    assert (found.kind, found.device, found.start_ns, found.end_ns) == (Cause.PAGEABLE_UPLOAD, "cuda:0", 0, 100 * MS)
    assert found.title == "Uploads from pageable memory inside the lock: 40.0 % of the time"
    assert found.evidence[0] == "40.0 ms in 1 gap, 100.0 % of the idle time"
    assert found.evidence[1].startswith("the longest, before job a: 40.0 ms without a kernel: 1 GiB of a, b, c")
    (ahead,) = found.remedies
    assert (ahead.key, ahead.value, ahead.gain) == ("pipeline.prestage", "ahead", 1.0)
    assert remedy_words(ahead).endswith("; up to 100.0 % of the idle time")


def test_pageable_uploads() -> None:
    story = held(Story(), Kind.UPLOAD_ABC, pinned=False)
    assert offered(story, Setup(workers=2)) == {"pipeline.prestage": "ahead"}
    assert offered(story, Setup(workers=1)) == {"pipeline.prestage": "ahead", WORKERS: "2"}
    assert offered(story, Setup(workers=2, prestage="locked")) == {}
    (found,) = findings(story, Setup(workers=2, prestage="ahead"))
    assert "ulimit -l" in found.evidence[-1]
    situation = replace(Setup(workers=2, prestage="ahead").situation("cuda:0"), changed=True)  # it was off before
    (found,) = find(story.idleness(), story.table, 0, 100 * MS, situation, story.queue)
    assert not any("ulimit" in line for line in found.evidence)


def test_on_the_cpu_one_worker_cannot_upload_ahead_of_itself() -> None:
    story = held(Story("cpu"), Kind.UPLOAD_ABC, pinned=False)
    assert offered(story, Setup(workers=1)) == {WORKERS: "2"}
    assert offered(story, Setup(workers=2)) == {"pipeline.prestage": "ahead"}


def test_result_sync() -> None:
    story = held(Story(), Kind.RESULT_SYNC)
    assert offered(story, Setup()) == {"pipeline.double_buffer": "true"}
    assert offered(story, Setup(double_buffer="true")) == {}
    assert offered(story, Setup(inert=("pipeline.double_buffer",))) == {}


def test_host_starved() -> None:
    assert offered(starved(Story()), Setup()) == {WORKERS: "2", "pipeline.evaluate": "device"}
    assert offered(starved(Story()), Setup(workers=2)) == {WORKERS: "3", "pipeline.evaluate": "device"}
    assert offered(starved(Story()), Setup(workers=8, evaluate="device")) == {}
    assert offered(starved(Story()), Setup(workers=8, evaluate="auto")) == {}  # the key has no matrices
    assert offered(starved(Story(), Kind.READ_WITNESS), Setup()) == {WORKERS: "2"}
    # For the CPU, host and device are the same cores.
    assert offered(starved(Story("cpu")), Setup(workers=2)) == {}
    assert offered(starved(Story("cpu")), Setup()) == {WORKERS: "2"}


def test_a_second_worker_helps_only_where_a_job_waits() -> None:
    alone = starved(Story()).job(0, 0, 20).job(20, 20)
    assert offered(alone, Setup(evaluate="device")) == {}
    (found,) = findings(alone, Setup())
    assert "for 100.0 % of it no other job waited" in found.evidence[-1]
    waits = starved(Story()).job(0, 0, 20).job(20, 20).job(50, None)
    (found,) = findings(waits, Setup())
    gains = {remedy.key: remedy.gain for remedy in found.remedies}
    assert gains == {"pipeline.evaluate": 1.0, WORKERS: 0.25}  # most gain first
    assert next(iter(gains)) == "pipeline.evaluate"


def test_lock_handover() -> None:
    story = held(Story(), Kind.UPLOAD_ABC, pinned=True)
    assert offered(story, Setup(workers=2, prestage="locked")) == {"pipeline.prestage": "ahead"}
    assert offered(story, Setup(workers=2, prestage="ahead")) == {}
    bare = Story().kernel(0, 20, "a").kernel(60, 100, "b").did(Kind.LOCK_HELD, 0, 60, "a")
    bare.did(Kind.LOCK_HELD, 60, 100, "b")
    assert offered(bare, Setup(workers=1)) == {WORKERS: "2"}
    assert offered(bare, Setup(workers=2)) == {}


def test_srs_cold() -> None:
    streamed = held(Story(), Kind.UPLOAD_SRS, pinned=True)
    assert offered(streamed, Setup()) == {"srs.residency": "device"}
    assert offered(streamed, Setup(residency="device")) == {}
    loaded = starved(Story(), Kind.LOAD_KEY)
    (found,) = findings(loaded, Setup())
    assert (found.kind, found.remedies) == (Cause.SRS_COLD, ())
    assert "PreloadSRS" in found.evidence[-1]


def test_memory_wait() -> None:
    story = Story("cpu").kernel(0, 20).did(Kind.MEMORY_WAIT, 20, 60, "b", 1, 3 << 20).kernel(60, 100, "b", 1)
    setup = Setup(workers=2, prestage="ahead", arena="16MiB", inert=("srs.residency",))
    assert offered(story, setup) == {"cpu.arena": "19MiB", "pipeline.prestage": "locked", WORKERS: "1"}
    assert offered(story, replace(setup, workers=1, arena="auto")) == {}


@pytest.mark.parametrize("kind", [Kind.COMPILE, Kind.POOL_TRIM])
def test_what_no_setting_changes_has_advice(kind: Kind) -> None:
    (found,) = findings(held(Story(), kind), Setup())
    assert found.remedies == ()
    assert len(found.evidence) == 3


def test_time_without_a_job_and_trifles_are_no_findings() -> None:
    assert findings(Story().kernel(0, 20, "a").kernel(60, 100, "b"), Setup()) == []
    trifle = Story().kernel(0, 98.9, "a").did(Kind.EVALUATE, 98.9, 99.9, "b").kernel(99.9, 100, "b")
    assert findings(trifle, Setup()) != []
    longer = find(trifle.idleness(0, 1000), trifle.table, 0, 1000 * MS, Setup().situation("cuda:0"), trifle.queue)
    assert longer == []


def test_nothing_is_offered_where_the_settings_are_unknown() -> None:
    story = starved(Story())
    (found,) = find(story.idleness(), story.table, 0, 100 * MS, Situation("cuda:0", True))
    assert found.remedies == ()


# ---- the memory plan ----


def plan(*choices: PlanChoice, workers: int = 1, free: int = 16 * GIB) -> MemoryPlanInfo:
    total = choices[0].total if choices else 6 * GIB
    return MemoryPlanInfo("cuda:0", 16 * GIB, 6 * GIB, True, total=total, free=free, workers=workers, choices=choices)


@pytest.mark.parametrize(
    ("workers", "total", "free", "wanted", "fits"),
    [
        (1, 6, 12, 2, True),
        (1, 6, 11, 2, False),
        (2, 8, 10, 3, True),  # 2 GiB are held by each, 4 GiB are used in turn
        (2, 8, 9, 3, False),
    ],
)
def test_the_plan_counts_workers(workers: int, total: int, free: int, wanted: int, fits: bool) -> None:
    choice = PlanChoice({}, "", 6 * GIB, total * GIB, True, True)
    assert admitted_by(plan(choice, workers=workers, free=free * GIB), {})(WORKERS, str(wanted)) is fits


def test_the_plan_refuses_what_does_not_fit() -> None:
    settings = {"pipeline.prestage": "off", "srs.residency": "host"}
    choices = (
        PlanChoice({"pipeline.prestage": "ahead", "srs.residency": "host"}, "", 9, 18, True, False),
        PlanChoice({"pipeline.prestage": "locked", "srs.residency": "host"}, "", 9, 9, True, True),
    )
    admits = admitted_by(plan(*choices), settings)
    assert not admits("pipeline.prestage", "ahead")
    assert admits("pipeline.prestage", "locked")
    assert admits("pipeline.evaluate", "device")  # the plan does not tell
    story = held(Story(), Kind.UPLOAD_ABC, pinned=False)
    situation = replace(Setup(workers=2).situation("cuda:0"), admits=admits)
    (found,) = find(story.idleness(), story.table, 0, 100 * MS, situation, story.queue)
    assert [(remedy.key, remedy.value) for remedy in found.remedies] == [("pipeline.prestage", "locked")]


# ---- incidents ----


def test_an_incident_says_who_held_what() -> None:
    change = Remedy(WORKERS, "1", "one partition at a time", peak=5 * GIB)
    already = Remedy("pipeline.prestage", "off", "as it is")
    picture = Picture(
        16 * GIB,
        2 * GIB,
        (Holding("abc", 1, "job-one-long", 3 * GIB), Holding("srs", -1, "", 9 * GIB)),
        (Holding("abc", 0, "x", GIB),),
        (OtherProcess(77, "python", 2 * GIB), OtherProcess(78, "", None)),
        "msm",
        0,
        (),
        (change, already),
        40 * MS,
    )
    incident = Incident(50 * MS, "cuda:0", "out-of-memory", "job", "out of memory", 4 * GIB, 2 * GIB, picture)
    found = of_incident(incident)
    assert (found.kind, found.title, found.start_ns, found.end_ns) == (
        "out-of-memory",
        "out of memory",
        40 * MS,
        50 * MS,
    )
    assert found.evidence == (
        "4 GiB for msm were asked for by worker 0, 2 GiB of 16 GiB were free",
        "held on the device: srs 9 GiB, abc 3 GiB (worker 1, job job-one-)",
        "held on the host: abc 1 GiB (worker 0, job x)",
        "other programs: python (pid 77) 2 GiB, a program that is not visible here (pid 78)",
    )
    assert found.remedies == (change, already)  # what would have fitted then, also where it is set by now


def test_an_incident_without_a_picture() -> None:
    incident = Incident(50, "cpu", "worker-died", "", "the device process ended")
    found = of_incident(incident)
    assert (found.title, found.evidence, found.remedies) == ("the device process ended", (), ())


def test_incidents_that_tell_the_same_are_one_finding_of_a_summary() -> None:
    picture = Picture(16 * GIB, 2 * GIB, remedies=(Remedy("pipeline.prestage", "locked", "inside the lock"),))
    incidents = [
        Incident(n * MS, "cpu", "out-of-memory", f"job {n}", "out of memory", 4, 2, picture) for n in (1, 3, 8)
    ]
    incidents.append(Incident(9 * MS, "cpu", "out-of-memory", "job 9", "out of memory: the rest", 4, 2, picture))
    story = Story("cpu").kernel(0, 100)
    found = summarise(story.table, 0, 100 * MS, device="cpu", incidents=incidents).findings
    assert [finding.title for finding in found] == ["out of memory", "out of memory: the rest"]
    assert found[0].evidence[-1] == "2 more like this one, the last 7.00 ms later"
    assert [remedy.value for remedy in found[0].remedies] == ["locked"]


def test_time_without_work_is_no_part_of_a_partition() -> None:
    story = Story().kernel(20, 40, "a").job(10, 10, 40).kernel(50, 70, "b").job(40, 40, 70)
    found = summarise(story.table, 0, 500 * MS, device=GPU, queue=story.queue)
    assert found.partition_ns == found.work_ns / 2 == 30 * MS
    assert document(found)["partition_seconds"] == 0.03
    assert summarise(Story().table, 0, MS, device=GPU).partition_ns is None
