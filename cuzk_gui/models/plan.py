"""The memory plan in words and as parts of a bar: what the workers will need, what is free, what would be given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_gui.models import words
from cuzk_gui.models.memory import PURPOSES
from cuzk_gui.models.process import Tone

_RESIDENT: Final = ("srs", "matrices", "context")
NO_CIRCUIT: Final = "no circuit yet: register one, or prove, to see what it needs"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the bar. ``name``: a purpose, or "workers" (what the other workers need), "reserve" (kept as a
    margin), "processes". ``bytes`` of it."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanBar:
    """``planned`` from the left, ``taken`` up to the capacity from the right; together they may be more than it."""

    planned: tuple[Part, ...]
    taken: tuple[Part, ...]
    capacity: int

    @property
    def needed(self) -> int:
        return sum(part.bytes for part in self.planned)

    @property
    def held(self) -> int:
        return sum(part.bytes for part in self.taken)

    @property
    def scale(self) -> int:
        """Bytes from end to end."""
        return max(self.capacity, self.needed + self.held, 1)

    @property
    def over(self) -> int:
        """Bytes by which it does not fit."""
        return max(0, self.needed + self.held - self.capacity)


@dataclass(frozen=True, slots=True)
class PlanState:
    """What is shown of a device's plan. ``plan`` None: there is none, and ``said`` why. ``circuit``: its name.
    ``what_if``: the change that is only looked at, in words, "" for what is set."""

    plan: MemoryPlanInfo | None = None
    said: str = ""
    circuit: str = ""
    what_if: str = ""
    waiting: bool = field(default=False, compare=False)


def bar(plan: MemoryPlanInfo) -> PlanBar:
    own = [Part(name, plan.by_purpose[name]) for name in PURPOSES if plan.by_purpose.get(name, 0) > 0]
    own += [Part(name, amount) for name, amount in plan.by_purpose.items() if name not in PURPOSES and amount > 0]
    more = max(0, plan.total - plan.peak)
    if more:
        own.append(Part("workers", more))
    held = max(0, plan.capacity - plan.free)
    others = min(max(0, plan.others or 0), held)  # the others' memory may be more: the capacity is without it
    reserve = held - others
    taken = [Part(name, amount) for name, amount in (("reserve", reserve), ("processes", others)) if amount]
    return PlanBar(tuple(own), tuple(taken), plan.capacity)


def chart_level(plan: MemoryPlanInfo, held: Mapping[str, int]) -> int:
    """Where all workers together would stand in the memory chart: on top of what stays on the device between partitions
    (``held``: bytes by purpose now), as far as the plan does not count that itself."""
    stays = sum(held.get(name, 0) for name in _RESIDENT if name not in plan.by_purpose)
    return stays + (plan.total or plan.peak)


def headline(plan: MemoryPlanInfo) -> str:
    """ "12.2 of 78.4 GiB free": what all workers need, the right side of the title's line."""
    needed = plan.total or plan.peak
    if plan.free <= 0 or needed > 100 * plan.free:
        return f"{words.size(needed)}, {words.size(plan.free)} free"
    return f"{words.size_of(needed, plan.free)} free"


def sentence(plan: MemoryPlanInfo) -> tuple[str, Tone]:
    """What will happen, in words, and how much attention it asks for."""
    asked = plan.choices[0] if plan.choices else None
    if not plan.fits or (plan.choices and plan.chosen < 0):
        host = plan.host_peak // max(plan.workers, 1)
        if host > plan.host_capacity > 0:
            return f"cannot run: one partition needs {words.size(host)} of the machine's memory, the engine has " + (
                f"{words.size(plan.host_capacity)}: raise memory.total_budget"
            ), Tone.BAD
        least = min((choice.peak for choice in plan.choices), default=plan.peak)
        if least > plan.capacity:
            return f"cannot run: one partition needs {words.size(least)}, the device has {words.size(plan.capacity)}", (
                Tone.BAD
            )
        return (
            f"does not fit now: one partition needs {words.size(least)}, {words.size(plan.free)} "
            f"{_are(plan.free)} free; it waits",
            Tone.WARN,
        )
    chosen = plan.choices[plan.chosen] if plan.choices else None
    parts = []
    if asked is not None and chosen is not None and plan.chosen > 0:
        given_up = words.plain(chosen.text, 160) or "a smaller mode is used"
        parts.append(
            f"{given_up}: {_needs(asked.peak, asked.total, plan.workers)} not fit into {words.size(plan.free)}"
        )
    if chosen is not None and not chosen.all_fit and plan.workers > 1:
        parts.append(
            f"not all {plan.workers} workers fit at once ({words.size(chosen.total)}): those that do not fit wait"
        )
    if parts:
        return "; ".join(parts), Tone.WARN
    left = plan.free - (plan.total or plan.peak)
    who = "one worker fits" if plan.workers == 1 else f"all {plan.workers} workers fit"
    return f"{who}, {words.size(max(left, 0))} left", Tone.QUIET


def _needs(peak: int, total: int, workers: int) -> str:
    """ "2 × 6.10 GiB do": what does not fit, with its verb."""
    if workers <= 1:
        return f"{words.size(peak)} {'do' if peak != 1 else 'does'}"
    if peak and abs(total - workers * peak) <= peak // 100:
        return f"{workers} × {words.size(peak)} do"
    return f"{words.size(total)} for {workers} workers do"


def _are(value: int) -> str:
    return "are" if value != 1 else "is"


def table(plan: MemoryPlanInfo) -> list[tuple[str, str, str]]:
    """(purpose, one partition, share of its peak) rows, largest first."""
    whole = max(plan.peak, 1)
    rows = sorted(plan.by_purpose.items(), key=lambda item: -item[1])
    return [(name, words.size(amount), f"{amount / whole * 100:.0f} %") for name, amount in rows if amount > 0]


def ways(plan: MemoryPlanInfo) -> list[tuple[str, str, str, str]]:
    """(what it gives up, one partition, all workers, verdict) of each way, in the order in which they are tried."""
    found = []
    for index, choice in enumerate(plan.choices):
        verdict = "all fit" if choice.all_fit else "one at a time" if choice.fits else "does not fit"
        if not choice.fits and choice.peak <= plan.free:
            verdict = "the machine's memory is short"
        if index == plan.chosen:
            verdict += " · chosen"
        found.append(
            (words.plain(choice.text, 80) or "as set", words.size(choice.peak), words.size(choice.total), verdict)
        )
    return found
