"""Proofs from the window: what is to be proved, handing it in, and saving what came of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from cuzk_gui import assets
from cuzk_gui.controller import Controller, Proof
from cuzk_gui.files import names
from cuzk_gui.models.process import Action, Tone
from cuzk_gui.preferences import Preferences
from cuzk_gui.widgets.prove_dialog import ProveDialog
from cuzk_gui.workspace import Workspace


class Proofs(QObject):
    """``said``: a line for the user. Dialogs stand over ``parent``."""

    said = Signal(str, Tone)

    def __init__(self, parent: QWidget, controller: Controller, live: Workspace, preferences: Preferences) -> None:
        super().__init__(parent)
        self.demo = None if controller.engine.elsewhere else assets.demo()  # its key is a file of this machine
        self._parent = parent
        self._controller = controller
        self._live = live
        self._preferences = preferences
        self._files: list[str] = []  # the last choice
        controller.submitted.connect(self._submitted)

    def ask(self, files: list[str] | None = None) -> None:
        """Opens the dialog; the last choice, else the demo, is filled in."""
        engine = self._controller.engine
        key = self._used_last() if engine.elsewhere else None
        dialog = ProveDialog(self._preferences, self.demo, engine.appearance.prove, self._parent, key_elsewhere=key)
        if self._files:
            dialog.take_files(self._files)
        elif not files:
            dialog.use_demo()
        dialog.take_files(files or [])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

        def accepted() -> None:
            self._files = [dialog.key, dialog.witness]
            demo = self.demo is not None and dialog.key == str(self.demo.key)
            self._hand_in(Proof(dialog.key, dialog.witness, dialog.name, self.demo.name if self.demo and demo else ""))

        dialog.accepted.connect(accepted)
        dialog.open()

    def prove_demo(self) -> None:
        if self.demo is not None:
            self._hand_in(Proof(str(self.demo.key), str(self.demo.witness), circuit=self.demo.name))

    def register(self) -> None:
        """Asks for a key and registers it."""
        dialog = QFileDialog(
            self._parent, "Choose a .zkey file", self._preferences.folder(".zkey"), "Proving keys (*.zkey)"
        )
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._controller.register)
        dialog.open()

    def save(self, job_id: str) -> None:
        """Asks for a folder, then writes proof.json and public.json there."""
        if not job_id:
            return
        dialog = QFileDialog(self._parent, "Folder for proof.json and public.json", self._preferences.folder("proof"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(partial(self.save_into, job_id))
        dialog.open()

    def save_into(self, job_id: str, folder: str) -> None:
        """Writes the proof; where one is already, asks before it is replaced."""
        self._preferences.set_folder("proof", folder)
        job = self._live.session.jobs.get(job_id)
        there = [name for name in names(job.partitions if job else 1) if (Path(folder) / name).exists()]
        if not there:
            self._controller.save(job_id, Path(folder))
            return
        text = f"{folder} already has {' and '.join(there[:4])}."
        box = QMessageBox(QMessageBox.Icon.NoIcon, "Save proof", text, parent=self._parent)
        replace = box.addButton("Replace", QMessageBox.ButtonRole.AcceptRole)
        box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.buttonClicked.connect(
            lambda button: self._controller.save(job_id, Path(folder)) if button is replace else None
        )
        box.open()

    def _hand_in(self, proof: Proof) -> None:
        engine = self._controller.engine
        if engine.appearance.prove:
            self._controller.submit(proof)
        elif Action.START in engine.appearance.actions or (engine.state is None and not engine.elsewhere):
            self._controller.start_and_submit(proof)
        else:
            self.said.emit(f"The engine takes no jobs now: {engine.appearance.word.lower()}", Tone.WARN)

    def _used_last(self) -> str:
        """The key of the engine's circuit that was used last."""
        used = max(self._controller.circuits, key=lambda circuit: circuit.last_used_unix_ns, default=None)
        return used.key_path if used else ""

    def _submitted(self, job_id: str) -> None:
        self._live.jobs.jobs.refresh()
        self._live.jobs.select(job_id)
        self._live.show_job()
