"""Who holds which byte of a device, and who may take the next one.

The rule: a partition *reserves* its planned peak before it allocates anything, and from then on its allocations within
the plan cannot fail. What does not fit now waits in order of arrival; what can never fit is refused with the numbers.

A reservation has two parts. ``held`` bytes may be used from the reservation on; ``serial`` bytes only while the owner
holds the device's compute lock, so of all reservations only the largest serial part counts. With U the bytes of
nobody's reservation and u_i the bytes in use by owner i, what is committed is

    U + Σ max(held_i, u_i − serial_i) + max(max serial_i, Σ s_i),   s_i: the bytes that i uses of its serial part

which never exceeds the capacity and is never less than the bytes in use. As long as one owner at a time uses its serial
part, Σ s_i ≤ max serial_i, and no allocation within a reservation can fail. A reservation is made before the compute
lock is taken and never while it is held: a waiter can therefore not keep the memory's holders from finishing. What was
taken of the serial part is given back before the lock and the reservation are.

Allocation events are emitted under the ledger's lock, so that their running sum is exact in every order a reader can
see.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from cuzk_engine.devices.base import CancelToken, EventSink, MemoryUse, Owner
from cuzk_engine.errors import CancelledError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Holding, Kind, Purpose, host_lane, new_allocation, new_span

T = TypeVar("T")

Reclaimer = Callable[[int], int]
"""Asked to give back about so many bytes of caches that nobody uses; returns how many it gave."""

_POLL_SECONDS: Final = 0.25  # between two looks at what other programs hold, which nobody announces


@dataclass(eq=False, slots=True)
class Grant:
    """Bytes that were taken. ``reservation`` is the one they count against, while that is active."""

    nbytes: int
    purpose: Purpose
    owner: Owner
    reservation: Reservation
    open: bool = True


class Reservation:
    """Memory promised to one owner until ``release`` (or the end of the ``with`` block); releasing twice does
    nothing."""

    def __init__(self, ledger: Ledger, owner: Owner, held: int, serial: int) -> None:
        self._ledger = ledger
        self.owner = owner
        self.held = held
        self.serial = serial
        self.used = 0
        self.active = True

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    @property
    def charge(self) -> tuple[int, int]:
        """(bytes committed besides the serial part, bytes of the serial part in use)."""
        held, used = self.held, self.used
        besides = used - self.serial
        if besides < held:
            besides = held
        return besides, used - besides if used > besides else 0

    @property
    def serial_used(self) -> int:
        """Bytes of the serial part in use."""
        return self._ledger._serial_used(self)

    def release(self) -> None:
        self._ledger._release(self)

    def settle(self) -> None:
        """Gives back all that is not in use."""
        self._ledger._settle(self)

    def settle_early(self) -> bool:
        """The same where that leaves no more committed than can be had; see `base.Reservation`."""
        return self._ledger._settle_early(self)

    def shrink(self, nbytes: int) -> None:
        """Gives back ``nbytes`` of the held part that turned out not to be needed."""
        self._ledger._shrink(self, nbytes)


class Turn:
    """See `base.Turn`. Remembers the last promise that was asked for in vain: the smallest of them."""

    def __init__(self, ledger: Ledger, owner: Owner, alone: bool) -> None:
        self._ledger = ledger
        self._owner = owner
        self.alone = alone
        self.refused: int | None = None

    def promise(self, held: int, serial: int) -> Reservation | None:
        reservation = self._ledger._promise_or_reclaim(held, serial, self._owner)
        if reservation is None:
            self.refused = held + serial
        return reservation


class Ledger:
    """The memory of one device (or of the host). All methods may be called from any thread.

    ``advice`` ends the message of a refusal: what an operator can change. ``ceiling`` tells what may be handed out at
    present, where other programs hold memory, too: promises stay below it, while what was promised before stays.
    """

    def __init__(
        self,
        device: str,
        capacity: int,
        sink: EventSink | None = None,
        advice: str = "",
        ceiling: Callable[[], int] | None = None,
    ) -> None:
        if capacity <= 0:
            raise ValueError(f"capacity of {capacity} bytes")
        self.device = device
        self.capacity = capacity
        self._ceiling = ceiling
        self._sink = sink
        self._advice = advice
        self._lock = threading.RLock()  # quicker to take than the condition around it
        self._changed = threading.Condition(self._lock)
        self._used = self._context = 0
        self._peak = 0
        self._unreserved = Reservation(self, Owner(), 0, 0)  # what is used of no reservation
        self._unreserved.active = False
        self._left = 0  # bytes that can be taken for certain, without another look at what is committed
        self._grants: dict[Grant, None] = {}  # the open ones of some bytes, oldest first
        self._reservations: dict[Owner, Reservation] = {}
        self._waiting: deque[object] = deque()
        self._generation = 0  # counts the changes that could let a waiter in
        self._reclaimers: list[tuple[Reclaimer, Callable[[], int] | None]] = []

    # ---- bytes ----

    def take(
        self, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None = None, *, reclaims: bool = True
    ) -> Grant:
        """Counts ``nbytes`` ≥ 0 as in use; within the owner's reservation this cannot fail.

        With ``out_of`` the bytes leave that reservation, which shrinks by them, and belong to ``owner``, who outlives
        it. ``reclaims``: unused caches are given up for it, not under the ledger's lock. Raises OutOfDeviceMemoryError;
        nothing is taken then.
        """
        if nbytes < 0:
            raise ValueError(f"allocation of {nbytes} bytes")
        with self._lock:
            if out_of is None:
                reservation, held = self._reservations.get(owner, self._unreserved), 0
            else:
                reservation, held = self._unreserved, out_of.held
                out_of.held = max(0, held - nbytes)
            reservation.used += nbytes
            self._left = left = self._left - nbytes
            if left >= 0 or self._is_enough():
                grant = Grant(nbytes, purpose, owner, reservation)
                if nbytes:
                    self._grants[grant] = None
                self._count(nbytes, purpose, owner)
                return grant
            reservation.used -= nbytes
            if out_of is not None:
                out_of.held = held
            free = max(0, self.capacity - self._committed())
        if reclaims and self._reclaim(nbytes):
            return self.take(nbytes, purpose, owner, out_of, reclaims=False)
        raise OutOfDeviceMemoryError(self.device, purpose, nbytes, free, self.capacity)

    def give_back(self, grant: Grant) -> None:
        """Ends a grant; a second time does nothing."""
        with self._lock:
            if not grant.open:
                return
            grant.open, nbytes, reservation = False, grant.nbytes, grant.reservation
            if not reservation.active:
                reservation = self._unreserved
            reservation.used -= nbytes
            self._grants.pop(grant, None)
            self._count(-nbytes, grant.purpose, grant.owner)
            if self._waiting:  # nobody else waits for it, or asks how often
                self._generation += 1
                self._changed.notify_all()

    def hand_over(self, grant: Grant, purpose: Purpose, owner: Owner) -> Grant:
        """The same bytes under another purpose and owner, whose reservation they count against: for pools. Cannot
        fail within that reservation; raises OutOfDeviceMemoryError beyond it, and ``grant`` stays open."""
        with self._lock:
            self.give_back(grant)
            try:
                return self.take(grant.nbytes, purpose, owner, reclaims=False)
            except OutOfDeviceMemoryError:
                self._reopen(grant)
                raise

    def changed(self) -> None:
        """Something that a reclaimer could not give before can be had now: who waits looks again."""
        self._notify()

    def use(self) -> MemoryUse:
        """Bytes now and at the peak; purposes that hold nothing are left out."""
        by_purpose: dict[str, int] = {}
        with self._lock:
            for grant in self._grants:
                name = grant.purpose._value_  # quicker than `value`
                by_purpose[name] = by_purpose.get(name, 0) + grant.nbytes
            return MemoryUse(self.capacity, self._used, self._peak, by_purpose)

    def holders(self) -> dict[tuple[Purpose, int, str], int]:
        """(purpose, worker, job) → bytes in use."""
        found: dict[tuple[Purpose, int, str], int] = {}
        with self._lock:
            for grant in self._grants:
                key = grant.purpose, grant.owner.worker, grant.owner.job
                found[key] = found.get(key, 0) + grant.nbytes
        return found

    def memory(self) -> MemoryUse:
        return self.use()

    def holdings(self) -> tuple[Holding, ...]:
        """Who holds what, largest first."""
        held = [Holding(str(purpose), worker, job, n) for (purpose, worker, job), n in self.holders().items()]
        return tuple(sorted(held, key=lambda h: (-h.bytes, h.purpose, h.worker, h.job)))

    def available(self) -> int:
        """What may be handed out at present: the capacity, or less where other programs hold memory."""
        return self.capacity if self._ceiling is None else min(self.capacity, self._ceiling())

    def usable(self) -> int:
        """What partitions can have of it at most: all but what is held as long as the device is open."""
        return self.available() - self._context

    def idle(self) -> int:
        """Bytes in use that caches would give back."""
        with self._lock:
            askers = [idle for _, idle in self._reclaimers if idle is not None]
        return sum(idle() for idle in askers)

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._used

    @property
    def committed(self) -> int:
        """Bytes in use or promised."""
        with self._lock:
            return self._committed()

    def reset_peak(self) -> None:
        with self._lock:
            self._peak = self._used

    # ---- reservations ----

    def reserve(self, held: int, serial: int, owner: Owner, cancel: CancelToken) -> Reservation:
        """Waits until the memory can be promised; at most one reservation an owner.

        Raises MemoryPlanError where it can never fit: it is larger than the device, or nobody is left who could give
        memory back. Raises CancelledError when ``cancel`` is set. A wait is a ``memory.wait`` span on the owner's host
        lane.
        """
        self._check_request(held, serial)
        return self.admit(lambda turn: turn.promise(held, serial), owner, cancel, held + serial)

    def admit(self, attempt: Callable[[Turn], T | None], owner: Owner, cancel: CancelToken, wanted: int = 0) -> T:
        """See `base.Device.admit`: turns come in order of arrival."""
        ticket = object()
        with self._lock:
            self._waiting.append(ticket)
        try:
            return self._wait_for_turn(ticket, attempt, owner, cancel, wanted)
        finally:
            with self._lock:
                self._waiting.remove(ticket)
                self._notify()

    def try_reserve(self, held: int, serial: int, owner: Owner) -> Reservation | None:
        """Promises the memory if that is possible at once and nobody waits; unused caches are given up for it."""
        self._check_request(held, serial)
        with self._lock:
            if self._waiting:
                return None
        return self._promise_or_reclaim(held, serial, owner)

    def add_reclaimer(self, reclaimer: Reclaimer, idle: Callable[[], int] | None = None) -> None:
        """``reclaimer`` is called without the ledger's lock, when memory is short; ``idle`` tells what it could
        give."""
        with self._lock:
            self._reclaimers.append((reclaimer, idle))

    # ---- inside ----

    def _wait_for_turn(
        self,
        ticket: object,
        attempt: Callable[[Turn], T | None],
        owner: Owner,
        cancel: CancelToken,
        wanted: int,
    ) -> T:
        start = time.monotonic_ns()
        unsubscribe: Callable[[], None] | None = None
        try:
            while True:
                with self._lock:
                    generation = self._generation
                    first, alone = self._waiting[0] is ticket, not self._reservations
                if cancel.is_set:
                    raise CancelledError("cancelled while waiting for device memory")
                turn = Turn(self, owner, alone)
                found = attempt(turn) if first else None
                if found is not None:
                    return found
                wanted = turn.refused or wanted
                if unsubscribe is None:  # it has to wait
                    unsubscribe = cancel.on_set(self._notify)
                with self._lock:
                    settled = first and alone and generation == self._generation
                    if settled and turn.refused is not None:
                        self._refuse_hopeless(turn.refused)
                    while generation == self._generation and not cancel.is_set:
                        if not self._changed.wait(None if self._ceiling is None else _POLL_SECONDS):
                            break
        finally:
            if unsubscribe is not None:
                unsubscribe()
                self._emit_wait(start, wanted, owner)

    def _refuse_hopeless(self, needed: int) -> None:
        """Nobody is left who could give memory back, other programs apart."""
        most = self.capacity - self._unreserved.used
        if needed > most:
            raise self._never_fits(needed, most)
        if self._ceiling is None:
            raise self._never_fits(needed, most)

    def _promise_or_reclaim(self, held: int, serial: int, owner: Owner) -> Reservation | None:
        if held + serial > self.capacity:
            return None
        reservation = self._try_promise(held, serial, owner)
        if reservation is None and self._reclaim(held + serial):
            reservation = self._try_promise(held, serial, owner)
        return reservation

    def _try_promise(self, held: int, serial: int, owner: Owner) -> Reservation | None:
        available = self.available()  # may ask a driver: not under the lock
        with self._lock:
            if owner in self._reservations:
                raise ValueError(f"{owner} already has a reservation")
            committed = self._committed(held, serial)
            if committed > available:
                return None
            self._left = max(0, self.capacity - committed)
            reservation = Reservation(self, owner, held, serial)
            self._reservations[owner] = reservation
            return reservation

    def _is_enough(self) -> bool:
        """Whether no more is committed than there is; looks how much is left."""
        left = self.capacity - self._committed()
        self._left = max(0, left)
        return left >= 0

    def _reopen(self, grant: Grant) -> None:
        """Takes a grant's bytes again that were given back under the same lock."""
        if not grant.reservation.active:
            grant.reservation = self._unreserved
        grant.reservation.used += grant.nbytes
        grant.open, self._left = True, 0
        if grant.nbytes:
            self._grants[grant] = None
        self._count(grant.nbytes, grant.purpose, grant.owner)

    def _serial_used(self, reservation: Reservation) -> int:
        with self._lock:
            return reservation.charge[1]

    def _release(self, reservation: Reservation) -> None:
        with self._lock:
            if not reservation.active:
                return
            reservation.active, self._left = False, 0
            del self._reservations[reservation.owner]
            self._unreserved.used += reservation.used
            self._notify()

    def _settle(self, reservation: Reservation) -> None:
        with self._lock:
            reservation.held, reservation.serial, self._left = reservation.used, 0, 0
            self._notify()

    def _settle_early(self, reservation: Reservation) -> bool:
        available = self.available()
        with self._lock:
            self._left = 0
            before, held, serial = self._committed(), reservation.held, reservation.serial
            reservation.held, reservation.serial = reservation.used, 0
            if self._committed() > max(before, available):
                reservation.held, reservation.serial = held, serial
                return False
            self._notify()
            return True

    def _shrink(self, reservation: Reservation, nbytes: int) -> None:
        with self._lock:
            reservation.held = max(0, reservation.held - nbytes)
            self._notify()

    def _committed(self, held: int = 0, serial: int = 0) -> int:
        """What is committed, with one more reservation of ``held`` and ``serial``."""
        total, largest, used = self._unreserved.used + held, serial, 0
        for reservation in self._reservations.values():  # `charge` of each
            apart, most = reservation.held, reservation.serial
            of_serial = reservation.used - apart
            if of_serial > most:
                apart, of_serial = apart + of_serial - most, most
            if of_serial > 0:
                used += of_serial
            total += apart
            if most > largest:
                largest = most
        return total + (used if used > largest else largest)

    def _count(self, delta: int, purpose: Purpose, owner: Owner) -> None:
        self._used = used = self._used + delta
        if used > self._peak:
            self._peak = used
        if purpose is Purpose.CONTEXT:
            self._context += delta
        if delta and self._sink is not None:
            job, _, worker = owner
            self._sink(new_allocation((time.monotonic_ns(), self.device, delta, purpose, worker, job)))

    def _check_request(self, held: int, serial: int) -> None:
        if held < 0 or serial < 0:
            raise ValueError(f"reservation of {held} + {serial} bytes")
        if held + serial > self.capacity:
            raise self._never_fits(held + serial, self.capacity)

    def _never_fits(self, needed: int, available: int) -> MemoryPlanError:
        return MemoryPlanError(self.device, needed, available, self.capacity, self._advice)

    def _reclaim(self, nbytes: int) -> bool:
        with self._lock:
            reclaimers = [reclaimer for reclaimer, _ in self._reclaimers]
        return sum(reclaimer(nbytes) for reclaimer in reclaimers) > 0

    def _notify(self) -> None:
        with self._lock:
            if self._waiting:  # as in `give_back`
                self._generation += 1
                self._changed.notify_all()

    def _emit_wait(self, start: int, nbytes: int, owner: Owner) -> None:
        if self._sink is not None:
            end, (job, partition, worker) = time.monotonic_ns(), owner
            lane, kind = host_lane(worker), Kind.MEMORY_WAIT
            self._sink(new_span((start, end, self.device, lane, kind, job, partition, worker, nbytes, None)))
