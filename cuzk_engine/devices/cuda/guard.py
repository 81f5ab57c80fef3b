"""What every call of the driver stands in: the right device, and errors that users understand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from cupy.cuda import runtime

from cuzk_engine.devices.cuda import faults
from cuzk_engine.devices.cuda.nvrtc import NvrtcError
from cuzk_engine.errors import CuzkError, DeviceLostError


class _Here(threading.local):
    number: int | None = None  # of the card that a guard made the thread's current one


_HERE: Final = _Here()


class Guard:
    """Its blocks make card ``number`` the thread's current one, which it stays, and turn errors of the driver into
    those of device ``name``. Blocks may be inside each other. Any thread may enter; nobody else changes the current
    card of a thread that does, but for a while. ``on_loss`` is called once, with what every later block raises at its
    start. ``has_context``: there is one, which a block makes its thread's current one, too."""

    def __init__(self, name: str, number: int, on_loss: Callable[[DeviceLostError], None]) -> None:
        self._name: Final = name
        self._number: Final = number
        self._on_loss = on_loss
        self.lost: DeviceLostError | None = None
        self.has_context = False

    def __enter__(self) -> None:
        if self.lost is not None:
            raise self.lost
        if _HERE.number != self._number:
            try:
                if runtime.getDevice() != self._number:  # else the context would be there before it was asked for
                    runtime.setDevice(self._number)
                if self.has_context:
                    runtime.free(0)
            except Exception as error:
                self._raise(error)
                raise
            _HERE.number = self._number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, Exception) and not isinstance(error, CuzkError):
            self._raise(error)

    def _raise(self, error: Exception) -> None:
        """Raises what the user should read, if ``error`` is the driver's."""
        if isinstance(error, NvrtcError):
            raise CuzkError(f"device {self._name}: {error}") from error
        translated = faults.translate(self._name, error)
        if translated is None:
            return
        if isinstance(translated, DeviceLostError) and self.lost is None:
            self.lost = translated
            self._on_loss(translated)
        raise translated from error
