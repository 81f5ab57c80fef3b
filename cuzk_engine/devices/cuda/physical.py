"""How much of a card's memory is free, asked without the interpreter's lock: the driver takes more than a millisecond
to tell, in which CuPy's own call would keep every other thread waiting."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import cupy
from cupy.cuda import runtime

_DRIVER: Final = "libcuda.so.1"


@functools.cache
def _ask() -> Any:
    """The function of the library that CuPy has loaded already."""
    function = ctypes.CDLL(_DRIVER).cuMemGetInfo_v2
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int
    return function


def memory_info() -> tuple[int, int]:
    """Bytes that are free on the current card, and all of it. Raises CuPy's error of the driver."""
    runtime.free(0)  # makes the device's context the thread's current one
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cupy.cuda.driver.check_status(_ask()(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value
