"""CUDA's driver for the native replay: functions that tell what they are called with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from cuzk_engine.native_replay import Driver

_CONTEXT = CFUNCTYPE(c_int, c_void_p)
_LAUNCH = CFUNCTYPE(c_int, c_void_p, *[c_uint] * 7, c_void_p, POINTER(POINTER(c_uint64)), c_void_p)
_RECORD = CFUNCTYPE(c_int, c_void_p, c_void_p)
_WAIT = CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint)
_FILL = CFUNCTYPE(c_int, c_uint64, c_ubyte, c_size_t, c_void_p)
_COPY = CFUNCTYPE(c_int, c_uint64, c_uint64, c_size_t, c_void_p)
_FETCH = CFUNCTYPE(c_int, c_void_p, c_uint64, c_size_t, c_void_p)
_ELAPSED = CFUNCTYPE(c_int, POINTER(c_float), c_void_p, c_void_p)
INVALID_HANDLE, NOT_READY = 400, 600


class FakeDriver:
    """``heard`` gets each call as a tuple, of which the first is "context", "launch", "record", "wait", "fill",
    "copy" or "fetch", and answers with the driver's code. ``sizes``: of a function's arguments, by its handle.
    ``elapsed``: the driver's code and milliseconds between two events. Calls:

    ("context", context)
    ("launch", function, stream, grid, block, shared, arguments)
    ("record", event, stream), ("wait", stream, event)
    ("fill", target, value, bytes, stream), ("copy", target, source, bytes, stream)
    ("fetch", target, source, bytes, stream)
    """

    def __init__(
        self,
        heard: Callable[..., int],
        sizes: Callable[[int], tuple[int, ...]],
        elapsed: Callable[[int, int], tuple[int, float]] = lambda first, second: (NOT_READY, 0.0),
    ) -> None:
        self._heard, self._sizes, self._elapsed = heard, sizes, elapsed
        self.calls = (
            _CONTEXT(lambda context: heard("context", context)),
            _LAUNCH(self._launch),
            _RECORD(lambda event, stream: heard("record", event, stream or 0)),
            _WAIT(lambda stream, event, flags: heard("wait", stream or 0, event) if flags == 0 else 1),
            _FILL(lambda target, value, nbytes, stream: heard("fill", target, value, nbytes, stream or 0)),
            _COPY(lambda target, source, nbytes, stream: heard("copy", target, source, nbytes, stream or 0)),
            _FETCH(lambda target, source, nbytes, stream: heard("fetch", target, source, nbytes, stream or 0)),
            _ELAPSED(self._between),
        )
        self.functions = Driver(*(ctypes.cast(call, c_void_p).value for call in self.calls))

    def _between(self, milliseconds: Any, first: int, second: int) -> int:
        code, milliseconds[0] = self._elapsed(first, second)
        return code

    def _launch(self, function: int, *words: Any) -> int:
        *sizes, shared, stream, parameters, extra = words
        values = [
            int.from_bytes(ctypes.string_at(parameters[k], size), "little")
            for k, size in enumerate(self._sizes(function))
        ]
        assert extra is None
        return self._heard("launch", function, stream or 0, tuple(sizes[:3]), tuple(sizes[3:]), shared, tuple(values))
