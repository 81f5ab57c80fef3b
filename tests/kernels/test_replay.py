"""Recorded launches through a driver that only listens."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from cuzk_engine.native import NativeCallError, NativeLibrary, Status
from cuzk_engine.native_replay import ARGUMENT, CONSTANT, OPERATION, Driver, OperationKind, PackedScript, ReplayFault
from tests.support.fake_driver import NOT_READY, FakeDriver

CONTEXT = 0xC0
STREAMS, EVENTS = (0x100, 0, 0x300), (0xE0, 0xE1)
BASES = (1 << 40, 7 << 50, 12)
FUNCTIONS = (0xF0, 0xF1)
ONE = (1, 1, 1)

LAUNCH, RECORD, WAIT, ZERO, COPY, FETCH = OperationKind
ARGUMENTS = (
    (16, 0, 8),  # an address
    (0xFFFFFFFF, CONSTANT, 4),
    (1 << 63, CONSTANT, 8),
    (3, 2, 4),  # a number
    (0, 1, 8),
    (64, 0, 8),
    (128, 1, 8),
)
OPERATIONS = (
    (LAUNCH, 0, 1, 0, 4, 4096, (7, 2, 3), (128, 1, 1), 0),
    (RECORD, 0, 1, 0, 0, 0, ONE, ONE, 0),
    (WAIT, 2, 1, 0, 0, 0, ONE, ONE, 0),
    (ZERO, 1, 0, 5, 1, 0, ONE, ONE, 1 << 33),
    (COPY, 2, 0, 5, 2, 0, ONE, ONE, 77),
    (LAUNCH, 1, 0, 7, 0, 0, ONE, (1024, 1, 1), 0),
    (FETCH, 2, 0, 5, 2, 0, ONE, ONE, 192),
)
HEARD = [
    ("context", CONTEXT),
    ("launch", 0xF1, 0x100, (7, 2, 3), (128, 1, 1), 4096, (BASES[0] + 16, 0xFFFFFFFF, 1 << 63, 15)),
    ("record", 0xE1, 0x100),
    ("wait", 0x300, 0xE1),
    ("fill", BASES[0] + 64, 0, 1 << 33, 0),
    ("copy", BASES[0] + 64, BASES[1] + 128, 77, 0x300),
    ("launch", 0xF0, 0, (1, 1, 1), (1024, 1, 1), 0, ()),
    ("fetch", BASES[0] + 64, BASES[1] + 128, 192, 0x300),
]


class Bench:
    """``refused``: the number of the call that fails, with ``code``."""

    def __init__(self, native: NativeLibrary, refused: int = -1, code: int = 0) -> None:
        self.native, self.refused, self.code = native, refused, code
        self.heard: list[Any] = []
        self.threads: set[int] = set()
        sizes = {0xF0: (), 0xF1: (8, 4, 8, 4)}
        self.driver = FakeDriver(self._hear, lambda function: sizes[function])

    def _hear(self, *call: Any) -> int:
        self.heard.append(call)
        self.threads.add(threading.get_ident())
        return self.code if len(self.heard) - 1 == self.refused else 0

    def replay(
        self,
        operations: tuple[Any, ...] = OPERATIONS,
        arguments: tuple[Any, ...] = ARGUMENTS,
        functions: tuple[int, ...] = FUNCTIONS,
        bases: tuple[int, ...] = BASES,
        events: tuple[int, ...] = EVENTS,
        context: int = CONTEXT,
    ) -> ReplayFault | None:
        script = pack(operations, arguments, functions)
        return self.native.replay(self.driver.functions, script, context, STREAMS, events, bases)


def pack(operations: tuple[Any, ...], arguments: tuple[Any, ...], functions: tuple[int, ...]) -> PackedScript:
    rows, words = np.array(list(operations), OPERATION), np.array(list(arguments), ARGUMENT)
    return PackedScript(rows, words, np.array(functions, np.uint64))


def test_everything_is_called_in_its_order(default_native: NativeLibrary) -> None:
    bench = Bench(default_native)
    for _ in range(2):
        assert bench.replay() is None
    assert bench.heard == HEARD * 2
    assert bench.threads == {threading.get_ident()}


def test_other_bases(default_native: NativeLibrary) -> None:
    bench = Bench(default_native)
    assert bench.replay(bases=(1 << 20, 1 << 21, 0)) is None
    assert bench.heard[1][-1] == ((1 << 20) + 16, 0xFFFFFFFF, 1 << 63, 3)
    assert bench.heard[5][1:3] == ((1 << 20) + 64, (1 << 21) + 128)


@pytest.mark.parametrize("number", range(len(HEARD)))
def test_it_stops_at_the_first_fault(default_native: NativeLibrary, number: int) -> None:
    bench = Bench(default_native, number, 700)
    operation = len(OPERATIONS) if number == 0 else number - 1
    assert bench.replay() == ReplayFault(700, operation)
    assert bench.heard == HEARD[: number + 1]


def test_an_empty_script(default_native: NativeLibrary) -> None:
    bench = Bench(default_native)
    assert bench.replay((), (), ()) is None
    assert bench.heard == [("context", CONTEXT)]


def changed(number: int, **fields: Any) -> dict[str, Any]:
    names = OPERATION.names
    assert names is not None
    one = dict(zip(names, OPERATIONS[number], strict=True)) | fields
    return {"operations": (*OPERATIONS[:number], tuple(one.values()), *OPERATIONS[number + 1 :])}


def other(number: int, *words: int) -> dict[str, Any]:
    return {"arguments": (*ARGUMENTS[:number], words, *ARGUMENTS[number + 1 :])}


REFUSED = {
    "kind": changed(0, kind=6),
    "stream": changed(3, stream=3),
    "function": changed(0, object=2),
    "event": changed(1, object=2),
    "event to wait for": changed(2, object=2),
    "first argument": changed(5, first_argument=8),
    "arguments that overlap the end": changed(0, first_argument=5, argument_count=3),
    "more arguments than there are": changed(0, argument_count=0xFFFFFFFF),
    "an empty grid": changed(0, grid=(1, 0, 1)),
    "an empty block": changed(0, block=(0, 1, 1)),
    "a record with arguments": changed(1, argument_count=1),
    "a fill without a target": changed(3, argument_count=0),
    "a copy without a source": changed(4, argument_count=1),
    "a fetch without a source": changed(6, argument_count=1),
    "a copy to a number": other(5, 64, CONSTANT, 8),
    "size": other(0, 16, 0, 2),
    "base": other(0, 16, 3, 8),
    "a constant that does not fit": other(1, 1 << 32, CONSTANT, 4),
    "an address that wraps": other(0, (1 << 64) - 1, 0, 8),
    "a number that does not fit": {"bases": (*BASES[:2], 0xFFFFFFFE)},
    "a large number": {"bases": (*BASES[:2], 1 << 32)},
    "no base": {"bases": BASES[:2]},
    "a null base": {"bases": (0, *BASES[1:])},
    "a null event": {"events": (0xE0, 0)},
    "no event": {"events": ()},
    "a null function": {"functions": (0xF0, 0)},
    "no function": {"functions": ()},
    "a null context": {"context": 0},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_before_anything_is_called(default_native: NativeLibrary, what: str) -> None:
    bench = Bench(default_native)
    with pytest.raises(NativeCallError) as caught:
        bench.replay(**REFUSED[what])
    assert caught.value.status is Status.ARGUMENT
    assert not bench.heard


def test_too_many_arguments(default_native: NativeLibrary) -> None:
    bench = Bench(default_native)
    arguments = ((1, CONSTANT, 4),) * 65
    operation = (LAUNCH, 0, 0, 0, 64, 0, ONE, ONE, 0)
    bench.driver._sizes = lambda function: (4,) * 64
    assert bench.replay((operation,), arguments) is None
    assert bench.heard[1][-1] == (1,) * 64
    with pytest.raises(NativeCallError):
        bench.replay(((LAUNCH, 0, 0, 0, 65, 0, ONE, ONE, 0),), arguments)


@pytest.mark.parametrize("name", [name for name, _ in Driver._fields_])
def test_a_driver_that_lacks_a_function(default_native: NativeLibrary, name: str) -> None:
    bench = Bench(default_native)
    setattr(bench.driver.functions, name, None)
    with pytest.raises(NativeCallError):
        bench.replay()
    assert not bench.heard


class Clock:
    """A driver whose events happened at some milliseconds, or have not happened yet."""

    def __init__(self, native: NativeLibrary, at: dict[int, float]) -> None:
        self.native, self.at = native, at
        self.fault = 0
        self.asked: list[int] = []
        self.driver = FakeDriver(lambda *call: 0, lambda function: (), self._elapsed)

    def _elapsed(self, first: int, second: int) -> tuple[int, float]:
        assert first == 0xBA
        self.asked.append(second)
        if self.fault:
            return self.fault, 0.0
        return (0, self.at[second]) if second in self.at else (NOT_READY, 0.0)

    def times(self, *groups: tuple[int, ...]) -> list[list[int] | None] | ReplayFault:
        return self.native.event_times(self.driver.functions, CONTEXT, 0xBA, groups)


def test_times_of_events(default_native: NativeLibrary) -> None:
    """As `int(milliseconds * 1e6)` of the driver's 32-bit floats."""
    clock = Clock(default_native, {1: 0.1, 2: 1234.5678, 3: -7.25, 4: 0.0, 6: 9000.125})
    at = {event: int(float(np.float32(ms)) * 1e6) for event, ms in clock.at.items()}
    assert clock.times((1, 2), (3,), (4, 6, 1)) == [[at[1], at[2]], [at[3]], [at[4], at[6], at[1]]]
    assert clock.times() == []


def test_the_end_of_a_group_is_asked_first(default_native: NativeLibrary) -> None:
    clock = Clock(default_native, {1: 1.0, 2: 2.0, 3: 3.0})
    assert clock.times((1, 9), (2, 3), (9, 3)) == [None, [2_000_000, 3_000_000], None]
    assert clock.asked == [9, 3, 2, 3, 9]


def test_a_fault_of_the_driver_is_told(default_native: NativeLibrary) -> None:
    clock = Clock(default_native, {})
    clock.fault = 700
    assert clock.times((1, 2), (3,)) == ReplayFault(700, 0)
    assert clock.asked == [2]


@pytest.mark.parametrize("groups", [((1, 0),), ((),), ((1,), ())])
def test_groups_that_are_none(default_native: NativeLibrary, groups: tuple[tuple[int, ...], ...]) -> None:
    clock = Clock(default_native, {1: 1.0})
    with pytest.raises(NativeCallError):
        clock.times(*groups)
    assert not clock.asked


def test_arrays_are_what_they_must_be() -> None:
    operations, arguments, functions = np.zeros(2, OPERATION), np.zeros(2, ARGUMENT), np.zeros(2, np.uint64)
    PackedScript(operations, arguments, functions)
    for wrong in ((arguments, operations, functions), (operations, arguments, functions.astype(np.uint32))):
        with pytest.raises(ValueError, match="operations, arguments and functions"):
            PackedScript(*wrong)
    with pytest.raises(ValueError, match="contiguous"):
        PackedScript(operations, arguments, np.zeros(4, np.uint64)[::2])
