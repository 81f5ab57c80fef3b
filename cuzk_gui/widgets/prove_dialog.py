"""Choosing a key and a witness."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from cuzk_gui.assets import Demo
from cuzk_gui.models import words
from cuzk_gui.preferences import Preferences
from cuzk_gui.widgets.controls import grow, label
from cuzk_gui.widgets.fields import Row, choose_file, grid_of, line_edit

KEY_SUFFIX, WITNESS_SUFFIX = ".zkey", ".wtns"


class ProveDialog(QDialog):
    """``key``, ``witness`` and ``name`` hold the choice once it was accepted.

    ``key_elsewhere``: the key is a file of the engine's machine, which cannot be looked at from here; this one is
    filled in. None: it is a file of this machine."""

    def __init__(
        self,
        preferences: Preferences,
        demo: Demo | None,
        engine_runs: bool,
        parent: QWidget | None = None,
        *,
        key_elsewhere: str | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Prove")
        self.setMinimumWidth(600)
        self._preferences = preferences
        self._demo = demo
        self._is_key_here = key_elsewhere is None
        self.key_edit = line_edit("Proving key")
        self.witness_edit = line_edit("Witness")
        self.label_edit = line_edit("Label")
        self.label_edit.setPlaceholderText("shown beside the job; may be left empty")
        if key_elsewhere is not None:
            self.key_edit.setPlaceholderText("path on the engine's machine; the witness is sent from this one")
            self.key_edit.setText(key_elsewhere)
        self._problem = label("", "error")
        self._problem.setWordWrap(True)
        browse_key = (lambda: self._browse(self.key_edit, KEY_SUFFIX)) if self._is_key_here else None
        grid = grid_of(
            (
                Row("Proving key (.zkey)", self.key_edit, browse_key),
                Row("Witness (.wtns)", self.witness_edit, lambda: self._browse(self.witness_edit, WITNESS_SUFFIX)),
                Row("Label", self.label_edit),
            )
        )
        starts = self._is_key_here and not engine_runs
        self.submit = QPushButton("Start the engine and prove" if starts else "Prove")
        self.submit.setProperty("role", "primary")
        self.submit.setDefault(True)
        self.submit.clicked.connect(self._accept_if_right)
        cancel = QPushButton("Cancel")
        cancel.clicked.connect(self.reject)
        buttons = QHBoxLayout()
        if demo is not None:
            preset = QPushButton("Use the demo circuit")
            preset.setAutoDefault(False)
            preset.clicked.connect(self.use_demo)
            buttons.addWidget(preset)
        buttons.addStretch(1)
        buttons.addWidget(cancel)
        buttons.addWidget(self.submit)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 16, 18, 16)
        layout.setSpacing(14)
        layout.addLayout(grid)
        layout.addWidget(self._problem)
        layout.addLayout(buttons)
        for edit in (self.key_edit, self.witness_edit):
            edit.textChanged.connect(self._check)
        self._check()

    @property
    def key(self) -> str:
        return self.key_edit.text().strip()

    @property
    def witness(self) -> str:
        return self.witness_edit.text().strip()

    @property
    def name(self) -> str:
        return self.label_edit.text().strip()

    @property
    def problem(self) -> str:
        return self._problem.text()

    def use_demo(self) -> None:
        if self._demo is not None:
            self.key_edit.setText(str(self._demo.key))
            self.witness_edit.setText(str(self._demo.witness))

    def take_files(self, files: list[str]) -> None:
        for file in files:
            suffix = Path(file).suffix.lower()
            if suffix == KEY_SUFFIX:
                self.key_edit.setText(file)
            elif suffix == WITNESS_SUFFIX:
                self.witness_edit.setText(file)

    def _browse(self, edit: QLineEdit, suffix: str) -> None:
        kind = "Proving keys" if suffix == KEY_SUFFIX else "Witnesses"
        kinds = f"{kind} (*{suffix});;All files (*)"
        choose_file(self, edit, self._preferences, suffix, f"Choose a {suffix} file", kinds)

    def _check(self) -> None:
        self.submit.setEnabled(bool(self.key and self.witness))
        self._problem.setText("")
        self._problem.hide()

    def _accept_if_right(self) -> None:
        if not self._is_key_here and not self.key.startswith("/"):
            self._say(
                f"the key {words.plain(self.key, 200)} is to be a whole path on the engine's machine, as /keys/a.zkey"
            )
            return
        here = [("the key", self.key)] if self._is_key_here else []
        for what, file in (*here, ("the witness", self.witness)):
            if not Path(file).is_file():
                self._say(f"{what} {words.plain(file, 200)} is not there, or not a file")
                return
        self.accept()

    def _say(self, text: str) -> None:
        self._problem.setText(text)
        self._problem.show()
        grow(self)


def dropped_files(data: object) -> list[str]:
    """Local keys and witnesses of a drag."""
    urls = data.urls() if data is not None and data.hasUrls() else []  # type: ignore[attr-defined]
    files = [url.toLocalFile() for url in urls[:32] if url.isLocalFile()]
    return [f for f in files if Path(f).suffix.lower() in (KEY_SUFFIX, WITNESS_SUFFIX)]
