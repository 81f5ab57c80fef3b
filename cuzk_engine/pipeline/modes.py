"""The ways in which a partition can run, and in which order one gives way to the next when memory is short.

Pre-staging goes first (ahead → locked → off), then the evaluation where it is left to the engine (device → host), then
the residency of the key's points (device → host), then MSM launches are halved down to a floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from typing import Final

from cuzk_engine.groth16.plan import CircuitSizes, Query

BATCH_FLOOR: Final = 1 << 14  # points; below, an MSM's buckets are most of its memory


class Prestage(StrEnum):
    OFF = "off"
    LOCKED = "locked"
    AHEAD = "ahead"


class Evaluation(StrEnum):
    AUTO = "auto"
    HOST = "host"
    DEVICE = "device"


class Residency(StrEnum):
    AUTO = "auto"
    HOST = "host"
    DEVICE = "device"


_PRESTAGES: Final = (Prestage.AHEAD, Prestage.LOCKED, Prestage.OFF)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """How a partition runs; taken once when it starts. See the settings ``pipeline.*`` and ``srs.residency``.

    ``reduced``: begins that many modes further down, after a failure. ``batch``: most points of an MSM launch; 0: as
    many as fit.
    """

    prestage: Prestage = Prestage.AHEAD
    double_buffer: bool = True
    evaluate: Evaluation = Evaluation.AUTO
    residency: Residency = Residency.AUTO
    reduced: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run a partition. ``evaluate`` and ``residency`` are host or device; ``batch``: most points that an
    MSM launch takes."""

    prestage: Prestage
    double_buffer: bool
    evaluate: Evaluation
    residency: Residency
    batch: int
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        words = self.prestage, self.double_buffer, self.evaluate, self.residency, self.batch
        object.__setattr__(self, "_hash", hash(words))

    def __hash__(self) -> int:
        """Known: modes and works are looked up many times a partition."""
        return self._hash

    @property
    def is_ahead(self) -> bool:
        return self.prestage is Prestage.AHEAD

    @property
    def on_device(self) -> bool:
        """Whether the device evaluates."""
        return self.evaluate is Evaluation.DEVICE

    @property
    def is_resident(self) -> bool:
        """Whether the key's points stay on the device."""
        return self.residency is Residency.DEVICE

    @property
    def base(self) -> tuple[object, ...]:
        """What decides how much memory a partition takes under the lock."""
        return self.evaluate, self.residency, self.batch

    def settings(self) -> dict[str, str]:
        """As settings' texts; a batch has none."""
        return {
            "pipeline.prestage": self.prestage.value,
            "pipeline.double_buffer": "true" if self.double_buffer else "false",
            "pipeline.evaluate": self.evaluate.value,
            "srs.residency": self.residency.value,
        }


@dataclass(frozen=True, slots=True)
class Work:
    """What modes and plans need to know of a key. ``has_matrices``: the device can evaluate. ``converts``: points are
    converted as they are read, so that they cannot stay on a device."""

    sizes: CircuitSizes
    has_matrices: bool = True
    converts: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.sizes, self.has_matrices, self.converts)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def longest(self) -> int:
        """Points of the largest part that could be summed at once."""
        return max(part.n for query in Query for part in self.sizes.ranges(query))


@lru_cache(maxsize=64)
def modes(settings: PipelineSettings, kind: str, work: Work, floor: int = BATCH_FLOOR) -> tuple[Mode, ...]:
    """The modes that may be tried on a device of ``kind``, what was asked for first; never empty."""
    found = tuple(_modes(settings, kind, work, floor))
    return found[min(settings.reduced, len(found) - 1) :]


def by_base(choices: Sequence[Mode]) -> list[list[Mode]]:
    """Runs of modes that differ in pre-staging alone."""
    return [list(group) for _, group in groupby(choices, key=lambda mode: mode.base)]


def loss(asked: Mode, mode: Mode) -> str:
    """What ``mode`` gives up against what was asked for, "" for nothing."""
    parts = []
    if mode.prestage is not asked.prestage:
        parts.append(f"pre-staging {mode.prestage}")
    if mode.evaluate is not asked.evaluate:
        parts.append(f"evaluation on the {mode.evaluate}")
    if mode.residency is not asked.residency:
        parts.append("key streamed from the host")
    if mode.batch != asked.batch:
        parts.append(f"MSMs of {mode.batch:,} points")
    return ", ".join(parts)


def _modes(settings: PipelineSettings, kind: str, work: Work, floor: int) -> Iterator[Mode]:
    evaluations = _evaluations(settings.evaluate, kind, work)
    residencies = _residencies(settings.residency, kind, work)
    whole = min(max(settings.batch // 8 * 8, 8), work.longest) if settings.batch else work.longest
    prestages = _PRESTAGES[_PRESTAGES.index(settings.prestage) :]
    bases = [(evaluation, residency, whole) for residency in residencies for evaluation in evaluations]
    bases += [(evaluations[-1], residencies[-1], batch) for batch in _halves(whole, floor)]
    for evaluation, residency, batch in bases:
        for prestage in prestages:
            yield Mode(prestage, settings.double_buffer, evaluation, residency, batch)


def _evaluations(asked: Evaluation, kind: str, work: Work) -> list[Evaluation]:
    if not work.has_matrices:
        return [Evaluation.HOST]
    if asked is not Evaluation.AUTO:
        return [asked]
    # For the CPU the matrices are read where the key is mapped, by the host's threads.
    return [Evaluation.HOST] if kind == "cpu" else [Evaluation.DEVICE, Evaluation.HOST]


def _residencies(asked: Residency, kind: str, work: Work) -> list[Residency]:
    if kind == "cpu":  # the points stay mapped either way
        return [Residency.HOST if asked is Residency.AUTO else asked]
    if work.converts or asked is Residency.HOST:
        return [Residency.HOST]
    return [Residency.DEVICE, Residency.HOST]


def _halves(whole: int, floor: int) -> Iterator[int]:
    """Powers of two, from about a half of ``whole`` down to ``floor``: parts that begin at multiples of 8."""
    batch = 1 << (3 * whole // 4).bit_length() - 1 if whole > 1 else 0
    while batch >= max(floor, 8):
        yield batch
        batch //= 2
