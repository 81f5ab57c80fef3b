"""``cuzk diagnose``: what a recording says of a device's time, and what to change; or how two recordings differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json

if TYPE_CHECKING:
    from cuzk_engine.recording.contents import Contents

    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "diagnose",
        help="say why a device was idle, from a recording",
        description="Says how each device spent the recorded time, why it was idle, what each partition took, and "
        "which settings would change that. With two recordings: how they differ.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("other", metavar="FILE", type=Path, nargs="?")
    parser.add_argument("--from", dest="begin", metavar="DURATION", help="look at the time from so far after the start")
    parser.add_argument("--to", dest="end", metavar="DURATION", help="look at the time up to so far after the start")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.recording import report

    contents = [_load(path, args) for path in (args.file, args.other) if path is not None]
    if args.json:
        documents = [report.document(one) for one in contents]
        say_json(documents[0] if len(documents) == 1 else {"a": documents[0], "b": documents[1]})
    elif len(contents) == 1:
        say("\n".join(report.lines(contents[0])))
    else:
        say("\n".join(report.comparison(*contents)))
    return 0


def _load(path: Path, args: argparse.Namespace) -> Contents:
    from cuzk_engine.client.recording import Recording
    from cuzk_engine.errors import UsageError
    from cuzk_engine.recording.contents import Contents

    with Recording.open(path) as recording:
        start = recording.info.start_ns
        begin = None if args.begin is None else start + _duration("--from", args.begin)
        end = None if args.end is None else start + _duration("--to", args.end)
        if (begin or start) >= (recording.info.end_ns if end is None else end) and (args.begin or args.end):
            raise UsageError(f"{path}: nothing was recorded between --from and --to")
        return Contents.load(recording, begin, end)


def _duration(option: str, text: str) -> int:
    from cuzk_engine.errors import UsageError
    from cuzk_engine.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}: {error}") from error
