"""What every backend shares of the device protocol: the part of a device that is its ledger's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cuzk_engine.devices import base
from cuzk_engine.devices.base import CancelToken, MemoryUse, Owner, Room
from cuzk_engine.devices.ledger import Ledger, Reclaimer, Reservation
from cuzk_engine.events import Holding, OtherProcess

T = TypeVar("T")


class LedgerDevice:
    """The part of a device that is its ledger's; what every backend shares of the device protocol."""

    _ledger: Ledger

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def reserve(self, held: int, serial: int, owner: Owner, cancel: CancelToken) -> Reservation:
        self._check_open()
        return self._ledger.reserve(held, serial, owner, cancel)

    def try_reserve(self, held: int, serial: int, owner: Owner) -> Reservation | None:
        self._check_open()
        return self._ledger.try_reserve(held, serial, owner)

    def admit(self, attempt: Callable[[base.Turn], T | None], owner: Owner, cancel: CancelToken, wanted: int = 0) -> T:
        self._check_open()
        return self._ledger.admit(attempt, owner, cancel, wanted)

    def add_reclaimer(self, reclaimer: Reclaimer, idle: Callable[[], int] | None = None) -> None:
        self._ledger.add_reclaimer(reclaimer, idle)

    def memory(self) -> MemoryUse:
        return self._ledger.use()

    def usable(self) -> int:
        return self._ledger.usable()

    def room(self) -> Room:
        return Room(self._ledger.available(), self._ledger.used, self._ledger.idle(), None, 0)

    def holdings(self) -> tuple[Holding, ...]:
        return self._ledger.holdings()

    def others(self) -> tuple[OtherProcess, ...]:
        return ()

    def _check_open(self) -> None:
        """Raises when the device can no longer be used."""
        raise NotImplementedError
