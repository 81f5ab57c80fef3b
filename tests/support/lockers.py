"""Page locking without a driver."""

import threading
from dataclasses import replace

from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.cpu import CpuDevice


class FakeLocker:
    """Counts like a driver: no address twice, no more than ``limit`` bytes together; ``fails``: how many calls fail
    first."""

    def __init__(self, limit=None, fails=0):
        self.limit, self.fails = limit, fails
        self.locked = {}
        self.calls = 0
        self._lock = threading.Lock()

    def lock(self, address, nbytes):
        with self._lock:
            self.calls += 1
            assert nbytes > 0
            if self.fails:
                self.fails -= 1
                raise OSError(12, "Cannot allocate memory")
            if self.limit is not None and self.used + nbytes > self.limit:
                raise OSError(12, "Cannot allocate memory")
            for start, size in self.locked.items():
                assert address + nbytes <= start or start + size <= address, "locked twice"
            self.locked[address] = nbytes

    def unlock(self, address):
        with self._lock:
            del self.locked[address]

    @property
    def used(self):
        return sum(self.locked.values())


class PinningCpu(CpuDevice):
    """The CPU in the part of a device that gains from page-locked memory and keeps points: what is ``resident`` is
    said by the test, as addresses of host bytes → device bytes."""

    def __init__(self, host, locker, sink=None):
        super().__init__(Capacity(1 << 30, "test"), sink, 0, host)
        self._info = replace(self._info, page_locks=True)
        self.locker = locker
        self.resident = {}

    def staging(self, nbytes, purpose, owner, *, pinned):
        return self._host.staging(nbytes, purpose, owner, self.locker, pinned=pinned)

    def lease(self, sources):
        lease = super().lease(sources)
        lease.nbytes = sum(self.resident.get(source.ctypes.data, 0) for source in sources)
        return lease

    def evict(self, sources):
        return sum(self.resident.pop(source.ctypes.data, 0) for source in sources)
