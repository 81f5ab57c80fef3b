"""What this program is, and which engine it shows."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from cuzk_engine.client import EngineIdentity
from cuzk_gui.models import words


def open_about(parent: QWidget, identity: EngineIdentity | None) -> None:
    lines = ["<b>cuzk</b>: runs Groth16 provers and shows what they do.", "Apache License 2.0"]
    if identity is not None:
        lines.append(f"Engine {words.plain(identity.version, 40)}, build {words.plain(identity.build, 64)}")
    box = QMessageBox(QMessageBox.Icon.NoIcon, "About cuzk", "<br>".join(lines), QMessageBox.StandardButton.Ok, parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.open()
