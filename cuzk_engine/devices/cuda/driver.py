"""CUDA's driver as native calls use it: its functions, and a device's context. CuPy's own calls of some of them keep
the interpreter's lock while the driver waits for its own."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Final

import cupy
from cupy.cuda import runtime

from cuzk_engine import native
from cuzk_engine.native_replay import Driver, PackedScript, ReplayFault

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


@functools.cache
def functions() -> Driver:
    """Of the library that CuPy has loaded already."""
    library = ctypes.CDLL(_DRIVER)
    return Driver(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS))


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
            cupy.cuda.driver.check_status(fault.code)

    def event_times(self, base: int, groups: Sequence[Sequence[int]]) -> list[list[int] | None]:
        """See `ReplayFunctions.event_times`."""
        found = self._library.event_times(self._driver, self._context, base, groups)
        if isinstance(found, ReplayFault):
            cupy.cuda.driver.check_status(found.code)
            return [None] * len(groups)
        return found
