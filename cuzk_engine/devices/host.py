"""The host's memory: its ledger, and a pool of blocks that uploads to a device start from.

Locking pages costs as much as many proofs' uploads, so a block that was freed stays locked and serves the next request
of its size. Pageable blocks for such a device stay, too: to wipe and unmap them and to get new pages takes time, in
which the device would wait. What nobody uses counts in the ledger as scratch of nobody; it is given back when the
host's memory is short, least recently used first, or after it lay idle for long. A block that held a secret (all but
points and matrices) is zeroed before another job gets it and before it goes back: by a thread of the pool, so that no
worker waits for it.

States of a block, all changes under the pool's lock:

    lent ──free──▶ idle and dirty ──▶ cleaning ──▶ idle ──▶ lent …  or gone

A block that cannot be locked is lent all the same, pageable, after one warning.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cuzk_engine.devices.base import Bytes, CancelToken, EventSink, MemoryUse, Owner
from cuzk_engine.devices.ledger import Grant, Ledger, Reservation
from cuzk_engine.devices.memory import HOST
from cuzk_engine.devices.pages import PageLocker, block_bytes, lock_advice, map_pages, wipe
from cuzk_engine.errors import CuzkError, OutOfDeviceMemoryError
from cuzk_engine.events import Holding, Kind, Purpose, Span, host_lane
from cuzk_engine.units import format_size

log = logging.getLogger(__name__)

ADVICE: Final = "raise memory.total_budget, lower memory.safety_margin, or run on a machine with more memory"
ADVICE_FIXED: Final = "raise memory.total_budget, or run on a machine with more memory"
IDLE_NS: Final = 5 * 60 * 10**9
_NOBODY: Final = Owner()
_NOTHING: Final = map_pages(0)
_PUBLIC: Final = (Purpose.SRS, Purpose.MATRICES)  # of the key's file, no secret, and never pooled: large and rare


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Bytes. ``pinned``: page-locked; ``idle``: what waits in the pool, page-locked or not; ``waste``: what lent blocks
    are larger than was asked for; ``refused``: requests that were served by pageable memory instead."""

    pinned: int
    idle: int
    waste: int
    refused: int


@dataclass(eq=False, slots=True)
class _Block:
    data: Bytes
    grant: Grant
    locker: PageLocker | None  # of whose device's pool it is; None: of none
    pinned: bool = False
    job: str = ""  # whose secrets it may hold
    dirty: bool = False
    cleaning: bool = False
    idle_since: int = 0


class StagingBuffer:
    """Host memory to fill and to upload from, until ``free``. Its first bytes are what was asked for; whatever they
    hold is the owner's job's own or zero."""

    def __init__(self, memory: HostMemory, block: _Block, nbytes: int) -> None:
        self._memory = memory
        self._block: _Block | None = block
        self._nbytes = nbytes
        self.pinned = block.pinned

    def __enter__(self) -> StagingBuffer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def data(self) -> Bytes:
        """The bytes; raises ValueError once the buffer was freed."""
        if (block := self._block) is None:
            raise ValueError("use of a freed staging buffer")
        return block.data[: self._nbytes]

    def free(self) -> None:
        """Ends the loan; nothing may be copying from it any more. A second time does nothing."""
        with self._memory._guard:
            block, self._block = self._block, None
        if block is not None:
            self._memory._take_back(block, self._nbytes)


class HostMemory:
    """The host's memory of one process. ``budget``: bytes. ``device``: whose lanes the spans of page-locking are
    shown on. ``threads`` wipe pages; 0: as many as help. ``fixed``: the budget was set, and has no
    margin. Any thread may call."""

    def __init__(
        self,
        budget: int,
        sink: EventSink | None = None,
        *,
        device: str = HOST,
        threads: int = 0,
        fixed: bool = False,
        idle_ns: int = IDLE_NS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.ledger = Ledger(HOST, budget, sink, ADVICE_FIXED if fixed else ADVICE)
        self._sink, self._device, self._threads = sink, device, threads
        self._idle_ns, self._clock = idle_ns, clock
        self._guard = threading.RLock()  # quicker to take than the condition around it
        self._changed = threading.Condition(self._guard)
        self._idle: list[_Block] = []  # least recently used first
        self._pinned = self._waste = self._refused = 0
        self._ceiling: int | None = None  # page-locked bytes that were once too many
        self._warned = self._closed = False
        self._keeper: threading.Thread | None = None
        self.ledger.add_reclaimer(self.reclaim, lambda: self.pool().idle)

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def budget(self) -> int:
        return self.ledger.capacity

    @property
    def committed(self) -> int:
        """Bytes in use or promised."""
        return self.ledger.committed

    def staging(
        self, nbytes: int, purpose: Purpose, owner: Owner, locker: PageLocker | None = None, *, pinned: bool = True
    ) -> StagingBuffer:
        """``nbytes`` ≥ 0 of host memory, ``pinned``: page-locked by ``locker`` where that can be had. It counts as
        ``block_bytes(nbytes)`` then, else as ``nbytes``. Without a locker it is pageable and of no pool. Raises
        OutOfDeviceMemoryError when the budget is spent; nothing is kept then."""
        if locker is None or nbytes == 0:
            return self._lend(self._new(nbytes, nbytes, purpose, owner, None), nbytes, owner)
        size = block_bytes(nbytes) if pinned else nbytes
        block = self._from_pool(size, purpose, owner, locker, pinned)
        if block is None and pinned and not self._may_lock(size):
            pinned = False
            block = self._from_pool(size, purpose, owner, locker, pinned)
        if block is None:
            block = self._new(nbytes, size, purpose, owner, locker)
            try:
                if pinned:
                    self._lock(block, owner, locker)
            except BaseException:
                self._give_back(block)
                raise
        return self._lend(block, nbytes, owner)

    def reserve(self, held: int, serial: int, owner: Owner, cancel: CancelToken) -> Reservation:
        return self.ledger.reserve(held, serial, owner, cancel)

    def holdings(self) -> tuple[Holding, ...]:
        return self.ledger.holdings()

    def memory(self) -> MemoryUse:
        return self.ledger.memory()

    def usable(self) -> int:
        return self.ledger.usable()

    def pool(self) -> PoolUse:
        with self._guard:
            return PoolUse(self._pinned, sum(block.data.size for block in self._idle), self._waste, self._refused)

    def reclaim(self, nbytes: int) -> int:
        """Gives about so many bytes back that nobody uses; returns how many. For the ledger, when memory is short."""
        freed = 0
        while freed < nbytes and (block := self._pop_idle()) is not None:
            freed += block.data.size
            self._give_back(block)
        return freed

    def release(self, locker: PageLocker) -> None:
        """Gives back all of the pool of ``locker``'s device, before that goes."""
        with self._guard:
            while any(block.cleaning for block in self._idle):
                self._changed.wait()
            blocks = [block for block in self._idle if block.locker is locker]
            self._idle = [block for block in self._idle if block.locker is not locker]
            self._changed.notify_all()  # the pool's thread ends where nothing is left
        for block in blocks:
            self._give_back(block)

    def close(self) -> None:
        """Gives back what nobody uses, and what is lent when it is freed; no more can be had."""
        with self._guard:
            self._closed = True
            keeper = self._keeper
            self._changed.notify_all()
        if keeper is not None:
            keeper.join()
        self.reclaim(1 << 62)

    # ---- lending ----

    def _lend(self, block: _Block, nbytes: int, owner: Owner) -> StagingBuffer:
        with self._guard:
            block.job = owner.job
            self._waste += block.data.size - nbytes
            return StagingBuffer(self, block, nbytes)

    def _from_pool(self, size: int, purpose: Purpose, owner: Owner, locker: PageLocker, pinned: bool) -> _Block | None:
        with self._guard:
            self._check_open()
            block = self._choose(size, owner, locker, pinned)
            if block is None:
                return None
            self._idle.remove(block)
            # Never refused: what is nobody's is promised to nobody.
            block.grant = self.ledger.hand_over(block.grant, purpose, owner)
        if block.dirty and (block.job != owner.job or not owner.job):
            self._wipe(block)
        return block

    def _choose(self, size: int, owner: Owner, locker: PageLocker, pinned: bool) -> _Block | None:
        """The owner's job's own block, else a clean one, else the one used last; waits for one that is being cleaned.
        Under the lock."""
        while True:
            ours = (block for block in reversed(self._idle) if block.locker is locker and block.pinned == pinned)
            fitting = [block for block in ours if block.data.size == size]
            ready = [block for block in fitting if not block.cleaning]
            if ready or not fitting:
                ready.sort(key=lambda block: (block.job != owner.job or not owner.job, block.dirty))
                return ready[0] if ready else None
            self._changed.wait()

    def _take_back(self, block: _Block, nbytes: int) -> None:
        with self._guard:
            self._waste -= block.data.size - nbytes
            block.dirty = block.dirty or block.grant.purpose not in _PUBLIC
            pooled = block.locker is not None and not self._closed and block.grant.purpose not in _PUBLIC
            if pooled:
                block.idle_since = self._clock()
                # In the pool first: who waits for memory looks for it there as soon as the ledger changed.
                self._idle.append(block)
                try:
                    block.grant = self.ledger.hand_over(block.grant, Purpose.SCRATCH, _NOBODY)
                except OutOfDeviceMemoryError:  # its bytes are promised to others as soon as its owner lets go of them
                    self._idle.remove(block)
                    pooled = False
                else:
                    self._start_keeper()
                    self._changed.notify_all()
        if not pooled:
            self._give_back(block)

    def _pop_idle(self) -> _Block | None:
        """The least recently used block of the pool, taken out of it."""
        with self._guard:
            while self._idle and self._idle[0].cleaning:
                self._changed.wait()
            return self._idle.pop(0) if self._idle else None

    # ---- blocks ----

    def _new(self, nbytes: int, size: int, purpose: Purpose, owner: Owner, locker: PageLocker | None) -> _Block:
        """Pageable memory; ``nbytes`` is for the message."""
        with self._guard:
            self._check_open()
        grant = self.ledger.take(size, purpose, owner)
        try:
            return _Block(map_pages(size), grant, locker)
        except (OSError, MemoryError) as error:
            self.ledger.give_back(grant)
            raise OutOfDeviceMemoryError(HOST, purpose, nbytes, 0, self.budget) from error

    def _lock(self, block: _Block, owner: Owner, locker: PageLocker) -> None:
        """Locks the pages of a new block, or warns once and leaves it pageable."""
        size = block.data.size
        start = time.monotonic_ns()
        wipe(block.data, self._threads)  # so that its pages are there before they are locked
        try:
            try:
                locker.lock(block.data.ctypes.data, size)
            except (CuzkError, OSError):
                if not self.reclaim(size):  # what idles in the pool may be what the limit is spent on
                    raise
                locker.lock(block.data.ctypes.data, size)
        except (CuzkError, OSError) as error:
            self._refuse(size, error)
            return
        with self._guard:
            block.pinned = True
            self._pinned += size
        if self._sink is not None:
            lane, end = host_lane(owner.worker), time.monotonic_ns()
            self._sink(
                Span(
                    start, end, self._device, lane, Kind.PAGE_LOCK, owner.job, owner.partition, owner.worker, size,
                )
            )  # fmt: skip

    def _may_lock(self, size: int) -> bool:
        """Whether it is worth trying: not where so much was refused before."""
        with self._guard:
            allowed = self._ceiling is None or self._pinned + size < self._ceiling
            self._refused += not allowed
            return allowed

    def _refuse(self, size: int, error: Exception) -> None:
        with self._guard:
            self._refused += 1
            total = self._pinned + size
            self._ceiling = total if self._ceiling is None else min(self._ceiling, total)
            first, self._warned = not self._warned, True
        if first:
            log.warning(
                "page-locking %s of host memory failed with %s locked already (%s); the device's memory is not the "
                "problem, uploads go on from pageable memory and are slower; %s",
                format_size(size),
                format_size(total - size),
                " ".join(str(error).split()),
                lock_advice(),
            )

    def _give_back(self, block: _Block) -> None:
        """Wipes, unlocks and unmaps a block that is in no list, and ends its grant."""
        size = block.data.size
        try:
            if block.dirty:
                self._wipe(block)
            if block.pinned:
                assert block.locker is not None
                try:
                    block.locker.unlock(block.data.ctypes.data)
                except (CuzkError, OSError) as error:  # a lost device: its locks went with it
                    log.debug("page-locked memory could not be unlocked: %s", error)
                with self._guard:
                    self._pinned -= size
        finally:
            block.data = _NOTHING  # the mapping goes with its last view
            self.ledger.give_back(block.grant)

    def _wipe(self, block: _Block) -> None:
        wipe(block.data, self._threads)
        block.dirty = False

    # ---- the thread of the pool ----

    def _start_keeper(self) -> None:
        """Under the lock. The thread lives while something is in the pool."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="host memory", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        while (block := self._next_dirty()) is not None:
            if block.cleaning:
                self._wipe(block)
                with self._guard:
                    block.cleaning = False
                    self._changed.notify_all()
            else:
                self._give_back(block)

    def _next_dirty(self) -> _Block | None:
        """A block to clean, marked so, or one that lay idle for too long, taken out of the pool; None at the end."""
        with self._guard:
            while self._idle and not self._closed:
                dirty = next((block for block in self._idle if block.dirty), None)
                if dirty is not None:
                    dirty.cleaning = True
                    return dirty
                left = self._idle[0].idle_since + self._idle_ns - self._clock()
                if left <= 0:
                    return self._idle.pop(0)
                self._changed.wait(left / 1e9)
            self._keeper = None
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the host's memory was closed")
