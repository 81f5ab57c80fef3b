"""What the driver's errors mean: out of memory, a lost device, or a call that failed."""

from __future__ import annotations

from typing import Final

from cuzk_engine.errors import CuzkError, DeviceFaultError, DeviceLostError, OutOfDeviceMemoryError

OUT_OF_MEMORY: Final = 2
# After these no call in the process's context succeeds any more (cudaError_t and CUresult share the numbers).
STICKY: Final = frozenset({46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})


def status_of(error: BaseException) -> int | None:
    """The driver's number of a CuPy error; None: the error is none of the driver's."""
    code = getattr(error, "status", None)
    return code if isinstance(code, int) else None


def translate(
    device: str, error: BaseException, purpose: str = "work", requested: int = 0, free: int = 0, capacity: int = 0
) -> CuzkError | None:
    """The error that a user gets for one of CuPy's driver errors; None for every other exception."""
    code = status_of(error)
    if code is None:
        return None
    if code == OUT_OF_MEMORY:
        return OutOfDeviceMemoryError(device, purpose, requested, free, capacity)
    name, _, text = str(error).partition(": ")
    if code in STICKY:
        message = (
            f"lost after {name} ({code}), {text or 'a fault on the card'}: nothing more can run on it in this process; "
            "start again, and report it if it happens again"
        )
        return DeviceLostError(device, name, code, message)
    numbers = f"; {requested:,} bytes were asked for" if requested else ""
    return DeviceFaultError(device, name, code, f"{name} ({code}): {text}{numbers}")
