"""Who may start, and in which mode: a partition's plan against what the device and the host can give.

The largest base (evaluation, residency, batch) is taken that can fit at present when nobody else is there; then the
first pre-staging that fits now. What fits later waits, what can never fit is refused with the numbers of the smallest
mode. Host memory is reserved before the device's, and both before the compute lock is taken, so that nobody who waits
keeps a holder from finishing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

from cuzk_engine.devices.base import Bytes, CancelToken, Device, Lease, Owner, Reservation, Turn
from cuzk_engine.devices.tables import TableCache, TableLease
from cuzk_engine.errors import MemoryPlanError
from cuzk_engine.groth16.plan import Query
from cuzk_engine.pipeline.modes import Mode, Work, by_base, loss
from cuzk_engine.pipeline.plan import (
    MATRICES,
    NOTHING,
    TABLE,
    PartitionPlan,
    There,
    plan_partition,
    residents,
    steady_plan,
)
from cuzk_engine.units import format_size

log = logging.getLogger(__name__)

ENVIRONMENT: Final = "CUZK_TEST_NO_PLAN"
_MEETING_SECONDS: Final = 2.0
_PLANS: Final = 64  # that a gate remembers: a device's needs stay as they are

Leases = tuple[TableLease, Lease]
Barrier = Callable[[Owner], None]
"""Called before a partition allocates on the device ahead of the lock."""


class Admission(StrEnum):
    """``NONE`` is for tests and demonstrations alone: partitions start without a plan, as if memory had no end."""

    PLANNED = "planned"
    NONE = "none"


class Meeting:
    """Holds a worker until another one comes, at most a few seconds: so that both allocate at once."""

    def __init__(self, seconds: float = _MEETING_SECONDS) -> None:
        self._barrier = threading.Barrier(2)
        self._seconds = seconds

    def __call__(self, owner: Owner) -> None:
        try:
            self._barrier.wait(self._seconds)
        except threading.BrokenBarrierError:
            self._barrier.reset()


def from_environment(environ: Mapping[str, str] = os.environ) -> tuple[Admission, Barrier | None]:
    """The one place where the hook for demonstrations is read: CUZK_TEST_NO_PLAN=1."""
    if environ.get(ENVIRONMENT) != "1":
        return Admission.PLANNED, None
    log.warning("%s is set: partitions start without a memory plan, and may fail", ENVIRONMENT)
    return Admission.NONE, Meeting()


@dataclass(frozen=True, slots=True)
class Sources:
    """The host bytes whose copies on the device may be there: of the matrices, and of each query's points."""

    matrices: Bytes | None
    points: dict[Query, Bytes]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The mode that was found, its plan, and the device memory promised for it (None: without a plan)."""

    mode: Mode
    plan: PartitionPlan
    reservation: Reservation | None

    def room(self, what: str) -> Reservation | None:
        """The reservation that has room for what stays on the device, unless it is there already."""
        return None if what in self.plan.found else self.reservation


class Gate:
    """Admits the partitions of one device."""

    def __init__(self, device: Device, tables: TableCache, admission: Admission = Admission.PLANNED) -> None:
        self._device = device
        self._tables = tables
        self._admission = admission
        self._told: set[tuple[Mode, Mode]] = set()
        self._grouped: tuple[Work | None, Sequence[Mode], list[_Group]] = None, (), []
        self._plan = lru_cache(_PLANS)(self._make_plan)
        self._most = lru_cache(_PLANS)(self._make_most)

    @property
    def plans(self) -> bool:
        return self._admission is Admission.PLANNED

    def admit(
        self,
        stack: ExitStack,
        work: Work,
        choices: Sequence[Mode],
        sources: Sources,
        owner: Owner,
        cancel: CancelToken,
    ) -> Admitted:
        """Waits until the partition may start; what it may use is given back when ``stack`` ends. Raises
        MemoryPlanError, CancelledError."""
        if self._admission is Admission.NONE:
            return Admitted(choices[0], self.plan(work, choices[0]), None)
        refusal: MemoryPlanError | None = None
        groups = self._groups(work, choices)
        for group in groups:
            is_last = group is groups[-1]
            if not is_last and group.most > self.capacity():
                continue
            attempt = stack.enter_context(ExitStack())
            try:
                admitted = self._admit_one(attempt, work, group.plans, sources, owner, cancel, is_last=is_last)
            except MemoryPlanError as error:
                attempt.close()
                refusal = error
                continue
            self._tell(choices[0], admitted, owner)
            return admitted
        assert refusal is not None
        raise refusal

    def _groups(self, work: Work, choices: Sequence[Mode]) -> list[_Group]:
        """By their base; kept, since it is mostly the same ones again."""
        whose, known, groups = self._grouped
        if whose is not work or known is not choices:
            groups = [_Group(self, work, group) for group in by_base(choices)]
            self._grouped = work, choices, groups
        return groups

    def plan(self, work: Work, mode: Mode) -> PartitionPlan:
        """The plan where nothing is on the device yet."""
        return self._plan(work, mode, frozenset())

    def most(self, work: Work, mode: Mode) -> int:
        """Bytes of one partition at the peak, the first one or a later one."""
        return self._most(work, mode)

    def _make_plan(self, work: Work, mode: Mode, there: frozenset[tuple[str, int]]) -> PartitionPlan:
        return plan_partition(work, mode, self._device, dict(there))

    def _make_most(self, work: Work, mode: Mode) -> int:
        return max(steady_plan(work, mode, self._device).peak, self.plan(work, mode).peak)

    def capacity(self) -> int:
        """What a partition could have at most at present: other programs hold the rest, and the context."""
        return self._device.usable()

    def _admit_one(
        self,
        stack: ExitStack,
        work: Work,
        plans: Sequence[PartitionPlan],
        sources: Sources,
        owner: Owner,
        cancel: CancelToken,
        *,
        is_last: bool,
    ) -> Admitted:
        device = self._device
        if is_last and plans[-1].peak > device.info.capacity:
            device.reserve(*plans[-1].reservation, owner, cancel)  # refuses at once, in the ledger's words
        host = device.host
        room = host.usable()
        usable = [plan for plan in plans if plan.host_bytes <= room] or plans[-1:]
        stack.enter_context(host.reserve(max(plan.host_bytes for plan in usable), 0, owner, cancel))

        looks = 0

        def attempt(turn: Turn) -> Admitted | None:
            nonlocal looks
            looks += 1
            if looks > 1 and not is_last:
                most = self.most(work, usable[-1].mode)
                if most > self.capacity():  # another program has come
                    raise MemoryPlanError(device.info.id, most, self.capacity(), device.info.capacity)
            return self._try_now(stack, turn, work, [plan.mode for plan in usable], sources)

        return device.admit(attempt, owner, cancel, usable[-1].peak)

    def _try_now(
        self, stack: ExitStack, turn: Turn, work: Work, choices: Sequence[Mode], sources: Sources
    ) -> Admitted | None:
        for mode in choices:
            leases, there = self._hold_what_is_there(work, mode, sources)
            admitted = None
            try:
                admitted = self._promise(stack, turn, work, mode, there)
            finally:
                if admitted is None:
                    _release(leases)
            if admitted is not None:
                stack.callback(_release, leases)  # given up before the reservation: a waiter finds it idle
                return admitted
        if turn.alone:  # what is there goes, if it must
            return next(filter(None, (self._promise(stack, turn, work, mode, NOTHING) for mode in choices)), None)
        return None

    def _promise(self, stack: ExitStack, turn: Turn, work: Work, mode: Mode, there: There) -> Admitted | None:
        plan = self._plan(work, mode, frozenset(there.items()))
        reservation = turn.promise(*plan.reservation)
        return None if reservation is None else Admitted(mode, plan, stack.enter_context(reservation))

    def _hold_what_is_there(self, work: Work, mode: Mode, sources: Sources) -> tuple[Leases, dict[str, int]]:
        """Leases, and the bytes of what they hold."""
        curve, log_n = work.sizes.curve, work.sizes.log_domain
        wanted: dict[str, Bytes] = {}
        if mode.on_device and sources.matrices is not None:
            wanted[MATRICES] = sources.matrices
        if mode.is_resident:
            resident = residents(work, mode)
            for query, points in sources.points.items():
                if query in resident:
                    wanted[query] = points
        table, lease = self._tables.lease(curve, log_n), self._device.lease(list(wanted.values()))
        there = {TABLE: table.nbytes} if table.nbytes else {}
        for what, nbytes in zip(wanted, lease.each, strict=True):
            if nbytes:
                there[what] = nbytes
        return (table, lease), there

    def _tell(self, asked: Mode, admitted: Admitted, owner: Owner) -> None:
        mode = admitted.mode
        if mode == asked or (asked, mode) in self._told:
            return
        self._told.add((asked, mode))
        log.info(
            "%s: memory is short, so partitions run with %s: %s at the peak, %s can be had",
            self._device.info.id, loss(asked, mode), format_size(admitted.plan.peak), format_size(self.capacity()),
        )  # fmt: skip


class _Group:
    """Modes that differ in pre-staging alone."""

    def __init__(self, gate: Gate, work: Work, choices: Sequence[Mode]) -> None:
        self._gate, self._work, self._choices = gate, work, choices

    @cached_property
    def plans(self) -> Sequence[PartitionPlan]:
        return [self._gate.plan(self._work, mode) for mode in self._choices]

    @cached_property
    def most(self) -> int:
        """Bytes of one partition at the peak, in the mode that takes the least."""
        return self._gate.most(self._work, self._choices[-1])


def _release(leases: Leases) -> None:
    for lease in leases:
        lease.release()
