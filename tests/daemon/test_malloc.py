"""A device process bounds the heaps that glibc gives to threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from cuzk_engine.daemon import device
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
if sys.argv[1] == "bound":
    device._bound_malloc()
barrier = threading.Barrier(8)
def work():
    barrier.wait()
    libc.malloc(1000)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, out)
libc.fclose(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
def test_threads_share_few_heaps() -> None:
    def heaps(how: str) -> int:
        command = [sys.executable, "-c", PROGRAM, how]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        return text.count("<heap nr=")

    assert heaps("free") > 4
    assert heaps("bound") <= 3  # one may be there before
