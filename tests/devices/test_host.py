"""The pool of page-locked memory: blocks are reused, never shared, zeroed between jobs, and all of them go back."""

import ctypes
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.pages import block_bytes, lock_advice, map_pages, wipe
from cuzk_engine.errors import DeviceFaultError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Kind, Purpose, Span
from tests.support.lockers import FakeLocker

MIB = 1 << 20
FIRST, SECOND = Owner("first", 0, 0), Owner("second", 2, 1)


@pytest.fixture
def events():
    return []


@pytest.fixture
def memory(events):
    with HostMemory(64 * MIB, events.append, device="cuda:0") as memory:
        yield memory
    assert memory.ledger.use().used == 0
    assert memory.pool().pinned == 0
    assert sum(event.delta for event in events if isinstance(event, Allocation)) == 0


def spans(events):
    return [event for event in events if isinstance(event, Span)]


def test_pinned_memory_is_locked_counted_and_reused(memory, events):
    locker = FakeLocker()
    with memory.staging(MIB, Purpose.ABC, FIRST, locker) as buffer:
        assert buffer.pinned
        assert buffer.nbytes == buffer.data.size == MIB
        assert locker.locked == {buffer.data.ctypes.data: MIB}
        assert memory.ledger.holders() == {(Purpose.ABC, 0, "first"): MIB}
        address = buffer.data.ctypes.data
    assert memory.ledger.holders() == {(Purpose.SCRATCH, -1, ""): MIB}
    assert (memory.pool().pinned, memory.pool().idle) == (MIB, MIB)
    with memory.staging(MIB, Purpose.WITNESS, SECOND, locker) as buffer:
        assert buffer.data.ctypes.data == address
        assert memory.ledger.holders() == {(Purpose.WITNESS, 1, "second"): MIB}
        assert memory.pool().idle == 0
    assert locker.calls == 1
    (span,) = spans(events)
    assert (span.kind, span.device, span.lane, span.job, span.bytes) == (
        Kind.PAGE_LOCK,
        "cuda:0",
        "host:0",
        "first",
        MIB,
    )
    memory.close()
    assert locker.locked == {}


def test_pageable_memory_for_no_device_is_not_pooled(memory):
    with memory.staging(5000, Purpose.WITNESS, FIRST) as buffer:
        assert not buffer.pinned
        assert memory.ledger.use().used == buffer.data.size == 5000
    assert memory.ledger.use().used == 0


def test_pageable_memory_for_a_device_stays_with_it(memory):
    locker = FakeLocker()
    with memory.staging(5000, Purpose.ABC, FIRST, locker, pinned=False) as buffer:
        assert not buffer.pinned
        assert memory.ledger.holders() == {(Purpose.ABC, 0, "first"): 5000}
        address = buffer.data.ctypes.data
    assert memory.ledger.holders() == {(Purpose.SCRATCH, -1, ""): 5000}
    assert (memory.pool().pinned, memory.pool().idle) == (0, 5000)
    with memory.staging(5000, Purpose.ABC, SECOND, locker, pinned=False) as buffer:
        assert buffer.data.ctypes.data == address
    with memory.staging(5000, Purpose.ABC, SECOND, locker) as buffer:
        assert buffer.pinned
        assert buffer.data.ctypes.data != address
    memory.release(locker)
    assert memory.ledger.use().used == 0
    assert locker.locked == {}


@pytest.mark.parametrize("pinned", [False, True])
def test_who_frees_does_not_wait_until_the_memory_is_clean(memory, monkeypatch, pinned):
    """It would be while the device waits for the worker that frees."""
    wiping, may_end, wipers = threading.Event(), threading.Event(), []

    def slow(data, threads=0):
        wipers.append(threading.current_thread())
        wiping.set()
        assert may_end.wait(10)
        wipe(data, threads)

    buffer = memory.staging(MIB, Purpose.ABC, FIRST, FakeLocker(), pinned=pinned)
    monkeypatch.setattr("cuzk_engine.devices.host.wipe", slow)
    buffer.data[:] = 7
    buffer.free()
    assert wiping.wait(10)
    may_end.set()
    with memory._changed:
        assert memory._changed.wait_for(lambda: not memory._idle[0].dirty, 10)
    assert threading.current_thread() not in wipers


def test_what_cannot_be_locked_stays_too(memory):
    memory._warned = True  # the warning has tests of its own
    locker = FakeLocker(limit=0)
    with memory.staging(MIB, Purpose.ABC, FIRST, locker) as buffer:
        assert not buffer.pinned
        address = buffer.data.ctypes.data
    with memory.staging(MIB, Purpose.ABC, SECOND, locker) as buffer:
        assert (buffer.pinned, buffer.data.ctypes.data) == (False, address)
        assert not buffer.data.any()
    assert (locker.calls, memory.pool().refused) == (1, 2)


def test_a_freed_buffer_cannot_be_used(memory):
    buffer = memory.staging(5000, Purpose.WITNESS, FIRST, FakeLocker())
    buffer.free()
    buffer.free()
    with pytest.raises(ValueError, match="freed"):
        _ = buffer.data


@pytest.mark.parametrize("locker", [None, FakeLocker()])
def test_nothing_is_neither_locked_nor_counted(memory, locker):
    with memory.staging(0, Purpose.WITNESS, FIRST, locker) as buffer:
        assert buffer.data.size == 0
        assert memory.ledger.use().used == 0
    assert locker is None or locker.calls == 0


@given(nbytes=st.integers(1, 1 << 40))
def test_blocks_waste_little(nbytes):
    size = block_bytes(nbytes)
    assert nbytes <= size <= max(nbytes + nbytes / 16, nbytes + 4096)
    assert block_bytes(size) == size
    assert size % 4096 == 0


def test_waste_is_counted(memory):
    with memory.staging(MIB + 1, Purpose.ABC, FIRST, FakeLocker()):
        assert memory.pool().waste == block_bytes(MIB + 1) - MIB - 1 > 0
    assert memory.pool().waste == 0


def test_another_job_gets_zeros(memory):
    locker = FakeLocker()
    for owner in (FIRST, SECOND, FIRST, Owner(), Owner()):
        with memory.staging(MIB, Purpose.WITNESS, owner, locker) as buffer:
            assert not buffer.data.any()
            buffer.data[:] = 7
    assert locker.calls == 1


def test_secrets_are_zeroed_before_the_memory_goes_back(memory):
    """Seen by the driver, when the pages are unlocked."""
    seen = []

    class Looking(FakeLocker):
        def unlock(self, address):
            seen.append(ctypes.string_at(address, 16))
            super().unlock(address)

    buffer = memory.staging(MIB, Purpose.WITNESS, FIRST, Looking())
    buffer.data[:] = 7
    buffer.free()
    memory.reclaim(1)
    assert seen == [bytes(16)]


def test_the_pool_cleans_by_itself(memory):
    buffer = memory.staging(MIB, Purpose.WITNESS, FIRST, FakeLocker())
    data = buffer.data
    data[:] = 7
    buffer.free()
    with memory._changed:
        assert memory._changed.wait_for(lambda: not memory._idle[0].dirty, 10)
        assert not data.any()


def test_points_are_no_secret_and_go_back_at_once(memory):
    locker = FakeLocker()
    with memory.staging(MIB, Purpose.SRS, Owner(), locker) as buffer:
        assert buffer.pinned
    assert locker.locked == {}
    assert memory.ledger.use().used == 0


def test_idle_blocks_give_way(memory):
    """Least recently used first, and about as much as is asked for."""
    locker = FakeLocker()
    sizes = (24 * MIB, 16 * MIB, 8 * MIB)
    buffers = [memory.staging(size, Purpose.ABC, FIRST, locker) for size in sizes]
    for buffer in buffers:
        buffer.free()
    with memory.staging(20 * MIB, Purpose.WITNESS, SECOND):
        assert sorted(locker.locked.values()) == [8 * MIB, 16 * MIB]
    with memory.ledger.reserve(64 * MIB, 0, SECOND, CancelToken()):
        assert locker.locked == {}


def test_who_waits_for_memory_gets_what_is_freed(memory):
    locker = FakeLocker()
    buffer = memory.staging(40 * MIB, Purpose.ABC, FIRST, locker)
    held = memory.ledger.reserve(0, 0, FIRST, CancelToken())  # somebody who could give memory back
    got = []

    def wait():
        with memory.ledger.reserve(60 * MIB, 0, SECOND, CancelToken()) as reservation:
            got.append(reservation.held)

    thread = threading.Thread(target=wait)
    thread.start()
    with memory.ledger._changed:
        assert memory.ledger._changed.wait_for(lambda: len(memory.ledger._waiting) == 1, 10)
    buffer.free()
    thread.join(10)
    assert got == [60 * MIB]
    assert locker.locked == {}
    held.release()


def test_what_is_promised_to_others_does_not_stay_in_the_pool(memory):
    """A block inside its owner's reservation counts twice once it is idle: as nobody's, and as still promised."""
    locker = FakeLocker()
    with memory.ledger.reserve(64 * MIB, 0, FIRST, CancelToken()):
        memory.staging(40 * MIB, Purpose.ABC, FIRST, locker).free()
        assert locker.locked == {}
        assert memory.ledger.use().used == 0
        assert memory.ledger.committed == 64 * MIB


def test_idle_blocks_go_back_after_a_while():
    locker, time = FakeLocker(), [0]
    with HostMemory(64 * MIB, idle_ns=10**12, clock=lambda: time[0]) as memory:
        memory.staging(MIB, Purpose.ABC, FIRST, locker).free()
        keeper = memory._keeper
        assert memory.pool().idle == MIB
        with memory._changed:
            time[0] = 10**12
            memory._changed.notify_all()
        keeper.join(10)
        assert memory.pool().idle == 0
        assert locker.locked == {}
        memory.staging(MIB, Purpose.ABC, FIRST, locker).free()  # and it starts again
        assert memory.pool().idle == MIB


def test_refused_locks_warn_once_and_serve_pageable_memory(memory, expected_logs, monkeypatch):
    expected_logs("page-locking")
    monkeypatch.setattr("resource.getrlimit", lambda which: (8 * MIB, 8 * MIB))
    locker = FakeLocker(limit=0)
    for _ in range(3):
        with memory.staging(MIB, Purpose.ABC, FIRST, locker) as buffer:
            assert not buffer.pinned
            buffer.data[:] = 1
    assert locker.calls == 1, "what was refused once is not tried again"
    assert memory.pool().refused == 3
    assert memory.pool().pinned == 0


def test_the_warning_names_the_limit(memory, caplog, monkeypatch, expected_logs):
    expected_logs("page-locking")
    monkeypatch.setattr("resource.getrlimit", lambda which: (8 * MIB, 8 * MIB))

    class Driver(FakeLocker):
        def lock(self, address, nbytes):
            raise DeviceFaultError("cuda:0", "cudaErrorMemoryAllocation", 2, "out of\nmemory")

    memory.staging(MIB, Purpose.ABC, FIRST, Driver()).free()
    (record,) = caplog.records
    text = record.getMessage()
    assert "\n" not in text
    assert text.startswith("page-locking 1 MiB of host memory failed with 0 B locked already (device cuda:0: out of")
    assert "RLIMIT_MEMLOCK) is 8 MiB" in text
    assert "memlock=-1" in text


def test_a_limit_leaves_what_fits(memory, expected_logs):
    expected_logs("page-locking")
    locker = FakeLocker(limit=3 * MIB)
    first = memory.staging(2 * MIB, Purpose.ABC, FIRST, locker)
    second = memory.staging(2 * MIB, Purpose.ABC, FIRST, locker)
    third = memory.staging(MIB, Purpose.ABC, FIRST, locker)
    assert (first.pinned, second.pinned, third.pinned) == (True, False, True)
    for buffer in (first, second, third):
        buffer.free()


def test_the_pool_gives_way_to_the_limit(memory):
    """What idles must not be why something else cannot be locked."""
    locker = FakeLocker(limit=3 * MIB)
    memory.staging(2 * MIB, Purpose.ABC, FIRST, locker).free()
    with memory.staging(3 * MIB, Purpose.ABC, FIRST, locker) as buffer:
        assert buffer.pinned
        assert memory.pool().refused == 0


def test_a_spent_budget_is_refused_with_the_numbers(memory):
    locker = FakeLocker()
    with memory.staging(48 * MIB, Purpose.ABC, FIRST, locker):
        with pytest.raises(OutOfDeviceMemoryError) as refusal:
            memory.staging(32 * MIB, Purpose.ABC, SECOND, locker)
        assert (refusal.value.requested, refusal.value.free) == (32 * MIB, 16 * MIB)
        assert memory.ledger.use().used == 48 * MIB


def test_a_margin_is_advised_only_where_the_budget_has_one():
    for fixed in (False, True):
        with HostMemory(MIB, fixed=fixed) as memory, pytest.raises(MemoryPlanError) as refusal:
            memory.reserve(2 * MIB, 0, FIRST, CancelToken())
        assert "raise memory.total_budget" in str(refusal.value)
        assert ("lower memory.safety_margin" in str(refusal.value)) is not fixed


def test_memory_that_cannot_be_mapped_is_not_counted(memory, monkeypatch):
    def refuse(nbytes):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("cuzk_engine.devices.host.map_pages", refuse)
    with pytest.raises(OutOfDeviceMemoryError, match="host memory: out of memory"):
        memory.staging(MIB, Purpose.ABC, FIRST)


def test_what_is_lent_goes_back_after_the_end(memory):
    locker = FakeLocker()
    buffer = memory.staging(MIB, Purpose.ABC, FIRST, locker)
    memory.close()
    buffer.data[:] = 3
    assert locker.used == MIB
    buffer.free()
    assert locker.locked == {}
    with pytest.raises(ValueError, match="closed"):
        memory.staging(MIB, Purpose.ABC, FIRST, locker)


def test_large_blocks_are_wiped_by_several_threads():
    data = map_pages(67 * MIB)
    data[:] = 5
    wipe(data, 4)
    assert not data.any()


@pytest.mark.parametrize(
    ("limit", "release", "words"),
    [
        (65536, "6.1.0", "is 64 KiB"),
        (-1, "5.15.153.1-microsoft-standard-WSL2", "WSL"),
        (-1, "6.1.0", "RLIMIT_MEMLOCK is unlimited"),
    ],
)
def test_the_advice_fits_the_machine(tmp_path: Path, monkeypatch, limit, release, words):
    monkeypatch.setattr("resource.getrlimit", lambda which: (limit, limit))
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text(release)
    assert words in lock_advice(tmp_path)


def test_what_a_device_locked_goes_before_the_device(memory):
    """Other devices' blocks stay."""
    lockers = FakeLocker(), FakeLocker()
    for locker in lockers:
        memory.staging(MIB, Purpose.ABC, FIRST, locker).free()
    keeper = memory._keeper
    memory.release(lockers[0])
    assert [locker.used for locker in lockers] == [0, MIB]
    assert keeper.is_alive()
    memory.release(lockers[1])
    keeper.join(10)
    assert not keeper.is_alive()


def test_many_threads_share_the_pool(memory):
    """Nobody ever sees another's bytes."""
    locker, faults = FakeLocker(), []

    def work(number):
        chance = random.Random(number)
        owner = Owner(f"job {number}", 0, number)
        for _ in range(60):
            with memory.staging(chance.choice((MIB, MIB, 2 * MIB, 3 * MIB)), Purpose.ABC, owner, locker) as buffer:
                if not np.isin(buffer.data[::4096], (0, number)).all():
                    faults.append(number)
                buffer.data[:] = number
                if (buffer.data[::4096] != number).any():
                    faults.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    memory.close()
    assert locker.locked == {}


class PoolMachine(RuleBasedStateMachine):
    """Any order of requests, frees, reservations and failures: sums are right and blocks are nobody else's."""

    buffers = Bundle("buffers")
    BUDGET = 2 * MIB

    @initialize(limit=st.sampled_from((None, MIB, 0)))
    def start(self, limit):
        self.events = []
        self.locker = FakeLocker(limit)
        self.memory = HostMemory(self.BUDGET, self.events.append, threads=1)
        self.memory._warned = True  # the warning has tests of its own
        self.open = {}
        self.reservation = None

    @rule(
        target=buffers,
        nbytes=st.integers(0, MIB),
        job=st.sampled_from("abc"),
        pinned=st.booleans(),
        pooled=st.booleans(),
        purpose=st.sampled_from((Purpose.ABC, Purpose.WITNESS, Purpose.SRS)),
    )
    def stage(self, nbytes, job, pinned, pooled, purpose):
        locker = self.locker if pooled else None
        try:
            buffer = self.memory.staging(nbytes, purpose, Owner(job), locker, pinned=pinned)
        except OutOfDeviceMemoryError:
            size = block_bytes(nbytes) if pinned and pooled else nbytes
            assert self.memory.pool().idle == 0
            assert self.memory.ledger.committed + size > self.BUDGET
            return multiple()
        assert set(np.unique(buffer.data[::512]).tolist()) <= {0, ord(job)}
        buffer.data[:] = ord(job)
        self.open[buffer] = job
        return buffer

    @rule(buffer=consumes(buffers))
    def free(self, buffer):
        buffer.free()
        del self.open[buffer]

    @rule(nbytes=st.integers(0, MIB))
    def press(self, nbytes):
        self.memory.reclaim(nbytes)

    @rule(held=st.integers(0, MIB), job=st.sampled_from("abcd"))
    def reserve(self, held, job):
        if self.reservation is not None:
            self.reservation.release()
        self.reservation = self.memory.ledger.try_reserve(held, 0, Owner(job))

    @rule(count=st.integers(1, 3))
    def fail_next(self, count):
        self.locker.fails = count

    @invariant()
    def sums_are_right(self):
        use, pool = self.memory.ledger.use(), self.memory.pool()
        assert pool.pinned == self.locker.used
        assert use.by_purpose.get("scratch", 0) == pool.idle
        assert use.used == pool.idle + pool.waste + sum(buffer.nbytes for buffer in self.open)
        assert self.memory.ledger.committed <= self.BUDGET
        for buffer, job in self.open.items():
            assert (buffer.data[::512] == ord(job)).all()

    def teardown(self):
        if not hasattr(self, "memory"):
            return
        for buffer in self.open:
            buffer.free()
        if self.reservation is not None:
            self.reservation.release()
        self.memory.close()
        assert self.locker.locked == {}
        assert self.memory.ledger.committed == 0
        assert sum(event.delta for event in self.events if isinstance(event, Allocation)) == 0


TestPool = PoolMachine.TestCase
