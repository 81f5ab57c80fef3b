"""The memory plan for people: what a circuit's partitions need on a device in each mode, and what would have
helped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from cuzk_engine.devices.base import Device
from cuzk_engine.events import Purpose, Remedy
from cuzk_engine.formats.params import Params, structure_of
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.zkey import ZKEY_SPEC, ZKey
from cuzk_engine.groth16.density import count_densities
from cuzk_engine.groth16.plan import CircuitSizes
from cuzk_engine.key_checks import CheckedKeys
from cuzk_engine.params_keys import ParamsSizes
from cuzk_engine.pipeline.modes import Evaluation, Mode, PipelineSettings, Prestage, Residency, Work, loss, modes
from cuzk_engine.pipeline.plan import PartitionPlan, plan_partition, steady_plan
from cuzk_engine.settings import WORKERS_KEY
from cuzk_engine.units import format_size

_ARENA: Final = "cpu.arena"
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a partition. ``text``: what it gives up, "" for what was asked for. ``peak``: bytes of one
    partition, ``total`` of all workers together; ``fits``: one partition alone, ``all_fit``: all workers at once."""

    settings: dict[str, str]
    text: str
    peak: int
    total: int
    fits: bool
    all_fit: bool


@dataclass(frozen=True, slots=True)
class PlanReport:
    """``peak``, ``by_purpose`` and ``stages`` (stage → purpose → bytes): of one partition in the mode that was chosen,
    the smallest where none fits; ``free``: what of ``capacity`` the engine may have at present, what its partitions use
    included: the rest is other programs' or a margin; ``chosen``: index into ``choices``, -1 where none fits."""

    device: str
    capacity: int
    peak: int
    fits: bool
    by_purpose: dict[str, int] = field(default_factory=dict)
    total: int = 0
    free: int = 0
    others: int | None = None
    workers: int = 1
    stages: dict[str, dict[str, int]] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    chosen: int = -1
    host_peak: int = 0
    host_capacity: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """The first partition of a mode and a later one; a table and a key's points stay in between."""

    first: PartitionPlan
    later: PartitionPlan

    @property
    def mode(self) -> Mode:
        return self.first.mode

    @property
    def worst(self) -> PartitionPlan:
        return max(self.first, self.later, key=lambda plan: plan.peak)

    def together(self, workers: int) -> int:
        return max(self.first.together(workers), self.later.together(workers))

    def total(self, workers: int, room: int) -> int:
        """What they take of ``room``: more than they need, where there is more."""
        most = max(self.first.most(workers), self.later.most(workers))
        return max(self.together(workers), min(most, room))


def planned(work: Work, mode: Mode, device: Device) -> Planned:
    """Made once: it is asked for again and again while settings change and while the device proves."""
    made = _MADE.setdefault(device, {})
    found = made.get((work, mode))
    if found is None:
        if len(made) >= _MOST_MADE:
            made.clear()
        found = made[work, mode] = Planned(plan_partition(work, mode, device), steady_plan(work, mode, device))
    return found


_MOST_MADE: Final = 512  # modes of some keys
_MADE: Final[WeakKeyDictionary[Device, dict[tuple[Work, Mode], Planned]]] = WeakKeyDictionary()


def work_of(path: Path | str, checks: CheckedKeys | None = None) -> Work:
    """What a plan needs of a key, without loading it: the header, and the densities, which are counted where that was
    not done before. Of a bellperson key the circuit's terms are not known."""
    source = SourceFile.open(path)
    if source.data[:4].tobytes() != ZKEY_SPEC.magic and (
        os.fspath(path).endswith(".params") or structure_of(source) is not None
    ):
        return Work(ParamsSizes.of_key(Params.open(path)), has_matrices=False, converts=True)
    zkey = ZKey.from_source(source)
    checks = CheckedKeys() if checks is None else checks
    content = checks.known_hash(os.path.abspath(path), zkey.identity)
    found = (None if content is None else checks.densities(content)) or count_densities(zkey)
    return Work(CircuitSizes.of(zkey, found.present, found.general))


class _Free(NamedTuple):
    """What there is of memory: ``capacity`` to ``context`` of the device, ``others`` and ``free`` as of a room."""

    capacity: int
    free: int
    others: int | None
    context: int
    host_capacity: int
    on_host: int


def plan_report(device: Device, work: Work, settings: PipelineSettings, workers: int) -> PlanReport:
    """The plan of ``workers`` that prove with one key; nothing is allocated for it. The same object as long as nothing
    changes: it is asked for while they prove."""
    room, host = device.room(), device.host
    context = device.memory().by_purpose.get(Purpose.CONTEXT, 0)
    free = _Free(
        max(device.info.capacity, room.capacity), room.capacity, room.others, context, host.memory().capacity,
        host.usable(),
    )  # fmt: skip
    made, asked = _REPORTED.setdefault(device, {}), (work, settings, workers, free)
    found = made.get(asked)
    if found is None:
        if len(made) >= _MOST_REPORTED:
            made.clear()
        found = made[asked] = _report(device, work, settings, workers, free)
    return found


_MOST_REPORTED: Final = 16
_REPORTED: Final[WeakKeyDictionary[Device, dict[tuple[Work, PipelineSettings, int, _Free], PlanReport]]] = (
    WeakKeyDictionary()
)


def _report(device: Device, work: Work, settings: PipelineSettings, workers: int, free: _Free) -> PlanReport:
    context, on_host = free.context, free.on_host
    plans = [planned(work, mode, device) for mode in modes(settings, device.info.kind, work)]

    def choice(plan: Planned) -> Choice:
        peak, total = plan.worst.peak + context, plan.total(workers, free.free - context) + context
        host_fits = plan.first.host_bytes <= on_host
        fits = peak <= free.free and host_fits
        return Choice(
            plan.mode.settings(), loss(plans[0].mode, plan.mode), peak, total, fits, fits and total <= free.free
        )

    choices = tuple(map(choice, plans))
    chosen = choose(choices)
    plan = plans[chosen].worst
    resident = {str(Purpose.CONTEXT): context} if context else {}
    stages = {
        name: {str(purpose): nbytes for purpose, nbytes in column.items()} | resident
        for name, column in plan.columns.items()
    }
    return PlanReport(
        device=device.info.id,
        capacity=free.capacity,
        peak=plan.peak + context,
        fits=choices[chosen].fits,
        by_purpose={str(purpose): nbytes for purpose, nbytes in plan.by_purpose.items()} | resident,
        total=choices[chosen].total,
        free=free.free,
        others=free.others,
        workers=workers,
        stages=stages,
        choices=choices,
        chosen=chosen if choices[chosen].fits else -1,
        host_peak=workers * plan.host_bytes + free.host_capacity - on_host,
        host_capacity=free.host_capacity,
    )


def choose(choices: Sequence[Choice]) -> int:
    """What a partition gets while all other workers are busy: the first that fits beside them, else the first that
    fits alone, else the last."""
    beside = [index for index, choice in enumerate(choices) if choice.all_fit]
    alone = [index for index, choice in enumerate(choices) if choice.fits]
    return (beside or alone or [len(choices) - 1])[0]


def remedies(
    settings: PipelineSettings,
    workers: int,
    available: int,
    kind: str,
    device: str,
    total: Callable[..., int | None],
    least: int | None = None,
) -> tuple[Remedy, ...]:
    """The smallest changes of settings whose plan fits into ``available`` bytes, smallest first.

    ``total``: bytes of so many workers with some settings, None where these make no difference on the device.
    ``least``: bytes of one partition in the smallest mode, where the plan goes down to it by itself.
    """
    now = total(settings, workers)
    if now is None:
        return ()
    found = []
    for key, value, change, fewer, text in _changes(settings, workers):
        needed = total(change, fewer)
        if needed is not None and needed <= available and needed < now:
            where = device if key == WORKERS_KEY else ""
            found.append(
                Remedy(key, value, f"{text}: {format_size(needed)} instead of {format_size(now)}", where, needed)
            )
    if kind == "cpu" and now > available:
        if least is not None and available < least and _mib(least) < _mib(now):
            found.append(_arena(least, ", room for one partition at a time in the smallest mode"))
        found.append(_arena(now, ", room for all workers at once" if least is not None else ""))
    return tuple(found)


def _arena(needed: int, text: str) -> Remedy:
    mib = _mib(needed)
    return Remedy(_ARENA, f"{mib}MiB", f"Give the CPU device {format_size(mib * _MIB)}{text}", "", needed)


def _mib(nbytes: int) -> int:
    return -(-nbytes // _MIB)


def _changes(settings: PipelineSettings, workers: int) -> Iterable[tuple[str, str, PipelineSettings, int, str]]:
    if settings.prestage is Prestage.AHEAD:
        yield (
            "pipeline.prestage", Prestage.LOCKED.value, replace(settings, prestage=Prestage.LOCKED), workers,
            "Allocate a partition's buffers while the device is held, not before",
        )  # fmt: skip
    for fewer in range(workers - 1, 0, -1):
        yield WORKERS_KEY, str(fewer), settings, fewer, f"Run {fewer} worker{'s' if fewer > 1 else ''} on this device"
    if settings.evaluate is not Evaluation.HOST:
        yield (
            "pipeline.evaluate", Evaluation.HOST.value, replace(settings, evaluate=Evaluation.HOST), workers,
            "Evaluate on the host, so that the matrices need no device memory",
        )  # fmt: skip
    if settings.residency is not Residency.HOST:
        yield (
            "srs.residency", Residency.HOST.value, replace(settings, residency=Residency.HOST), workers,
            "Keep the key in host memory and stream it",
        )  # fmt: skip
