"""Rows of a dialog: a caption, a field, and for files a button that chooses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QGridLayout, QLineEdit, QPushButton, QWidget

from cuzk_gui.preferences import Preferences
from cuzk_gui.widgets.controls import label

_LONGEST = 4096  # of what is typed, characters


@dataclass(frozen=True, slots=True)
class Row:
    """``browse``: what its button does; None: it has none."""

    caption: str
    field: QWidget
    browse: Callable[[], None] | None = None


def line_edit(name: str) -> QLineEdit:
    edit = QLineEdit()
    edit.setAccessibleName(name)
    edit.setMaxLength(_LONGEST)
    return edit


def grid_of(rows: Sequence[Row]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(10)
    grid.setVerticalSpacing(10)
    for number, row in enumerate(rows):
        caption = label(row.caption, "")
        caption.setBuddy(row.field)
        grid.addWidget(caption, number, 0)
        grid.addWidget(row.field, number, 1)
        if row.browse is not None:
            button = QPushButton("Browse…")
            button.setAutoDefault(False)
            button.clicked.connect(row.browse)
            grid.addWidget(button, number, 2)
    grid.setColumnStretch(1, 1)
    return grid


def choose_file(parent: QWidget, edit: QLineEdit, preferences: Preferences, what: str, title: str, kinds: str) -> None:
    """Fills ``edit`` with a file that the user chooses, and remembers its folder for ``what``."""
    folder = str(Path(edit.text()).parent) if edit.text() else preferences.folder(what)
    dialog = QFileDialog(parent, title, folder, kinds)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

    def chosen(file: str) -> None:
        edit.setText(file)
        preferences.set_folder(what, str(Path(file).parent))

    dialog.fileSelected.connect(chosen)
    dialog.open()
