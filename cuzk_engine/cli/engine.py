"""Which running engine a command talks to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cuzk_engine.errors import UsageError

if TYPE_CHECKING:
    from cuzk_engine.client import EngineClient


def add_options(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--daemon", metavar="ADDR", help=help)
    parser.add_argument("--cert", metavar="FILE", type=Path, help="certificate (PEM) of an engine elsewhere")
    parser.add_argument("--token", metavar="FILE", type=Path, help="file with the token that it asks for")


def check_options(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    if (args.cert is None) != (args.token is None):
        raise UsageError("--cert and --token go together: an engine elsewhere asks for both")
    if args.cert is not None and args.daemon is None:
        raise UsageError("--cert: is for the engine at an address; name it with --daemon")


def connect(args: argparse.Namespace) -> EngineClient:
    """The engine at --daemon, else this user's own one."""
    from cuzk_engine.client.connecting import connect

    check_options(args)
    return connect(args.daemon or "", certificate=args.cert, token=args.token)
