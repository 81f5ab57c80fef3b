"""The running engine's findings recommend only what the memory plan has room for."""

import asyncio
from dataclasses import asdict, replace
from typing import Any

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.diagnosing import Diagnosing
from cuzk_engine.daemon.live_plans import LivePlans
from cuzk_engine.daemon.runtime import KeyState
from cuzk_engine.diagnosis.remedies import WORKERS
from cuzk_engine.errors import DaemonError
from cuzk_engine.events import EventBatch, Finding, Kind, Lane, Span
from cuzk_engine.telemetry.columns import encode_events

GIB = 1 << 30
MS = 1_000_000
SETTINGS = {"pipeline.prestage": "off", "pipeline.double_buffer": "true", "srs.residency": "device"}
PLAN = MemoryPlanInfo(
    "cuda:0",
    16 * GIB,
    6 * GIB,
    True,
    total=6 * GIB,
    free=20 * GIB,
    choices=(
        PlanChoice({"pipeline.prestage": "ahead"}, "", 20 * GIB, 20 * GIB, False, False),
        PlanChoice({"pipeline.prestage": "off"}, "", 6 * GIB, 6 * GIB, True, True),
    ),
    chosen=1,
)


class Device:
    id = "cuda:0"
    is_ready = True
    workers = 2

    def __init__(self, answer: MemoryPlanInfo | Exception) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.loaded = {path: KeyState(path, 1, last_used_ns=at) for path, at in (("/old.zkey", 1), ("/new.zkey", 2))}

    async def call(self, action: str, **arguments: Any) -> Any:
        self.asked.append({"action": action, **arguments})
        if isinstance(self.answer, Exception):
            raise self.answer
        return asdict(self.answer)


def plans_of(device: Device) -> LivePlans:
    plans = LivePlans(lambda: SETTINGS)
    asyncio.run(plans.refresh([device]))  # type: ignore[list-item]
    return plans


def test_the_key_used_last_is_planned_for() -> None:
    device = Device(PLAN)
    assert plans_of(device).of("cuda:0") == PLAN
    assert device.asked == [{"action": "plan", "path": "/new.zkey", "settings": SETTINGS, "workers": 2}]
    assert plans_of(device).of("cuda:1") is None


def test_without_a_key_or_an_answer_nothing_is_known() -> None:
    device = Device(DaemonError("the memory plan is off"))
    assert plans_of(device).of("cuda:0") is None
    device = Device(PLAN)
    device.loaded = {}
    assert plans_of(device).of("cuda:0") is None
    assert device.asked == []


def test_what_was_known_is_forgotten_with_the_device() -> None:
    device = Device(PLAN)
    plans = plans_of(device)
    device.is_ready = False
    asyncio.run(plans.refresh([device]))  # type: ignore[list-item]
    assert plans.of("cuda:0") is None


def findings(plan: MemoryPlanInfo | None) -> list[Finding]:
    """Of twenty seconds in which each partition of two workers uploads from pageable memory under the lock."""
    diagnosing = Diagnosing(lambda: SETTINGS, lambda device: (2, True, ()), lambda device: plan)
    told: list[Finding] = []
    for number in range(20):
        at = 1_000 * MS * number

        def span(begin: int, end: int, lane: str, kind: str, pinned: bool | None = None, at: int = at) -> Span:
            return Span(at + begin * MS, at + end * MS, "cuda:0", lane, kind, "job", 0, 0, GIB, pinned)

        events = EventBatch.empty()
        events.spans += [
            span(0, 1000, Lane.LOCK, Kind.LOCK_HELD),
            span(0, 400, Lane.H2D, Kind.UPLOAD_ABC, False),
            span(400, 1000, Lane.COMPUTE, Kind.NTT),
        ]
        batch = encode_events(events)
        batch.time_ns = at + 1_000 * MS
        diagnosing.take(batch)
        told += diagnosing.poll(batch.time_ns).findings
    return [finding for finding in told if finding.kind == "pageable-upload"]


def test_a_change_that_would_not_fit_is_not_recommended() -> None:
    def changes(plan: MemoryPlanInfo | None) -> list[tuple[str, str]]:
        return [(remedy.key, remedy.value) for remedy in findings(plan)[-1].remedies]

    assert changes(None)[0] == ("pipeline.prestage", "ahead")
    assert changes(PLAN) == [("pipeline.prestage", "locked")]
    roomy = replace(PLAN, choices=(replace(PLAN.choices[0], all_fit=True),))
    assert changes(roomy)[0] == ("pipeline.prestage", "ahead")
    assert all(key != WORKERS for key, _ in changes(PLAN))
