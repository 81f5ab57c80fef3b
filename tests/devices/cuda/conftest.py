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
from cuzk_engine.devices.cuda.need import evaluation_bytes, matrices_bytes
from cuzk_engine.devices.cuda.shape import table_rows
from cuzk_engine.events import Event
from cuzk_engine.groth16.density import count_general
from cuzk_engine.native import Group
from tests.devices.cuda import fake_cupy

_DEPENDENT = (
    "card",
    "device",
    "feeder",
    "fields",
    "guard",
    "launcher",
    "loader",
    "locker",
    "memory",
    "module",
    "msm",
    "ntt",
    "operations",
    "physical",
    "replay",
    "slots",
    "timeline",
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

    def _scratch(self, nbytes: int) -> None:
        """As kernels would, writes to memory of the current allocator."""
        (address, _, _), offset = self._cuda.here.allocate(nbytes)
        self._runtime.put(self._cuda.get_current_stream(), lambda: None, (), (address + offset,))

    def prepare(self, curve: Any, owner: Any, check: Any) -> None: ...

    def fill_table(self, operation: Any, table: Any) -> None:
        nbytes = self._library.ntt_table_bytes(operation.curve, operation.log_n)
        self._tables[table.address] = data = native.aligned(nbytes)
        table.array((table_rows(operation.log_n), 4), np.uint64)
        self._put(
            lambda: self._library.ntt_table(operation.curve, operation.log_n, data, self._call(1)), writes=(table,)
        )

    def coset_extend(self, operation: Any, data: Any, table: Any) -> None:
        n = 32 << operation.log_n
        view, twiddles = data.array((n,), np.uint8), self._tables[table.address]

        def work() -> None:
            copy = native.aligned(n)
            copy[:] = view
            self._library.coset_extend(operation.curve, copy, operation.log_n, twiddles, self._call(1))
            view[:] = copy

        self._put(work, (table,), (data,))

    def join(self, operation: Any, a: Any, b: Any, c: Any) -> None:
        n = 32 * operation.n
        views = [x.array((n,), np.uint8) for x in (a, b, c)]

        def work() -> None:
            copies = [native.aligned(n) for _ in views]
            for x, view in zip(copies, views, strict=True):
                x[:] = view
            self._library.h_join(operation.curve, *copies, operation.n, self._call(1))
            views[0][:] = copies[0]

        self._put(work, (b, c), (a,))

    def msm(
        self,
        operation: Any,
        points: Any,
        scalars: Any,
        result: Any,
        scratch: Any,
        form: Any,
        streams: Any,
        events: Any,
        stream: Any,
        frame: Any,
    ) -> list[tuple[str, Any]]:
        curve, group = operation.curve, Group(operation.group)
        size = curve.g2_bytes if group is Group.G2 else curve.g1_bytes
        view = scalars.array((operation.n, 32), np.uint8, 32 * operation.offset)
        out = result.array((size,), np.uint8)
        n = 0 if points is None else points.count
        reads = [scalars]
        if n:
            reads.append(points.block)

        def work() -> None:
            chosen = view if not n or points.index is None else view[points.index]
            values, table, sums = native.aligned(32 * n), native.aligned(n * size), native.aligned(size)
            if n:
                values[:], table[:] = chosen.reshape(-1), points.array
            nbytes = self._library.msm_scratch_bytes(curve, group, n, 1)
            scratch = native.aligned(nbytes)
            self._library.msm(curve, group, table.reshape(n, size), values, n, sums, scratch, nbytes, self._call(1))
            out[:] = sums

        frame.open(stream)
        with stream:
            self._put(work, reads, (result, scratch) if n else (result,))
        assert form.n == n
        sorted_, filled = events(2)
        frame.close(stream)
        return [("sort", streams.front.record(sorted_)), ("accumulate", streams.front.record(filled))]

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

    def evaluate(self, curve: Any, matrices: Any, witness: Any, out: Any) -> None:
        n = 32 * matrices.domain
        given, views = witness.array((witness.nbytes,), np.uint8), [x.array((n,), np.uint8) for x in out]
        self._scratch(evaluation_bytes(witness.nbytes // 32))

        def work() -> None:
            section = matrices.section
            rows = section.view(np.uint32).reshape(-1, 11)[:, 1]
            order = np.argsort(rows, kind="stable").astype(np.uint32)
            copies, values = [native.aligned(n) for _ in out], native.aligned(len(given))
            values[:] = given
            self._library.evaluate(curve, section, len(section), order, values, matrices.domain, *copies, self._call(1))
            for x, view in zip(copies, views, strict=True):
                view[:] = x

        self._put(work, (witness,), out)


class Bench:
    def __init__(self, module: Any, fake: Any) -> None:
        self.module, self.fake, self.runtime = module, fake, fake.cuda.runtime
        self.events: list[Event] = []
        self.opened: list[Any] = []

    def open(self, limit: int | None = None, parallel: int = 2) -> Any:
        device = self.module.CudaDevice(0, Path("/nonexistent"), self.events.append, limit, parallel=parallel)
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
    physical = importlib.import_module("cuzk_engine.devices.cuda.physical")
    monkeypatch.setattr(physical, "memory_info", fake.cuda.runtime.memGetInfo)
    device = importlib.import_module("cuzk_engine.devices.cuda.device")
    made = Bench(device, fake)
    yield made
    for opened in made.opened:
        opened.close()
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module
