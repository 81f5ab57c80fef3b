"""Figures of proofs and rounds, and their sums. Seconds and bytes; None where something could not be read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuzk_engine.bench.variations import Variation


@dataclass(frozen=True, slots=True)
class ProofTime:
    """One proof, from the moment a worker took it to the verified proof. ``phases``: name → seconds, in order."""

    seconds: float
    phases: dict[str, float]
    prestage: str = ""  # what was really done, where it is known
    asked: str = "ahead"  # and what should have been


@dataclass(frozen=True, slots=True)
class Use:
    """How the devices spent a round, mean over them. ``busy``: share of it in which at least one kernel ran; ``idle``:
    the rest by cause; ``kernels``: seconds with a kernel running of a partition, median; None where none was seen."""

    busy: float
    idle: dict[str, float]
    kernels: float | None


@dataclass(frozen=True, slots=True)
class Round:
    """Proofs of one variation that ran together. ``wall``: from the first one's submission to the last one's end;
    ``device_peak``: bytes in the ledger; ``resident_peak``: of the proving process, its mapped key included."""

    proofs: tuple[ProofTime, ...]
    wall: float
    use: Use | None
    device_peak: int | None
    resident_peak: int | None

    @property
    def proofs_a_minute(self) -> float:
        return 60 * len(self.proofs) / self.wall


@dataclass(frozen=True, slots=True)
class Spread:
    """Order statistics of a sample."""

    median: float
    low: float
    high: float
    quartiles: tuple[float, float]
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None of nothing."""
        data = sorted(values)
        if not data:
            return None
        if len(data) == 1:
            return cls(data[0], data[0], data[0], (data[0], data[0]), 1)
        first, median, third = statistics.quantiles(data, n=4, method="inclusive")
        return cls(median, data[0], data[-1], (first, third), len(data))

    def document(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "quartiles": list(self.quartiles),
            "count": self.count,
        }


@dataclass(slots=True)
class Series:
    """All rounds of one variation."""

    variation: Variation
    rounds: list[Round] = field(default_factory=list)

    @property
    def proofs(self) -> list[ProofTime]:
        return [proof for each in self.rounds for proof in each.proofs]

    @property
    def seconds(self) -> Spread | None:
        return Spread.of(proof.seconds for proof in self.proofs)

    @property
    def proofs_a_minute(self) -> Spread | None:
        return Spread.of(each.proofs_a_minute for each in self.rounds)

    @property
    def busy(self) -> Spread | None:
        return Spread.of(use.busy for use in self._uses)

    @property
    def kernels(self) -> Spread | None:
        """Seconds a partition, of the rounds' medians."""
        return Spread.of(use.kernels for use in self._uses if use.kernels is not None)

    @property
    def idle(self) -> dict[str, Spread]:
        """Cause → share of a round, most first."""
        causes = dict.fromkeys(cause for use in self._uses for cause in use.idle)
        found = {cause: Spread.of(use.idle.get(cause, 0.0) for use in self._uses) for cause in causes}
        known = {cause: spread for cause, spread in found.items() if spread is not None}
        return dict(sorted(known.items(), key=lambda item: -item[1].median))

    @property
    def _uses(self) -> list[Use]:
        return [each.use for each in self.rounds if each.use is not None]

    @property
    def device_peak(self) -> int | None:
        return _largest(each.device_peak for each in self.rounds)

    @property
    def resident_peak(self) -> int | None:
        return _largest(each.resident_peak for each in self.rounds)

    @property
    def staged_otherwise(self) -> dict[str, int]:
        """How often another pre-staging was used than asked for, because the memory plan did not admit it."""
        counts: dict[str, int] = {}
        for proof in self.proofs:
            if proof.prestage and proof.prestage != proof.asked:
                counts[proof.prestage] = counts.get(proof.prestage, 0) + 1
        return counts

    def phases(self) -> dict[str, Spread]:
        """Seconds of each phase, in the order in which they run."""
        names: dict[str, None] = {}
        for proof in self.proofs:
            names.update(dict.fromkeys(proof.phases))
        found = {name: Spread.of(proof.phases[name] for proof in self.proofs if name in proof.phases) for name in names}
        return {name: spread for name, spread in found.items() if spread is not None}

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        return {
            "variation": self.variation.name,
            "settings": dict(self.variation.settings),
            "proofs": len(self.proofs),
            "rounds": [
                {
                    "proofs": len(each.proofs),
                    "wall": each.wall,
                    "busy": each.use and each.use.busy,
                    "seconds": _seconds(each.proofs),
                }
                for each in self.rounds
            ],
            "seconds": _document(self.seconds),
            "proofs_a_minute": _document(self.proofs_a_minute),
            "busy": _document(self.busy),
            "kernels": _document(self.kernels),
            "idle": {cause: spread.document() for cause, spread in self.idle.items()},
            "phases": {name: spread.document() for name, spread in self.phases().items()},
            "device_peak_bytes": self.device_peak,
            "resident_peak_bytes": self.resident_peak,
            "staged_otherwise": self.staged_otherwise,
        }


def _seconds(proofs: Sequence[ProofTime]) -> list[float]:
    return [proof.seconds for proof in proofs]


def _document(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else spread.document()


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
