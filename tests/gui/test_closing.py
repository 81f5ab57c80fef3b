"""Closing the window: what becomes of the engine, and what is remembered."""

import time

from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState
from cuzk_gui.preferences import OnClose, Preferences
from cuzk_gui.widgets.close_dialog import CloseDialog
from cuzk_gui.widgets.prove_dialog import ProveDialog
from cuzk_gui.window import MainWindow
from tests.gui.conftest import OpenWindow, dialog_of
from tests.gui.fakes import FakeEngine

WAIT_MS = 8000


class TestClosing:
    def test_the_question_is_asked_once_and_remembered(
        self, window: MainWindow, engine: FakeEngine, preferences: Preferences
    ) -> None:
        preferences.on_close = OnClose.ASK
        window.close()
        dialog = dialog_of(CloseDialog)
        assert isinstance(dialog, CloseDialog)
        assert window.isVisible()
        dialog.keep.click()
        assert not window.isVisible()
        assert Preferences().on_close is OnClose.KEEP
        assert "shutdown" not in engine.calls

    def test_stop_it(self, window: MainWindow, engine: FakeEngine, preferences: Preferences) -> None:
        preferences.on_close = OnClose.ASK
        window.close()
        dialog = dialog_of(CloseDialog)
        assert isinstance(dialog, CloseDialog)
        dialog.remember.setChecked(False)
        dialog.stop.click()
        assert engine.calls == ["shutdown"]
        assert Preferences().on_close is OnClose.ASK

    def test_cancel_keeps_the_window(self, window: MainWindow, preferences: Preferences) -> None:
        preferences.on_close = OnClose.ASK
        window.close()
        dialog = dialog_of(CloseDialog)
        assert isinstance(dialog, CloseDialog)
        dialog.reject()
        assert window.isVisible()

    def test_a_remembered_answer_is_not_asked_again(
        self, window: MainWindow, engine: FakeEngine, preferences: Preferences
    ) -> None:
        preferences.on_close = OnClose.STOP
        window.close()
        assert dialog_of(CloseDialog) is None
        assert not window.isVisible()
        assert engine.calls == ["shutdown"]

    def test_no_question_about_an_engine_that_does_not_run(
        self, open_window: OpenWindow, qtbot: QtBot, preferences: Preferences
    ) -> None:
        preferences.on_close = OnClose.ASK
        window = open_window(FakeEngine(ProcessState.STOPPED))
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        window.close()
        assert not window.isVisible()

    def test_a_signal_closes_without_asking(
        self, window: MainWindow, engine: FakeEngine, preferences: Preferences, qtbot: QtBot
    ) -> None:
        preferences.on_close = OnClose.ASK
        window.proofs.ask()
        window.request_quit()
        qtbot.waitUntil(lambda: not window.isVisible(), timeout=WAIT_MS)
        assert dialog_of(ProveDialog) is None
        assert "shutdown" not in engine.calls

    def test_a_hanging_call_does_not_hold_the_window(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.STOPPED)
        engine.hang = True
        window = open_window(engine)
        qtbot.wait(100)
        start = time.monotonic()
        window.close()
        assert time.monotonic() - start < 2.0
        assert not window.isVisible()
        assert not window.clean_end

    def test_ten_times_open_and_close(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.READY)
        for number in range(10):
            window = open_window(engine)
            if number % 2:
                qtbot.waitUntil(lambda w=window: w.session.identity is not None, timeout=WAIT_MS)
            window.close()
            assert not window.isVisible()
            assert window.clean_end

    def test_layout_is_remembered(self, window: MainWindow, open_window: OpenWindow, engine: FakeEngine) -> None:
        devices, jobs = window.live.left.sizes()
        assert devices > jobs
        window.live.left.setSizes([jobs, devices])
        window.close()
        devices, jobs = open_window(engine).live.left.sizes()  # the window itself may be smaller on a small screen
        assert devices < jobs
