"""CUDA's driver as native calls use it: its functions, and a device's context; and what CuPy calls with the
interpreter's lock, called without it: the driver has locks of its own, which a replay in another thread may hold. The
device's context must be the thread's current one, as it is in a guard's blocks."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import cupy
from cupy.cuda import runtime

from cuzk_engine import native
from cuzk_engine.native_replay import Driver, PackedScript, Replay, ReplayFault

_FUNCTIONS: Final = (
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuMemsetD8Async",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuEventElapsedTime",
)
_DRIVER: Final = "libcuda.so.1"
_INVALID_VALUE, _NOT_READY = 1, 600
_MEMORY_TYPE: Final = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
_HOST: Final = 1  # CU_MEMORYTYPE_HOST
RESERVED, USED = 5, 7
"""CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and _USED_MEM_CURRENT: what a pool keeps, and what of it is handed out."""


@functools.cache
def functions() -> Driver:
    """Of the library that CuPy has loaded already."""
    library = ctypes.CDLL(_DRIVER)
    return Driver(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS))


def _function(name: str, *types: Any) -> Callable[[], Any]:
    """What finds a function of the driver, which is loaded when the first one is asked for."""

    @functools.cache
    def found() -> Any:
        function = getattr(ctypes.CDLL(_DRIVER), name)
        function.argtypes, function.restype = types, ctypes.c_int
        return function

    return found


_event_record = _function("cuEventRecord", ctypes.c_void_p, ctypes.c_void_p)
_event_query = _function("cuEventQuery", ctypes.c_void_p)
_pointer_attribute = _function("cuPointerGetAttribute", ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
_pool_attribute = _function("cuMemPoolGetAttribute", ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def record(event: int, stream: int) -> None:
    """Behind what the stream does."""
    code = _event_record()(event, stream)
    if code:
        cupy.cuda.driver.check_status(code)


def is_over(event: int) -> bool:
    code = _event_query()(event)
    if code and code != _NOT_READY:
        cupy.cuda.driver.check_status(code)
    return not code


def is_page_locked(address: int) -> bool:
    """Whether the driver knows the host memory at ``address`` as page-locked."""
    kind = ctypes.c_uint()
    code = _pointer_attribute()(ctypes.byref(kind), _MEMORY_TYPE, address)
    if code == _INVALID_VALUE:  # memory that it does not know
        return False
    if code:
        cupy.cuda.driver.check_status(code)
    return kind.value == _HOST


def pool_use(pool: int, what: int) -> int:
    """Bytes of a pool, ``USED`` or ``RESERVED``."""
    found = ctypes.c_uint64()
    code = _pool_attribute()(pool, what, ctypes.byref(found))
    if code:
        cupy.cuda.driver.check_status(code)
    return found.value


def check(fault: ReplayFault) -> None:
    """Raises what CuPy does for it."""
    cupy.cuda.driver.check_status(fault.code)


class Context:
    """That of the device that is the current one when it is made. Any thread may call; CuPy's errors of the driver are
    raised."""

    def __init__(self) -> None:
        runtime.free(0)  # makes the device's context the thread's current one
        self._context = int(cupy.cuda.driver.ctxGetCurrent())
        self._library, self._driver = native.library(), functions()

    def replay(self, script: PackedScript, streams: Sequence[int], events: Sequence[int], bases: Sequence[int]) -> None:
        """Enqueues everything. What came before a fault is enqueued then."""
        fault = self._library.replay(self._driver, script, self._context, streams, events, bases)
        if fault is not None:
            check(fault)

    def prepare(self, script: PackedScript, streams: int, events: int, bases: int) -> Replay:
        """A script to be played again and again, with so many of each."""
        return self._library.prepare_replay(self._driver, script, self._context, streams, events, bases)

    def event_times(self, base: int, groups: Sequence[Sequence[int]]) -> list[list[int] | None]:
        """See `ReplayFunctions.event_times`."""
        found = self._library.event_times(self._driver, self._context, base, groups)
        if isinstance(found, ReplayFault):
            check(found)
            return [None] * len(groups)
        return found
