"""Two stories of one device, told by the real window with a real engine on the CPU: what goes wrong, what the window says of
it, what its button changes.

    tools/stories.py [memory] [idle] [--pictures docs/pictures] [--light] [--memory PROFILE] [--idle PROFILE]

memory: two workers, room for one, and no plan. An allocation fails; the incident says who held what; its first button cures it.
idle: one worker that evaluates on the host, no pre-staging. The gaps carry their cause; the button of the finding shrinks them.

Each step is checked, so that the script fails where the window or the engine does not do what the story tells. Nothing of the
user's is touched: the engine has a home folder and a port of its own. No screen is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from cuzk_engine.client import EngineClient, JobState
from cuzk_engine.curves import BLS12_381
from cuzk_engine.devices.select import open_device
from cuzk_engine.events import Finding, Remedy
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage
from cuzk_engine.pipeline.report import plan_report, work_of
from cuzk_engine.settings import WORKERS_KEY
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from cuzk_gui.demo import OwnEngine, free_port, own_home
from cuzk_gui.models.loads import idle_by_cause
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.widgets.incident_dialog import IncidentDialog
from cuzk_gui.window import MainWindow

DEVICE: Final = "cpu"
PARTITIONS: Final = 10
_SIZE: Final = (1600, 1000)
_WAIT_S: Final = 180.0
_LOOK_MS: Final = 20
_SIDE: Final = 0.04  # of the shown stretch, left free beside it


class StoryError(Exception):
    """A step of a story did not happen."""


def expect(condition: object, what: str) -> None:
    if not condition:
        raise StoryError(what)


@dataclass(frozen=True, slots=True)
class Circuit:
    """A key and a witness."""

    key: Path
    witness: Path

    @classmethod
    def make(cls, profile: str, folder: Path) -> Circuit:
        """A new circuit with the key's and the witness's values from a seed."""
        write_folder(make_circuit(profile, BLS12_381), folder, seed="stories")
        return cls(folder / "circuit.zkey", folder / "witness.wtns")


class Stage:
    """A window, its engine, and a client beside the window that hands in proofs as other programs do."""

    def __init__(self, app: QApplication, settings: dict[str, str], pictures: Path | None, *, light: bool) -> None:
        self._app = app
        self._pictures = pictures
        self._configure(settings)
        self.address = f"127.0.0.1:{free_port()}"
        self._engine = OwnEngine(self.address)
        self._engine.start()
        self.client = EngineClient(self.address)
        preferences = Preferences()
        preferences.on_close = OnClose.KEEP
        self.theme = Theme(app, ThemeChoice.LIGHT if light else ThemeChoice.DARK)
        self.window = MainWindow(self._engine, self.theme, preferences)
        self.window.resize(*_SIZE)
        self.window.show()
        self.wait(lambda: self.session.identity is not None and DEVICE in self.session.described, "the engine's devices")

    @property
    def session(self):  # type: ignore[no-untyped-def]
        return self.window.live.session

    def close(self) -> None:
        self.client.close()
        self.window.close_quietly()
        self.window.deleteLater()
        self.theme.close()
        self._engine.stop()

    def wait(self, condition: Callable[[], object], what: str, seconds: float = _WAIT_S) -> None:
        """Lets the window live until the condition holds. Raises StoryError."""
        loop, looks = QEventLoop(), QTimer()
        deadline = time.monotonic() + seconds
        looks.timeout.connect(lambda: loop.quit() if condition() or time.monotonic() > deadline else None)
        looks.start(_LOOK_MS)
        if not condition():
            loop.exec()
        looks.stop()
        expect(condition(), f"waited {seconds:.0f} s for {what}")

    def prove(self, count: int, label: str) -> str:
        """Hands in one job of ``count`` partitions; returns its id when it has ended and the window knows it."""
        circuit = self.circuit
        more = [circuit.witness] * (count - 1)
        job = self.client.submit(key_path=circuit.key, witness_path=circuit.witness, more_witnesses=more, label=label)
        self.wait(lambda: (known := self.session.jobs.get(job.id)) is not None and known.state.ended, f"job {label}")
        return job.id

    circuit: Circuit
"""
