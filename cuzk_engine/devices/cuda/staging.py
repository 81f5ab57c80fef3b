"""Page-locking of host memory for a card, and host memory to stage from where no pool is given."""

from __future__ import annotations

import contextlib
import logging
import mmap
from typing import Final, Protocol

import numpy as np
from cupy.cuda import runtime

from cuzk_engine.devices.base import Bytes, Owner, StagingBuffer
from cuzk_engine.devices.cuda.memory import Guard
from cuzk_engine.devices.ledger import Grant, Ledger
from cuzk_engine.errors import CuzkError, DeviceLostError
from cuzk_engine.events import Purpose

log = logging.getLogger(__name__)

_PORTABLE: Final = 1  # cudaHostRegisterPortable: for every context of the process
_HUGE_PAGE: Final = 2 << 20


class PageLocker(Protocol):
    """Keeps pages where they are, so that a device copies from them without help of the processor."""

    def lock(self, address: int, nbytes: int) -> None: ...
    def unlock(self, address: int) -> None: ...


class HostStaging(Protocol):
    """A pool of host memory that uploads start from."""

    def staging(self, nbytes: int, purpose: Purpose, owner: Owner, locker: PageLocker | None = None) -> StagingBuffer:
        """Raises OutOfDeviceMemoryError when the host's budget is spent."""
        ...


class CudaLocker:
    """Page-locks for one card's context. Touched pages lock faster, in huge pages most of all."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def lock(self, address: int, nbytes: int) -> None:
        """Raises CuzkError with the driver's words."""
        with self._guard():
            try:
                runtime.hostRegister(address, nbytes, _PORTABLE)
            except runtime.CUDARuntimeError as error:
                raise CuzkError(f"{nbytes:,} bytes could not be page-locked: {error}") from error

    def unlock(self, address: int) -> None:
        with self._guard():
            runtime.hostUnregister(address)


class OwnStaging:
    """Host memory without a pool: mapped, locked, and given back when it is freed."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def staging(self, nbytes: int, purpose: Purpose, owner: Owner, locker: PageLocker | None = None) -> StagingBuffer:
        grant = self.ledger.take(nbytes, purpose, owner)
        try:
            return _Mapped(self.ledger, grant, locker)
        except BaseException:
            self.ledger.give_back(grant)
            raise


class _Mapped:
    def __init__(self, ledger: Ledger, grant: Grant, locker: PageLocker | None) -> None:
        self._ledger, self._grant = ledger, grant
        self._locker: PageLocker | None = None
        self._data: Bytes | None = np.empty(0, np.uint8)
        if not grant.nbytes:
            return
        pages = mmap.mmap(-1, grant.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if grant.nbytes >= _HUGE_PAGE:
            with contextlib.suppress(OSError):  # a kernel without huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
        self._data = data = np.frombuffer(pages, np.uint8)
        if locker is not None:
            data[:: mmap.PAGESIZE] = 0
            try:
                locker.lock(data.ctypes.data, grant.nbytes)
                self._locker = locker
            except (CuzkError, OSError) as error:
                log.warning("uploads go on from pageable memory and are slower: %s", error)

    def __enter__(self) -> _Mapped:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    @property
    def nbytes(self) -> int:
        return self._grant.nbytes

    @property
    def pinned(self) -> bool:
        return self._locker is not None

    @property
    def data(self) -> Bytes:
        if self._data is None:
            raise ValueError("use of a freed staging buffer")
        return self._data

    def free(self) -> None:
        data, self._data = self._data, None
        locker, self._locker = self._locker, None
        if data is None:
            return
        try:
            if locker is not None:
                with contextlib.suppress(DeviceLostError):  # its locks went with it
                    locker.unlock(data.ctypes.data)
        finally:
            self._ledger.give_back(self._grant)
