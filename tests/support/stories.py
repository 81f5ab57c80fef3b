"""What the stories of docs/stories.md have in common, told in a window (tools/stories.py) or recorded without one
(tools/record_stories.py). Imports no Qt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cuzk_engine.curves import BLS12_381
from cuzk_engine.paths import config_dir
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit

CUZK: Final = (sys.executable, "-m", "cuzk_engine.cli.main")
_LOOK_S: Final = 0.02
_RECORDER_S: Final = 60.0


class StoryError(Exception):
    """A step of a story did not happen."""


def expect(condition: object, what: str) -> None:
    if not condition:
        raise StoryError(what)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def wait_for(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Raises StoryError where it does not come to hold."""
    expect(comes_true(condition, seconds), f"waited {seconds:.0f} s for {what}")


def comes_true(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


@dataclass(frozen=True, slots=True)
class Circuit:
    name: str
    key: Path
    witness: Path

    @classmethod
    def make(cls, profile: str, folder: Path) -> Circuit:
        write_folder(make_circuit(profile, BLS12_381), folder, seed="stories")
        return cls(profile, folder / "circuit.zkey", folder / "witness.wtns")


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables for this process and those that it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def write_config(folder: Path, device: str, settings: Mapping[str, str]) -> None:
    """``settings``: key → value as TOML has it."""
    rows = {"daemon.status_listen": '""', "daemon.allowed_paths": f"['{folder}']", "gpus.devices": f'["{device}"]'}
    tables: dict[str, list[str]] = {}
    for key, value in {**rows, **settings}.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {value}\n")
    config_dir().mkdir(parents=True, exist_ok=True)
    text = "".join(f"[{table}]\n{''.join(lines)}" for table, lines in tables.items())
    (config_dir() / "cuzk.toml").write_text(text)


class Recorder:
    """`cuzk record` beside whoever proves."""

    def __init__(self, file: Path, address: str, *options: str) -> None:
        self.file = file
        command = [*CUZK, "record", str(file), "--daemon", address, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def await_start(self) -> None:
        wait_for(lambda: self.file.exists() or self._process.poll() is not None, "cuzk record", _RECORDER_S)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(_RECORDER_S)
        expect(code == 0 and self.file.exists(), f"cuzk record ended with {code}")
