"""What keeps the memory of the engine's processes level: it settles within minutes and stays.

glibc's malloc by itself gives threads heaps of their own, eight a core: with threads that come and go a process grows
for hours. And each large block that is freed raises the size from which on blocks are mapped by themselves, up to 32
MiB; from then on large arrays that live for a moment are cut from the heap, small things that stay are put between
them, and the heap is as large as it ever was at once.

Whatever is set here, protobuf's library has malloc give back all free pages with every ten thousandth message that is
freed. So what is free in a heap is resident at one time and not at another; see `devices.memory.Spare`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Parameter(IntEnum):
    """Of mallopt; the values are glibc's."""

    TRIM_THRESHOLD = -1  # free bytes at the end of a heap from which on they are given back
    MMAP_THRESHOLD = -3  # bytes of a block from which on it is mapped by itself, and given back when it is freed
    ARENA_MAX = -8  # heaps


SUPERVISOR: Final[Mapping[Parameter, int]] = {
    Parameter.ARENA_MAX: 2,
    # The diagnosis builds its tables anew several times a second, of columns of 80 KB where there is much to look at.
    Parameter.MMAP_THRESHOLD: 64 << 10,
}
DEVICE: Final[Mapping[Parameter, int]] = {
    Parameter.ARENA_MAX: 2,
    # Vectors come and go with every proof: their pages stay.
    Parameter.MMAP_THRESHOLD: 32 << 20,
    Parameter.TRIM_THRESHOLD: 64 << 20,
}


def configure_malloc(values: Mapping[Parameter, int]) -> None:
    """For the life of this process; before it has threads. Does nothing where the C library is not glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter, value in values.items():
            libc.mallopt(int(parameter), value)
