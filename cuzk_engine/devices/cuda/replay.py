"""Plays scripts on a card: one native call for all of their launches, which does not hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from cupy.cuda import runtime

from cuzk_engine.devices.cuda import driver
from cuzk_engine.devices.cuda.driver import Context
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.results import Row
from cuzk_engine.devices.cuda.script import Argument, Copy, Given, Launch, Record, Ref, Script, Wait, Zero
from cuzk_engine.native_replay import ARGUMENT, CONSTANT, OPERATION, OperationKind, PackedScript, Replay

_TO_HOST: Final = 2


class Frame(NamedTuple):
    """What a script comes after, events by their handles; the handle of the event that is recorded at its begin, and
    the one at its end, on its first stream; and what is fetched behind it."""

    before: dict[int, Any]
    begin: int
    end: Any
    fetch: Row | None

    def open(self, stream: Any) -> None:
        """For work that no script does."""
        for event in self.before.values():
            stream.wait_event(event)
        driver.record(self.begin, stream.ptr)

    def close(self, stream: Any) -> None:
        self.end.record(stream)
        if self.fetch is not None:
            fetch = self.fetch
            runtime.memcpyAsync(fetch.address, fetch.source, fetch.nbytes, _TO_HOST, stream.ptr)
            fetch.there.record(stream)


new_frame: Final[Callable[[tuple[object, ...]], Frame]] = partial(tuple.__new__, Frame)  # as `new_span`


class Tape:
    """A script with its kernels, ready to be played. Knows how much scratch it takes, and its marks."""

    __slots__ = ("inner", "marks", "packed", "ready", "scratch_bytes")

    def __init__(self, script: Script, packed: PackedScript) -> None:
        self.packed = packed
        self.scratch_bytes, self.marks, self.inner = script.scratch_bytes, script.marks, script.inner
        self.ready: dict[tuple[int, int], Replay] = {}  # by the counts of their frames

    def framed(self, waits: int, bases: int, fetched: int) -> PackedScript:
        """With a frame of so many events to wait for. Behind the script's own events come those that are recorded at
        its begin and at its end, then the others. ``fetched``: bytes, whose target and source are behind the script's
        ``bases``, and the event behind them is the last one; 0: nothing."""
        operations, arguments, functions = self.packed.arrays
        first = len(self.marks) + self.inner
        front, back = _Packing(), _Packing(len(arguments))
        for k in range(waits):
            front.add(OperationKind.WAIT, 0, first + 2 + k)
        front.add(OperationKind.RECORD, 0, first)
        back.add(OperationKind.RECORD, 0, first + 1)
        if fetched:
            places = Ref(bases, 0, fetched), Ref(bases + 1, 0, fetched)
            back.add(OperationKind.FETCH, 0, 0, places, nbytes=fetched)
            back.add(OperationKind.RECORD, 0, first + 2 + waits)
        parts, more = back.script().arrays[:2]
        rows = np.concatenate((front.script().arrays[0], operations, parts))
        return PackedScript(rows, np.concatenate((arguments, more)), functions)


class Player:
    """Of the device that is the current one when it is made. Not for several threads at once."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._context = kernels, Context()

    def tape(self, script: Script) -> Tape:
        """Loads the script's kernels."""
        packing = _Packing()
        for operation in script.operations:
            stream = operation.stream
            match operation:
                case Launch():
                    handle = int(self._kernels.function(operation.program, operation.name, operation.shared).ptr)
                    packing.launch(operation, handle)
                case Record(_, event):
                    packing.add(OperationKind.RECORD, stream, event)
                case Wait(_, event):
                    packing.add(OperationKind.WAIT, stream, event)
                case Zero(_, target):
                    packing.add(OperationKind.ZERO, stream, 0, (target,), nbytes=target.nbytes)
                case Copy(_, target, source):
                    packing.add(OperationKind.COPY, stream, 0, (target, source), nbytes=target.nbytes)
        return Tape(script, packing.script())

    def play(
        self,
        tape: Tape,
        streams: Sequence[int],
        events: Sequence[int],
        bases: Sequence[int],
        frame: Frame | None = None,
    ) -> None:
        """Enqueues everything; ``streams``, ``events`` and ``bases``: as many as the tape has. Raises CuPy's error of
        the driver; what came before it is enqueued then."""
        if frame is None:
            self._context.replay(tape.packed, streams, events, bases)
            return
        before, begin, end, fetch = frame
        key = len(before), 0 if fetch is None else fetch.nbytes
        ready = tape.ready.get(key)
        if ready is None:
            packed, more = tape.framed(key[0], len(bases), key[1]), 0 if fetch is None else 1
            counts = len(streams), len(events) + 2 + key[0] + more, len(bases) + 2 * more
            ready = tape.ready[key] = self._context.prepare(packed, *counts)
        if fetch is None:
            numbers = (*streams, *events, begin, end.ptr, *before, *bases)
        else:
            ends = fetch.there.ptr, *bases, fetch.address, fetch.source
            numbers = (*streams, *events, begin, end.ptr, *before, *ends)
        fault = ready.play(*numbers)
        if fault is not None:
            driver.check(fault)


class _Packing:
    """Rows of the arrays that the library wants. ``first``: the place of the first argument."""

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._operations: list[tuple[Any, ...]] = []
        self._arguments: list[tuple[int, int, int]] = []
        self._functions: dict[int, int] = {}  # handles to their places

    def script(self) -> PackedScript:
        functions = np.array(list(self._functions), np.uint64)
        return PackedScript(np.array(self._operations, OPERATION), np.array(self._arguments, ARGUMENT), functions)

    def launch(self, launch: Launch, handle: int) -> None:
        place = self._functions.setdefault(handle, len(self._functions))
        sizes = (launch.shared, launch.grid, (launch.block, 1, 1))
        self.add(OperationKind.LAUNCH, launch.stream, place, launch.arguments, sizes)

    def add(
        self,
        kind: OperationKind,
        stream: int,
        number: int,
        arguments: tuple[Argument, ...] = (),
        sizes: tuple[int, tuple[int, int, int], tuple[int, int, int]] = (0, (1, 1, 1), (1, 1, 1)),
        nbytes: int = 0,
    ) -> None:
        """``number``: of the function or event; ``sizes``: shared memory, grid and block."""
        self._operations.append(
            (kind, stream, number, self._first + len(self._arguments), len(arguments), *sizes, nbytes)
        )
        self._arguments += [_packed(argument) for argument in arguments]


def _packed(argument: Argument) -> tuple[int, int, int]:
    """Value, base and size."""
    if isinstance(argument, Ref):
        return argument.offset, argument.base, 8
    if isinstance(argument, Given):
        return 0, argument.base, 4
    size = argument.nbytes
    return int(argument) & ((1 << (8 * size)) - 1), CONSTANT, size
