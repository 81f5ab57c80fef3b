"""The question at the end: whether the engine goes on."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from cuzk_gui.preferences import OnClose
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import Switch, label


class CloseDialog(QDialog):
    """``choice`` after it was accepted; rejected means that the window stays."""

    def __init__(self, theme: Theme, busy: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Close the window")
        self.choice = OnClose.KEEP
        jobs = "" if not busy else f" It has {busy} unfinished {'job' if busy == 1 else 'jobs'}."
        kept = "" if not busy else " If it stops, it ends what runs and keeps the rest for its next start."
        text = label(f"The engine is running.{jobs} Shall it go on without the window?{kept}", "")
        text.setWordWrap(True)
        self.remember = Switch(theme, "Remember, and do not ask again")
        self.remember.setChecked(True)
        remember = QHBoxLayout()
        remember.setSpacing(10)
        remember.addWidget(self.remember)
        remember.addWidget(label("Remember, and do not ask again (the menu changes it)", "muted"), 1)
        self.keep = QPushButton("Keep the engine running")
        self.keep.setProperty("role", "primary")
        self.keep.setDefault(True)
        self.keep.clicked.connect(lambda: self._choose(OnClose.KEEP))
        self.stop = QPushButton("Stop it")
        self.stop.setAutoDefault(False)
        self.stop.clicked.connect(lambda: self._choose(OnClose.STOP))
        cancel = QPushButton("Cancel")
        cancel.setAutoDefault(False)
        cancel.clicked.connect(self.reject)
        buttons = QHBoxLayout()
        buttons.addWidget(cancel)
        buttons.addStretch(1)
        buttons.addWidget(self.stop)
        buttons.addWidget(self.keep)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 16, 18, 16)
        layout.setSpacing(14)
        layout.addWidget(text)
        layout.addLayout(remember)
        layout.addLayout(buttons)

    def _choose(self, choice: OnClose) -> None:
        self.choice = choice
        self.accept()
