"""Which recording is shown in the place of the running engine, if any: opening, showing and closing it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from cuzk_gui.models.process import Tone
from cuzk_gui.preferences import Preferences
from cuzk_gui.recording import Opener, RecordingFeed
from cuzk_gui.recording_view import RecordingView
from cuzk_gui.turns import Turns
from cuzk_gui.widgets.pages import Pages
from cuzk_gui.workspace import Workspace


class Recordings(QObject):
    """``current``: the one that is open or being opened. ``changed``: another one, or none; ``said``: a line for the
    user."""

    changed = Signal()
    said = Signal(str, Tone)

    def __init__(self, pages: Pages, live: Workspace, turns: Turns, preferences: Preferences, opener: Opener) -> None:
        super().__init__(pages)
        self.current: RecordingView | None = None
        self.opener = opener
        self._pages = pages
        self._live = live
        self._turns = turns
        self._preferences = preferences
        self._ending: list[RecordingFeed] = []  # of closed recordings, whose threads may still run

    @property
    def shown(self) -> Workspace:
        """What is to be seen, or soon: the recording, else the running engine."""
        return self.current.workspace if self.current is not None and self.current.is_ready else self._live

    def choose(self, parent: QWidget) -> None:
        """Asks for a file and opens it."""
        dialog = QFileDialog(parent, "Open a recording", self._preferences.folder("recording"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.open)
        dialog.open()

    def open(self, file: str) -> None:
        """Shows a recording in the place of the running engine, which goes on meanwhile."""
        self._drop()
        path = Path(file)
        self._preferences.set_folder("recording", str(path.parent))
        opened = self.current = RecordingView(path, self.opener, self._live.theme, self._preferences)
        opened.ready.connect(partial(self._show, opened))
        opened.failed.connect(self._failed)
        opened.damaged.connect(lambda text: self.said.emit(text, Tone.WARN))
        self._pages.addWidget(opened.workspace)
        self._pages.show_cover(f"Opening {opened.title}…")
        self.changed.emit()

    def close(self) -> None:
        """Back to the running engine."""
        if self.current is None:
            return
        self._drop()
        self._show_in_parts(self._live)
        self._live.show_again()
        self.changed.emit()

    def tick(self) -> None:
        if self.current is not None:
            self.current.tick()

    def end(self) -> bool:
        """The window closes. Whether all threads have ended."""
        if self.current is not None:
            self.current.close()
            self._ending.append(self.current.feed)
        ended = [feed.close() for feed in self._ending]
        return all(ended)

    def _show(self, opened: RecordingView) -> None:
        if opened is not self.current:
            return
        workspace = opened.workspace
        workspace.set_sizes(self._pages.width())
        for (_, mine), (_, theirs) in zip(workspace.splitters(), self._live.splitters(), strict=True):
            mine.restoreState(theirs.saveState())
        self._show_in_parts(workspace)
        self.changed.emit()

    def _show_in_parts(self, workspace: Workspace) -> None:
        parts = workspace.parts()
        self._pages.show_page(workspace, parts)
        self._turns.restart()
        # What is not known yet shall not be read as zero.
        self._turns.soon(*workspace.slow_parts(), *[self._pages.reveal] * len(parts))

    def _drop(self) -> None:
        if self.current is None:
            return
        closed, self.current = self.current, None
        self._turns.restart()
        self._pages.removeWidget(closed.workspace)
        closed.close()
        self._ending = [feed for feed in (*self._ending, closed.feed) if not feed.close(0.0)]

    def _failed(self, reason: str) -> None:
        self.close()
        self.said.emit(reason[:1].upper() + reason[1:], Tone.BAD)
