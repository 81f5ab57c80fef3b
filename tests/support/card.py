"""A device that keeps its memory's books as a GPU does, and computes as the CPU does.

Points and matrices are copied to it, where they stay or travel for a launch; the evaluation takes scratch. What its
launches take is exactly what `msm_need` and `evaluate_need` say; where several are under way at a time, until their
events were waited for or the next launch but so many takes their place.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace

from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import Evaluate, Msm, Need, Owner, Room
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.memory import HostBuffer
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import OtherProcess, Purpose

NOBODY = Owner()


class Lease:
    def __init__(self, card, keys):
        self._card, self._keys = card, keys
        with card.guard:
            self.each = [card.resident[key].nbytes if key in card.resident else 0 for key in keys]
            self._held = [key for key in keys if key in card.resident]
            for key in self._held:
                card.users[key] = card.users.get(key, 0) + 1
        self.nbytes = sum(self.each)

    def release(self):
        held, self._held = self._held, []
        with self._card.guard:
            for key in held:
                self._card.users[key] -= 1

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()


class UnderWay:
    """The event of an MSM that counts as running until it is waited for."""

    def __init__(self, memory):
        self._memory = memory

    def wait(self):
        self._memory.free()

    def done(self):
        return False


class Card(CpuDevice):
    """``others``: bytes that another program holds, which may change."""

    def __init__(self, capacity, sink=None, context=0, page_locks=True, parallel=1):
        super().__init__(Capacity(capacity, "given"), sink)
        self.guard = threading.RLock()
        self.resident, self.users = {}, {}
        self.taken_by_others = 0
        self._info = replace(
            self._info, id="cpu", kind="card", inert_settings=(), page_locks=page_locks,
            parallel_launches=parallel,
        )  # fmt: skip
        self.asked = 0
        self._under_way = deque()
        self._ledger._ceiling = self._available
        self._ledger.add_reclaimer(self._reclaim_residents, self._idle_residents)
        if context:
            self._ledger.take(context, Purpose.CONTEXT, NOBODY)

    def msm_need(self, curve, group, n, present, *, resident):
        size = curve.g2_bytes if group == 2 else curve.g1_bytes
        scratch = super().msm_need(curve, group, n, present, resident=resident).scratch
        return Need(scratch, 0, present * size) if resident else Need(scratch, n * size)

    def evaluate_need(self, curve, coefficients, n_vars, domain, *, prepared=False, general=None):
        return Need(32 * n_vars if prepared else 320 * coefficients, 0, 0 if prepared else 40 * coefficients)

    def lease(self, sources):
        return Lease(self, [self._key(source) for source in sources])

    def room(self):
        others = self.taken_by_others
        return Room(self._ledger.available(), self._ledger.use().used, self._ledger.idle(), others, 0)

    def others(self):
        return (OtherProcess(4711, "ballast", self.taken_by_others),) if self.taken_by_others else ()

    def _available(self):
        self.asked += 1
        return self._ledger.capacity - self.taken_by_others

    def drop_residents(self):
        self._reclaim_residents(1 << 62)

    def launch(self, operation, owner, cancel, after=None):
        if not isinstance(operation, Msm) or self._info.parallel_launches == 1:
            return super().launch(operation, owner, cancel, after)
        while len(self._under_way) >= self._info.parallel_launches:
            self._under_way.popleft().free()
        super().launch(operation, owner, cancel, after)
        n, size = operation.points.shape
        scratch = CpuDevice.msm_need(self, operation.curve, operation.group, n, n, resident=True).scratch
        travelled = 0 if self._key(operation.points) in self.resident else n * size
        travelled = 0 if operation.sent is not None else travelled
        self._under_way.append(HostBuffer.allocate(self._ledger, scratch + travelled, Purpose.MSM, owner))
        return UnderWay(self._under_way[-1])

    def _run(self, operation, owner, call):
        if isinstance(operation, Evaluate):
            n_vars = operation.witness.nbytes // 32
            need = self.evaluate_need(operation.curve, len(operation.coefficients), n_vars, operation.domain)
            key = self._key(operation.coefficients)
            with self.guard:
                prepared = key in self.resident
            scratch = 32 * n_vars if prepared else need.scratch
            with self.allocate(scratch, Purpose.SCRATCH, owner):
                self._keep(key, need.stay, Purpose.MATRICES, operation.room)
        return super()._run(operation, owner, call)

    def _run_msm(self, operation: Msm, owner, call):
        nbytes = operation.points.nbytes
        if operation.resident and nbytes:
            size = operation.points.shape[1]
            present = int(operation.points.any(axis=1).sum())
            self._keep(self._key(operation.points), present * size, Purpose.SRS, operation.room)
            return super()._run_msm(operation, owner, call)
        assert operation.sent is None or operation.sent.data.tobytes() == operation.points.tobytes()
        with self.allocate(0 if operation.sent is not None else nbytes, Purpose.SRS, owner):
            return super()._run_msm(operation, owner, call)

    def _keep(self, key, nbytes, purpose, room):
        with self.guard:
            known = self.resident.get(key)
        if known is not None:
            if room is not None:
                room.shrink(known.nbytes)
            return
        try:
            buffer = HostBuffer.allocate(self._ledger, nbytes, purpose, NOBODY, room)
        except OutOfDeviceMemoryError:
            if room is not None:
                raise
            return
        with self.guard:
            self.resident[key] = buffer

    def _key(self, source):
        return int(source.ctypes.data), source.nbytes

    def _idle_residents(self):
        with self.guard:
            return sum(b.nbytes for key, b in self.resident.items() if not self.users.get(key))

    def _reclaim_residents(self, nbytes):
        freed = 0
        with self.guard:
            for key in [key for key in self.resident if not self.users.get(key)]:
                if freed >= nbytes:
                    break
                buffer = self.resident.pop(key)
                freed += buffer.nbytes
                buffer.free()
        return freed
