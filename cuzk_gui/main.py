"""The way into the window: ``cuzk app`` and ``cuzk-gui``."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cuzk_gui import display

if TYPE_CHECKING:
    from cuzk_gui.preferences import Preferences
    from cuzk_gui.remote import Access

_SWITCH_S: Final = 0.0002


def keep_pauses_short() -> None:
    """Call it when the window is there: its thread shall not wait long for one that unpacks telemetry or reads a
    recording, and what is there to stay is not looked through again by every full collection of garbage (40 ms)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()


def main(argv: Sequence[str] | None = None) -> int:
    """Opens the window and returns when it has closed. Exit codes: 0 done, 1 no window possible, 2 wrong usage."""
    parser = _parser()
    arguments = parser.parse_args(list(sys.argv[1:] if argv is None else argv))
    wrong = _wrong_usage(arguments)
    if wrong:
        parser.error(wrong)
    if arguments.demo is not None and not display.has_display(os.environ):
        print("cuzk: no display here: proving the demo circuit without a window", flush=True)
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        return _without_window(Path(arguments.demo))
    problem = display.problem()
    if problem:
        print(f"cuzk: error: {problem}", file=sys.stderr)
        return 1
    unreadable = "" if arguments.recording is None else _unreadable(arguments.recording)
    if unreadable:
        print(f"cuzk: error: {unreadable}", file=sys.stderr)
        return 1
    try:
        return _window(arguments)
    except ImportError as error:
        print(f"cuzk: error: the window cannot be loaded: {error}; {display.ALTERNATIVE}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cuzk app", description="The window of the proving engine.", allow_abbrev=False
    )
    parser.add_argument("recording", nargs="?", metavar="RECORDING", help="a file of `cuzk record` to look at")
    parser.add_argument("--start", action="store_true", help="start the engine if it does not run")
    parser.add_argument(
        "--demo",
        metavar="FOLDER",
        help="without a display: prove the demo circuit without a window, and leave the proof and a picture in FOLDER",
    )
    parser.add_argument("--daemon", metavar="ADDR", help="show the engine at this address, not this machine's own")
    parser.add_argument("--cert", metavar="FILE", help="certificate (PEM) of an engine elsewhere")
    parser.add_argument("--token", metavar="FILE", help="file with the token that it asks for")
    return parser


def _wrong_usage(arguments: argparse.Namespace) -> str:
    if (arguments.cert is None) != (arguments.token is None):
        return "--cert and --token go together: an engine elsewhere asks for both"
    if arguments.cert is not None and arguments.daemon is None:
        return "--cert: is for the engine at an address; name it with --daemon"
    if arguments.daemon is not None and (arguments.start or arguments.demo is not None):
        return "--daemon: an engine at an address is started where it is; --start and --demo are for this machine's own"
    return ""


def _unreadable(recording: str) -> str:
    """Why a file cannot be opened as a recording, in one line; "" for one that can."""
    from cuzk_engine.client import CuzkError
    from cuzk_engine.client.recording import Recording

    try:
        Recording.open(recording).close()
    except CuzkError as error:
        return str(error)
    return ""


def _window(arguments: argparse.Namespace) -> int:
    quit_now: list[Callable[[], None]] = []

    def on_signal(*_args: object) -> None:
        if not quit_now:
            raise SystemExit(0)  # nothing is open yet
        quit_now[0]()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    from PySide6.QtWidgets import QApplication

    from cuzk_gui.application import Application
    from cuzk_gui.engine import LocalEngine
    from cuzk_gui.models.process import Action
    from cuzk_gui.preferences import Preferences
    from cuzk_gui.theme import Theme

    app = QApplication(["cuzk"])
    app.setApplicationName("cuzk")
    app.setDesktopFileName("cuzk")
    app.setQuitOnLastWindowClosed(False)  # another one may be about to take its place
    preferences = Preferences()
    theme = Theme(app, preferences.theme)
    shown = Application(theme, preferences)
    shown.ended.connect(lambda: app.exit(0))
    quit_now.append(shown.request_quit)
    access = _access(arguments, preferences)
    window = shown.show(LocalEngine()) if access is None else shown.show_at(access)
    keep_pauses_short()
    if arguments.recording is not None:
        window.recordings.open(arguments.recording)
    if arguments.start:
        window.controller.act(Action.START)
    code = app.exec()
    if not shown.clean_end:  # a call that hangs must not keep the process
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _access(arguments: argparse.Namespace, preferences: Preferences) -> Access | None:
    """The engine that was asked for; where no files are named, with those that were used last at this address."""
    from cuzk_gui.remote import Access

    if arguments.daemon is None:
        return None
    if arguments.cert is not None:
        return Access(arguments.daemon, str(Path(arguments.cert).absolute()), str(Path(arguments.token).absolute()))
    known = (one for one in preferences.engines if one.address == arguments.daemon)
    return next(known, Access(arguments.daemon))


def _without_window(folder: Path) -> int:
    problem = display.problem()
    if problem:
        print(f"cuzk: error: {problem}", file=sys.stderr)
        return 1
    from cuzk_gui.demo import prove_demo

    return prove_demo(folder)


if __name__ == "__main__":
    sys.exit(main())
