"""Takes the pictures of the window that the guide and the README show, with a real engine on the CPU.

    tools/window_pictures.py docs/pictures

window-dark and window-light: while two workers prove; failure: a witness that was altered; prove-dialog and
connect-dialog. No screen is needed; the engine has a home folder and a port of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PySide6.QtWidgets import QApplication
from stories import Stage, make_folder

from cuzk_engine.client import JobState
from cuzk_gui.controller import Proof
from cuzk_gui.demo import own_home
from cuzk_gui.remote import Access
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.widgets.prove_dialog import ProveDialog
from tests.support.stories import Circuit, StoryError, expect

PROFILE: Final = "porep:2^13"
JOBS: Final = 3
PARTITIONS: Final = 8
_SETTINGS: Final = {"gpus.gpu_workers_per_device": "2"}
_SHOWN_S: Final = 5.0
_WORD_BYTES: Final = 32


def while_proving(stage: Stage, circuit: Circuit) -> None:
    stage.prove(PARTITIONS, "sector 1")
    stage.window.scene.view.follow()
    stage.window.scene.view.zoom(_SHOWN_S / stage.window.scene.view.width)
    jobs = [stage.hand_in(PARTITIONS, f"sector {number + 2}") for number in range(JOBS)]
    stage.wait(lambda: _ended(stage, jobs[0]), "the first job")
    stage.window.live.jobs.select(jobs[1])
    stage.picture("window-dark")
    stage.picture("window-light", light=True)
    stage.wait(lambda: all(_ended(stage, job) for job in jobs), "all jobs")


def failure(stage: Stage, circuit: Circuit) -> None:
    """The last value of the witness is another one."""
    data = bytearray(circuit.witness.read_bytes())
    data[-_WORD_BYTES] ^= 1
    altered = circuit.witness.with_name("altered.wtns")
    altered.write_bytes(data)
    jobs = stage.session.jobs
    before = set(jobs.order)
    stage.window.controller.submit(Proof(str(circuit.key), str(altered), "altered witness"))
    stage.wait(lambda: any(_ended(stage, job) for job in jobs.order if job not in before), "the job")
    (job,) = (job for job in jobs.order if job not in before)
    expect(jobs.get(job).state is JobState.FAILED, "an altered witness was proved")  # type: ignore[union-attr]
    stage.settle()
    stage.window.live.jobs.select(job)
    stage.window.live.show_job()
    stage.window.live.show_in_charts(job)
    stage.picture("failure")


def dialogs(stage: Stage) -> None:
    """With files that do not exist: where this machine keeps its own is nobody's business."""
    stage.window.proofs.ask()
    prove = stage.window.findChild(ProveDialog)
    assert prove is not None
    prove.key_edit.setText("/home/ada/circuits/merkle10.zkey")
    prove.witness_edit.setText("/home/ada/circuits/witness.wtns")
    stage.picture("prove-dialog", prove)
    prove.reject()
    connect = stage.window.choose_engine()
    connect.fill(Access("gpu-node:9820", "/home/ada/gpu-node/cert.pem", "/home/ada/gpu-node/token"))
    stage.picture("connect-dialog", connect)
    connect.reject()


def _ended(stage: Stage, job: str) -> bool:
    known = stage.session.jobs.get(job)
    return known is not None and known.state.ended


def main() -> int:
    parser = argparse.ArgumentParser(description="Takes the pictures of the window.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        make_folder(folder)
        theme = Theme(QApplication(["cuzk"]), ThemeChoice.DARK)
        with own_home() as home:
            circuit = Circuit.make(PROFILE, home / "circuit")
            with Stage(circuit, _SETTINGS, theme, folder) as stage:
                while_proving(stage, circuit)
                failure(stage, circuit)
                dialogs(stage)
    except StoryError as error:
        print(f"cuzk: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
