"""One proof's owner, cancellation, phase times, spans of its host thread, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cuzk_engine.devices.base import CancelToken, EventSink, Owner
from cuzk_engine.events import Incident, Kind, Picture, Span, host_lane
from cuzk_engine.groth16.plan import CostModel

Progress = Callable[[str, float], None]
"""(phase, share of the whole proof that is done, 0…1); called from the proving thread, never backwards."""

_LOADING_SHARE: Final = 0.1  # of the bar, when a key is checked for the first time


class Run:
    """``begin`` comes before ``advance``."""

    def __init__(
        self, device: str, owner: Owner, cancel: CancelToken, sink: EventSink | None, progress: Progress | None
    ) -> None:
        self.owner = owner
        self.cancel = cancel
        self.phases: dict[str, int] = {}
        self._device = device
        self._sink = sink
        self._progress = progress
        self._name = ""
        self._reached = 0.0
        self._base = 0.0
        self._costs: CostModel | None = None
        self._done = 0.0

    @property
    def costs(self) -> CostModel:
        assert self._costs is not None, "begin() comes first"
        return self._costs

    @contextmanager
    def phase(self, name: str, kind: Kind | None = None) -> Iterator[None]:
        """Times a phase; with ``kind`` it is a span on the worker's host lane."""
        self.cancel.check()
        self._name = name
        self._report(self._reached)
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0) + time.monotonic_ns() - start
            if kind is not None:
                self._emit(start, kind)
        self.cancel.check()

    @contextmanager
    def span(self, kind: Kind) -> Iterator[None]:
        """A span on the worker's host lane, no phase of its own."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self._emit(start, kind)

    def loading(self, share: float) -> None:
        """Progress of the check of a new key."""
        self._report(_LOADING_SHARE * share)

    def begin(self, costs: CostModel) -> None:
        """The circuit is known: what is left of the bar is divided by the cost model."""
        self._costs = costs
        self._base = self._reached

    def advance(self, cost: float) -> None:
        self._done += cost
        self._report(self._base + (1 - self._base) * min(1.0, self._done / self.costs.total()))

    def incident(
        self,
        kind: str,
        message: str,
        requested: int | None = None,
        free: int | None = None,
        picture: Picture | None = None,
        device: str | None = None,
    ) -> None:
        if self._sink is not None:
            now, where = time.monotonic_ns(), device or self._device
            self._sink(Incident(now, where, kind, self.owner.job, message, requested, free, picture))

    def _emit(self, start: int, kind: Kind) -> None:
        if self._sink is not None:
            owner, end = self.owner, time.monotonic_ns()
            lane = host_lane(owner.worker)
            self._sink(Span(start, end, self._device, lane, kind, owner.job, owner.partition, owner.worker))

    def _report(self, fraction: float) -> None:
        self._reached = max(self._reached, fraction)
        if self._progress is not None:
            self._progress(self._name, self._reached)
