"""The middle of the window: the running engine, a recording, or a line that says what is being opened."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QStackedWidget, QWidget

from cuzk_gui.widgets.controls import label


class Pages(QStackedWidget):
    """A page of many widgets takes longer to paint than the window may stand still: its parts appear one by one."""

    def __init__(self, first: QWidget) -> None:
        super().__init__()
        self.addWidget(first)
        self.cover = label("", "muted")
        self.cover.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.addWidget(self.cover)
        self._hidden: deque[QWidget] = deque()

    def show_cover(self, text: str) -> None:
        self.reveal_all()
        self.cover.setText(text)
        self.setCurrentWidget(self.cover)

    def show_page(self, page: QWidget, parts: Sequence[QWidget]) -> None:
        """``parts`` of it are painted only once ``reveal`` has come to them."""
        self.reveal_all()
        for part in parts:
            part.setUpdatesEnabled(False)
        self._hidden.extend(parts)
        self.setCurrentWidget(page)

    def reveal(self) -> bool:
        """Lets the next part be painted; False when all are."""
        if self._hidden:
            self._hidden.popleft().setUpdatesEnabled(True)
        return bool(self._hidden)

    def reveal_all(self) -> None:
        while self.reveal():
            pass
