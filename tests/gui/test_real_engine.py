"""Start, restart and stop from the window with a real daemon; the guards of every test see what is left behind."""

import psutil
from pytestqt.qtbot import QtBot

from cuzk_gui.demo import OwnEngine, free_port
from cuzk_gui.models.process import Action
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import Theme
from cuzk_gui.window import MainWindow

WAIT_MS = 30_000


def test_start_restart_stop(qtbot: QtBot, theme: Theme, preferences: Preferences) -> None:
    engine = OwnEngine(f"127.0.0.1:{free_port()}")
    window = MainWindow(engine, theme, preferences)
    window.show()
    try:
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        window.top.buttons[Action.START].click()
        qtbot.waitUntil(
            lambda: window.session.identity is not None and window.top.pill.word == "Ready", timeout=WAIT_MS
        )
        assert "started by the window" in window.top.facts
        first = window.session.identity
        assert first is not None
        window.top.buttons[Action.RESTART].click()
        qtbot.waitUntil(
            lambda: window.session.identity is not None and window.session.identity.pid != first.pid, timeout=WAIT_MS
        )
        assert not _lives(first.pid)
        window.top.buttons[Action.STOP].click()
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        assert window.session.identity is None
    finally:
        window.close_quietly()
        window.deleteLater()
        engine.stop()
    assert window.clean_end


def _lives(pid: int) -> bool:
    """A process that has ended and that nobody has collected yet does not live."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
