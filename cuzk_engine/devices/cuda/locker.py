"""Page-locking of host memory for a card."""

from __future__ import annotations

from typing import Final

from cupy.cuda import runtime

from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.errors import CuzkError

_PORTABLE: Final = 1  # cudaHostRegisterPortable: for every context of the process


class CudaLocker:
    """See `pages.PageLocker`."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def lock(self, address: int, nbytes: int) -> None:
        """Raises CuzkError with the driver's words."""
        with self._guard:
            try:
                runtime.hostRegister(address, nbytes, _PORTABLE)
            except runtime.CUDARuntimeError as error:
                raise CuzkError(f"{nbytes:,} bytes could not be page-locked: {error}") from error

    def unlock(self, address: int) -> None:
        with self._guard:
            runtime.hostUnregister(address)
