"""Which engine the window shows: an address, and the files that it asks for."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from cuzk_gui.models import words
from cuzk_gui.preferences import Preferences
from cuzk_gui.remote import Access, problem
from cuzk_gui.widgets.controls import grow, label
from cuzk_gui.widgets.fields import Row, choose_file, grid_of, line_edit

Attempt = Callable[[Access, Callable[[object], None], Callable[[str], None]], None]
_NOTE = (
    "An engine beyond this machine asks for TLS and a token: choose copies of its certificate and token file. Both "
    "stay empty for an engine of this machine, and for one behind a tunnel that ends here."
)


class ConnectDialog(QDialog):
    """``attempt`` asks the engine who it is; only when it answers the dialog is accepted, and ``access`` is what was
    chosen. ``own_asked``: this machine's own engine instead."""

    own_asked = Signal()

    def __init__(
        self, preferences: Preferences, attempt: Attempt, shown: Access | None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Connect to an engine")
        self.setMinimumWidth(620)
        self._preferences = preferences
        self._attempt = attempt
        self._count = 0  # of the times it was asked
        self._asked = 0  # which of them is waited for; 0 for none
        self._known = {one.address: one for one in preferences.engines}
        self.address_box = self._addresses(list(self._known))
        self.certificate_edit = line_edit("Certificate")
        self.token_edit = line_edit("Token file")
        self._problem = label("", "error")
        self._problem.setWordWrap(True)
        self._problem.hide()
        note = label(_NOTE, "muted")
        note.setWordWrap(True)
        self.connect_button = QPushButton("Connect")
        self.connect_button.setProperty("role", "primary")
        self.connect_button.setDefault(True)
        self.connect_button.clicked.connect(self._ask)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(18, 16, 18, 16)
        layout.setSpacing(14)
        layout.addLayout(self._fields())
        layout.addWidget(note)
        layout.addWidget(self._problem)
        layout.addLayout(self._buttons(shown))
        self.address_box.editTextChanged.connect(self._address_changed)
        for edit in (self.certificate_edit, self.token_edit):
            edit.textChanged.connect(self._changed)
        self.finished.connect(self._forget_answer)
        if shown is not None:
            self.fill(shown)
        self._address_changed()

    @property
    def access(self) -> Access:
        return Access(
            self.address_box.currentText().strip(), self.certificate_edit.text().strip(), self.token_edit.text().strip()
        )

    @property
    def problem(self) -> str:
        return self._problem.text()

    def fill(self, access: Access) -> None:
        self.address_box.setEditText(access.address)
        self.certificate_edit.setText(access.certificate)
        self.token_edit.setText(access.token)

    # ---- parts ----

    def _fields(self) -> QGridLayout:
        return grid_of(
            (
                Row("Address", self.address_box),
                Row(
                    "CA certificate (PEM)",
                    self.certificate_edit,
                    lambda: self._browse(self.certificate_edit, "certificate"),
                ),
                Row("Token file", self.token_edit, lambda: self._browse(self.token_edit, "token")),
            )
        )

    def _buttons(self, shown: Access | None) -> QHBoxLayout:
        buttons = QHBoxLayout()
        if shown is not None:
            own = QPushButton("Back to this machine's engine")
            own.setAutoDefault(False)
            own.clicked.connect(self._choose_own)
            buttons.addWidget(own)
        cancel = QPushButton("Cancel")
        cancel.setAutoDefault(False)
        cancel.clicked.connect(self.reject)
        buttons.addStretch(1)
        buttons.addWidget(cancel)
        buttons.addWidget(self.connect_button)
        return buttons

    def _addresses(self, known: list[str]) -> QComboBox:
        box = _Addresses()
        box.setEditable(True)
        box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        box.addItems([words.plain(address, 200) for address in known])
        box.setCurrentIndex(-1)
        box.setAccessibleName("Address")
        line = box.lineEdit()
        assert line is not None
        line.setPlaceholderText("host:port, [::1]:port or unix:///path")
        line.setMaxLength(300)
        return box

    # ---- what happens ----

    def _address_changed(self) -> None:
        """An address that is known brings its files."""
        known = self._known.get(self.access.address)
        if known is not None:
            self.certificate_edit.setText(known.certificate)
            self.token_edit.setText(known.token)
        self._changed()

    def _changed(self) -> None:
        self._asked = 0
        self.connect_button.setEnabled(bool(self.access.address))
        self.connect_button.setText("Connect")
        self._say("")

    def _browse(self, edit: QLineEdit, what: str) -> None:
        choose_file(self, edit, self._preferences, what, f"Choose the engine's {what}", "")

    def _ask(self) -> None:
        fault = problem(self.access)
        if fault:
            self._say(fault)
            return
        self._say("")
        self.connect_button.setEnabled(False)
        self.connect_button.setText("Connecting…")
        self._count += 1
        asked = self._asked = self._count

        def answered(_identity: object) -> None:
            if self._asked == asked:
                self.accept()

        def failed(reason: str) -> None:
            if self._asked == asked:
                self._changed()
                self._say(reason)

        self._attempt(self.access, answered, failed)

    def _choose_own(self) -> None:
        self.own_asked.emit()
        self.reject()

    def _forget_answer(self) -> None:
        self._asked = 0

    def _say(self, text: str) -> None:
        self._problem.setText(text[:1].upper() + text[1:])
        self._problem.setVisible(bool(text))
        grow(self)


class _Addresses(QComboBox):
    """Its arrow in the window's style: the platform's has a frame of its own colours."""

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        line = self.lineEdit()
        if line is None or not self.count():
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(line.palette().text())
        x, y = self.width() - 15.0, self.height() / 2 - 2
        painter.drawPolygon([QPointF(x, y), QPointF(x + 8, y), QPointF(x + 4, y + 4.5)])
