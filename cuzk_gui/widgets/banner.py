"""A sentence across the window: a state that asks for a decision, or a notice that goes away by itself."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from cuzk_gui.models import words
from cuzk_gui.models.process import Action, Banner, Tone
from cuzk_gui.theme import Theme

_BUTTONS = {Action.START: "Start", Action.RESTART: "Restart", Action.STOP: "Stop", Action.CONNECT: "Connect…"}
_NOTICE_MS = 12_000


class Strip(QFrame):
    """Text and at most one button on a toned ground."""

    pressed = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._tone = Tone.QUIET
        self.label = QLabel()
        self.label.setWordWrap(True)
        self.label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.button = QPushButton()
        self.button.clicked.connect(self.pressed)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 6, 8, 6)
        layout.addWidget(self.label, 1)
        layout.addWidget(self.button)
        self.hide()
        theme.changed.connect(self._restyle)

    def show_text(self, text: str, tone: Tone, button: str = "") -> None:
        self._tone = tone
        self.label.setText(text)
        self.setAccessibleName(text)
        self.button.setText(button)
        self.button.setVisible(bool(button))
        self._restyle()
        self.show()

    def _restyle(self) -> None:
        front, back = self._theme.colours.tone(self._tone)
        text = self._theme.colours.text if self._tone is Tone.QUIET else front
        self.setStyleSheet(
            f"Strip {{ background: {back}; border: 1px solid {self._theme.colours.border}; border-radius: 6px; }}"
            f"QLabel {{ color: {text}; }}"
        )


class EngineBanner(Strip):
    """What the engine's state asks for."""

    asked = Signal(Action)

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._shown: Banner | None = None
        self.pressed.connect(self._ask)

    def show_banner(self, banner: Banner | None) -> None:
        if banner == self._shown:
            return
        self._shown = banner
        if banner is None:
            self.hide()
            return
        text = banner.text[:1].upper() + banner.text[1:]
        self.show_text(text, banner.tone, _BUTTONS[banner.action] if banner.action else "")

    def show_again(self) -> None:
        """What was shown last counts as not shown."""
        self._shown = None

    def _ask(self) -> None:
        if self._shown is not None and self._shown.action is not None:
            self.asked.emit(self._shown.action)


class Notice(Strip):
    """The newest answer or fault, in the lower right corner of the window, where it covers least; goes after a while or
    by its button. Never modal, and nothing moves when it comes.
    """

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme)
        self.setParent(parent)
        self.hide()
        parent.installEventFilter(self)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        self.pressed.connect(self.hide)

    def say(self, text: str, tone: Tone = Tone.QUIET) -> None:
        self.show_text(words.plain(text, 400), tone, "Dismiss")
        self._place()
        self.raise_()
        self._timer.start(_NOTICE_MS * (2 if tone is Tone.BAD else 1))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return False

    def _place(self) -> None:
        parent = self.parentWidget()
        assert parent is not None
        beside = self.button.sizeHint().width() + 50
        wanted = self.label.fontMetrics().horizontalAdvance(self.label.text()) + beside
        width = min(max(wanted, 320), 360)
        text_height = self.label.heightForWidth(width - beside)
        self.setFixedSize(width, max(text_height, self.button.sizeHint().height()) + 14)
        self.move(parent.width() - width - 20, parent.height() - self.height() - 20)
