"""A window with an engine that does not exist, on no screen."""

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QDialog
from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models.session import Session
from cuzk_gui.models.view import TimeView
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.theme import Theme, ThemeChoice
from cuzk_gui.window import MainWindow
from tests.gui.fakes import FakeEngine

OpenWindow = Callable[..., MainWindow]
WAIT_MS = 8000


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


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(ProcessState.READY)


@pytest.fixture
def window(open_window: OpenWindow, engine: FakeEngine, qtbot: QtBot) -> MainWindow:
    """A window whose stream is up."""
    opened = open_window(engine)
    qtbot.waitUntil(
        lambda: opened.session.identity is not None and bool(opened.devices.rows) and opened.devices.whole,
        timeout=WAIT_MS,
    )
    return opened


@pytest.fixture
def scene(theme: Theme) -> Scene:
    return Scene(Session(), TimeView(10.0), theme, device="cpu")


@pytest.fixture
def stack(scene: Scene, qtbot: QtBot) -> ChartStack:
    made = ChartStack(scene)
    made.resize(1200, 700)
    qtbot.addWidget(made)
    made.show()
    return made


def dialog_of(kind: type[QDialog]) -> QDialog | None:
    return next((w for w in QApplication.topLevelWidgets() if isinstance(w, kind) and w.isVisible()), None)
