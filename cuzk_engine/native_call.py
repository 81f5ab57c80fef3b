"""How functions of the native library are called: types, arguments, statuses; what ``native`` and its parts share."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import POINTER, c_int64, c_uint32, c_void_p
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cuzk_engine.errors import CancelledError

Data: TypeAlias = Any
"""A C-contiguous NumPy array, an object with the buffer protocol, an address, or None for a null pointer."""

Signatures: TypeAlias = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""Name without ``cuzk_`` → result and arguments, as ctypes types."""


class Field(IntEnum):
    FR = 0
    FQ = 1
    FQ2 = 2


class Group(IntEnum):
    G1 = 1
    G2 = 2


class FieldOp(IntEnum):
    ADD = 0
    SUB = 1
    MUL = 2
    SQR = 3
    NEG = 4
    INV = 5
    TO_MONT = 6
    FROM_MONT = 7


class PointOp(IntEnum):
    ADD = 0
    DOUBLE = 1
    NEG = 2
    MUL = 3


class PointFault(IntEnum):
    COORDINATE = 1
    OFF_CURVE = 2
    SUBGROUP = 3
    FLAGS = 4
    INFINITY = 5


class NttFlags(IntFlag):
    FORWARD = 0
    INVERSE = 1
    IN_REVERSED = 2
    OUT_REVERSED = 4


class SpanKind(IntEnum):
    MSM_DIGITS = 1
    MSM_ACCUMULATE = 2
    MSM_REDUCE = 3
    NTT = 4
    COSET = 5
    SPMV = 6
    POINTWISE = 7
    CHECK = 8
    PAIRING = 9


class Status(IntEnum):
    OK = 0
    ARGUMENT = 1
    SCRATCH = 2
    CANCELLED = 3
    DATA = 4


class NativeCallError(Exception):
    """A call broke the contract of cuzk.h: a fault of the program, not of its user."""

    def __init__(self, function: str, status: Status) -> None:
        self.function, self.status = function, status
        super().__init__(f"{function}: {status.name.lower()} refused")


_MEMORY_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class NativeSpan:
    """One phase of a call; CLOCK_MONOTONIC nanoseconds."""

    kind: SpanKind
    detail: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class PointProblem:
    """The first point that is not what it must be."""

    index: int
    fault: PointFault


@dataclass(frozen=True, slots=True)
class CoefficientFacts:
    """What a scan of section 4 of a zkey found."""

    is_sorted: bool
    nonzeros_a: int
    nonzeros_b: int


class _Span(ctypes.Structure):
    _fields_ = (("start_ns", c_int64), ("end_ns", c_int64), ("kind", c_uint32), ("detail", c_uint32))


class _Call(ctypes.Structure):
    _fields_ = (
        ("threads", c_uint32),
        ("flags", c_uint32),
        ("cancel", c_void_p),
        ("spans", POINTER(_Span)),
        ("span_capacity", c_uint32),
        ("span_count", c_uint32),
    )


class Call:
    """How one native call runs, and afterwards what happened in it. Not for two calls at once."""

    def __init__(self, threads: int = 0, cancel_address: int = 0, span_capacity: int = 0) -> None:
        """``threads`` 0: all processors of the affinity mask. ``cancel_address``: an int32 that turns non-zero.
        ``span_capacity``: how many phases are kept."""
        self._call = _Call(threads, 0, cancel_address or None)
        self._spans = None
        if span_capacity:
            self._spans = (_Span * span_capacity)()
            self._call.spans, self._call.span_capacity = self._spans, span_capacity
        self.reference = ctypes.byref(self._call)

    def spans(self) -> list[NativeSpan]:
        """Phases of the last call, in order of their end."""
        return list(self._iterate())

    def _iterate(self) -> Iterator[NativeSpan]:
        for span in (self._spans or ())[: self._call.span_count]:
            yield NativeSpan(SpanKind(span.kind), span.detail, span.start_ns, span.end_ns)


class NativeCalls:
    """The calls that the library's functions are made of."""

    def __init__(self, dll: ctypes.CDLL, signatures: Signatures) -> None:
        self._dll = dll
        for name, (result, arguments) in signatures.items():
            function = getattr(dll, f"cuzk_{name}")
            function.restype = result
            function.argtypes = arguments

    def number(self, name: str, *arguments: int) -> int:
        """Calls a function that returns a number."""
        return int(getattr(self._dll, f"cuzk_{name}")(*arguments))

    def invoke(self, name: str, *arguments: Any) -> bool:
        """Calls a function that returns a status, with data and a ``Call`` as they are: True for CUZK_OK, False for
        CUZK_E_DATA."""
        return self._run(name, *map(_argument, arguments))

    def invoke_sound(self, name: str, *arguments: Any) -> None:
        """The same where CUZK_E_DATA is a fault of the program."""
        if not self.invoke(name, *arguments):
            raise NativeCallError(f"cuzk_{name}", Status.DATA)

    def _run(self, name: str, *arguments: Any) -> bool:
        """True for CUZK_OK, False for CUZK_E_DATA."""
        code = self._function(name)(*arguments)
        if not code:
            return True
        refuse(name, code)
        return False

    def _function(self, name: str) -> Any:
        return getattr(self._dll, f"cuzk_{name}")


def refuse(name: str, code: int) -> None:
    """Raises what a status other than CUZK_OK means, but for CUZK_E_DATA."""
    status = Status(code)
    if status is Status.CANCELLED:
        raise CancelledError("cancelled")
    if status in (Status.ARGUMENT, Status.SCRATCH):
        raise NativeCallError(f"cuzk_{name}", status)


def memory_threads(threads: int) -> int:
    """How many of so many threads (0: all) plain reading and writing of memory is worth: more do not make it faster,
    and take bandwidth from a device's copies."""
    return min(threads or _MEMORY_THREADS, _MEMORY_THREADS)


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Fresh memory at a multiple of 64, as vectors and scratch need it; not zeroed."""
    memory = np.empty(nbytes + 64, np.uint8)
    start = -address_of(memory) % 64
    return memory[start : start + nbytes]


def address_of(data: npt.NDArray[Any]) -> int:
    """Without the object that NumPy makes for ctypes."""
    return int(data.__array_interface__["data"][0])


def _argument(value: Any) -> Any:
    if isinstance(value, Call):
        return value.reference
    return pointer(value) if isinstance(value, (np.ndarray, bytes, bytearray, memoryview)) else value


def reference(call: Call | None) -> Any:
    return None if call is None else call.reference


def pointer(data: Data) -> int | bytes | None:
    if data is None or isinstance(data, (int, bytes)):  # of bytes ctypes passes the address
        return data
    if isinstance(data, np.ndarray):
        if not data.flags.c_contiguous:
            raise ValueError("the library needs a contiguous array")
        return address_of(data)
    return int(np.frombuffer(data, np.uint8).ctypes.data)
