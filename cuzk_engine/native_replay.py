"""The native library's replay of recorded launches: CUDA's driver is called by it, without the interpreter lock.

Methods of ``native.NativeLibrary``. Handles and addresses are the driver's; nothing here knows CUDA.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import chain, islice
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.native_call import NativeCalls, Signatures, refuse

_NOT_OVER: Final = -(1 << 63)
CONSTANT: Final = 0xFFFFFFFF
"""The base of an argument that is a number."""

ARGUMENT: Final = np.dtype([("value", "<u8"), ("base", "<u4"), ("size", "<u4")])
OPERATION: Final = np.dtype(
    [
        ("kind", "<u4"),
        ("stream", "<u4"),
        ("object", "<u4"),
        ("first_argument", "<u4"),
        ("argument_count", "<u4"),
        ("shared_bytes", "<u4"),
        ("grid", "<u4", 3),
        ("block", "<u4", 3),
        ("bytes", "<u8"),
    ]
)


class OperationKind(IntEnum):
    LAUNCH = 0
    RECORD = 1
    WAIT = 2
    ZERO = 3
    COPY = 4
    FETCH = 5


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """What the driver refused: its code, and the number of the operation (their count: to make the context current)."""

    code: int
    operation: int


class Driver(ctypes.Structure):
    """Addresses of the driver's functions."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "set_context",
            "launch_kernel",
            "record_event",
            "wait_event",
            "fill",
            "copy",
            "fetch",
            "elapsed_time",
        )
    )


class _Script(ctypes.Structure):
    _fields_ = (
        ("operations", c_void_p),
        ("arguments", c_void_p),
        ("functions", c_void_p),
        ("operation_count", c_uint64),
        ("argument_count", c_uint64),
        ("function_count", c_uint64),
    )


class _Values(ctypes.Structure):
    _fields_ = (
        ("context", c_uint64),
        ("streams", c_void_p),
        ("events", c_void_p),
        ("bases", c_void_p),
        ("stream_count", c_uint32),
        ("event_count", c_uint32),
        ("base_count", c_uint32),
    )


class PackedScript:
    """Operations (OPERATION), their arguments (ARGUMENT) and the functions' handles (uint64), as the library wants
    them."""

    def __init__(
        self, operations: npt.NDArray[Any], arguments: npt.NDArray[Any], functions: npt.NDArray[np.uint64]
    ) -> None:
        wanted = (OPERATION, ARGUMENT, np.dtype(np.uint64))
        self.arrays = operations, arguments, functions
        if any(array.dtype != dtype or array.ndim != 1 for array, dtype in zip(self.arrays, wanted, strict=True)):
            raise ValueError("a script's arrays are operations, arguments and functions")
        if not all(array.flags.c_contiguous for array in self.arrays):
            raise ValueError("the library needs contiguous arrays")
        pointers, counts = [a.ctypes.data for a in self.arrays], [len(a) for a in self.arrays]
        self.structure = _Script(*pointers, *counts)


class Replay:
    """A script with room for so many ``streams``, ``events`` and ``bases``. ``function``: the library's. Not for
    several threads at once."""

    __slots__ = ("_call", "_code", "_failed", "_put", "_script")

    def __init__(
        self,
        function: Callable[..., int],
        driver: Driver,
        script: PackedScript,
        context: int,
        streams: int,
        events: int,
        bases: int,
    ) -> None:
        count = streams + events + bases
        room = array("Q", bytes(8 * count))
        at = room.buffer_info()[0]
        values = _Values(context, at, at + 8 * streams, at + 8 * (streams + events), streams, events, bases)
        self._code, self._failed, self._script = c_int(), c_uint64(), script
        self._call = partial(function, *map(byref, (driver, script.structure, values, self._code, self._failed)))
        self._put = partial(Struct(f"={count}Q").pack_into, room, 0)

    def play(self, *numbers: int) -> ReplayFault | None:
        """Enqueues all operations on ``numbers``, the streams, then the events, then the addresses; what the driver
        refused, None where it refused nothing."""
        self._put(*numbers)
        status = self._call()
        if not status:
            return None
        refuse("replay", status)
        return ReplayFault(self._code.value, self._failed.value)


class ReplayFunctions(NativeCalls):
    """The part of ``native.NativeLibrary`` that this module describes."""

    def prepare_replay(
        self, driver: Driver, script: PackedScript, context: int, streams: int, events: int, bases: int
    ) -> Replay:
        """To be played again and again, with so many of each."""
        return Replay(self._function("replay"), driver, script, context, streams, events, bases)

    def replay(
        self,
        driver: Driver,
        script: PackedScript,
        context: int,
        streams: Sequence[int],
        events: Sequence[int],
        bases: Sequence[int],
    ) -> ReplayFault | None:
        """Enqueues all operations once on these streams, with these events and addresses; what the driver refused,
        None where it refused nothing."""
        replay = self.prepare_replay(driver, script, context, len(streams), len(events), len(bases))
        return replay.play(*streams, *events, *bases)

    def event_times(
        self, driver: Driver, context: int, base: int, groups: Sequence[Sequence[int]]
    ) -> list[list[int] | None] | ReplayFault:
        """Nanoseconds after the event ``base`` that the others took, group by group; None for a group that is not over.
        The last one of a group must be over no sooner than its others. Or what the driver refused."""
        # ctypes would make a type for each length.
        sizes, events = array("I", map(len, groups)), array("Q", chain.from_iterable(groups))
        ns, code = array("q", bytes(8 * len(events))), c_int()
        at, (sizes_at, count), ns_at = events.buffer_info()[0], sizes.buffer_info(), ns.buffer_info()[0]
        if not self._run("event_times", driver, context, base, at, sizes_at, count, ns_at, code):
            return ReplayFault(code.value, 0)
        left = iter(ns)
        return [None if (times := [*islice(left, size)])[0] == _NOT_OVER else times for size in sizes]


_P = c_void_p
REPLAY_SIGNATURES: Final[Signatures] = {
    "replay": (c_int, (POINTER(Driver), POINTER(_Script), POINTER(_Values), POINTER(c_int), POINTER(c_uint64))),
    "event_times": (c_int, (POINTER(Driver), c_uint64, c_uint64, _P, _P, c_uint64, _P, POINTER(c_int))),
}
