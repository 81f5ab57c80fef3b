"""What people read when something is wrong."""

import os
from pathlib import Path

import pytest

from cuzk_engine.errors import CuzkError, FormatError


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
