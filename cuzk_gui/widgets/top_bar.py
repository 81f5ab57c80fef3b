"""What runs: name, state, address, build, up time, process; and the buttons that change it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QToolButton, QWidget

from cuzk_gui.models.process import Action, EngineView, Tone
from cuzk_gui.theme import Theme, ui_font
from cuzk_gui.widgets.controls import ElidedLabel, label


class StatePill(QWidget):
    """The state as a word beside a dot, in the colour of its tone."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._word = ""
        self._tone = Tone.QUIET
        self.setFont(ui_font(12.5, bold=True))

    @property
    def word(self) -> str:
        return self._word

    def show_state(self, word: str, tone: Tone) -> None:
        if (word, tone) != (self._word, self._tone):
            self._word, self._tone = word, tone
            self.setAccessibleName(f"Engine: {word}")
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(max(self.fontMetrics().horizontalAdvance(self._word) + 40, 92), 24)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        front, back = self._theme.colours.tone(self._tone)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(back))
        middle = self.height() / 2
        painter.drawRoundedRect(QRectF(0, middle - 12, self.width(), 24), 12, 12)
        painter.setBrush(QColor(front))
        painter.drawEllipse(QRectF(10, middle - 4.5, 9, 9))
        painter.setPen(QColor(front))
        painter.drawText(
            QRectF(26, 0, self.width() - 30, self.height()),
            Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft,
            self._word,
        )


class TopBar(QWidget):
    """Of the running engine, or of the recording that is shown in its place."""

    asked = Signal(Action)
    prove_asked = Signal()
    live_asked = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("top")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedHeight(47)
        self.pill = StatePill(theme)
        self._address = label("", "muted")
        self._facts = ElidedLabel()
        self._facts.setProperty("role", "muted")
        self.buttons: dict[Action, QPushButton] = {}
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 0, 14, 0)
        layout.setSpacing(8)
        layout.addWidget(label("cuzk", "brand"))
        layout.addSpacing(10)
        layout.addWidget(self.pill)
        layout.addSpacing(8)
        layout.addWidget(self._address)
        layout.addSpacing(8)
        layout.addWidget(self._facts, 1)
        for action, text, role, says in (
            (Action.START, "Start", "", "Start the engine on this machine; it goes on when the window closes"),
            (Action.RESTART, "Restart", "", "Stop the engine after what runs, then start what is installed"),
            (Action.STOP, "Stop", "danger", "Finish what runs, then end the engine and give its memory back"),
        ):
            button = QPushButton(text)
            button.setProperty("role", role)
            button.setToolTip(says)
            button.clicked.connect(lambda _=False, action=action: self.asked.emit(action))
            self.buttons[action] = button
            layout.addWidget(button)
        layout.addSpacing(8)
        self.prove = QPushButton("Prove…  Ctrl+P")
        self.prove.setProperty("role", "primary")
        self.prove.clicked.connect(self.prove_asked)
        layout.addWidget(self.prove)
        self.live = QPushButton("Back to the engine")
        self.live.setProperty("role", "primary")
        self.live.setToolTip("Closes the recording and shows the running engine again")
        self.live.clicked.connect(self.live_asked)
        self.live.hide()
        layout.addWidget(self.live)
        self.menu = QToolButton()
        self.menu.setText("☰")
        self.menu.setProperty("menu", True)
        self.menu.setAccessibleName("Menu")
        self.menu.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        layout.addWidget(self.menu)

    def show_engine(self, engine: EngineView, now_unix_ns: int) -> None:
        appearance = engine.appearance
        self.pill.show_state(appearance.word, appearance.tone)
        self._address.setText(engine.address)
        self._facts.set_text(" · ".join(engine.facts(now_unix_ns)))
        for action, button in self.buttons.items():
            button.setEnabled(action in appearance.actions)
        self.buttons[Action.START].setVisible(Action.RESTART not in appearance.actions)
        self.buttons[Action.RESTART].setVisible(Action.RESTART in appearance.actions)
        self.buttons[Action.STOP].show()
        if engine.elsewhere:
            for button in self.buttons.values():
                button.hide()
        self.prove.show()
        self.live.hide()
        self._tint(recorded=False)

    def show_recording(self, title: str, facts: str, progress: float) -> None:
        """``progress``: share of it that has been read."""
        self.pill.show_state("Recording" if progress >= 1 else f"Opening, {progress * 100:.0f} %", Tone.BUSY)
        self._address.setText(title)
        self._facts.set_text(facts)
        for button in (*self.buttons.values(), self.prove):
            button.hide()
        self.live.show()
        self._tint(recorded=True)

    def _tint(self, *, recorded: bool) -> None:
        """Another ground while a recording is shown, so that nobody takes it for the present."""
        if self.property("recorded") != recorded:
            self.setProperty("recorded", recorded)
            self.style().unpolish(self)
            self.style().polish(self)

    @property
    def address(self) -> str:
        return self._address.text()

    @property
    def facts(self) -> str:
        return self._facts.whole()
