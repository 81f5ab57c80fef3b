"""A recording with the parts that show it."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Final

from PySide6.QtCore import QMimeData, QObject, Signal

from cuzk_gui.models import words
from cuzk_gui.models.view import LONGEST_S
from cuzk_gui.preferences import Preferences
from cuzk_gui.recording import Opener, RecordingFeed
from cuzk_gui.theme import Theme
from cuzk_gui.workspace import Workspace

_MAGIC: Final = b"SQLite format 3"
_BUILD_S: Final = 0.004


class RecordingView(QObject):
    """``ready``: the parts are there, made in slices between frames, and what the file says of itself: it can be shown,
    and fills. ``failed``: the file cannot be shown; ``damaged``: only a part of it; one line."""

    ready = Signal()
    failed = Signal(str)
    damaged = Signal(str)

    def __init__(self, path: Path, opener: Opener, theme: Theme, preferences: Preferences) -> None:
        super().__init__()
        self.path = path
        self.feed = RecordingFeed(path, opener)
        self.workspace = Workspace(self.feed.session, theme, preferences, has_demo=False, whole=False)
        self.is_ready = False
        self._is_built = False
        session = self.feed.session
        session.jobs.clock = lambda: session.latest_ns + session.wall_offset_ns
        self.feed.failed.connect(self.failed)
        self.feed.damaged.connect(self.damaged)
        self.feed.opened.connect(self._opened)
        self.feed.loaded.connect(self._loaded)

    def _build(self) -> None:
        limit = time.monotonic() + _BUILD_S
        while self.workspace.build():
            if time.monotonic() >= limit:
                return
        self.workspace.detail.set_recorded()
        self.workspace.jobs.recorded = True
        self.workspace.jobs.none = "none read yet"
        self.workspace.hide_circuits()
        self.workspace.devices.show_plans({})
        self.workspace.charts.follow.setText("Whole recording")
        self.workspace.charts.follow.setToolTip("Show all of it again (F)")
        self.workspace.scene.view.show(0.0, self.workspace.scene.view.width)
        self._is_built = True

    @property
    def title(self) -> str:
        return words.plain(self.path.name, 60)

    @property
    def facts(self) -> str:
        """Cards, address, date, length, build, and what the file lacks."""
        info, session = self.feed.info, self.feed.session
        if info is None:
            return ""
        cards = dict.fromkeys(words.plain(d.name or d.id, 40) for d in session.described.values())
        moment = datetime.fromtimestamp((info.start_ns + info.wall_offset_ns) / 1e9)
        begun = f"{moment:%d %B %Y, %H:%M}".lstrip("0")
        length = words.span((info.end_ns - info.start_ns) / 1e9)
        build = f"build {words.short_build(info.identity.build)}" if info.identity.build else ""
        lost = f"{info.lost:,} events lost" if info.lost else ""
        older = f"nothing is left from before {moment:%H:%M:%S}" if info.dropped_until_ns is not None else ""
        found = (*cards, words.plain(info.address, 60), begun, length, build, lost, older)
        return " · ".join(x for x in found if x)

    def tick(self) -> None:
        """Builds a part, or takes in what has been read."""
        if self._is_built:
            self.feed.tick()
        else:
            self._build()

    def close(self) -> None:
        """Lets the reading end, without waiting for it: see ``feed.close``."""
        self.feed.stop()
        self.workspace.hide()
        self.workspace.deleteLater()

    def _opened(self) -> None:
        info = self.feed.info
        assert info is not None
        length = max((info.end_ns - info.start_ns) / 1e9, 1e-3)
        view = self.workspace.scene.view
        view.whole = (0.0, min(length * 1.01, LONGEST_S))
        view.follow()
        self.is_ready = True
        self.ready.emit()

    def _loaded(self) -> None:
        self.workspace.jobs.none = "the recording holds none"
        self.workspace.detail.say_none("The recording holds no job.")
        self.workspace.show_again()


def dropped_recording(data: QMimeData) -> str:
    """The first file of a drag that may be a recording, "" for none; what it really is shows when it is opened."""
    files = [url.toLocalFile() for url in data.urls()[:32] if url.isLocalFile()] if data.hasUrls() else []
    return next((file for file in files if _may_be_recording(file)), "")


def _may_be_recording(file: str) -> bool:
    try:
        with open(file, "rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
