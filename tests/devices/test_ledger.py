"""The ledger: what is promised can be taken, nothing is promised twice, and nothing is left over."""

import random
import threading
from collections import Counter
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.ledger import Ledger
from cuzk_engine.errors import CancelledError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Kind, Purpose, Span

SIZES = st.integers(min_value=0, max_value=60)


def owner(number: int) -> Owner:
    return Owner(job=f"job {number}", partition=0, worker=number)


class LedgerMachine(RuleBasedStateMachine):
    """Random reservations, allocations and releases against plain sums."""

    grants = Bundle("grants")
    reservations = Bundle("reservations")

    @initialize(capacity=st.integers(min_value=1, max_value=100))
    def start(self, capacity):
        self.events = []
        self.ledger = Ledger("cpu", capacity, self.events.append)
        self.open = {}
        self.active = {}
        self.numbers = iter(range(10_000))

    @rule(target=reservations, held=SIZES, serial=SIZES)
    def reserve(self, held, serial):
        who = owner(next(self.numbers))
        if held + serial > self.ledger.capacity:
            with pytest.raises(MemoryPlanError):
                self.ledger.try_reserve(held, serial, who)
            return multiple()
        reservation = self.ledger.try_reserve(held, serial, who)
        assert (reservation is not None) == (self.expected_commitment(more=(held, serial)) <= self.ledger.capacity)
        if reservation is None:
            return multiple()
        self.active[who] = reservation
        return reservation

    @rule(target=grants, reservation=reservations, nbytes=SIZES, purpose=st.sampled_from(Purpose))
    def take_promised(self, reservation, nbytes, purpose):
        """Within the held part an allocation cannot fail; nor within the serial part, when only one owner uses it."""
        if not reservation.active:
            return multiple()
        others = [r for r in self.active.values() if r is not reservation and r.used > r.held]
        limit = reservation.held + (0 if others else reservation.serial)
        promised = reservation.used + nbytes <= limit
        try:
            grant = self.ledger.take(nbytes, purpose, reservation.owner)
        except OutOfDeviceMemoryError:
            assert not promised
            return multiple()
        self.open[grant] = nbytes
        return grant

    @rule(target=grants, nbytes=SIZES, purpose=st.sampled_from(Purpose))
    def take(self, nbytes, purpose):
        fits = self.expected_commitment() + nbytes <= self.ledger.capacity
        if not fits and nbytes:
            with pytest.raises(OutOfDeviceMemoryError) as refusal:
                self.ledger.take(nbytes, purpose, Owner())
            assert refusal.value.requested == nbytes
            assert refusal.value.free == self.ledger.capacity - self.expected_commitment()
            return multiple()
        grant = self.ledger.take(nbytes, purpose, Owner())
        self.open[grant] = nbytes
        return grant

    @rule(target=grants, reservation=reservations, nbytes=SIZES)
    def take_out_of(self, reservation, nbytes):
        """A cache's bytes leave the reservation; within what is held and unused that cannot fail."""
        if not reservation.active or reservation.used + nbytes > reservation.held:
            return multiple()
        held, commitment = reservation.held, self.expected_commitment()
        grant = self.ledger.take(nbytes, Purpose.NTT, Owner(), out_of=reservation)
        assert reservation.held == held - nbytes
        assert self.ledger.committed == commitment
        self.open[grant] = nbytes
        return grant

    @rule(reservation=reservations, nbytes=SIZES)
    def shrink(self, reservation, nbytes):
        if reservation.active and reservation.held - nbytes >= reservation.used:
            reservation.shrink(nbytes)

    @rule(grant=consumes(grants))
    def give_back(self, grant):
        self.ledger.give_back(grant)
        self.ledger.give_back(grant)
        del self.open[grant]

    @rule(reservation=reservations)
    def release(self, reservation):
        if reservation.used > reservation.held:
            return
        reservation.release()
        reservation.release()
        self.active.pop(reservation.owner, None)

    def expected_commitment(self, more=(0, 0)):
        used = Counter()
        for grant, nbytes in self.open.items():
            reserved = grant.reservation is not None and grant.reservation.active
            used[grant.owner if reserved else None] += nbytes
        total, in_serial = used[None] + more[0], 0
        for who, reservation in self.active.items():
            beyond = max(0, used[who] - reservation.held)
            in_serial += min(beyond, reservation.serial)
            total += reservation.held + max(0, beyond - reservation.serial)
        return total + max([more[1], in_serial, *(r.serial for r in self.active.values())])

    @invariant()
    def sums_hold(self):
        use = self.ledger.use()
        assert use.used == sum(self.open.values())
        assert use.used <= use.peak <= use.capacity
        assert self.ledger.committed == self.expected_commitment() <= use.capacity
        by_purpose = Counter()
        for grant, nbytes in self.open.items():
            by_purpose[grant.purpose.value] += nbytes
        assert use.by_purpose == {purpose: nbytes for purpose, nbytes in by_purpose.items() if nbytes}

    @invariant()
    def events_add_up(self):
        running, peak = 0, 0
        for event in self.events:
            assert event.delta != 0
            running += event.delta
            peak = max(peak, running)
        assert running == self.ledger.use().used
        assert peak == self.ledger.use().peak

    def teardown(self):
        if not hasattr(self, "ledger"):
            return
        for grant in list(self.open):
            self.ledger.give_back(grant)
        for reservation in self.active.values():
            reservation.release()
        assert self.ledger.use().used == 0
        assert self.ledger.committed == 0
        assert self.ledger.holders() == {}


LedgerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase


def test_refusal_carries_the_numbers():
    ledger = Ledger("cpu", 100, advice="raise cpu.arena")
    with pytest.raises(
        MemoryPlanError, match=r"device cpu: not enough memory: the proof needs 101 B, the device has 100 B; raise"
    ) as e:
        ledger.reserve(60, 41, owner(0), CancelToken())
    assert (e.value.requested, e.value.capacity) == (101, 100)
    with pytest.raises(OutOfDeviceMemoryError, match="101 B for msm were asked for, 100 B of 100 B are free"):
        ledger.take(101, Purpose.MSM, owner(0))
    assert ledger.use().used == ledger.use().peak == 0


def test_refused_when_nobody_could_give_memory_back():
    """Memory that belongs to no reservation may stay for ever: waiting for it would be silence."""
    ledger = Ledger("cpu", 100)
    grant = ledger.take(50, Purpose.CONTEXT, Owner())
    with pytest.raises(MemoryPlanError, match="needs 60 B, 50 B of 100 B are available"):
        ledger.reserve(60, 0, owner(0), CancelToken())
    ledger.give_back(grant)
    ledger.reserve(60, 0, owner(0), CancelToken()).release()


def test_unused_caches_make_room():
    ledger = Ledger("cpu", 100)
    cached = ledger.take(50, Purpose.NTT, Owner())
    asked = []

    def reclaim(nbytes):
        asked.append(nbytes)
        ledger.give_back(cached)
        return 50 if len(asked) == 1 else 0

    ledger.add_reclaimer(reclaim)
    with ledger.reserve(40, 40, owner(0), CancelToken()) as reservation:
        assert asked == [80]
        assert reservation.active
    assert ledger.committed == 0


def test_waits_for_its_turn_and_says_so():
    events = []
    ledger = Ledger("cpu", 100, events.append)
    first = ledger.reserve(70, 0, owner(0), CancelToken())
    order = []

    def later(number, held):
        with ledger.reserve(held, 0, owner(number), CancelToken()):
            order.append(number)

    waiting_large = threading.Thread(target=later, args=(1, 100))
    waiting_large.start()
    wait_until_queued(ledger, 1)
    # It would fit at once, but would keep the large one waiting for ever if it went ahead.
    waiting_small = threading.Thread(target=later, args=(2, 10))
    waiting_small.start()
    wait_until_queued(ledger, 2)
    assert ledger.try_reserve(10, 0, owner(3)) is None
    first.release()
    waiting_large.join()
    waiting_small.join()
    assert order == [1, 2]
    waits = [event for event in events if isinstance(event, Span)]
    assert [(span.kind, span.lane, span.bytes) for span in waits] == [
        (Kind.MEMORY_WAIT, "host:1", 100),
        (Kind.MEMORY_WAIT, "host:2", 10),
    ]
    assert ledger.committed == 0


def test_a_cancelled_waiter_leaves_nothing():
    ledger = Ledger("cpu", 100)
    cancel, raised = CancelToken(), []
    with ledger.reserve(100, 0, owner(0), CancelToken()):

        def wait():
            try:
                ledger.reserve(50, 0, owner(1), cancel)
            except CancelledError as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until_queued(ledger, 1)
        cancel.set()
        thread.join()
    assert len(raised) == 1
    assert ledger.committed == 0
    with ledger.reserve(100, 0, owner(2), CancelToken()), pytest.raises(CancelledError):
        ledger.reserve(50, 0, owner(1), cancel)
    assert ledger.committed == 0


def test_one_reservation_an_owner():
    ledger = Ledger("cpu", 100)
    with ledger.reserve(10, 0, owner(0), CancelToken()), pytest.raises(ValueError, match="already has a reservation"):
        ledger.reserve(10, 0, owner(0), CancelToken())
    assert ledger.committed == 0


@pytest.mark.parametrize("seed", range(3))
def test_many_threads_never_exceed_the_capacity(seed):
    """Workers that reserve, take all of it, sometimes fail or are cancelled; the serial part under one lock."""
    events: list[Allocation | Span] = []
    ledger = Ledger("cpu", 1000, events.append)
    compute = threading.Lock()
    failures: list[str] = []
    cancelled = Counter()

    def work(number):
        rng = random.Random(seed * 100 + number)
        for step in range(40):
            held, serial = rng.randrange(400), rng.randrange(500)
            cancel = CancelToken()
            if rng.random() < 0.1:
                cancel.set()
            try:
                with ledger.reserve(held, serial, owner(number), cancel):
                    grants = [
                        ledger.take(held // 2, Purpose.ABC, owner(number)),
                        ledger.take(held - held // 2, Purpose.WITNESS, owner(number)),
                    ]
                    try:
                        with compute:
                            scratch = ledger.take(serial, Purpose.MSM, owner(number))
                            if rng.random() < 0.2:
                                ledger.give_back(scratch)
                                raise RuntimeError("a fault in the middle")
                            ledger.give_back(scratch)
                    finally:
                        for grant in grants:
                            ledger.give_back(grant)
            except RuntimeError:
                pass
            except CancelledError:
                cancelled[number] += 1
            except Exception as error:
                failures.append(f"{number}, {step}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ledger.committed == ledger.use().used == 0
    running = 0
    for event in events:
        if isinstance(event, Allocation):
            running += event.delta
            assert 0 <= running <= 1000
    assert running == 0
    assert ledger.use().peak <= 1000


def wait_until_queued(ledger: Ledger, count: int) -> None:
    """Until `count` reservations wait; bounded by the test's time limit."""
    with ledger._changed:
        while len(ledger._waiting) < count:
            ledger._changed.wait(timeout=0.01)


def test_promises_stay_below_what_other_programs_leave():
    """What was promised before stays, whatever comes."""
    free = [60]
    ledger, wait = Ledger("cuda:0", 100, ceiling=lambda: free[0]), CancelToken()
    assert ledger.available() == 60
    assert ledger.try_reserve(61, 0, owner(1)) is None
    with ledger.reserve(50, 10, owner(1), wait):
        free[0] = 10
        grant = ledger.take(60, Purpose.MSM, owner(1))
        assert ledger.try_reserve(1, 0, owner(2)) is None
        ledger.give_back(grant)
    with pytest.raises(MemoryPlanError, match="needs 101 B, the device has 100 B"):
        ledger.reserve(101, 0, owner(1), wait)
    free[0] = 1000
    assert ledger.available() == 100


def test_waits_for_other_programs():
    """They tell nobody when they go."""
    free, looks = [0], []

    def ceiling():
        looks.append(None)
        if len(looks) == 4:
            free[0] = 100
        return free[0]

    ledger = Ledger("cuda:0", 100, ceiling=ceiling)
    ledger.reserve(70, 30, owner(1), CancelToken()).release()
    assert ledger.committed == 0
    assert len(looks) >= 4


def test_who_can_do_with_less_gets_what_fits():
    ledger, tries = Ledger("cpu", 100), []

    def attempt(turn):
        for nbytes in (150, 80, 40):
            reservation = turn.promise(nbytes, 0)
            tries.append((nbytes, turn.alone, reservation is not None))
            if reservation is not None:
                return reservation
        return None

    first = ledger.admit(attempt, owner(1), CancelToken())
    assert tries == [(150, True, False), (80, True, True)]
    second = ledger.admit(lambda turn: turn.promise(20, 0), owner(2), CancelToken())
    tries.clear()
    cancel = CancelToken()
    waiter = threading.Thread(target=lambda: ledger.admit(attempt, owner(3), cancel).release())
    waiter.start()
    while len(tries) < 3:
        waiter.join(0.01)
    assert tries == [(150, False, False), (80, False, False), (40, False, False)]
    second.release()
    first.release()
    waiter.join(60)
    assert tries[-1][2]
    assert ledger.committed == 0


def test_nobody_left_to_give_memory_back():
    ledger = Ledger("cpu", 100)
    with ledger_holding(ledger, 30), pytest.raises(MemoryPlanError, match="needs 71 B, 70 B of 100 B are available"):
        ledger.admit(lambda turn: turn.promise(90, 0) or turn.promise(71, 0), owner(1), CancelToken())
    assert ledger.committed == 0


@contextmanager
def ledger_holding(ledger, nbytes):
    grant = ledger.take(nbytes, Purpose.SRS, Owner())
    yield
    ledger.give_back(grant)


def test_settling_keeps_what_is_in_use():
    ledger = Ledger("cpu", 100)
    reservation = ledger.reserve(40, 60, owner(1), CancelToken())
    most = ledger.take(70, Purpose.MSM, owner(1))
    few = ledger.take(10, Purpose.RESULT, owner(1))
    assert reservation.serial_used == 40
    ledger.give_back(most)
    assert reservation.serial_used == 0
    assert ledger.committed == 100
    reservation.settle()
    assert ledger.committed == 10
    with ledger.reserve(90, 0, owner(2), CancelToken()):
        ledger.give_back(few)
    reservation.release()
    assert ledger.committed == 0


def test_bytes_handed_over_count_once():
    """A pool's block becomes a worker's, within its reservation, and the pool's again."""
    events = []
    ledger = Ledger("host", 100, events.append)
    block = ledger.take(60, Purpose.ABC, Owner())
    with ledger.reserve(40, 0, owner(1), CancelToken()) as reservation:
        assert ledger.committed == 100
        own = ledger.hand_over(block, Purpose.WITNESS, owner(1))
        assert (ledger.committed, reservation.used, block.open) == (60, 60, False)
        assert ledger.use().by_purpose == {"witness": 60}
        block = ledger.hand_over(own, Purpose.ABC, Owner())
        assert (ledger.committed, reservation.used) == (100, 0)
    ledger.give_back(block)
    assert ledger.use().used == 0
    assert sum(event.delta for event in events if isinstance(event, Allocation)) == 0


def test_bytes_that_cannot_be_handed_over_stay():
    """Out of a reservation that would go on being held: both together are more than there is."""
    ledger = Ledger("host", 100)
    with ledger.reserve(60, 0, owner(1), CancelToken()) as reservation:
        own = ledger.take(50, Purpose.ABC, owner(1))
        ledger.take(30, Purpose.ABC, Owner())
        with pytest.raises(OutOfDeviceMemoryError):
            ledger.hand_over(own, Purpose.ABC, Owner())
        assert (own.open, reservation.used, ledger.use().used) == (True, 50, 80)
        ledger.give_back(own)
        assert reservation.used == 0


def test_holdings_are_told_largest_first():
    ledger = Ledger("cpu", 100)
    ledger.take(10, Purpose.WITNESS, owner(1))
    ledger.take(30, Purpose.SRS, Owner())
    ledger.take(5, Purpose.WITNESS, owner(1))
    assert [(h.purpose, h.worker, h.job, h.bytes) for h in ledger.holdings()] == [
        ("srs", -1, "", 30),
        ("witness", 1, "job 1", 15),
    ]


def test_what_caches_would_give():
    ledger, kept = Ledger("cpu", 100), []
    ledger.add_reclaimer(lambda nbytes: 0)
    ledger.add_reclaimer(lambda nbytes: 0, lambda: sum(kept))
    assert ledger.idle() == 0
    kept.append(7)
    assert ledger.idle() == 7


def test_work_under_way_may_keep_its_memory_without_the_lock():
    """Where there is room for it beside what others may use under the lock; else it keeps the lock."""
    ledger, wait = Ledger("cuda:0", 100), CancelToken()
    first, second = ledger.reserve(10, 50, owner(1), wait), ledger.reserve(10, 30, owner(2), wait)
    grant = ledger.take(40, Purpose.MSM, owner(1))
    assert ledger.committed == 70
    assert first.settle_early()
    assert (first.held, first.serial, first.serial_used) == (40, 0, 0)
    assert ledger.committed == 80
    other = ledger.take(40, Purpose.MSM, owner(2))
    ledger.give_back(grant)
    ledger.give_back(other)
    first.release()
    second.release()

    first, second = ledger.reserve(10, 50, owner(1), wait), ledger.reserve(10, 30, owner(2), wait)
    grant = ledger.take(60, Purpose.MSM, owner(1))
    ballast = ledger.take(25, Purpose.SCRATCH, owner(3))
    assert not first.settle_early()
    assert (first.held, first.serial, ledger.committed) == (10, 50, 95)
    ledger.give_back(grant)
    assert first.settle_early()
    assert ledger.committed == 65
    for thing in (first, second):
        thing.release()
    ledger.give_back(ballast)
    assert ledger.committed == 0
