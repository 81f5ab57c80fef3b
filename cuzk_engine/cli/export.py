"""``cuzk export``: a recording in a form that other programs read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


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
    from cuzk_engine.client.recording import Recording
    from cuzk_engine.errors import CuzkError
    from cuzk_engine.recording.perfetto import export
    from cuzk_engine.units import format_size

    out: Path = args.perfetto
    partial = out.with_name(f"{out.name}.part")
    with Recording.open(args.file) as recording:
        try:
            if out.exists() and out.samefile(args.file):
                raise CuzkError(f"{out}: is the recording itself; name another file for the trace")
            with partial.open("w", encoding="utf-8") as file:
                count = export(recording, file)
            partial.replace(out)
        except OSError as error:
            raise CuzkError(f"{out}: cannot be written: {(error.strerror or str(error)).lower()}") from error
        finally:
            partial.unlink(missing_ok=True)
        damage = recording.damage
    size = out.stat().st_size
    if args.json:
        say_json({"path": str(out), "events": count, "bytes": size, "damage": damage})
        return 0
    say(f"{out}: {count:,} events, {format_size(size)}; open it at https://ui.perfetto.dev")
    if damage:
        say(f"incomplete: {damage}")
    return 0
