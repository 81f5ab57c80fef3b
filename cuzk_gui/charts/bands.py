"""Readings over time that are stacked on what the engine holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuzk_gui.models.columns import Array


class Bands:
    """A reading as steps: value ``i`` holds in [start i, stop i), cut where the present ends."""

    def __init__(self, starts: Array, stops: Array, values: Array, known_ns: int) -> None:
        self.starts = starts
        self.stops = np.minimum(stops, known_ns)
        self.values = values

    @property
    def highest(self) -> float:
        return float(self.values.max()) if len(self.values) else 0.0

    def at(self, times: Array) -> tuple[Array, Array]:
        """(values, whether there is one) at each time."""
        if not len(self.starts):
            return np.zeros(len(times)), np.zeros(len(times), dtype=bool)
        row = np.searchsorted(self.starts, times, side="right") - 1
        there = (row >= 0) & (times < self.stops[np.maximum(row, 0)])
        return self.values[np.maximum(row, 0)], there


@dataclass(frozen=True, slots=True)
class Levels:
    """Bytes that the engine holds as steps, and of them those that are not of the pool; ``pool`` raises the level to
    what the pool has reserved."""

    times: Array
    totals: Array
    context: Array
    pool: Bands | None = None

    def raised(self, pool: Bands) -> Levels:
        return Levels(self.times, self.totals, self.context, pool)

    def at(self, times: Array) -> Array:
        row = np.searchsorted(self.times, times, side="right") - 1
        base: Array = (
            np.where(row >= 0, self.totals[np.maximum(row, 0)], 0.0) if len(self.totals) else np.zeros(len(times))
        )
        if self.pool is None or not len(self.pool.starts):
            return base
        amount, there = self.pool.at(times)
        return np.where(there, self.with_pool(times, amount), base)

    def with_pool(self, times: Array, reserved: Array) -> Array:
        """The level where the pool has ``reserved`` bytes, used ones included."""
        row = np.searchsorted(self.times, times, side="right") - 1
        if not len(self.totals):
            return reserved.astype(np.float64)
        inside = np.where(row >= 0, self.totals[np.maximum(row, 0)], 0.0)
        outside = np.where(row >= 0, self.context[np.maximum(row, 0)], 0.0)
        return np.maximum(inside, reserved + outside)
