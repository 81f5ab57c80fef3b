"""Which change of settings shortens which idle time.

A remedy is offered only where it changes something: the setting has another value, is not inert on the device, and the
memory plan, where one is given, has room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cuzk_engine.events import Cause, Kind, Remedy
from cuzk_engine.units import parse_size

PRESTAGE: Final = "pipeline.prestage"
DOUBLE_BUFFER: Final = "pipeline.double_buffer"
EVALUATE: Final = "pipeline.evaluate"
RESIDENCY: Final = "srs.residency"
WORKERS: Final = "gpus.gpu_workers_per_device"
ARENA: Final = "cpu.arena"
MOST_WORKERS: Final = 8
LEAST_GAIN: Final = 0.02  # of the idle time: less is not worth a change
MIB: Final = 1 << 20
PINNED_SPEED: Final = 4  # a page-locked copy takes at most this part of a pageable one's time

Admits = Callable[[str, str], bool]
"""Whether the memory plan has room for a setting's new value."""


@dataclass(frozen=True, slots=True)
class Situation:
    """How a device ran: what may be changed, and what would help. ``settings``: key → text, with the workers of this
    device; empty where nothing is known of them. ``is_card``: a GPU. ``changed``: they were others for a part of
    the time, and do not explain all of it."""

    device: str
    is_card: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    admits: Admits = lambda key, value: True
    changed: bool = False

    @property
    def workers(self) -> int:
        text = self.settings.get(WORKERS, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0

    def is_set(self, key: str, *values: str) -> bool:
        return self.settings.get(key) in values


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of one cause, as shares of the device's whole idle time. ``by_kind``: what workers did in it;
    ``with_work``: the part in which another partition could have run."""

    share: float
    with_work: float
    by_kind: Mapping[str, float] = field(default_factory=dict)
    asked_bytes: int = 0  # the largest request for memory that waited

    def of(self, *kinds: Kind) -> float:
        return min(self.share, sum(self.by_kind.get(kind, 0.0) for kind in kinds))


def remedies(cause: Cause, idle: Idle, situation: Situation) -> tuple[Remedy, ...]:
    """Most gain first; those of unknown gain last."""
    rule = _RULES.get(cause)
    if rule is None or not situation.settings:
        return ()
    found = [remedy for remedy in rule(idle, situation) if applies(remedy, situation)]
    found = [remedy for remedy in found if remedy.gain is None or remedy.gain >= LEAST_GAIN]
    return tuple(sorted(found, key=lambda remedy: -1.0 if remedy.gain is None else remedy.gain, reverse=True))


def applies(remedy: Remedy, situation: Situation) -> bool:
    """Whether it changes anything on this device, and fits."""
    now = situation.settings.get(remedy.key)
    return (
        now is not None
        and now != remedy.value
        and remedy.key not in situation.inert
        and situation.admits(remedy.key, remedy.value)
    )


def _more_workers(gain: float, situation: Situation, text: str) -> list[Remedy]:
    wanted = situation.workers + 1
    if not situation.workers or wanted > MOST_WORKERS or gain <= 0:
        return []
    return [Remedy(WORKERS, str(wanted), text, situation.device, gain=gain)]  # it may have a number of its own


def _pageable_upload(idle: Idle, situation: Situation) -> list[Remedy]:
    if not situation.is_set(PRESTAGE, "off"):
        return []  # the memory could not be page-locked: no setting cures that
    overlapped = situation.workers > 1
    if not overlapped and not situation.is_card:  # one worker uploads while nothing runs, before the lock or inside
        return _second_worker(idle, situation)
    gain = idle.share if overlapped else idle.share * (1 - 1 / PINNED_SPEED)
    ahead = Remedy(PRESTAGE, "ahead", "uploads from page-locked memory before the lock is taken", gain=gain)
    if applies(ahead, situation):
        return [ahead, *_second_worker(idle, situation)]
    text = "uploads from page-locked memory, inside the lock as before"
    locked = Remedy(PRESTAGE, "locked", text, gain=idle.share * (1 - 1 / PINNED_SPEED))
    return [locked] if situation.is_card else []


def _second_worker(idle: Idle, situation: Situation) -> list[Remedy]:
    if situation.workers != 1:
        return []
    text = "a second worker prepares the next partition while this one's kernels run"
    return _more_workers(idle.with_work, situation, text)


def _result_sync(idle: Idle, situation: Situation) -> list[Remedy]:
    text = "the host sums one batch's results while the next batch runs"
    return [Remedy(DOUBLE_BUFFER, "true", text, gain=idle.share)]


def _lock_handover(idle: Idle, situation: Situation) -> list[Remedy]:
    found = _second_worker(idle, situation)
    uploads = idle.of(Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC)
    if uploads > 0 and (situation.workers > 1 or situation.is_card):
        text = "uploads before the lock is taken, while the other worker's kernels run"
        found.append(Remedy(PRESTAGE, "ahead", text, gain=uploads))
    return found


def _host_starved(idle: Idle, situation: Situation) -> list[Remedy]:
    found = _second_worker(idle, situation)
    if situation.is_card and situation.workers > 1:
        text = "one more worker prepares partitions"
        found += _more_workers(idle.with_work / situation.workers, situation, text)
    evaluation = idle.of(Kind.EVALUATE)
    # A card evaluates by itself wherever it can: "auto" that evaluated on the host had a key without matrices. The CPU
    # would do the same work on the same cores, only under the lock.
    if evaluation > 0 and situation.is_card and not situation.is_set(EVALUATE, "auto"):
        text = "the device multiplies the matrices itself, and only the witness travels"
        found.append(Remedy(EVALUATE, "device", text, gain=evaluation))
    return found


def _srs_cold(idle: Idle, situation: Situation) -> list[Remedy]:
    streamed = idle.of(Kind.UPLOAD_SRS)
    if streamed <= 0:
        return []  # a key that was loaded for the first time
    return [Remedy(RESIDENCY, "device", "the key's points stay in the device's memory", gain=streamed)]


def _memory_wait(idle: Idle, situation: Situation) -> list[Remedy]:
    found = []
    arena = _enlarged(situation.settings.get(ARENA, ""), idle.asked_bytes)
    if arena and not situation.is_card:
        found.append(Remedy(ARENA, arena, "the memory that was waited for fits beside what is in use"))
    if situation.is_set(PRESTAGE, "ahead") and situation.workers > 1:
        text = "a waiting partition holds no buffers, so that more of them fit"
        found.append(Remedy(PRESTAGE, "locked", text))
    if situation.is_set(RESIDENCY, "device", "auto") and situation.is_card:
        found.append(Remedy(RESIDENCY, "host", "the key's points are streamed and leave room for partitions"))
    if situation.workers > 1:
        text = "one partition less wants memory at a time"
        found.append(Remedy(WORKERS, str(situation.workers - 1), text))
    return found


def _enlarged(size: str, asked: int) -> str:
    """A size with room for ``asked`` bytes more, in whole MiB; "" where the present one is no number."""
    try:
        return f"{-(-(parse_size(size) + asked) // MIB)}MiB" if asked > 0 else ""
    except ValueError:
        return ""


_RULES: Final[Mapping[Cause, Callable[[Idle, Situation], list[Remedy]]]] = {
    Cause.PAGEABLE_UPLOAD: _pageable_upload,
    Cause.RESULT_SYNC: _result_sync,
    Cause.LOCK_HANDOVER: _lock_handover,
    Cause.HOST_STARVED: _host_starved,
    Cause.SRS_COLD: _srs_cold,
    Cause.MEMORY_WAIT: _memory_wait,
}


def on_device(remedy: Remedy, device: str, *, has_own_workers: bool) -> Remedy:
    """A change of workers that acts on one device, where that device has a number of its own."""
    return replace(remedy, device=device) if remedy.key == WORKERS and has_own_workers else remedy
