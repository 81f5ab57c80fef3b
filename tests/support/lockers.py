"""Page lockers without a driver."""

import threading


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
