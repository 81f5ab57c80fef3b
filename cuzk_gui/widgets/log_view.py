"""The engine's log: a bounded text with a filter by level; after a crash, the end of the log file."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QFontDatabase
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout

from cuzk_gui.models.log import LEVELS, LogEntry, LogRing, passes, short_ids
from cuzk_gui.theme import Theme, ui_font
from cuzk_gui.widgets.controls import ElidedLabel, Segmented, label

SHOWN_LINES = 2000
_SHORT = {"WARNING": "WARN"}


class LogView(QFrame):
    level_chosen = Signal(str)

    def __init__(self, theme: Theme, ring: LogRing, level: str = "INFO") -> None:
        super().__init__()
        self.setProperty("panel", True)
        self._theme = theme
        self._ring = ring
        self._seen = 0
        self._source = ElidedLabel("of the engine")
        self._source.setProperty("role", "muted")
        self._level = Segmented([name.lower() for name in LEVELS], "Least level shown in the log")
        self._level.setToolTip("The least level that is shown")
        self._level.set_value(level.lower() if level in LEVELS else "info")
        self._level.chosen.connect(self._chosen)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setPlaceholderText("What the engine reports appears here.")
        self.text.setMaximumBlockCount(SHOWN_LINES)
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.WidgetWidth)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setFont(ui_font(12))
        self.text.setAccessibleName("Log of the engine")
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        header = QHBoxLayout()
        header.setSpacing(14)
        header.addWidget(label("Log", "title"))
        header.addWidget(self._source, 1)
        header.addWidget(self._level)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(15, 8, 12, 8)
        layout.setSpacing(4)
        layout.addLayout(header)
        layout.addWidget(self.text, 1)

    @property
    def level(self) -> str:
        return (self._level.value or "info").upper()

    def refresh(self) -> None:
        """Adds what is new in the ring."""
        fresh = self._ring.added - self._seen
        if not fresh:
            return
        self._seen = self._ring.added
        self._append(self._ring.newest(min(fresh, SHOWN_LINES)))

    def rebuild(self) -> None:
        self.text.clear()
        self._seen = self._ring.added
        self._append(self._ring.newest(SHOWN_LINES))

    def say_source(self, text: str) -> None:
        self._source.set_text(text)

    def _append(self, entries: list[LogEntry]) -> None:
        least = self.level
        lines = [self._html(entry) for entry in entries if passes(entry, least)]
        if not lines:
            return
        bar = self.text.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - 2
        before = bar.value()
        for line in lines:
            self.text.appendHtml(line)
        bar.setValue(bar.maximum() if at_end else before)

    def _html(self, entry: LogEntry) -> str:
        c = self._theme.colours
        tone = {"ERROR": c.bad, "WARNING": c.warn}.get(entry.level)
        text = c.text if tone else c.muted
        clock = (entry.clock or "").ljust(12).replace(" ", "&nbsp;")
        level = _SHORT.get(entry.level, entry.level).ljust(6).replace(" ", "&nbsp;")
        mono = f"font-family:'{_mono().family()}',monospace; font-size:11px"
        return (
            f'<span style="white-space:pre; {mono}; color:{c.faint}">{clock}&nbsp;&nbsp;</span>'
            f'<span style="{mono}; color:{tone or c.faint}">{level}&nbsp;</span>'
            f'<span style="color:{text}">{escape(short_ids(entry.message))}</span>'
        )

    def _chosen(self, _level: str) -> None:
        self.rebuild()
        self.level_chosen.emit(self.level)


def _mono() -> QFont:
    return QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
