"""``cuzk daemon``: the engine's background process, seen and moved from the command line."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import say, say_json
from cuzk_engine.errors import UsageError

if TYPE_CHECKING:
    from cuzk_engine.client.types import DaemonStatus

    Subparsers = argparse._SubParsersAction[Any]

_STATUS_CODES: Final = {"ready": 0, "stopped": 3}
_OTHER_STATE: Final = 4
_LEVELS: Final = ("debug", "info", "warning", "error")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "daemon",
        help="start, stop and look at the engine's background process",
        description="The engine's background process. It outlives the command that starts it.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="ACTION", dest="action")
    start = _action(actions, "start", "start it, and wait until it is ready")
    stop = _action(actions, "stop", "let it finish what runs, and end it")
    restart = _action(actions, "restart", "stop it and start it again")
    status = _action(actions, "status", "say what it does; exit code 0 ready, 3 stopped, 4 anything else")
    run = _action(actions, "run", "run it in the foreground, until Ctrl-C", with_json=False)
    for one in (start, run, restart, stop, status):
        one.add_argument("--listen", metavar="ADDRESS", default="", help="address, instead of daemon.listen")
    for one in (start, run):
        one.add_argument("--log-level", choices=_LEVELS, default="", help="instead of logging.level")
    run.add_argument("--started-by", metavar="WHO", default="command line", help="what `status` says of it")
    for one in (stop, restart):
        one.add_argument(
            "--drain-timeout",
            metavar="SECONDS",
            type=_seconds,
            default=60.0,
            help="how long what runs may take to finish (60); after that it is queued for the next start",
        )
    restart.add_argument("--if-stale", action="store_true", help="only when the running build is not the installed one")
    return parser


def run(args: argparse.Namespace) -> int:
    if args.action is None:
        raise UsageError("an action is missing: start, stop, restart, status or run (see cuzk daemon --help)")
    if args.action == "run":
        return _run_here(args)
    from cuzk_engine.client import lifecycle

    config = args.config or None
    match args.action:
        case "start":
            status = lifecycle.start_daemon(config=config, listen=args.listen, log_level=args.log_level)
            status = replace(status, message=status.message + _whose(status))
        case "stop":
            status = lifecycle.stop_daemon(config=config, address=args.listen, drain_timeout=args.drain_timeout)
        case "restart":
            status = lifecycle.restart_daemon(
                config=config, listen=args.listen, if_stale=args.if_stale, drain_timeout=args.drain_timeout
            )
        case _:
            status = lifecycle.daemon_status(args.listen, config=config)
    if args.json:
        say_json(status_document(status))
    else:
        say(status.message)
    return _STATUS_CODES.get(status.state, _OTHER_STATE) if args.action == "status" else 0


def _whose(status: DaemonStatus) -> str:
    """What is to be said of an engine that runs there and was started from other folders: here, only its address leads
    to it."""
    from cuzk_engine import paths
    from cuzk_engine.client.instance import read_lock

    lock = read_lock()
    if lock.held and (lock.instance is None or lock.instance.pid == status.pid):
        return ""
    return (
        f"; it is another one than that of {paths.runtime_dir()} (CUZK_HOME), which has to have an address of its own"
    )


def status_document(status: DaemonStatus) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "state": status.state,
        "message": status.message,
        "pid": status.pid,
        "build": status.build,
        "installed_build": status.installed_build,
        "stale": status.stale,
        "version": status.version,
        "address": status.address,
        "started": status.started_unix_ns,
        "started_by": status.started_by,
        "devices": [asdict(device) for device in status.devices],
        "jobs": {"running": status.jobs_running, "queued": status.jobs_queued},
        "log": status.log_path,
    }


def _run_here(args: argparse.Namespace) -> int:
    from cuzk_engine.daemon.main import Options, run_daemon

    return run_daemon(
        Options(config=args.config, listen=args.listen, log_level=args.log_level, started_by=args.started_by)
    )


def _action(actions: Any, name: str, text: str, with_json: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[:1].upper() + text[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("--config", metavar="FILE", default="", help="configuration file")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if with_json:
        parser.add_argument("--json", action="store_true", help="print the state as JSON")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds from 0 to 86400")
    return value
