"""Whether a memory plan has room for a change of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cuzk_engine.diagnosis.remedies import WORKERS, Admits


class Choice(Protocol):
    """One way to run; see ``cuzk_engine.client.types.PlanChoice``."""

    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def peak(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def all_fit(self) -> bool: ...


class Plan(Protocol):
    """See ``cuzk_engine.client.types.MemoryPlanInfo``."""

    @property
    def peak(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def choices(self) -> Sequence[Choice]: ...


def admitted_by(plan: Plan | None, settings: Mapping[str, str]) -> Admits:
    """What the plan of a circuit says of a setting's new value; what it does not tell is not refused."""

    def admits(key: str, value: str) -> bool:
        if plan is None:
            return True
        if key == WORKERS:
            return _workers_fit(plan, int(value))
        wanted = {**settings, key: value}
        for choice in plan.choices:
            if key in choice.settings and all(wanted.get(name) == text for name, text in choice.settings.items()):
                return choice.all_fit
        return True

    return admits


def _workers_fit(plan: Plan, workers: int) -> bool:
    """A part of each partition's peak is used one after another, and counts once; how much shows with two or more."""
    if not plan.peak or not plan.free:
        return True
    held = (plan.total - plan.peak) / (plan.workers - 1) if plan.workers > 1 else plan.peak
    return plan.peak + held * (workers - 1) <= plan.free
