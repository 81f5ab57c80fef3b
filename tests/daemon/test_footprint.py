"""What the engine's processes ask of glibc's malloc and of numpy: few heaps, large blocks that leave no holes in them,
and no arrays kept that were freed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cuzk_engine.daemon import footprint
from tests.support.daemons import running

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")

HEAD = """
import ctypes, sys, threading
from cuzk_engine.daemon import footprint
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
given = (part.split("=") for part in sys.argv[1:])
footprint.configure_malloc({footprint.Parameter[name]: int(value) for name, value in given})
"""
THREADS = (
    HEAD
    + """
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
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
)
HOLES = (
    HEAD
    + """
from pathlib import Path
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
libc.free(libc.malloc(16 << 20))  # glibc draws its conclusions
before = resident()
large = []
for number in range(2_000):
    large.append(libc.malloc(NBYTES))
    ctypes.memset(large[-1], 1, NBYTES)
    ctypes.memset(libc.malloc(200), 1, 200)  # stays
    if number % 100 == 99:
        while large: libc.free(large.pop())
print((resident() - before) >> 10)
"""
)
ARRAYS = """
from pathlib import Path
import numpy as np
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
first = np.ones(100)
before = resident()
for nbytes in range(1, 1024):
    rows = [np.ones(nbytes, np.int8) for _ in range(7)]
    del rows
print((resident() - before) >> 10)
"""
KEEP_NONE = """
from cuzk_engine.daemon import footprint
footprint.keep_no_freed_arrays()
"""
USE = (
    KEEP_NONE
    + """
import asyncio
import numpy as np
from numpy._core.multiarray import get_handler_name
async def loop():
    asyncio.get_running_loop().call_soon(lambda: print(get_handler_name()))
    print(await asyncio.to_thread(get_handler_name))
rows = np.arange(10)
rows.resize(100_000, refcheck=False)
print(rows[:11].tolist(), np.zeros(1 << 20).any(), np.zeros(3).any(), len(np.concatenate([rows, rows])))
asyncio.run(loop())
"""
)


def run(program: str, values: Mapping[footprint.Parameter, int]) -> str:
    arguments = [f"{parameter.name}={value}" for parameter, value in values.items()]
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("values", [footprint.SUPERVISOR, footprint.DEVICE], ids=["supervisor", "device"])
def test_threads_share_few_heaps(values: Mapping[footprint.Parameter, int]) -> None:
    assert run(THREADS, {}).count("<heap nr=") > 4
    assert run(THREADS, values).count("<heap nr=") <= 3  # one may be there before


@pytest.mark.parametrize("nbytes", [20_000, 400_000])
def test_large_blocks_of_the_supervisor_leave_no_holes_between_small_ones(nbytes: int) -> None:
    """A hundred of them at a time, with small ones between them that stay: 0.4 MB together."""
    program = HOLES.replace("NBYTES", str(nbytes))
    assert int(run(program, {})) > 1_500
    assert int(run(program, footprint.SUPERVISOR)) < 1_000


def test_freed_arrays_of_every_size_are_kept_by_numpy_alone() -> None:
    assert int(run(ARRAYS, {})) > 3000
    assert int(run(KEEP_NONE + ARRAYS, {})) < 500


def test_arrays_are_as_ever_where_malloc_has_their_memory() -> None:
    values, *handlers = run(USE, {}).splitlines()
    assert values == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0] False False 200000"
    assert handlers == [footprint.ARRAY_MEMORY] * 2


def test_the_event_loop_of_the_supervisor_keeps_no_freed_arrays(cuzk_home: Path) -> None:
    with running(cuzk_home, module="tests.support.telling_daemon") as daemon:
        assert f"arrays: {footprint.ARRAY_MEMORY}" in daemon.log
