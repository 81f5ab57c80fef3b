"""``cuzk record``: a running engine's telemetry into a file, for the window or ``cuzk diagnose`` on any machine."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import OutputError, say, say_json
from cuzk_engine.cli.engine import add_options, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuzk_engine.client import EngineClient
    from cuzk_engine.recording.writer import RecordingWriter

    Subparsers = argparse._SubParsersAction[Any]

_DEFAULT_HISTORY: Final = "1m"
_DEFAULT_LIMIT: Final = "1GiB"


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "record",
        help="record what a running engine does",
        description="Writes what a running engine tells of its devices, transfers, memory and jobs into FILE, until "
        "Ctrl-C or for --seconds. No witness, proof or key is in it. Open it in the window or with cuzk diagnose.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    add_options(parser)
    parser.add_argument("--seconds", metavar="N", type=_seconds, help="end after so many seconds")
    parser.add_argument(
        "--history", metavar="DURATION", default=_DEFAULT_HISTORY, help=f"begin so far in the past ({_DEFAULT_HISTORY})"
    )
    parser.add_argument(
        "--limit",
        metavar="SIZE",
        default=_DEFAULT_LIMIT,
        help=f"largest size of the file; the oldest part is dropped for it ({_DEFAULT_LIMIT})",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.cli.signals import held_back, terminable
    from cuzk_engine.daemon import footprint
    from cuzk_engine.errors import CuzkError
    from cuzk_engine.recording.writer import RecordingWriter

    footprint.configure_malloc(footprint.SUPERVISOR)  # a recording may last for days, and does the same with batches
    footprint.keep_no_freed_arrays()
    history, limit = _duration("--history", args.history), _size("--limit", args.limit)
    with terminable(), connect(args) as client:
        client.identify()  # says in one line when nobody answers, before a file is made
        writer = RecordingWriter(args.file, limit=limit, address=client.address)
        started = time.monotonic()
        end, stopped = "interrupted", None
        try:
            try:
                end = _record(client, writer, history, args.seconds, started)
            finally:
                with held_back():  # a terminal that goes says so more than once
                    writer.close()
        except KeyboardInterrupt:
            pass
        except SystemExit as stop:
            stopped = stop
        except CuzkError as error:
            raise CuzkError(f"{error}; {writer.remains}") from error
        try:
            _report(writer, time.monotonic() - started, end, as_json=args.json)
        except OutputError:
            if stopped is None:  # else nobody is left to read it
                raise
        if stopped is not None:
            raise stopped
    if args.seconds is None or end == "time":
        return 0  # without --seconds, Ctrl-C is how a recording ends
    return 130 if end == "interrupted" else 1


def _record(client: EngineClient, writer: RecordingWriter, history: int, seconds: float | None, started: float) -> str:
    """Writes batches as they come. Returns why it ended: "time", "interrupted", "engine"."""
    from cuzk_engine.cli.console import ProgressLine
    from cuzk_engine.errors import DaemonError
    from cuzk_engine.units import format_size

    line = ProgressLine(sys.stderr)
    is_over = threading.Event()
    with client.telemetry_batches(history) as stream:

        def stop() -> None:
            is_over.set()
            stream.cancel()

        with _after(seconds, stop):
            try:
                for batch in stream:
                    writer.add(batch)
                    if line.visible:
                        share = (time.monotonic() - started) / seconds if seconds else 0.0
                        line.draw(f"{writer.events:,} events, {format_size(writer.file_bytes)}", min(1.0, share))
            except KeyboardInterrupt:
                return "interrupted"
            except DaemonError:
                return "time" if is_over.is_set() else "engine"
            finally:
                line.clear()
    return "time" if is_over.is_set() else "engine"


@contextlib.contextmanager
def _after(seconds: float | None, action: Callable[[], None]) -> Iterator[None]:
    """``action`` once the block has lasted so long; an interruption while it is entered leaves no timer behind."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, action)
    try:
        timer.start()
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()


def _report(writer: RecordingWriter, seconds: float, end: str, *, as_json: bool) -> None:
    from cuzk_engine.units import format_size

    size, covered = 0 if writer.is_empty else writer.path.stat().st_size, writer.covered_ns / 1e9
    if as_json:
        say_json(
            {
                "path": str(writer.path),
                "bytes": size,
                "seconds": seconds,
                "covered_seconds": covered,
                "events": writer.events,
                "lost": writer.lost,
                "dropped_chunks": writer.dropped_chunks,
                "end": end,
            }
        )
        return
    past = f" and of {covered - seconds:.1f} s before" if covered >= seconds + 0.1 else ""
    if writer.is_empty:
        say(f"{writer.path}: {writer.remains}")
    else:
        say(f"{writer.path}: {writer.events:,} events of {seconds:.1f} s{past}, {format_size(size)}")
    if end == "engine":
        say("the engine ended; what it told up to then is recorded" if not writer.is_empty else "the engine ended")
    if writer.lost:
        say(f"{writer.lost:,} events were lost: they came faster than they could be sent or written")
    if writer.dropped_chunks:
        say("the oldest part was dropped to stay within --limit; of it only the coarse levels are left")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _duration(option: str, text: str) -> int:
    from cuzk_engine.errors import UsageError
    from cuzk_engine.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}: {error}") from error


def _size(option: str, text: str) -> int:
    from cuzk_engine.errors import UsageError
    from cuzk_engine.recording.writer import SMALLEST_LIMIT
    from cuzk_engine.units import format_size, parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}: {error}") from error
    if size < SMALLEST_LIMIT:
        raise UsageError(f"{option} is {text!r}: expected at least {format_size(SMALLEST_LIMIT)}")
    return size
