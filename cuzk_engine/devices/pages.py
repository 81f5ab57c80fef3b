"""Host memory in whole pages: mapped, wiped by several threads, and what is known of the limits on locking
it."""

from __future__ import annotations

import contextlib
import mmap
import resource
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from cuzk_engine import native
from cuzk_engine.devices.base import Bytes
from cuzk_engine.units import format_size

PAGE: Final = mmap.PAGESIZE
HUGE_PAGE: Final = 2 << 20
_STEPS: Final = 16  # block sizes in each power of two


class PageLocker(Protocol):
    """Keeps pages where they are, so that a device copies from them without help of the processor."""

    def lock(self, address: int, nbytes: int) -> None:
        """Raises CuzkError or OSError with the driver's words."""
        ...

    def unlock(self, address: int) -> None:
        """``address``: one that was locked."""
        ...


def block_bytes(nbytes: int) -> int:
    """What a pooled block for ``nbytes`` takes: one of sixteen sizes in each power of two, so at most a sixteenth more
    (below 64 KiB: a page more)."""
    step = max(PAGE, (1 << max(nbytes.bit_length() - 1, 0)) // _STEPS)
    return -(-nbytes // step) * step


def map_pages(nbytes: int) -> Bytes:
    """``nbytes`` of zeroed memory of its own, in huge pages where there are some; goes back to the system with the last
    view of it. Raises OSError."""
    if nbytes == 0:
        return np.empty(0, dtype=np.uint8)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=np.uint8)


def wipe(data: Bytes, threads: int = 0) -> None:
    """Zeroes ``data``, without the interpreter lock. The system provides its pages then, where it had not yet."""
    native.library().bytes_zero(data, data.size, native.Call(native.memory_threads(threads)))


def lock_advice(root: Path = Path("/")) -> str:
    """What limits page-locking here, and what to do about it; for a message."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY:
        return (
            f"the limit of locked memory (RLIMIT_MEMLOCK) is {format_size(soft)}: raise it with ulimit -l unlimited, "
            "LimitMEMLOCK=infinity in a systemd unit or --ulimit memlock=-1 for docker"
        )
    try:
        kernel = (root / "proc/sys/kernel/osrelease").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        kernel = ""
    if "microsoft" in kernel.lower():
        return (
            "WSL lets Windows lock about half of the machine's memory at most: give it more in .wslconfig, or run "
            "natively"
        )
    return (
        "RLIMIT_MEMLOCK is unlimited, so the driver or the container refuses: lower memory.total_budget, or give the "
        "container more memory"
    )
