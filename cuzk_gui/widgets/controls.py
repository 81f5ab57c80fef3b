"""Small controls in the window's style: a row of choices, a switch, a stepper, a bar of shares."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QEnterEvent, QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from cuzk_gui.theme import Theme, ui_font


class Segmented(QFrame):
    """One of a few choices, all visible. ``chosen`` is sent when a person chooses, not by ``set_value``; ``looked_at``
    with the choice under the pointer, "" when it leaves."""

    chosen = Signal(str)
    looked_at = Signal(str)

    def __init__(self, choices: Sequence[str], name: str) -> None:
        super().__init__()
        self.setObjectName("segmented")
        self.setAccessibleName(name)
        self._group = QButtonGroup(self)
        self._group.setExclusive(True)
        self._buttons: dict[str, QToolButton] = {}
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(1)
        for choice in choices:
            button = QToolButton()
            button.setText(choice)
            button.setCheckable(True)
            button.setProperty("segment", True)
            button.setAccessibleName(f"{name}: {choice}")
            bold = QFontMetricsF(ui_font(12, bold=True))
            button.setMinimumWidth(round(bold.horizontalAdvance(choice)) + 16)
            button.clicked.connect(lambda _=False, choice=choice: self.chosen.emit(choice))
            button.installEventFilter(self)
            self._group.addButton(button)
            self._buttons[choice] = button
            layout.addWidget(button)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    @property
    def value(self) -> str | None:
        return next((choice for choice, button in self._buttons.items() if button.isChecked()), None)

    def set_value(self, value: str | None) -> None:
        """A value that is none of the choices leaves all of them off."""
        if value == self.value:
            return
        if value in self._buttons:
            self._buttons[value].setChecked(True)
            return
        self._group.setExclusive(False)
        for button in self._buttons.values():
            button.setChecked(False)
        self._group.setExclusive(True)

    def button(self, choice: str) -> QToolButton:
        return self._buttons[choice]

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Enter:
            choice = next((c for c, b in self._buttons.items() if b is watched), "")
            self.looked_at.emit(choice if choice != self.value else "")
        elif event.type() == QEvent.Type.Leave:
            self.looked_at.emit("")
        return False


class Switch(QAbstractButton):
    """On or off. ``looked_at``: the pointer is on it, or has left."""

    looked_at = Signal(bool)

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self._theme = theme
        self.setCheckable(True)
        self.setAccessibleName(name)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFixedSize(self.sizeHint())

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.looked_at.emit(True)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.looked_at.emit(False)

    def sizeHint(self) -> QSize:
        return QSize(38, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        colours = self._theme.colours
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        on = self.isChecked()
        track = QColor(colours.accent if on else colours.control)
        if not self.isEnabled():
            track = QColor(colours.faint if on else colours.border)
        painter.setPen(QPen(QColor(colours.text if self.hasFocus() else colours.accent if on else colours.faint), 1))
        painter.setBrush(track)
        painter.drawRoundedRect(QRectF(0.5, 0.5, 37, 19), 9.5, 9.5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor("#ffffff" if on or not colours.dark else colours.muted))
        if not on and not colours.dark:
            painter.setBrush(QColor(colours.muted))
        painter.drawEllipse(QRectF(20.5 if on else 3.0, 3.0, 14, 14))


class Stepper(QFrame):
    """A small whole number between two buttons. ``stepped`` is sent when a person changes it; ``looked_at`` with the
    number that the button under the pointer would make, 0 when it leaves."""

    stepped = Signal(int)
    looked_at = Signal(int)

    def __init__(self, name: str, low: int, high: int) -> None:
        super().__init__()
        self.setObjectName("stepper")
        self._low, self._high, self._value = low, high, low
        self._label = QLabel("–")
        self._label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._label.setFont(ui_font(12.5, bold=True))
        self._label.setMinimumWidth(28)
        self._fewer, self._more = QToolButton(), QToolButton()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        for button, text, step, says in ((self._fewer, "−", -1, "fewer"), (self._more, "+", 1, "more")):
            button.setText(text)
            button.setProperty("segment", True)
            button.setAccessibleName(f"{name}: {says}")
            button.setFixedWidth(28)
            button.clicked.connect(lambda _=False, step=step: self._step(step))
            button.installEventFilter(self)
        layout.addWidget(self._fewer)
        layout.addWidget(self._label)
        layout.addWidget(self._more)
        self._name = name
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    @property
    def value(self) -> int:
        return self._value

    def set_value(self, value: int) -> None:
        self._value = value
        self._label.setText(str(value))
        self._label.setAccessibleName(f"{self._name}: {value}")
        self._fewer.setEnabled(value > self._low)
        self._more.setEnabled(value < self._high)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Enter:
            wanted = self._value + (1 if watched is self._more else -1)
            self.looked_at.emit(wanted if self._low <= wanted <= self._high else 0)
        elif event.type() == QEvent.Type.Leave:
            self.looked_at.emit(0)
        return False

    def _step(self, step: int) -> None:
        value = min(max(self._value + step, self._low), self._high)
        if value != self._value:
            self.set_value(value)
            self.stepped.emit(value)


class ShareBar(QWidget):
    """A bar of coloured parts of a whole; what is left is the track."""

    def __init__(self, theme: Theme, height: int = 12) -> None:
        super().__init__()
        self._theme = theme
        self._parts: list[tuple[float, str]] = []
        self.setFixedHeight(height)

    def set_parts(self, parts: list[tuple[float, str]]) -> None:
        """(share 0…1, colour name of the palette's purposes or a colour) from left to right."""
        if parts != self._parts:
            self._parts = parts
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        colours = self._theme.colours
        width, height = self.width(), self.height()
        painter.fillRect(0, 0, width, height, QColor(colours.control))
        x = 0.0
        for share, name in self._parts:
            wide = min(max(share, 0.0) * width, width - x)
            if wide <= 0:
                continue
            colour = QColor(name) if name.startswith("#") else QColor(colours.purpose(name))
            painter.fillRect(QRectF(x, 0, max(wide, 1.0), height), colour)
            x += wide


class ElidedLabel(QLabel):
    """A label that cuts its text to its width; the whole text is its tooltip when cut. ``natural``: it asks for the
    width of its text, and is cut only where that is not to be had; else it takes what is left."""

    def __init__(self, text: str = "", *, natural: bool = False) -> None:
        super().__init__()
        self._whole = ""
        self._tip = ""
        self._natural = natural
        wide = QSizePolicy.Policy.Preferred if natural else QSizePolicy.Policy.Ignored
        self.setSizePolicy(wide, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(30)
        self.set_text(text)

    def set_text(self, text: str) -> None:
        if text != self._whole:
            self._whole = text
            self.setAccessibleName(text)
            if self._natural:
                self.setMinimumWidth(min(30, self.fontMetrics().horizontalAdvance(text) + 2))
                self.updateGeometry()
            self._cut()

    def set_tip(self, tip: str) -> None:
        """What the pointer is told instead of the whole text."""
        self._tip = tip
        self._cut()

    def whole(self) -> str:
        return self._whole

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        if self._natural:
            hint.setWidth(self.fontMetrics().horizontalAdvance(self._whole) + 2)
        return hint

    def minimumSizeHint(self) -> QSize:
        return QSize(30, super().minimumSizeHint().height())

    def resizeEvent(self, event: object) -> None:
        self._cut()

    def _cut(self) -> None:
        shown = self.fontMetrics().elidedText(self._whole, Qt.TextElideMode.ElideRight, max(self.width(), 30))
        self.setText(shown)
        self.setToolTip(self._tip or (self._whole if shown != self._whole else ""))


def rule() -> QFrame:
    """A thin horizontal line."""
    line = QFrame()
    line.setProperty("line", True)
    return line


def set_role(widget: QWidget, role: str) -> None:
    """Gives a widget another role of the style sheet."""
    if widget.property("role") != role:
        widget.setProperty("role", role)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def label(text: str, role: str) -> QLabel:
    made = QLabel(text)
    made.setProperty("role", role)
    return made


def grow(dialog: QWidget) -> None:
    """Makes room for lines that wrap: a layout counts each as one when it says how small a dialog may be."""
    layout = dialog.layout()
    if layout is not None and dialog.isVisible():
        layout.activate()
        dialog.resize(dialog.width(), max(dialog.height(), layout.totalHeightForWidth(dialog.width())))
