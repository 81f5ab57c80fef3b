"""What keeps the memory of the engine's processes level: it settles within minutes and stays.

glibc's malloc by itself gives threads heaps of their own, eight a core: with threads that come and go a process grows
for hours. And each large block that is freed raises the size from which on blocks are mapped by themselves, up to 32
MiB; from then on large arrays that live for a moment are cut from the heap, small things that stay are put between
them, and the heap is as large as it ever was at once.

numpy by itself keeps freed arrays of less than 1 KB, up to seven of each number of bytes: 3.5 MiB that fill for as long
as there are numbers of rows that have not been seen often yet, and that lie between what is free in the heap.

Whatever is set here, protobuf's library has malloc give back all free pages with every ten thousandth message that is
freed. So what is free in a heap is resident at one time and not at another; see `devices.memory.Spare`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module
from typing import Final

_RAW_DOMAIN: Final = 0  # of CPython's allocators: malloc itself, which needs no lock of the interpreter
_SET_HANDLER: Final = 304  # PyDataMem_SetHandler's place in numpy's table of C functions
ARRAY_MEMORY: Final = "cuzk_malloc"


class Parameter(IntEnum):
    """Of mallopt; the values are glibc's."""

    TRIM_THRESHOLD = -1  # free bytes at the end of a heap from which on they are given back
    TOP_PAD = -2  # bytes by which a heap grows beyond what it has to
    MMAP_THRESHOLD = -3  # bytes of a block from which on it is mapped by itself, and given back when it is freed
    ARENA_MAX = -8  # heaps


SUPERVISOR: Final[Mapping[Parameter, int]] = {
    Parameter.ARENA_MAX: 2,
    # The diagnosis builds its tables anew several times a second, of columns of 160 KB and masks of 20 KB, and the
    # event loop reads from sockets into 256 KB. malloc maps a large block only where no free one in the heap is large
    # enough: so the free end of the heap is kept short too.
    Parameter.MMAP_THRESHOLD: 16 << 10,
    Parameter.TOP_PAD: 16 << 10,
    Parameter.TRIM_THRESHOLD: 64 << 10,
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


class _Allocator(ctypes.Structure):
    """CPython's PyMemAllocatorEx and numpy's PyDataMemAllocator: the same functions, but that numpy's ``free`` is told
    the size as its last argument, which one that does not ask for it does not see."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    """numpy's PyDataMem_Handler, version 1."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


_handler: Final = _Handler(ARRAY_MEMORY.encode(), 1)  # arrays point to it for as long as they live


def keep_no_freed_arrays() -> None:
    """From now on numpy takes the memory of arrays from malloc and gives it back: in this context, and in the tasks and
    threads that take it over."""
    numpy_core = import_module("numpy._core._multiarray_umath")  # where every extension looks for the table
    python = ctypes.pythonapi
    get_allocator = ctypes.PYFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(("PyMem_GetAllocator", python))
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", python)
    )
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", python))

    get_allocator(_RAW_DOMAIN, ctypes.addressof(_handler.allocator))
    table = ctypes.cast(pointer_of(numpy_core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    set_handler(new_capsule(ctypes.addressof(_handler), b"mem_handler", None))
