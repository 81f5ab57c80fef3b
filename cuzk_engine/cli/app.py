"""``cuzk app``: the window. The engine never imports it; it is looked up by name when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli import engine
from cuzk_engine.errors import CuzkError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "app", help="open the window", description="Opens the window.", allow_abbrev=False
    )
    parser.add_argument("recording", nargs="?", metavar="RECORDING", help="a file of `cuzk record` to look at")
    parser.add_argument("--start", action="store_true", help="start the engine if it does not run")
    parser.add_argument(
        "--demo",
        metavar="FOLDER",
        help="without a display: prove the demo circuit without a window, and leave the proof and a picture in FOLDER",
    )
    engine.add_options(parser, "show the engine at this address, not this machine's own")
    return parser


def run(args: argparse.Namespace) -> int:
    engine.check_options(args)
    try:
        window = importlib.import_module("cuzk_gui.main")
    except ImportError as error:
        raise CuzkError(
            f"the window cannot be loaded: {error}; `cuzk prove` and `cuzk daemon` work without it"
        ) from error
    arguments = [] if args.recording is None else [args.recording]
    arguments += ["--start"] if args.start else []
    arguments += [] if args.demo is None else ["--demo", args.demo]
    for option in ("daemon", "cert", "token"):
        value = getattr(args, option)
        arguments += [] if value is None else [f"--{option}", str(value)]
    code: int = window.main(arguments)
    return code
