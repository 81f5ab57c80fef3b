"""``cuzk plan``: the memory that proofs with a key need on a device, before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli import configured
from cuzk_engine.cli.console import say, say_json
from cuzk_engine.settings import AT_ONCE_KEYS, PIPELINE_KEYS, WORKERS_KEY, definition, most_at_once

if TYPE_CHECKING:
    from cuzk_engine.config import Settings
    from cuzk_engine.pipeline.report import Choice, PlanReport
    from cuzk_engine.runner import PipelineSettings

    Subparsers = argparse._SubParsersAction[Any]

_SWITCHES: Final = {"on": True, "off": False}
_MIB: Final = 1 << 20
_CONFIGURED: Final = "as configured"


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="say how much memory proofs with a key need",
        description="Says how much memory proofs with a key need on a device, purpose by purpose, whether that fits, "
        "and what would be given up where it does not. Reads the key's header and starts nothing. Exit code 1 when "
        "the proofs can never fit.",
        allow_abbrev=False,
    )
    parser.add_argument("key", metavar="KEY.zkey", type=Path)
    parser.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="where to prove (auto)")
    parser.add_argument(
        "--workers", metavar="N", type=int, choices=range(1, 9),
        help=f"workers that share the device, 1 to 8 ({_CONFIGURED})",
    )  # fmt: skip
    for option, key in (
        ("--prestage", "pipeline.prestage"),
        ("--evaluate", "pipeline.evaluate"),
        ("--residency", "srs.residency"),
    ):
        setting = definition(key)
        parser.add_argument(
            option,
            choices=setting.choices,
            help=f"{setting.title.lower()} ({_CONFIGURED})",
        )
    parser.add_argument(
        "--double-buffer", choices=tuple(_SWITCHES), help=f"add results while the next batch runs ({_CONFIGURED})"
    )
    configured.add_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from cuzk_engine.pipeline.report import plan_report, work_of

    settings = configured.load(args)
    with configured.open_as_engine(settings, args.device) as opened:
        device = opened.device
        workers = args.workers or configured.workers(settings, device.info)
        workers = min(workers, most_at_once(settings.values) or workers)
        report = plan_report(device, work_of(args.key), settings_of(args, settings), workers)
        if args.json:
            say_json({"key": str(args.key), **asdict(report)})
        else:
            origin = configured.origin(settings, _keys(args))
            say("\n".join(lines(args.key, report, device.info.capacity_source, origin)))
    return 0 if report.fits else 1


def settings_of(args: argparse.Namespace, settings: Settings) -> PipelineSettings:
    """The options, and the configuration's where none are given."""
    given = dict(zip(PIPELINE_KEYS, (args.prestage, None, args.evaluate, args.residency), strict=True))
    if args.double_buffer is not None:
        settings.set("pipeline.double_buffer", _SWITCHES[args.double_buffer], "command line")
    for key, value in given.items():
        if value is not None:
            settings.set(key, value, "command line")
    return configured.pipeline_settings(settings)


def _keys(args: argparse.Namespace) -> tuple[str, ...]:
    return (
        *PIPELINE_KEYS,
        *AT_ONCE_KEYS,
        *(() if args.workers else (WORKERS_KEY,)),
        "cpu.arena",
        "memory.total_budget",
    )


def lines(key: Path, report: PlanReport, source: str, origin: str = "") -> list[str]:
    from cuzk_engine.units import format_size

    choice = report.choices[report.chosen]
    capacity = f"{format_size(report.capacity)} on {report.device} ({source})"
    workers = f"{report.workers} workers" if report.workers > 1 else "1 worker"
    rows = [("one partition", f"{format_size(report.peak)} at the peak: {_verdict(report.peak <= report.free)}")]
    if report.workers > 1:
        rows.append((workers, f"{format_size(report.total)} together: {_verdict(report.total <= report.free)}"))
    rows.append(("room", capacity + (f", {format_size(report.free)} free" if report.free < report.capacity else "")))
    if report.others:
        rows.append(("other programs", f"{format_size(report.others)} of the device's memory"))
    host, needed = f"{format_size(report.host_peak)} of {format_size(report.host_capacity)}", _host_need(report)
    short = f": {format_size(needed)} for one partition does not fit" if needed > report.host_capacity else ""
    rows.append(("host memory", host + short))
    if origin:
        rows.append(("settings", origin))
    return [
        f"{key}: {_described(choice)}",
        "",
        *_table(report),
        "",
        *(f"  {name:<15}  {text}" for name, text in rows),
        *_choices(report),
        *_next_step(report),
    ]


def _next_step(report: PlanReport) -> list[str]:
    """What would let the proofs run, where nothing that the engine may give up does."""
    from cuzk_engine.units import format_size

    if report.fits:
        return []
    found = []
    if report.peak > report.free:
        least = f"{-(-report.peak // _MIB)}MiB"
        advice = (
            f"set cpu.arena (or CUZK_CPU_ARENA) to {least} or more"
            if report.device == "cpu"
            else f"free {least} of {report.device}'s memory, or choose a device that has as much"
        )
        found.append(f"Nothing more can be given up: {advice}.")
    needed = _host_need(report)
    if needed > report.host_capacity:
        least = format_size(-(-needed // _MIB) * _MIB)
        found.append(f"The host needs {least}: raise memory.total_budget, or use a larger machine.")
    return ["", *found]


def _host_need(report: PlanReport) -> int:
    """Bytes of the host's memory that one partition takes."""
    return report.host_peak // report.workers


def _verdict(fits: bool) -> str:
    return "fits" if fits else "does not fit"


def _described(choice: Choice) -> str:
    """The mode in words."""
    values = choice.settings
    return ", ".join(
        (
            f"pre-staging {values['pipeline.prestage']}",
            f"evaluation on the {values['pipeline.evaluate']}",
            f"key in the {values['srs.residency']}'s memory",
            *(["double-buffered results"] if values["pipeline.double_buffer"] == "true" else []),
        )
    )


def _table(report: PlanReport) -> list[str]:
    """Purposes by stages; the peak is marked."""
    from cuzk_engine.units import format_size

    purposes = list(dict.fromkeys(purpose for stage in report.stages.values() for purpose in stage))
    totals = {name: sum(stage.values()) for name, stage in report.stages.items()}
    peak = max(totals, key=lambda name: totals[name])
    cells = [["stage", *report.stages]]
    for purpose in purposes:
        sizes = (stage.get(purpose, 0) for stage in report.stages.values())
        cells.append([purpose, *(format_size(nbytes) if nbytes else "·" for nbytes in sizes)])
    cells.append(["together", *map(format_size, totals.values())])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rendered = ["  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in cells]
    rule = "─" * len(rendered[0])
    mark = sum(width + 2 for width in widths[: list(totals).index(peak) + 2]) - len("peak ▲") - 2
    return [f"  {line}" for line in (rendered[0], rule, *rendered[1:-1], rule, rendered[-1], f"{'':{mark}}peak ▲")]


def _choices(report: PlanReport) -> list[str]:
    """What the engine tries one after the other, without what takes as much as the one before it."""
    from cuzk_engine.units import format_size

    shown: list[tuple[int, Choice]] = []
    for index, choice in enumerate(report.choices):
        is_news = not shown or (shown[-1][1].peak, shown[-1][1].total) != (choice.peak, choice.total)
        if is_news or index == report.chosen % len(report.choices):
            shown.append((index, choice))
    if len(shown) < 2:
        return []
    rows = [("", "one", "together", "")]
    for index, choice in shown:
        text = choice.text or "as asked for"
        host_is_short = not choice.fits and choice.peak <= report.free
        verdict = "" if choice.fits else " (the host's memory is short)" if host_is_short else " (does not fit)"
        rows.append(
            ("→" if index == report.chosen else "", format_size(choice.peak), format_size(choice.total), text + verdict)
        )
    one, together = (max(len(row[column]) for row in rows) for column in (1, 2))
    table = [f"  {mark:1} {a:>{one}}  {b:>{together}}  {text}".rstrip() for mark, a, b, text in rows]
    return ["", "Tried in this order when memory is short:", *table]
