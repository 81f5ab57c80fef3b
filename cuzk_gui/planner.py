"""Asks the engine for the memory plan of each device: after a change of settings, while one is looked at, and now and
then because other programs take memory too."""

from __future__ import annotations

import time
from typing import Final

from PySide6.QtCore import QObject

from cuzk_engine.client import CircuitInfo, SettingChange
from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_gui.controller import Controller, PlanQuery
from cuzk_gui.models import words
from cuzk_gui.models.findings import setting_text
from cuzk_gui.models.plan import NO_CIRCUIT, PlanState
from cuzk_gui.models.settings import PIPELINE, WORKERS

DEBOUNCE_S: Final = 0.12
_AGAIN_S: Final = 4.0  # while jobs run
_AGAIN_IDLE_S: Final = 15.0
_PLANNED: Final = (WORKERS, *PIPELINE)  # what a plan depends on
_Key = tuple[object, ...]


class Planner(QObject):
    """``plans`` by device; ``version`` counts their changes. ``tick`` is called with every frame."""

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self._control = controller
        self._session = controller.session
        self.plans: dict[str, PlanState] = {}
        self.stated: dict[str, MemoryPlanInfo] = {}  # with what is set, by device
        self.version = 0
        self.chosen = ""  # a circuit's id; "" for the one used last
        self._looked_at: SettingChange | None = None
        self._key: _Key | None = None
        self._due = 0.0
        self._asking: set[str] = set()

    @property
    def circuit(self) -> CircuitInfo | None:
        """The circuit that is planned for: the chosen one, else the one used last."""
        known = self._control.circuits
        return next(
            (c for c in known if c.id == self.chosen), max(known, key=lambda c: c.last_used_unix_ns, default=None)
        )

    def look_at(self, change: SettingChange | None) -> None:
        """The pointer is on a change that is not made, or has left it."""
        self._looked_at = change if change is not None and change.key in _PLANNED else None

    def choose(self, circuit_id: str) -> None:
        self.chosen = circuit_id

    def tick(self, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        session, circuit = self._session, self.circuit
        if not session.live:
            self._forget({})
            return
        if circuit is None:
            self._forget({device: PlanState(said=NO_CIRCUIT) for device in session.described})
            return
        key: _Key = (circuit.id, session.settings.version, self._looked_at, tuple(session.described))
        if key != self._key:
            self._due = now if self._key is None else now + DEBOUNCE_S
            self._key = key
        if now < self._due or self._asking:
            return
        self._due = now + (_AGAIN_S if session.jobs.active else _AGAIN_IDLE_S)
        for device in session.described:
            self._ask(device, circuit, key)

    def _forget(self, plans: dict[str, PlanState]) -> None:
        self._key = None
        self.stated = {}
        if plans != self.plans:
            self.plans = plans
            self.version += 1

    def _in_words(self, change: SettingChange) -> str:
        """Short: beside it stand the bytes."""
        if change.key == WORKERS and change.value.isdecimal():
            return words.count(int(change.value), "worker")
        return setting_text(self._session, change.key, change.value, change.device)

    def _ask(self, device: str, circuit: CircuitInfo, key: _Key) -> None:
        looked_at = self._looked_at
        if looked_at is not None and looked_at.device not in ("", device):
            looked_at = None
        changes = [c for c in self._session.settings.asked() if c.key in _PLANNED and c.device in ("", device)]
        changes += [looked_at] if looked_at else []
        what_if = self._in_words(looked_at) if looked_at else ""

        def show(state: PlanState) -> None:
            self._asking.discard(device)
            if key == self._key and state != self.plans.get(device):
                self.plans = {**self.plans, device: state}
                self.version += 1

        def planned(plan: MemoryPlanInfo) -> None:
            if not what_if and key == self._key:
                self.stated[device] = plan
            show(PlanState(plan, circuit=circuit.name, what_if=what_if))

        def failed(message: str) -> None:
            self.stated.pop(device, None)
            show(PlanState(said=message, circuit=circuit.name))

        self._asking.add(device)
        self._control.plan(PlanQuery(circuit.id, device, tuple(changes)), planned, failed)
