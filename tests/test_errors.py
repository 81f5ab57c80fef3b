"""What people read when something is wrong."""

import os
from pathlib import Path

import pytest

from cuzk_engine.errors import CuzkError, FormatError, MemoryPlanError, OutOfDeviceMemoryError


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines\t.zkey", "two lines .zkey"),
        ("red\x1b[31m\x07.zkey", "red\\x1b[31m\\x07.zkey"),
        ("turned\u202eyekz.zkey", "turned\\u202eyekz.zkey"),
        (os.fsdecode(b"latin\xfc.zkey"), "latin\\udcfc.zkey"),
        ("schlüssel-鍵.zkey", "schlüssel-鍵.zkey"),
    ],
)
def test_a_message_is_one_line_that_no_terminal_obeys(name: str, shown: str) -> None:
    assert str(CuzkError(f"{name}: no such file")) == f"{shown}: no such file"
    assert str(FormatError(Path(name), "no such file")) == f"{shown}: no such file"


def test_memory_is_told_in_sizes_that_people_read() -> None:
    assert str(OutOfDeviceMemoryError("cpu", "msm", 11_060_352, 5 << 20, 8 << 20)) == (
        "device cpu: out of memory: 10.5 MiB for msm were asked for, 5 MiB of 8 MiB are free"
    )
    assert str(MemoryPlanError("cpu", 11_060_352, 8 << 20, 8 << 20, "raise it")) == (
        "device cpu: not enough memory: the proof needs 10.5 MiB, the device has 8 MiB; raise it"
    )
    assert str(MemoryPlanError("host", 11_060_352, 8 << 20, 8 << 20)) == (
        "host memory: not enough memory: the proof needs 10.5 MiB, its budget is 8 MiB"
    )
    assert str(MemoryPlanError("cpu", (8 << 20) + 1, 8 << 20, 8 << 20)) == (  # to the byte where it matters
        "device cpu: not enough memory: the proof needs 8,388,609 bytes, the device has 8,388,608 bytes"
    )
