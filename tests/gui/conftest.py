"""A window with an engine that does not exist, on no screen."""

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.window import MainWindow
from tests.gui.fakes import FakeEngine

OpenWindow = Callable[..., MainWindow]


@pytest.fixture
def preferences(cuzk_home: Path) -> Preferences:
    found = Preferences()
    found.on_close = OnClose.KEEP
    return found


@pytest.fixture
def theme(qapp) -> Iterator[Theme]:
    made = Theme(qapp, ThemeChoice.DARK)
    yield made
    made.close()


@pytest.fixture
def open_window(qtbot: QtBot, theme: Theme, preferences: Preferences) -> Iterator[OpenWindow]:
    """``open_window(engine)`` shows a window; all of them are closed at the end, and their engines with them."""
    opened: list[tuple[MainWindow, FakeEngine]] = []

    def show(engine: FakeEngine) -> MainWindow:
        window = MainWindow(engine, theme, preferences)
        opened.append((window, engine))
        window.show()
        return window

    yield show
    for window, engine in opened:
        engine.release()
        window.close_quietly()
        assert window.controller.close()
        window.deleteLater()
