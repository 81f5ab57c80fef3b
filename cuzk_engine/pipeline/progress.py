"""One proof's owner, cancellation, phase times, spans of its host thread, and progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cuzk_engine.devices.base import CancelToken, EventSink, Owner
from cuzk_engine.events import Incident, Kind, Picture, host_lane, new_span
from cuzk_engine.groth16.plan import CostModel

Progress = Callable[[str, float], None]
"""(phase, share of the whole proof that is done, 0…1); called from the proving thread, never backwards."""

_LOADING_SHARE: Final = 0.1  # of the bar, when a key is checked for the first time


class Phase:
    """See `Run.phase`."""

    __slots__ = ("_kind", "_name", "_run", "_start")

    def __init__(self, run: Run, name: str, kind: Kind | None) -> None:
        self._run, self._name, self._kind = run, name, kind

    def __enter__(self) -> None:
        name = self._name
        if name:
            run = self._run
            run._name, run._in_phase = name, True
            if run._progress is not None:
                run._progress(name, run._reached)
        self._start = time.monotonic_ns()

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        run, name, start, end = self._run, self._name, self._start, time.monotonic_ns()
        if self._kind is not None and run._sink is not None:
            run._sink(new_span((start, end, run._device, run._lane, self._kind, *run.owner, 0, None)))
        if name:
            phases = run.phases
            phases[name] = phases.get(name, 0) + end - start
            run._in_phase = False
            if error is None:
                run.cancel.check()


class Run:
    """``begin`` comes before ``advance`` and ``costs``."""

    costs: CostModel

    def __init__(
        self, device: str, owner: Owner, cancel: CancelToken, sink: EventSink | None, progress: Progress | None
    ) -> None:
        self.owner = owner
        self.cancel = cancel
        self.phases: dict[str, int] = {}
        self._device = device
        self._sink = sink
        self._progress = progress
        self._lane = host_lane(owner.worker)
        self._name = ""
        self._in_phase = False
        self._reached = 0.0
        self._base = 0.0
        self._done = self._total = 0.0

    def phase(self, name: str, kind: Kind | None = None) -> Phase:
        """Times a phase, which is the block; with ``kind`` it is a span on the worker's host lane. Its end raises
        CancelledError."""
        return Phase(self, name, kind)

    def span(self, kind: Kind) -> Phase:
        """A span on the worker's host lane, no phase of its own."""
        return Phase(self, "", kind)

    def loading(self, share: float) -> None:
        """Progress of the check of a new key."""
        self._reached = max(self._reached, _LOADING_SHARE * share)
        self.restate(self._name)

    def begin(self, costs: CostModel) -> None:
        """The circuit is known: what is left of the bar is divided by the cost model."""
        self.costs, self._total = costs, costs.total()
        self._base = self._reached

    def advance(self, cost: float) -> None:
        """Between two phases the next one tells of it."""
        self._done += cost
        share, base = self._done / self._total, self._base
        reached = base + (1 - base) * share if share < 1.0 else 1.0
        if reached > self._reached:
            self._reached = reached
        if self._progress is not None and (self._in_phase or share >= 1.0):
            self._progress(self._name, self._reached)

    def restate(self, name: str) -> None:
        """What holds up the phase, until the next one; its times stay under its own name."""
        self._name = name
        if self._progress is not None:
            self._progress(name, self._reached)

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
