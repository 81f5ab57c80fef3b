"""Points and coefficients of a key to the device, from wherever they lie.

From page-locked memory they are copied as they are. A mapped file is pageable: the driver would copy it through memory
of its own, one thread and no overlap, so two page-locked blocks do it here, one filled while the other one travels.
What is left out on the way (points at infinity) never reaches the device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import runtime

from cuzk_engine.devices.base import Bytes, StagingBuffer
from cuzk_engine.devices.cuda import driver

Numbers = npt.NDArray[np.uint32]

BLOCK: Final = 16 << 20  # pieces of that size travel at full rate
_TO_DEVICE: Final = 1
_ROWS: Final = 1 << 16  # looked at at a time, so that they stay in a core's cache
_THREADS: Final = 4
_LARGE: Final = 4 * BLOCK  # below it threads are not worth their start


def is_pinned(data: Bytes) -> bool:
    """Whether the driver knows these host bytes as page-locked."""
    if data.size == 0:
        return False
    return driver.is_page_locked(data.ctypes.data)


def present_rows(points: Bytes) -> Numbers | None:
    """The numbers of the points (n, point bytes) that are not all zero, that is at infinity; None where leaving the
    others out saves little: below a quarter."""
    starts = range(0, len(points), _ROWS)
    if points.nbytes < _LARGE:
        found = [_present(points, start) for start in starts]
    else:
        with ThreadPoolExecutor(_threads(), "points") as pool:
            found = list(pool.map(lambda start: _present(points, start), starts))
    count = sum(numbers.size for numbers in found)
    if 4 * count > 3 * len(points):
        return None
    return np.concatenate(found) if found else np.zeros(0, np.uint32)


def _present(points: Bytes, start: int) -> Numbers:
    rows = points[start : start + _ROWS]
    # One word tells nearly all that are not; only what looks empty is looked at in full.
    present = rows[:, :8].copy().view(np.uint64)[:, 0] != 0
    empty = np.flatnonzero(~present)
    present[empty] = rows[empty].view(np.uint64).any(axis=1)
    return (np.flatnonzero(present) + start).astype(np.uint32)


class Feeder:
    """Any thread may call; the device must be the current one. ``staging`` gives page-locked memory that stays."""

    def __init__(self, staging: Callable[[int], StagingBuffer]) -> None:
        self._staging = staging
        self._lock = threading.Lock()
        self._blocks: list[tuple[StagingBuffer, Any]] = []
        self._turn = 1

    def feed(self, rows: Bytes, address: int, stream: Any, numbers: Numbers | None = None) -> int:
        """Enqueues copies of ``rows`` (n, bytes), or of those with these ``numbers``, to ``address``; returns their
        bytes. When it returns, pageable rows are no longer read; page-locked ones are until the copies are over."""
        size = rows.shape[1]
        count = len(rows) if numbers is None else len(numbers)
        if not count:
            return 0
        if numbers is None and is_pinned(rows):
            runtime.memcpyAsync(address, rows.ctypes.data, rows.nbytes, _TO_DEVICE, stream.ptr)
            return int(rows.nbytes)
        with self._lock:
            if count * size >= _LARGE:
                with ThreadPoolExecutor(_threads(), "feeder") as pool:
                    self._through_blocks(rows, address, stream, numbers, pool)
            else:
                self._through_blocks(rows, address, stream, numbers, None)
        return int(count * size)

    def close(self) -> None:
        """Gives the blocks back; nothing may be copying from them."""
        with self._lock:
            blocks, self._blocks = self._blocks, []
        for block, _ in blocks:
            block.free()

    def _through_blocks(
        self, rows: Bytes, address: int, stream: Any, numbers: Numbers | None, pool: ThreadPoolExecutor | None
    ) -> None:
        size = rows.shape[1]
        count = len(rows) if numbers is None else len(numbers)
        step = max(1, BLOCK // size)
        for start in range(0, count, step):
            block, event = self._next()
            event.synchronize()
            filled = min(step, count - start)
            target = block.data[: filled * size].reshape(filled, size)
            if numbers is None:
                _copy(target, rows[start : start + filled], pool)
            else:
                _pick(target, rows, numbers[start : start + filled], pool)
            runtime.memcpyAsync(address + start * size, target.ctypes.data, target.nbytes, _TO_DEVICE, stream.ptr)
            driver.record(event.ptr, stream.ptr)

    def _next(self) -> tuple[StagingBuffer, Any]:
        if len(self._blocks) < 2:
            self._blocks.append((self._staging(BLOCK), cupy.cuda.Event(block=True, disable_timing=True)))
            return self._blocks[-1]
        self._turn = 1 - self._turn
        return self._blocks[self._turn]


def _threads() -> int:
    return max(1, min(_THREADS, len(os.sched_getaffinity(0))))


def _parts(n: int) -> list[slice]:
    step = -(-n // _THREADS)
    return [slice(start, start + step) for start in range(0, n, step)]


def _copy(target: Bytes, rows: Bytes, pool: ThreadPoolExecutor | None) -> None:
    if pool is None:
        np.copyto(target, rows)
    else:
        list(pool.map(lambda part: np.copyto(target[part], rows[part]), _parts(len(target))))


def _pick(target: Bytes, rows: Bytes, numbers: Numbers, pool: ThreadPoolExecutor | None) -> None:
    whole = np.dtype((np.void, rows.shape[1]))  # rows may lie at any address
    source, out = rows.view(whole)[:, 0], target.view(whole)[:, 0]
    if pool is None:
        source.take(numbers, out=out, mode="clip")
    else:
        list(pool.map(lambda part: source.take(numbers[part], out=out[part], mode="clip"), _parts(len(target))))
