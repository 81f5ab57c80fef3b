"""MSMs of the CUDA device as they are replayed, on a fake of CuPy and of the driver: what is launched with which
addresses, behind what, with which events; and the driver's faults."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzk_engine.curves import BN254
from cuzk_engine.devices.base import CancelToken, Msm, Owner
from cuzk_engine.devices.cuda.msm_script import Base, On
from cuzk_engine.devices.cuda.script import Launch, Record, Ref, Wait
from cuzk_engine.devices.cuda.shape import aligned_size
from cuzk_engine.errors import DeviceFaultError, DeviceLostError, OutOfDeviceMemoryError
from cuzk_engine.events import Kind, Lane, Purpose, Span
from tests.devices.cuda import fake_cupy
from tests.devices.cuda.conftest import Bench
from tests.support.fake_driver import FakeDriver

ME, TOKEN = Owner("job", 0, 0), CancelToken()
N = 64


class Kernels:
    """Functions with handles of their own."""

    def __init__(self) -> None:
        self.handles: dict[tuple[Any, str], int] = {}
        self.shared: dict[int, int] = {}

    def prepare(self, *_: Any) -> int:
        return 0

    def function(self, program: Any, name: str, shared: int = 0) -> Any:
        handle = self.handles.setdefault((program, name), 0xF000 + len(self.handles))
        self.shared[handle] = max(shared, self.shared.get(handle, 0))
        return SimpleNamespace(ptr=handle)


class Sums:
    """A device with the real operations on a driver that keeps to the fake's order of streams: kernels read every
    block that they get an address of."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.runtime = bench, bench.runtime
        self.kernels = Kernels()
        self.heard: list[Any] = []
        self.fault = 0
        self.scripts: list[Any] = []
        bench.driver = FakeDriver(self._hear, self._sizes, bench.between)
        module = importlib.import_module("cuzk_engine.devices.cuda.replay")
        tape = module.Player.tape
        monkeypatch.setattr(module.Player, "tape", lambda player, s: self.scripts.append(s) or tape(player, s))
        self.device = bench.open()
        operations = importlib.import_module("cuzk_engine.devices.cuda.operations")
        self.device._operations = operations.Operations(self.kernels, self.device._factors)
        data = np.zeros((N, 32), np.uint8)
        self.scalars = self.device.allocate(data.nbytes, Purpose.WITNESS, ME)
        self.ready = self.device.upload(self.scalars, data, Kind.UPLOAD_WITNESS, ME)

    def launch(self, points: Any, offset: int = 0, **options: Any) -> Any:
        with self.device.allocate(BN254.g1_bytes, Purpose.RESULT, ME) as result:
            operation = Msm(BN254, 1, points, self.scalars, offset, len(points), result, **options)
            self.result = result.address
            return self.device.launch(operation, ME, TOKEN, self.ready)

    def script(self) -> list[Any]:
        """The calls of the only script that was played, without its frame: waits and an event before it; behind it an
        event, the way of the result to the host, and another event."""
        calls = [call for call in self.heard if call[0] != "context"]
        first = next(k for k, call in enumerate(calls) if call[0] != "wait")
        begin, (end, fetch, there) = calls[first], calls[-3:]
        assert [call[0] for call in (begin, end, fetch, there)] == ["record", "record", "fetch", "record"]
        stream = self.device._slots._places[0].stream.ptr
        assert {call[1] for call in calls[:first]} | {call[2] for call in (begin, end, there)} == {stream}
        assert len({call[2] for call in calls[:first]}) == first > 0, "an event to wait for twice"
        assert all(self.runtime.events[call[1]].timed for call in (begin, end, there))
        assert (fetch[2:], len({begin[1], end[1], there[1]})) == ((self.result, BN254.g1_bytes, stream), 3)
        assert any(start <= fetch[1] < start + n for start, n in self.runtime.locked.items()), "memory that may go"
        return calls[first + 1 : -3]

    def close(self) -> None:
        self.device._slots.settle()
        self.scalars.free()
        self.device.release_residents()
        assert self.device.memory().by_purpose == {"context": self.device.context_bytes}

    def _sizes(self, function: int) -> tuple[int, ...]:
        """Of the arguments, as the scripts have them."""
        wanted = {handle: key for key, handle in self.kernels.handles.items()}[function]
        for script in self.scripts:
            for one in script.operations:
                if isinstance(one, Launch) and (one.program, one.name) == wanted:
                    return tuple(
                        a.nbytes if isinstance(a, np.generic) else 8 if isinstance(a, Ref) else 4 for a in one.arguments
                    )
        raise AssertionError("a function of no script")

    def _hear(self, *call: Any) -> int:
        if self.fault and call[0] == "launch":
            return self.fault
        self.heard.append(call)
        runtime = self.runtime
        match call:
            case ("launch", _, stream, _, _, _, arguments):
                blocks = [b for b in arguments if any(a <= b < a + k.nbytes for a, k in runtime.blocks.items())]
                writes = tuple(b for b in blocks if b == self.result)
                runtime.put(runtime.streams[stream], lambda: None, tuple({*blocks} - {*writes}), writes)
            case ("fill", target, 0, nbytes, stream):
                assert runtime.block(target) is runtime.block(target + nbytes - 1)
                runtime.put(runtime.streams[stream], lambda: None, (target,))
            case ("copy", target, source, _, stream):
                runtime.put(runtime.streams[stream], lambda: None, (target, source))
            case ("fetch", target, source, nbytes, stream):
                runtime.memcpyAsync(target, source, nbytes, fake_cupy.TO_HOST, stream)
            case ("record", event, stream):
                pending = [handle for one in self.device._timeline.pending for handle in one.handles]
                assert event not in pending, "an event whose time was not read yet"
                runtime.events[event].record(runtime.streams[stream])
            case ("wait", stream, event):
                runtime.streams[stream].wait_event(runtime.events[event])
        return 0


@pytest.fixture
def sums(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sums]:
    made = Sums(bench, monkeypatch)
    yield made
    made.device.close()


def some_points(n: int = N, every: int = 1, *, fixed: bool = True) -> np.ndarray:
    data = np.zeros((n, BN254.g1_bytes), np.uint8)
    data[::every] = 1
    data.flags.writeable = not fixed
    return data


def with_bytes_that_stay(points: np.ndarray) -> np.ndarray:
    """Over memory that nobody can write to."""
    return np.frombuffer(points.tobytes(), np.uint8).reshape(points.shape)


def test_what_was_recorded_is_what_is_called(sums: Sums) -> None:
    points = with_bytes_that_stay(some_points())
    sums.launch(points).wait()
    (script,) = sums.scripts
    streams = sums.device._slots._places[0].streams.handles(sums.device._slots._places[0].stream)
    assert sums.heard[0] == ("context", fake_cupy.CONTEXT)
    assert len(sums.script()) == len(script.operations)
    names = {handle: name for (_, name), handle in sums.kernels.handles.items()}
    for call, operation in zip(sums.script(), script.operations, strict=True):
        if isinstance(operation, Launch):
            assert (names[call[1]], call[2]) == (operation.name, streams[operation.stream])
            assert (call[3], call[4], call[5]) == (operation.grid, (operation.block, 1, 1), operation.shared)
            assert operation.shared <= sums.kernels.shared[call[1]]
            values = [int(a) for a in operation.arguments if isinstance(a, np.generic)]
            assert [v for v, a in zip(call[6], operation.arguments, strict=True) if isinstance(a, np.generic)] == values
        elif isinstance(operation, (Record, Wait)):
            assert streams[operation.stream] in call[1:]
    sums.close()


def test_addresses(sums: Sums) -> None:
    """Of the scalars from the offset on, and of a sum behind the scratch."""
    sums.launch(with_bytes_that_stay(some_points(40)), offset=24)
    (script,) = sums.scripts
    (scratch,) = sums.device._slots._slots[0].buffers
    start = scratch.address
    assert scratch.nbytes == script.scratch_bytes + aligned_size(2 * BN254.g1_bytes)
    places = {
        Base.SCRATCH: start,
        Base.SUM: start + script.scratch_bytes,
        Base.SCALARS: sums.scalars.address + 24 * 32,
        Base.RESULT: sums.result,
    }
    seen = set()
    for call, operation in zip(sums.script(), script.operations, strict=True):
        for value, argument in zip(call[6], operation.arguments, strict=True) if call[0] == "launch" else ():
            if isinstance(argument, Ref) and argument.base != Base.POINTS:
                assert value == places[Base(argument.base)] + argument.offset
                seen.add(argument.base)
    assert seen == set(places)
    sums.close()


@pytest.mark.parametrize(("every", "travels"), [(2, False), (1, True)])
def test_scalars_are_picked(sums: Sums, every: int, travels: bool) -> None:
    """Those of points that are there, or of points that travel; in the bytes that were planned."""
    points = some_points(32, every)
    points = points if travels else with_bytes_that_stay(points)
    present = 32 // every
    need = sums.device.msm_need(BN254, 1, 32, present, resident=not travels)
    sums.launch(points, offset=5, resident=not travels)
    gather = sums.script()[0]
    names = {handle: name for (_, name), handle in sums.kernels.handles.items()}
    assert names[gather[1]] == "gather_scalars"
    scalars, index, first, count, bits, there, words, out = gather[6]
    assert (scalars, first, count, bits) == (sums.scalars.address, 5, present, 0)
    assert (index == 0, there == 0, words) == ((True, False, 8) if travels else (False, True, 0))
    held = sums.device.memory().by_purpose
    assert held["msm"] == need.scratch
    assert sums.device._slots._slots[0].buffers[-1].address == out
    sums.close()


def test_a_form_is_recorded_once(sums: Sums) -> None:
    points, fewer = with_bytes_that_stay(some_points()), with_bytes_that_stay(some_points(20))
    for _ in range(3):
        sums.launch(points)
        sums.launch(fewer, offset=3).wait()
    assert len(sums.scripts) == 2
    sums.close()


def test_events_are_used_again_when_they_were_read(sums: Sums) -> None:
    """Several sums under way, then others: never one that a span still waits for, as the driver checks; and not new
    ones each time."""
    points = with_bytes_that_stay(some_points())
    made = []
    for _ in range(4):
        events = [sums.launch(points) for _ in range(3)]
        for event in events:
            event.wait()
        made.append(len(sums.runtime.events))
    assert made[1] == made[2] == made[3]
    spans = [e for e in sums.bench.events if isinstance(e, Span) and e.lane == Lane.COMPUTE]
    kinds = [span.kind for span in spans]
    each = len(sums.scripts[0].marks) + 1
    fetched = [e for e in sums.bench.events if isinstance(e, Span) and e.lane == Lane.D2H]
    assert [(e.kind, e.bytes, e.pinned) for e in fetched] == [(Kind.DOWNLOAD_RESULT, BN254.g1_bytes, True)] * 12
    assert len(kinds) == 12 * each
    assert kinds[:each] == kinds[-each:]
    assert {Kind.MSM_DIGITS, Kind.MSM_ACCUMULATE, Kind.MSM_REDUCE} == set(kinds)
    assert all(span.start_ns <= span.end_ns for span in spans)
    sums.close()


def test_without_a_sink_events_are_free_at_once(sums: Sums) -> None:
    timeline = importlib.import_module("cuzk_engine.devices.cuda.timeline").Timeline("cuda:0", None)
    marks, end = timeline.moments.marks(2), timeline.moments.end()
    timeline.add(marks, (end,), (), ME)
    assert timeline.moments.marks(2) is marks
    assert timeline.moments.marks(2) is not marks
    sums.close()


def test_only_marks_are_timed(sums: Sums) -> None:
    sums.launch(with_bytes_that_stay(some_points()))
    (script,) = sums.scripts
    recorded = [call[1] for call in sums.script() if call[0] == "record"]
    timed = [sums.runtime.events[event].timed for event in recorded]
    assert timed.count(True) == len(script.marks)
    assert timed.count(False) == script.inner
    assert len(set(recorded)) == len(recorded)
    assert On.CALLER == 0
    sums.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(2, OutOfDeviceMemoryError), (700, DeviceLostError), (719, DeviceLostError), (1, DeviceFaultError)],
)
def test_the_drivers_faults_are_told_apart(sums: Sums, code: int, kind: type[Exception]) -> None:
    sums.fault = code
    with pytest.raises(kind) as caught:
        sums.launch(with_bytes_that_stay(some_points()))
    assert type(caught.value) is kind


def test_after_a_fault_the_next_one_works(sums: Sums) -> None:
    points = with_bytes_that_stay(some_points())
    sums.fault = 1
    with pytest.raises(DeviceFaultError):
        sums.launch(points)
    sums.fault = 0
    sums.launch(points).wait()
    assert len([call for call in sums.heard if call[0] == "launch"]) > 10
    sums.close()


def test_events_outlive_moments_that_are_garbage(sums: Sums) -> None:
    """As what a traceback refers to, which the collector takes all at once."""
    moments = importlib.import_module("cuzk_engine.devices.cuda.moments").Moments()
    circle: list[Any] = [moments.end()]
    handle = circle[0].ptr
    circle.append(circle)
    del circle
    gc.collect()
    assert moments.end().ptr == handle
    assert handle in sums.runtime.events
    sums.close()


def test_no_points_no_launch(sums: Sums) -> None:
    sums.launch(with_bytes_that_stay(some_points(0))).wait()
    assert not [call for call in sums.heard if call[0] != "context"]
    sums.close()


def test_scalars_that_are_not_there(sums: Sums) -> None:
    with pytest.raises(ValueError, match="a buffer of 2048 bytes, the operation needs 2080"):
        sums.launch(with_bytes_that_stay(some_points(10)), offset=55)
    sums.scalars.is_reversed = True
    with pytest.raises(ValueError, match="part of a vector in bit-reversed order"):
        sums.launch(with_bytes_that_stay(some_points(10)))
    sums.scalars.is_reversed, sums.scalars.pending = False, 3
    with pytest.raises(ValueError, match="lack a factor"):
        sums.launch(with_bytes_that_stay(some_points(10)))
    assert not [call for call in sums.heard if call[0] != "context"]
