"""``cuzk export``: a recording in a form that other programs read."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import say, say_json

if TYPE_CHECKING:
    from cuzk_engine.client.recording import Recording
    from cuzk_engine.formats.atomic import Sink

    Subparsers = argparse._SubParsersAction[Any]


_PIECE: Final = 1 << 16


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "export",
        help="write a recording in a form that other programs read",
        description="Writes a recording as a trace that ui.perfetto.dev and chrome://tracing open.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--perfetto", metavar="OUT", type=Path, required=True, help="the trace to write (JSON)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.cli.signals import terminable
    from cuzk_engine.client.recording import Recording
    from cuzk_engine.formats.atomic import write_atomically
    from cuzk_engine.units import format_size

    out: Path = args.perfetto
    with terminable(), Recording.open(args.file) as recording:
        _refuse_recording(out, args.file)
        trace = _Trace(recording)
        write_atomically(out, trace)
        damage = recording.damage
    if out.exists() and not out.is_file():
        return 0  # a pipe or a device: what is said must not get between
    if args.json:
        document = {"path": str(out), "events": trace.events, "bytes": trace.nbytes}
        say_json(document | {"left_out": trace.left_out, "damage": damage})
        return 0
    say(f"{out}: {trace.events:,} events, {format_size(trace.nbytes)}; open it at https://ui.perfetto.dev")
    if trace.left_out:
        events = "event" if trace.left_out == 1 else "events"
        say(f"left out: {trace.left_out:,} {events} that ended before the recording began")
    if damage:
        say(f"incomplete: {damage}")
    return 0


class _Trace:
    """Writes the trace of a recording into a sink, and counts."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.events = 0
        self.left_out = 0
        self.nbytes = 0

    def __call__(self, sink: Sink) -> None:
        from cuzk_engine.recording.perfetto import export

        text = _Text(sink)
        written = export(self._recording, text)
        self.events, self.left_out = written.events, written.left_out
        text.flush()
        self.nbytes = text.nbytes


class _Text:
    """Text for a sink of bytes, in pieces that are worth a call."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parts: list[str] = []
        self._size = 0
        self.nbytes = 0

    def write(self, text: str, /) -> None:
        self._parts.append(text)
        self._size += len(text)
        if self._size >= _PIECE:
            self.flush()

    def flush(self) -> None:
        data = "".join(self._parts).encode()
        self._sink.write(data)
        self.nbytes += len(data)
        self._parts, self._size = [], 0


def _refuse_recording(out: Path, recording: Path) -> None:
    from cuzk_engine.errors import CuzkError

    with contextlib.suppress(OSError):  # where it cannot be looked at it cannot be written either
        if out.samefile(recording):
            raise CuzkError(f"{out}: is the recording itself; name another file for the trace")
