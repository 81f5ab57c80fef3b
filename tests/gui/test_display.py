"""Opening without a screen: said before Qt aborts."""

import os
import subprocess
import sys

import pytest

from cuzk_gui import display, main


def test_no_display() -> None:
    text = display.problem({})
    assert "no display" in text
    assert "cuzk prove" in text
    assert "\n" not in text


@pytest.mark.parametrize("environment", [{"DISPLAY": ":0"}, {"WAYLAND_DISPLAY": "w"}, {"QT_QPA_PLATFORM": "offscreen"}])
def test_some_display(environment: dict[str, str]) -> None:
    assert display.has_display(environment)


def test_a_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def ldd(*_args: object, **_more: object) -> subprocess.CompletedProcess[str]:
        lines = ("libqxcb.so:", "\tlibxcb-cursor.so.0 => not found", "\tlibc.so.6 => /lib/libc.so.6 (0x1)")
        output = "\n".join((*lines, "\tlibEGL.so.1 => not found"))
        return subprocess.CompletedProcess([], 0, output, "")

    monkeypatch.setattr(display.subprocess, "run", ldd)
    monkeypatch.setattr(display.shutil, "which", lambda _: "/usr/bin/ldd")
    text = display.problem({"DISPLAY": ":0"})
    assert "libxcb-cursor0 libegl1" in text
    assert "\n" not in text


def test_exit_code_and_one_line_without_display() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    answer = subprocess.run(
        [sys.executable, "-c", "import sys; from cuzk_gui.main import main; sys.exit(main([]))"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("cuzk: error: there is no display")


def test_wrong_usage() -> None:
    with pytest.raises(SystemExit) as raised:
        main.main(["--nonsense"])
    assert raised.value.code == 2


SIGNAL_AT_SHOW = """
import os, signal, sys
from cuzk_gui.main import main
from cuzk_gui.window import MainWindow
from PySide6.QtCore import QTimer
show = MainWindow.show
def show_then_signal(self):
    show(self)
    QTimer.singleShot(300, lambda: os.kill(os.getpid(), signal.NUMBER))
MainWindow.show = show_then_signal
sys.exit(main([]))
"""
SIGNAL_WHILE_LOADING = """
import os, signal, sys
import cuzk_gui.main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "cuzk_gui.charts.stack":
            os.kill(os.getpid(), signal.NUMBER)
sys.meta_path.insert(0, Finder())
sys.exit(cuzk_gui.main.main([]))
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("script", [SIGNAL_AT_SHOW, SIGNAL_WHILE_LOADING], ids=["open", "loading"])
def test_a_signal_ends_the_window_with_exit_code_0(number: str, script: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", script.replace("NUMBER", number)],
        capture_output=True,
        text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    left = [line for line in answer.stderr.splitlines() if "This plugin does not support" not in line]
    assert left == []
