"""Plays scripts on a card: one native call for all of their launches, which does not hold the interpreter's lock."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine import native
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.script import Argument, Copy, Given, Launch, Record, Ref, Script, Wait, Zero
from cuzk_engine.native_replay import ARGUMENT, CONSTANT, OPERATION, Driver, OperationKind, PackedScript

_FUNCTIONS: Final = (
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuMemsetD8Async",
    "cuMemcpyDtoDAsync_v2",
)
_DRIVER: Final = "libcuda.so.1"


@functools.cache
def _driver() -> Driver:
    """The functions of the library that CuPy has loaded already."""
    library = ctypes.CDLL(_DRIVER)
    return Driver(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS))


class Frame:
    """What a script comes after, and the events that are recorded at its begin and its end, on its first stream."""

    __slots__ = ("before", "begin", "end")

    def __init__(self, before: Sequence[Any], begin: Any, end: Any) -> None:
        self.before, self.begin, self.end = before, begin, end

    def open(self, stream: Any) -> None:
        """For work that no script does."""
        for event in self.before:
            stream.wait_event(event)
        self.begin.record(stream)

    def close(self, stream: Any) -> None:
        self.end.record(stream)


class Tape:
    """A script with its kernels, ready to be played. Knows how much scratch it takes, and its marks."""

    __slots__ = ("_framed", "inner", "marks", "packed", "scratch_bytes")

    def __init__(self, script: Script, packed: PackedScript) -> None:
        self.packed = packed
        self.scratch_bytes, self.marks, self.inner = script.scratch_bytes, script.marks, script.inner
        self._framed: dict[int, PackedScript] = {}

    def framed(self, waits: int) -> PackedScript:
        """With a frame of so many events to wait for. Behind the script's own events come those that are recorded at
        its begin and at its end, then the others."""
        found = self._framed.get(waits)
        if found is None:
            operations, arguments, functions = self.packed.arrays
            first = len(self.marks) + self.inner
            front, back = _Packing(), _Packing()
            for k in range(waits):
                front.add(OperationKind.WAIT, 0, first + 2 + k)
            front.add(OperationKind.RECORD, 0, first)
            back.add(OperationKind.RECORD, 0, first + 1)
            parts = front.script().arrays[0], operations, back.script().arrays[0]
            found = self._framed[waits] = PackedScript(np.concatenate(parts), arguments, functions)
        return found


class Player:
    """Of the device that is the current one when it is made. Not for several threads at once."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        runtime.free(0)  # makes the device's context the thread's current one
        self._context = int(cupy.cuda.driver.ctxGetCurrent())
        self._library, self._driver = native.library(), _driver()

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
        """Enqueues everything. Raises CuPy's error of the driver; what came before it is enqueued then."""
        packed = tape.packed
        if frame is not None:
            packed = tape.framed(len(frame.before))
            events = [*events, frame.begin.ptr, frame.end.ptr, *(event.ptr for event in frame.before)]
        fault = self._library.replay(self._driver, packed, self._context, streams, events, bases)
        if fault is not None:
            cupy.cuda.driver.check_status(fault.code)


class _Packing:
    """Rows of the arrays that the library wants."""

    def __init__(self) -> None:
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
        self._operations.append((kind, stream, number, len(self._arguments), len(arguments), *sizes, nbytes))
        self._arguments += [_packed(argument) for argument in arguments]


def _packed(argument: Argument) -> tuple[int, int, int]:
    """Value, base and size."""
    if isinstance(argument, Ref):
        return argument.offset, argument.base, 8
    if isinstance(argument, Given):
        return 0, argument.base, 4
    size = argument.nbytes
    return int(argument) & ((1 << (8 * size)) - 1), CONSTANT, size
