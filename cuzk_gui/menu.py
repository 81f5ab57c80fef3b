"""The window's actions: one list feeds the menu and the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu

from cuzk_gui.models.process import Action
from cuzk_gui.preferences import OnClose
from cuzk_gui.theme import ThemeChoice

_THEMES = {ThemeChoice.SYSTEM: "As the system", ThemeChoice.DARK: "Dark", ThemeChoice.LIGHT: "Light"}
_CLOSING = {
    OnClose.ASK: "Ask",
    OnClose.KEEP: "Keep the engine running",
    OnClose.STOP: "Stop the engine",
}
Do = Callable[[], object]


class WindowMenu(QMenu):
    """Built once; ``engine`` holds the actions that the engine's state enables."""

    def __init__(self, window: QMainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.engine: dict[Action, QAction] = {}
        self._themes: dict[ThemeChoice, QAction] = {}
        self._closing: dict[OnClose, QAction] = {}

    def build(
        self,
        *,
        prove: Do,
        demo: Do | None,
        save: Do,
        recording: Do,
        live: Do,
        table: Do,
        follow: Do,
        zoom: Callable[[float], object],
        pan: Callable[[float], object],
        act: Callable[[Action], object],
        connect: Do,
        theme: Callable[[ThemeChoice], object],
        closing: Callable[[OnClose], object],
        about: Do,
        close: Do,
    ) -> None:
        self._add(self, "Prove…", prove, "Ctrl+P")
        if demo is not None:
            self._add(self, "Prove the demo circuit", demo)
        self.save = self._add(self, "Save proof…", save, QKeySequence.StandardKey.Save)
        self.addSeparator()
        self._add(self, "Open recording…", recording, QKeySequence.StandardKey.Open)
        self.live = self._add(self, "Back to the running engine", live)
        self.live.setEnabled(False)
        self.addSeparator()
        view = self.addMenu("View")
        self._add(view, "Follow the present", follow, "F")
        self._add(view, "Zoom in", lambda: zoom(0.5), "+", "=")
        self._add(view, "Zoom out", lambda: zoom(2.0), "-")
        self._add(view, "Earlier", lambda: pan(-0.25), Qt.Key.Key_Left)
        self._add(view, "Later", lambda: pan(0.25), Qt.Key.Key_Right)
        self._add(view, "Show as table…", table, "Ctrl+T")
        view.addSeparator()
        self._themes = self._choices(view.addMenu("Theme"), _THEMES, theme)
        engine = self.addMenu("Engine")
        for action, text in ((Action.START, "Start"), (Action.RESTART, "Restart"), (Action.STOP, "Stop")):
            self.engine[action] = self._add(engine, text, partial(act, action))
        self._add(engine, "Connect…", connect)
        engine.addSeparator()
        self._closing = self._choices(engine.addMenu("When the window closes"), _CLOSING, closing)
        self.addSeparator()
        self._add(self, "About cuzk", about)
        self._add(self, "Quit", close, "Ctrl+Q")

    def show_choices(self, theme: ThemeChoice, closing: OnClose) -> None:
        self._themes[theme].setChecked(True)
        self._closing[closing].setChecked(True)

    def _add(self, menu: QMenu, text: str, do: Do, *keys: QKeySequence.StandardKey | Qt.Key | str) -> QAction:
        action = QAction(text, self._window)
        action.setShortcuts([QKeySequence(key) for key in keys])
        action.triggered.connect(lambda _=False: do())
        menu.addAction(action)
        self._window.addAction(action)
        return action

    def _choices(self, menu: QMenu, texts: dict, choose: Callable) -> dict:  # type: ignore[type-arg]
        group = QActionGroup(self._window)
        found = {}
        for value, text in texts.items():
            action = QAction(text, self._window)
            action.setCheckable(True)
            action.triggered.connect(lambda _=False, value=value: choose(value))
            group.addAction(action)
            menu.addAction(action)
            found[value] = action
        return found
