"""Running the command line: in this process, and as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error."""
        assert self.err.startswith("cuzk: error: ")
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        assert "Traceback" not in self.err
        return self.err.removeprefix("cuzk: error: ").rstrip("\n")


Cuzk = Callable[..., Result]


@pytest.fixture
def cuzk(capfd: pytest.CaptureFixture[str]) -> Cuzk:
    """Runs a command in this process."""

    def run(*arguments: Any) -> Result:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return run


def command(*arguments: Any) -> list[str]:
    """A command line that runs `cuzk` as a process."""
    return [sys.executable, "-m", "cuzk_engine.cli.main", *map(str, arguments)]


def run_process(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=ROOT, timeout=60, check=False, **options
    )
