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


class Tape:
    """A script with its kernels, ready to be played. Knows how much scratch it takes, and its marks."""

    __slots__ = ("inner", "marks", "packed", "scratch_bytes")

    def __init__(self, script: Script, packed: PackedScript) -> None:
        self.packed = packed
        self.scratch_bytes, self.marks, self.inner = script.scratch_bytes, script.marks, script.inner


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

    def play(self, tape: Tape, streams: Sequence[int], events: Sequence[int], bases: Sequence[int]) -> None:
        """Enqueues everything. Raises CuPy's error of the driver; what came before it is enqueued then."""
        fault = self._library.replay(self._driver, tape.packed, self._context, streams, events, bases)
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
