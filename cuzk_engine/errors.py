"""Errors that are meant for people.

Each carries one line: which file or setting, what was found, what was expected, what to do. The command line prints it
as ``cuzk: error: …`` and the daemon sends it as a job's message; neither shows a traceback.
"""

from __future__ import annotations

from pathlib import Path

from cuzk_engine.units import format_size


class CuzkError(Exception):
    """A fault that a user can understand; ``str(error)`` is one line."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(_shown(message))


def _shown(message: str) -> str:
    """One line of text. Names in it may hold what a terminal obeys, or bytes that are no text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(message.split()))


def _whose(device: str) -> str:
    return "host memory" if device == "host" else f"device {device}"


def _sizes(*sizes: int) -> list[str]:
    """As people read them; to the byte where different ones would look alike."""
    shown = [format_size(size) for size in sizes]
    return shown if len(set(shown)) == len(set(sizes)) else [f"{size:,} bytes" for size in sizes]


class UsageError(CuzkError):
    """Wrong arguments on the command line."""

    exit_code = 2


class FormatError(CuzkError):
    """A file that is not what it should be; the message starts with its name."""

    def __init__(self, path: Path | str, message: str) -> None:
        self.path = str(path)
        self.reason = message
        super().__init__(f"{path}: {message}")


class IncompleteFileError(FormatError):
    """A file that ends before what its header promises."""

    def __init__(self, path: Path | str, what: str, needed: int, found: int) -> None:
        super().__init__(path, f"incomplete file: {what} needs {needed:,} bytes, the file has {found:,}")


class SettingError(CuzkError):
    """A setting with a value it cannot have, or an unknown one."""


class ProofInvalidError(CuzkError):
    """A proof was made and did not verify, or a given proof is invalid."""


class OutOfDeviceMemoryError(CuzkError):
    """A device cannot serve an allocation within its capacity. ``reduced``: how many modes further down to try once
    more, None where there is no smaller one."""

    reduced: int | None = None

    def __init__(self, device: str, purpose: str, requested: int, free: int, capacity: int) -> None:
        self.device, self.purpose = device, purpose
        self.requested, self.free, self.capacity = requested, free, capacity
        asked, left, whole = _sizes(requested, free, capacity)
        super().__init__(
            f"{_whose(device)}: out of memory: {asked} for {purpose} were asked for, {left} of {whole} are free"
        )


class MemoryPlanError(OutOfDeviceMemoryError):
    """A partition's planned peak can never fit on a device; nothing was allocated."""

    def __init__(self, device: str, needed: int, available: int, capacity: int, advice: str = "") -> None:
        super().__init__(device, "partition", needed, available, capacity)
        need, room, whole = _sizes(needed, available, capacity)
        holder = "its budget is" if device == "host" else "the device has"
        found = f"{holder} {whole}" if available == capacity else f"{room} of {whole} are available"
        message = f"{_whose(device)}: not enough memory: the proof needs {need}, {found}"
        self.args = (f"{message}; {advice}" if advice else message,)


class DeviceFaultError(CuzkError):
    """A call of a device's driver failed; ``name`` and ``code`` are the driver's."""

    def __init__(self, device: str, name: str, code: int, message: str) -> None:
        self.device, self.name, self.code = device, name, code
        super().__init__(f"device {device}: {message}")


class DeviceLostError(DeviceFaultError):
    """A kernel faulted, or the card failed: nothing more can run on the device in this process."""


class CancelledError(CuzkError):
    """The job was cancelled; nothing was delivered."""

    exit_code = 130


class NativeLibraryError(CuzkError):
    """The native library is missing or was built from other sources than the ones beside it."""


class DaemonError(CuzkError):
    """The daemon cannot be reached, started or stopped."""
