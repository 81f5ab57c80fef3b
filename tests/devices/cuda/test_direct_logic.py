"""Whole partitions as they are replayed, against the same launches made one by one through CuPy: each kernel with its
grid, its arguments, its stream, and all that is over before it. And the scripts of the rows and of a∘b − c against the
launches that they stand for."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.need import LONGEST_ROW
from cuzk_engine.devices.cuda.script import Copy, Given, Launch, Record, Ref, Script, Wait, Zero
from cuzk_engine.devices.cuda.vector_script import Joined, Rows, record_join, record_rows
from cuzk_engine.events import Event, Kind, Lane, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from tests.devices.cuda.conftest import Bench
from tests.support.cases import case
from tests.support.fake_driver import FakeDriver

SETTINGS = {
    "best": PipelineSettings(),
    "locked": PipelineSettings(prestage=Prestage.LOCKED),
    "one result": PipelineSettings(double_buffer=False),
    "host evaluates": PipelineSettings(evaluate=Evaluation.HOST),
    "points travel": PipelineSettings(residency=Residency.HOST, batch=16),
}


class Array:
    """As much of an array on the device as the operations ask for."""

    def __init__(self, shape: Any, dtype: Any, memptr: Any) -> None:
        (self._base, *_), self._offset = memptr
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.size = int(np.prod(self.shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.data = type("Data", (), {"ptr": self._base + self._offset})

    def __getitem__(self, part: slice) -> Array:
        first, last, _ = part.indices(self.shape[0])
        offset = self._offset + first * (self.nbytes // self.shape[0])
        return Array((last - first, *self.shape[1:]), self.dtype, ((self._base,), offset))

    def set(self, values: Any, stream: Any = None) -> None: ...


class Launches:
    """A device with its real operations, whose kernels do nothing and are written down, with the number of kernels of
    each stream that are over before. ``direct``: scripts are played by CuPy's calls, one operation at a time."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, *, direct: bool) -> None:
        self.runtime, self.fake, self.events = bench.runtime, bench.fake, bench.events
        self.log: list[tuple[Any, ...]] = []
        self._clocks: dict[int, Counter[int]] = {}
        self._known: dict[int, Counter[int]] = {}
        self._handles: dict[tuple[Any, str], int] = {}
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._scripts: dict[int, tuple[Script, Any]] = {}
        bench.driver = FakeDriver(self._hear, lambda function: self._sizes[function], bench.between)
        replay = importlib.import_module("cuzk_engine.devices.cuda.replay")
        vectors = importlib.import_module("cuzk_engine.devices.cuda.vectors")
        operations = importlib.import_module("cuzk_engine.devices.cuda.operations")
        tape = replay.Player.tape
        monkeypatch.setattr(replay.Player, "tape", lambda player, script: self._note(script, tape(player, script)))
        if direct:
            monkeypatch.setattr(replay.Player, "play", self._play)
        self.replayed = 0
        monkeypatch.setattr(vectors.Vectors, "prepare", lambda *a: self._prepared(vectors, a[3], a[-1]))
        monkeypatch.setattr(self.fake, "ndarray", Array)
        monkeypatch.setattr(self.fake.cuda.Event, "record", self._recording(self.fake.cuda.Event.record))
        monkeypatch.setattr(self.fake.cuda.Stream, "wait_event", self._waiting(self.fake.cuda.Stream.wait_event))
        self.device = bench.open()
        self.device._operations = operations.Operations(self, self.device._factors)

    # ---- what stands for Kernels ----

    def prepare(self, *_: Any) -> int:
        return 0

    def function(self, program: Any, name: str, shared: int = 0) -> Any:
        handle = self._handles.setdefault((program, name), 0xF000 + len(self._handles))
        return type("Function", (), {"ptr": handle})

    def launch(self, program: Any, name: str, grid: Any, block: int, arguments: Any, shared: int = 0) -> None:
        """What no script does."""
        values = tuple(a.data.ptr if isinstance(a, Array) else int(a) for a in arguments)
        self._kernel(self.fake.cuda.get_current_stream().ptr, program, name, grid, block, shared, values)

    # ---- what is written down ----

    def _kernel(self, stream: int, *what: Any) -> None:
        clock = self._clocks.setdefault(stream, Counter())
        *rest, values = what
        self.log.append((stream, *map(str, rest), tuple(map(self._place, values)), dict(sorted(clock.items()))))
        clock[stream] += 1

    def _place(self, value: int) -> tuple[int, ...]:
        """An address as the size of its block and the offset in it: blocks lie elsewhere each time."""
        for start, block in self.runtime.blocks.items():
            if start <= value < start + block.nbytes:
                return block.nbytes, value - start
        return (value,)

    def _recording(self, original: Any) -> Any:
        def record(event: Any, stream: Any = None) -> None:
            if stream is not None:
                self._known[event.ptr] = Counter(self._clocks.get(stream.ptr, {}))
            original(event, stream)

        return record

    def _waiting(self, original: Any) -> Any:
        def wait(stream: Any, event: Any) -> None:
            clock = self._clocks.setdefault(stream.ptr, Counter())
            for other, count in self._known[event.ptr].items():
                clock[other] = max(clock[other], count)
            original(stream, event)

        return wait

    # ---- native ----

    def _note(self, script: Script, tape: Any) -> Any:
        self._scripts[id(tape)] = script, tape
        for one in script.operations:
            if isinstance(one, Launch):
                sizes = tuple(
                    8 if isinstance(a, Ref) else 4 if isinstance(a, Given) else a.nbytes for a in one.arguments
                )
                self._sizes[self._handles[one.program, one.name]] = sizes
        return tape

    def _hear(self, *call: Any) -> int:
        streams = self.runtime.streams
        match call:
            case ("launch", function, stream, grid, block, shared, values):
                program, name = next(key for key, handle in self._handles.items() if handle == function)
                self.replayed += 1
                self._kernel(stream, program, name, grid, block[0], shared, values)
            case ("fill", target, 0, nbytes, stream):
                self._kernel(stream, "fill", nbytes, (target,))
            case ("copy", target, source, nbytes, stream):
                self._kernel(stream, "copy", nbytes, (target, source))
            case ("fetch", target, source, nbytes, stream):
                self.runtime.memcpyAsync(target, source, nbytes, 2, stream)
            case ("record", event, stream):
                self.runtime.events[event].record(streams[stream])
            case ("wait", stream, event):
                streams[stream].wait_event(self.runtime.events[event])
        return 0

    # ---- direct ----

    def _play(self, tape: Any, streams: Any, events: Any, bases: Any, frame: Any = None) -> None:
        """As `Player.play`, by one call of CuPy an operation."""
        where = [self.runtime.streams[handle] for handle in streams]
        known = [self.runtime.events[handle] for handle in events]
        script, _ = self._scripts[id(tape)]

        def value(argument: Any) -> int:
            if isinstance(argument, Ref):
                return int(bases[argument.base]) + argument.offset
            return int(bases[argument.base]) if isinstance(argument, Given) else int(argument)

        if frame is not None:
            frame.open(where[0])
        for one in script.operations:
            match one:
                case Launch():
                    values = tuple(map(value, one.arguments))
                    stream = where[one.stream].ptr
                    self._kernel(stream, one.program, one.name, one.grid, one.block, one.shared, values)
                case Record(stream, event):
                    known[event].record(where[stream])
                case Wait(stream, event):
                    where[stream].wait_event(known[event])
                case Zero(stream, target):
                    self._kernel(where[stream].ptr, "fill", target.nbytes, (value(target),))
                case Copy(stream, target, source):
                    self._kernel(where[stream].ptr, "copy", target.nbytes, (value(target), value(source)))
        if frame is not None:
            frame.close(where[0])

    def _prepared(self, vectors: Any, domain: int, allocate: Any) -> Any:
        block = allocate(4096)
        arrays = [block.array((count,), np.uint32, 512 * k) for k, count in enumerate((9, 8, 7, 6, 2))]
        return block, vectors.Matrices(domain, *arrays)


def proved(bench: Bench, settings: PipelineSettings, *, direct: bool) -> tuple[list[Any], list[Event], int]:
    """Two partitions: what was launched, the spans, and how many kernels were replayed."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        launches = Launches(bench, monkeypatch, direct=direct)
        verify = importlib.import_module("cuzk_engine.groth16.verify")
        monkeypatch.setattr(verify._NativeBackend, "problem", lambda *_: None)  # no kernel computes anything
        runner, item = Runner(launches.device, KeyCache(), bench.events.append), case("bls12381", "mul_out")
        for number in range(2):
            files = Path(item.path("circuit.zkey")), Path(item.path("witness.wtns"))
            runner.prove(*files, Owner(f"job {number}", 0, 0), settings)
        launches.device.close()
        first = min(bench.runtime.streams) if not launches.log else min(entry[0] for entry in launches.log)
        log = [(entry[0] - first, *entry[1:-1], {s - first: n for s, n in entry[-1].items()}) for entry in launches.log]
        return log, list(bench.events), launches.replayed


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_replayed_is_what_would_be_launched(bench: Bench, name: str) -> None:
    log, events, replayed = proved(bench, SETTINGS[name], direct=False)
    del bench.events[:]
    other, others, none = proved(bench, SETTINGS[name], direct=True)
    assert (replayed > 60, none) == (True, 0)
    assert log == other
    kinds = [Counter((e.lane, e.kind, e.bytes) for e in some if isinstance(e, Span)) for some in (events, others)]
    assert kinds[0] == kinds[1]
    assert kinds[0][Lane.D2H, Kind.DOWNLOAD_RESULT, BLS12_381.g2_bytes] == 2


@pytest.mark.parametrize("curve", [BN254, BLS12_381])
@pytest.mark.parametrize(("n", "grid"), [(1, 1), (129, 2), (1 << 22, 132 * 32)])
def test_the_join(curve: Curve, n: int, grid: int) -> None:
    (one,) = record_join(curve, n).operations
    vectors = [Ref(base, 0, 32 * n) for base in (Joined.A, Joined.B, Joined.C)]
    arguments = (*vectors, Ref(Joined.FACTORS, 0, 64), np.uint64(n))
    assert one == Launch(0, programs.vectors(curve), "h_join", (grid, 1, 1), 128, 0, arguments)
    assert [type(a) for a in arguments[4:]] == [np.uint64]


@pytest.mark.parametrize("longs", [0, 3])
def test_the_rows(longs: int) -> None:
    """The witness into Montgomery form, the rows, and the long ones, if there are any."""
    sizes = (4 * 257, 4000, 4000, 320, 4 * longs)
    convert, each, *rest = record_rows(BN254, 1000, 128, sizes, longs, 7).operations
    w, mont = Ref(Rows.W, 0, 32_000), Ref(Rows.MONTGOMERY, 0, 32_000)
    words = (np.int32(6), mont, w, w, np.uint64(1000))
    assert convert == Launch(0, programs.field(BN254, "Fr"), "field_op", (8, 1, 1), 128, 0, words)
    matrices = [Ref(base, 0, size) for base, size in zip(list(Rows)[Rows.STARTS :], sizes, strict=True)]
    out = [Ref(base, 0, 4096) for base in (Rows.A, Rows.B, Rows.C)]
    common = (*matrices[:4], mont, np.uint32(128))
    program = programs.vectors(BN254)
    rows = (*common, np.uint32(LONGEST_ROW), np.uint32(7), *out)
    assert each == Launch(0, program, "evaluate_rows", (1, 1, 1), 128, 0, rows)
    whole = (*common, matrices[4], np.uint32(7), *out)
    assert rest == ([Launch(0, program, "evaluate_long", (3, 1, 1), 128, 0, whole)] if longs else [])
    for one in (convert, each, *rest):
        assert isinstance(one, Launch)
        numbers = [type(a) for a in one.arguments if isinstance(a, np.generic)]
        assert numbers in ([np.int32, np.uint64], [np.uint32] * 3, [np.uint32] * 2)
