"""The CUDA device on a fake of CuPy, with the CPU's operations for kernels."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzk_engine import native
from cuzk_engine.devices.cuda.need import evaluation_bytes, matrices_bytes, msm_arena_bytes, msm_form
from cuzk_engine.devices.cuda.shape import table_rows
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.events import Event
from cuzk_engine.groth16.density import count_general
from cuzk_engine.native import Group
from tests.devices.cuda import fake_cupy
from tests.support.fake_driver import INVALID_HANDLE, NOT_READY, FakeDriver

_DEPENDENT = (
    "card",
    "device",
    "driver",
    "feeder",
    "fields",
    "guard",
    "launcher",
    "loader",
    "locker",
    "memory",
    "module",
    "moments",
    "msm",
    "ntt",
    "operations",
    "physical",
    "replay",
    "results",
    "result_rows",
    "slots",
    "timeline",
    "vector_launcher",
    "vectors",
)


class CpuOperations:
    """``Operations`` with the native library, on the current stream of the fake; a vector that stays on the device
    keeps the order it has."""

    def __init__(self, fake: Any) -> None:
        self._library, self._call = native.library(), native.Call
        self._runtime, self._cuda = fake.cuda.runtime, fake.cuda
        self._tables: dict[int, Any] = {}

    def _put(self, work: Any, reads: Any = (), writes: Any = ()) -> None:
        """``work`` behind what the stream does already, which uses these buffers."""
        addresses = [tuple(b.address for b in buffers if b.nbytes) for buffers in (reads, writes)]
        self._runtime.put(self._cuda.get_current_stream(), work, *addresses)

    def _framed(self, stream: Any, frame: Any, work: Any, reads: Any, writes: Any) -> None:
        frame.open(stream)
        with stream:
            self._put(work, reads, writes)
        frame.close(stream)

    def prepare(self, curve: Any, owner: Any, check: Any) -> None: ...

    def fill_table(self, operation: Any, table: Any) -> None:
        nbytes = self._library.ntt_table_bytes(operation.curve, operation.log_n)
        self._tables[table.address] = data = native.aligned(nbytes)
        table.array((table_rows(operation.log_n), 4), np.uint64)
        self._put(
            lambda: self._library.ntt_table(operation.curve, operation.log_n, data, self._call(1)), writes=(table,)
        )

    def coset_extend(self, operation: Any, data: Any, table: Any, stream: Any, frame: Any) -> None:
        n = 32 << operation.log_n
        view, twiddles = data.array((n,), np.uint8), self._tables[table.address]

        def work() -> None:
            copy = native.aligned(n)
            copy[:] = view
            self._library.coset_extend(operation.curve, copy, operation.log_n, twiddles, self._call(1))
            view[:] = copy

        self._framed(stream, frame, work, (table,), (data,))

    def join(self, operation: Any, a: Any, b: Any, c: Any, stream: Any, frame: Any) -> None:
        n = 32 * operation.n
        views = [x.array((n,), np.uint8) for x in (a, b, c)]

        def work() -> None:
            copies = [native.aligned(n) for _ in views]
            for x, view in zip(copies, views, strict=True):
                x[:] = view
            self._library.h_join(operation.curve, *copies, operation.n, self._call(1))
            views[0][:] = copies[0]

        self._framed(stream, frame, work, (b, c), (a,))

    def sum_of(self, operation: Any, points: Any, scalars: Any, budget: int) -> Any:
        curve, group = operation.curve, operation.group
        assert msm_form(curve, group, points.count, budget).n == points.count
        nbytes = msm_arena_bytes(curve, group, points.count, budget, picked=points.pick)
        size = curve.g2_bytes if group == 2 else curve.g1_bytes
        phases = "sort", "accumulate"
        return SimpleNamespace(nbytes=nbytes, result_bytes=size, phases=phases, operation=operation)

    def no_points(self, operation: Any, result: Any, stream: Any, frame: Any) -> None:
        self._framed(stream, frame, self._sum(operation, None, None, result), (), (result,))

    def msm(
        self, how: Any, points: Any, scalars: Any, result: Any, scratch: Any, place: Any, marks: Any, frame: Any
    ) -> None:
        operation = how.operation
        view = scalars.array((operation.n, 32), np.uint8, 32 * operation.offset)
        frame.open(place.stream)
        with place.stream:
            self._put(self._sum(operation, points, view, result), (scalars, points.block), (result, scratch))
        for mark in marks.events[1:]:
            place.streams.front.record(mark)
        frame.close(place.stream)

    def _sum(self, operation: Any, points: Any, view: Any, result: Any) -> Any:
        curve, group = operation.curve, Group(operation.group)
        size = curve.g2_bytes if group is Group.G2 else curve.g1_bytes
        out = result.array((size,), np.uint8)
        n = 0 if points is None else points.count

        def work() -> None:
            values, table, sums = native.aligned(32 * n), native.aligned(n * size), native.aligned(size)
            if n:
                chosen = view if points.index is None else view[points.index]
                values[:], table[:] = chosen.reshape(-1), points.array
            nbytes = self._library.msm_scratch_bytes(curve, group, n, 1)
            scratch = native.aligned(nbytes)
            self._library.msm(curve, group, table.reshape(n, size), values, n, sums, scratch, nbytes, self._call(1))
            out[:] = sums

        return work

    def prepare_matrices(self, curve: Any, parts: Any, n: int, domain: int, n_vars: int, allocate: Any) -> Any:
        section = np.empty((n, 44), np.uint8)
        block = None
        for turn in range(2):
            for first, part in parts():

                def work(first: int = first, part: Any = part) -> None:
                    section[first : first + len(part)] = part

                stream = self._cuda.get_current_stream()
                self._runtime.put(stream, work, (part.ctypes.data,), () if block is None else (block.address,))
            if turn == 0:
                stream.synchronize()
                general = count_general(SimpleNamespace(curve=curve, coefficients=section), 1)
                block = allocate(matrices_bytes(n, domain, general))
                stream.wait_event(block.last)
        return block, SimpleNamespace(section=section, domain=domain)

    def evaluate(
        self, curve: Any, matrices: Any, witness: Any, scratch: Any, out: Any, stream: Any, frame: Any
    ) -> None:
        n = 32 * matrices.domain
        given, views = witness.array((witness.nbytes,), np.uint8), [x.array((n,), np.uint8) for x in out]
        assert scratch.nbytes == evaluation_bytes(witness.nbytes // 32)

        def work() -> None:
            section = matrices.section
            rows = section.view(np.uint32).reshape(-1, 11)[:, 1]
            order = np.argsort(rows, kind="stable").astype(np.uint32)
            copies, values = [native.aligned(n) for _ in out], native.aligned(len(given))
            values[:] = given
            self._library.evaluate(curve, section, len(section), order, values, matrices.domain, *copies, self._call(1))
            for x, view in zip(copies, views, strict=True):
                view[:] = x

        self._framed(stream, frame, work, (witness,), (*out, scratch))


class Bench:
    def __init__(self, module: Any, fake: Any) -> None:
        self.module, self.fake, self.runtime = module, fake, fake.cuda.runtime
        self.events: list[Event] = []
        self.opened: list[Any] = []
        self.unknown: set[int] = set()  # handles of events
        self.driver = FakeDriver(self.hear, lambda function: (), self.between)

    def hear(self, *call: Any) -> int:
        """A call of the driver: the one for the context, where the operations are the CPU's."""
        assert call[0] == "context"
        return 0

    def between(self, first: int, second: int) -> tuple[int, float]:
        """The driver's answer to how long it was from one event to another."""
        runtime = self.runtime
        if runtime.fault is not None:
            return runtime.fault.status, 0.0
        if self.unknown & {first, second}:
            return INVALID_HANDLE, 0.0
        events = runtime.events[first], runtime.events[second]
        if not all(event.done for event in events):
            return NOT_READY, 0.0
        return 0, (events[1].at - events[0].at) / 1e6

    def open(self, limit: int | None = None, parallel: int = 2, host: HostMemory | None = None) -> Any:
        device = self.module.CudaDevice(0, Path("/nonexistent"), self.events.append, limit, host, parallel)
        device._operations = CpuOperations(self.fake)
        self.opened.append(device)
        return device


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    fake, modules = fake_cupy.make()
    names = [f"cuzk_engine.devices.cuda.{name}" for name in _DEPENDENT]
    before = {name: sys.modules.pop(name, None) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    driver = importlib.import_module("cuzk_engine.devices.cuda.driver")  # first: others look for it in the package
    physical = importlib.import_module("cuzk_engine.devices.cuda.physical")
    monkeypatch.setattr(physical, "memory_info", fake.cuda.runtime.memGetInfo)
    device = importlib.import_module("cuzk_engine.devices.cuda.device")
    made = Bench(device, fake)
    runtime = fake.cuda.runtime
    monkeypatch.setattr(driver, "functions", lambda: made.driver.functions)
    monkeypatch.setattr(driver, "record", lambda event, stream: runtime.events[event].record(runtime.streams[stream]))
    monkeypatch.setattr(driver, "is_over", lambda event: runtime.events[event].done)
    monkeypatch.setattr(driver, "is_page_locked", runtime.is_locked)
    monkeypatch.setattr(driver, "pool_use", lambda pool, what: runtime.used)
    yield made
    for opened in made.opened:
        opened.close()
    lost = any(opened._guard.lost for opened in made.opened)  # its locks went with it
    assert lost or not fake.cuda.runtime.locked, "memory that is still locked"
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module
