"""Which running engine a command talks to."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.errors import DaemonError, UsageError

if TYPE_CHECKING:
    from cuzk_engine.client import EngineClient

_OWN = "the engine's address (that of your own one)"


def add_options(parser: argparse.ArgumentParser, help: str = _OWN, default: Any = None) -> None:
    parser.add_argument("--daemon", metavar="ADDR", default=default, help=help)
    parser.add_argument(
        "--cert", metavar="FILE", type=Path, default=default, help="certificate (PEM) of an engine elsewhere"
    )
    parser.add_argument(
        "--token", metavar="FILE", type=Path, default=default, help="file with the token that it asks for"
    )


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """Sub-commands, each of which takes the engine's options, --json and --debug too: before the action's name or
    after it."""
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.add_subparsers(metavar="ACTION", dest="action")


def with_list(arguments: list[str], actions: Collection[str], *, takes_names: bool) -> list[str]:
    """What follows a command's name, with the action "list" where none is named."""
    is_other = not arguments or {"-h", "--help", *actions} & set(arguments)
    return arguments if is_other or not (takes_names or arguments[0].startswith("-")) else ["list", *arguments]


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[:1].upper() + text[1:] + ".", allow_abbrev=False
    )
    add_options(parser, default=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


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


@contextlib.contextmanager
def accepted(job_id: str) -> Iterator[None]:
    """For what follows a job: where the engine goes away, the error says that the job does not."""
    try:
        yield
    except DaemonError as error:
        raise DaemonError(f"{error}; job {job_id} was accepted and goes on when the engine is there again") from error
