"""The window that is open, and another one in its place when another engine is chosen: nothing that is known of one
engine can be taken for the other's."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from cuzk_gui.engine import Engine, LocalEngine
from cuzk_gui.preferences import Preferences
from cuzk_gui.remote import Access, RemoteEngine
from cuzk_gui.theme import Theme
from cuzk_gui.window import MainWindow


class Application(QObject):
    """``ended``: the window has closed, and no other one has taken its place. ``clean_end``: no call that hangs was
    left behind."""

    ended = Signal()

    def __init__(self, theme: Theme, preferences: Preferences) -> None:
        super().__init__()
        self._theme = theme
        self._preferences = preferences
        self.window: MainWindow | None = None
        self.clean_end = True

    def show(self, engine: Engine) -> MainWindow:
        """Opens the window of an engine; the one that was open closes, and leaves its engine running."""
        before = self.window
        if before is not None:
            before.remember_layout()  # the new one looks the same
        opened = self.window = MainWindow(engine, self._theme, self._preferences)
        opened.engine_chosen.connect(self._choose)
        opened.ended.connect(lambda: self._window_ended(opened))
        opened.show()
        if before is not None:
            before.close_quietly()
            before.deleteLater()
        return opened

    def show_at(self, access: Access) -> MainWindow:
        """Opens the window of the engine at an address, which is remembered once it answers: files that do not fit must
        not take the place of those that did."""
        opened = self.show(RemoteEngine(access))
        control = opened.controller

        def look() -> None:
            if control.engine.identity is not None:
                control.engine_changed.disconnect(look)
                self._preferences.remember_engine(access)

        control.engine_changed.connect(look)
        return opened

    def request_quit(self) -> None:
        if self.window is not None:
            self.window.request_quit()

    def _choose(self, access: Access | None) -> None:
        if access is None:
            self.show(LocalEngine())
        else:
            self.show_at(access)

    def _window_ended(self, window: MainWindow) -> None:
        self.clean_end = self.clean_end and window.clean_end
        if window is self.window:
            self.window = None
            self.ended.emit()
