"""The ``cuzk`` command: finds the sub-command, runs it, turns errors into one line and an exit code.

A sub-command is one module of ``cuzk_engine.cli`` with two functions:

    def add_parser(subparsers) -> argparse.ArgumentParser    registers itself under its name and describes its arguments
    def run(args: argparse.Namespace) -> int                 does it; returns the exit code

and, where an action may be left out, ``completed(arguments: list[str]) -> list[str]``, which gets what follows the
command's name.
``run`` raises CuzkError for what a user can understand. Only the module of the command that was named is imported, so
that ``cuzk prove`` loads nothing that it does not need. ``--debug`` is understood by every command.

Exit codes: 0 done, 1 the thing asked for failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys

# Not from typing, whose import takes longer than all the rest: an interruption before main() could not be caught.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Final, NoReturn

COMMANDS: Final = {
    "app": "open the window",
    "daemon": "start, stop and look at the engine's background process",
    "jobs": "submit, watch and cancel jobs of a running engine",
    "settings": "see and change the settings of a running engine",
    "prove": "make a proof, verify it, write it",
    "verify": "check a proof",
    "plan": "say how much memory proofs with a key need",
    "info": "say what a file holds",
    "setup": "make a proving key for development",
    "workload": "write a circuit, key and witness to measure with",
    "bench": "measure how long proofs take",
    "record": "record what a running engine does",
    "diagnose": "say why a device was idle, from a recording",
    "export": "write a recording in a form that other programs read",
    "doctor": "look for what keeps cuzk from working well",
}

INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; without ``argv`` that of the process, which ends with it."""
    if argv is not None:
        return _guarded(list(argv))
    code = INTERRUPTED
    try:
        code = _guarded(sys.argv[1:])
        _ignore_late_signals()
    except KeyboardInterrupt:
        pass
    return code


def _guarded(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else 1
    except BrokenPipeError:
        _stop_writing()
        return 0
    except Exception as error:
        if "--debug" in arguments:
            import traceback

            traceback.print_exc()
        return _report(error)


def _run(arguments: list[str]) -> int:
    import importlib
    import os

    # numpy's linear algebra, which nothing here uses, starts a thread a processor when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    module = importlib.import_module(f"cuzk_engine.cli.{command}") if command in COMMANDS else None
    if command is not None and module is not None and hasattr(module, "completed"):
        behind = arguments.index(command) + 1
        arguments = arguments[:behind] + module.completed(arguments[behind:])
    parser = _parser(command, module)
    args = parser.parse_args(arguments)
    if module is None:
        parser.print_help()
        return 2
    code: int = module.run(args)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _parser(command: str | None, module: object) -> argparse.ArgumentParser:
    import argparse

    from cuzk_engine import __version__
    from cuzk_engine.errors import UsageError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message} (see {self.prog} --help)")

        def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
            """What an action does not know is told with its own help, not with that of the whole command."""
            found, unknown = super().parse_known_args(args, namespace)
            if unknown:
                self.error(f"unrecognized arguments: {' '.join(unknown)}")
            return found, unknown

    parser = Parser(
        prog="cuzk", description="Runs Groth16 proofs, and shows what happens meanwhile.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"cuzk {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name, summary in COMMANDS.items():
        if name == command:
            added = module.add_parser(subparsers)  # type: ignore[attr-defined]
            added.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _report(error: Exception) -> int:
    from cuzk_engine.errors import CuzkError

    if isinstance(error, CuzkError):
        message, code = str(error), error.exit_code
    else:
        text = " ".join(str(error).split())
        message, code = f"internal fault: {type(error).__name__}: {text}; --debug shows where it comes from", 1
    if sys.stderr is not None:
        import contextlib

        with contextlib.suppress(OSError):  # nobody listens; the exit code still tells
            print(f"cuzk: error: {message}", file=sys.stderr, flush=True)
    return code


def _ignore_late_signals() -> None:
    """The result stands: an interruption while the interpreter cleans up must not turn it into another one."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _stop_writing() -> None:
    """Whoever read standard output has gone; keeps the interpreter from complaining about that when it ends."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
