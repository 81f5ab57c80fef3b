"""Threads that drive a device run before those of the pool."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cuzk_engine.devices import scheduling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="time slices and niceness of threads are Linux's")

_PROGRAM = """
import ctypes, os, struct, sys, threading
import numpy as np
from cuzk_engine import native
from cuzk_engine.curves import BN254
from cuzk_engine.devices.scheduling import drive_a_gpu

def slice_ns(task):
    attributes = ctypes.create_string_buffer(48)
    number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(number, int(task), attributes, 48, 0) == 0
    return struct.unpack("<IIQiIQQQ", attributes.raw)[5]

def tasks():
    return set(os.listdir("/proc/self/task"))

def work():
    data = np.zeros(1 << 22, np.uint8)
    native.library().field_check(BN254, native.Field.FR, data, len(data) // 32, native.Call(4))

before = tasks()
common = slice_ns(0)
if sys.argv[1] == "late":
    work()
drive_a_gpu()
found = []
thread = threading.Thread(target=lambda: (work(), found.append((slice_ns(0), os.getpriority(os.PRIO_PROCESS, 0)))))
thread.start(); thread.join()
niceness = lambda task: os.getpriority(os.PRIO_PROCESS, int(task))
of = lambda task: (slice_ns(task), niceness(task))
pool = set()
while not any(niceness(task) != niceness(0) for task in pool):  # until one of them was given a task
    work()
    pool = tasks() - before - {str(thread.native_id)}
print(repr({"common": common, "this": of(0), "started": found[0], "pool": [of(task) for task in pool]}))
"""


@pytest.mark.parametrize("pool", ["early", "late"])
def test_pool_gives_way_to_the_threads_that_drive_a_gpu(pool: str) -> None:
    """Whether its threads are there before ("late") or come afterwards, from a thread that has short slices."""
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM, pool], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    found = eval(told, {"__builtins__": {}})
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    pooled = min(niceness + scheduling._POOL_NICENESS, 19)
    heeds_slices = found["common"] > 0  # Linux from 6.12 on tells them
    short = scheduling._SLICE_NS if heeds_slices else 0
    assert found["this"] == found["started"] == (short, niceness)
    # A thread of the pool that no task was left for has not yet given way.
    assert {one for one in found["pool"] if one[1] != niceness} == {(found["common"], pooled)}


def test_refusal_changes_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(scheduling.native.library(), "run_before_pool", lambda niceness, slice_ns: 1)
    with caplog.at_level("INFO"):
        scheduling.drive_a_gpu()
    assert [record.message for record in caplog.records] == [
        "the threads that drive the GPU have no priority over those that compute: Operation not permitted"
    ]
