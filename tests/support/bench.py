"""A runner on the CPU device, and everything that it tells."""

from __future__ import annotations

from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.events import Allocation, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import PipelineSettings, Runner

ME = Owner("job 1", 0, 0)
GIB = 1 << 30


class Bench:
    """A runner on the CPU with everything that it tells; a ``device`` of another kind tells ``events``, too."""

    def __init__(self, capacity=GIB, device=None, events=None, **options):
        self.events = [] if events is None else events
        self.device = device or CpuDevice(Capacity(capacity, "cpu.arena"), self.events.append)
        self.runner = Runner(self.device, KeyCache(), self.events.append, **options)

    def prove(self, item, settings=PipelineSettings(), **options):  # noqa: B008
        return self.runner.prove(item.path("circuit.zkey"), item.path("witness.wtns"), ME, settings, **options)

    def spans(self, lane=None):
        return [e for e in self.events if isinstance(e, Span) and (lane is None or e.lane == lane)]

    def assert_nothing_is_held(self):
        """Neither on the device nor on the host; tables that stay may go, too."""
        assert set(self.device.memory().by_purpose) <= {"ntt"}
        self.runner.release_caches()
        assert self.device.memory().used == 0
        assert self.device.ledger.committed == 0
        assert self.runner.host_memory.committed == 0
        for name in ("cpu", "host"):
            assert sum(e.delta for e in self.events if isinstance(e, Allocation) and e.device == name) == 0
