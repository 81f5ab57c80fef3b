"""The order of the rounds.

Each variation's proofs are spread over several rounds, and in each pass over the variations the order is turned round:
1 2 3, 3 2 1, 1 2 3, … A machine that slowly gets warmer, or busier, then slows all variations alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cuzk_engine.bench.results import Round, Series
from cuzk_engine.bench.variations import Variation

MOST_ROUNDS: Final = 8
TURNS: Final = 3
"""Proofs of a round, times as many as run at once: at its ends fewer run, which must not make the most of it."""

Progress = Callable[[str, float], None]


class Engine(Protocol):
    """What proves: this process, or a running engine."""

    def check(self, variation: Variation) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def notes(self, variations: list[Variation]) -> list[str]: ...
    def run(self, variation: Variation, count: int, concurrency: int) -> Round: ...


@dataclass(frozen=True, slots=True)
class Load:
    """``count`` proofs a variation, ``concurrency`` of them at once, after ``warm_up`` ones that do not count."""

    count: int
    concurrency: int
    warm_up: int

    @property
    def rounds(self) -> int:
        """As many as leave each round enough proofs to keep ``concurrency`` of them going for most of it."""
        enough = 1 if self.concurrency == 1 else TURNS * self.concurrency
        return max(1, min(MOST_ROUNDS, self.count // enough))

    def sizes(self) -> list[int]:
        """Proofs of each round; they differ by at most one."""
        base, more = divmod(self.count, self.rounds)
        return [base + (number < more) for number in range(self.rounds)]


def passes(n_variations: int, load: Load) -> Iterator[tuple[int, int]]:
    """(number of the variation, proofs) of every round, in order."""
    for number, size in enumerate(load.sizes()):
        order = range(n_variations)
        for which in reversed(order) if number % 2 else order:
            yield which, size


def measure(engine: Engine, variations: Sequence[Variation], load: Load, progress: Progress) -> list[Series]:
    """All rounds of all variations."""
    for variation in variations:
        engine.check(variation)
    series = [Series(variation) for variation in variations]
    total, done = len(variations) * (load.count + load.warm_up), 0
    if load.warm_up:
        for variation in variations:
            progress(f"warm-up, {variation.name}", done / total)
            engine.run(variation, load.warm_up, load.concurrency)
            done += load.warm_up
    for which, size in passes(len(variations), load):
        progress(variations[which].name, done / total)
        series[which].rounds.append(engine.run(variations[which], size, load.concurrency))
        done += size
    return series
