"""``cuzk bench``: how long proofs take, under one or several settings."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli import configured
from cuzk_engine.cli.console import ProgressLine, say, say_json
from cuzk_engine.cli.engine import add_options, check_options, connect
from cuzk_engine.errors import UsageError

if TYPE_CHECKING:
    from cuzk_engine.bench.interruption import Interruption
    from cuzk_engine.bench.local import LocalEngine
    from cuzk_engine.bench.remote import RemoteEngine
    from cuzk_engine.bench.results import Series
    from cuzk_engine.bench.schedule import Load, Progress
    from cuzk_engine.bench.variations import Variation

    Subparsers = argparse._SubParsersAction[Any]

_MAX_COUNT: Final = 100_000
_MAX_CONCURRENCY: Final = 256


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="measure how long proofs take",
        description="Proves the same witness again and again, in this process or by a running engine, under one or "
        "several settings in turn. Instead of key and witness a profile can be named (chain:2^16, dense:2^16, "
        "sha256:2, porep:2^16): what it needs is made, and kept in the cache folder.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="KEY.zkey|PROFILE")
    parser.add_argument("witness", metavar="WITNESS.wtns", type=Path, nargs="?")
    parser.add_argument("-c", "--count", metavar="COUNT", type=_count, default=10, help="proofs a variation (10)")
    parser.add_argument(
        "-j", "--concurrency", metavar="CONCURRENCY", type=_concurrency, default=1, help="proofs at once (1)"
    )
    parser.add_argument(
        "--vary",
        metavar="SETTING=VALUE,…",
        nargs="+",
        action="extend",
        default=[],
        help="settings to compare: workers, prestage, double_buffer, evaluate, residency, or any that can change live; "
        "several make every combination",
    )
    parser.add_argument("--warm-up", metavar="COUNT", type=_warm_up, help="proofs a variation before the counted ones")
    parser.add_argument("--curve", metavar="bn254|bls12_381", default="bn254", help="of a profile (bn254)")
    parser.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="where to prove (auto)")
    add_options(parser, "have the engine at ADDR (127.0.0.1:9820) prove")
    configured.add_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the figures, too")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.bench.interruption import InterruptedRunError, Interruption
    from cuzk_engine.bench.schedule import Load
    from cuzk_engine.bench.variations import parse_variations
    from cuzk_engine.errors import CuzkError

    check_options(args)
    configured.check_option(args)
    variations = parse_variations(args.vary)
    warm_up = args.concurrency if args.warm_up is None else args.warm_up
    load = Load(args.count, min(args.concurrency, args.count), warm_up)
    if args.plot is not None:
        _check_plot(args.plot)
    with Interruption() as interruption:
        try:
            facts, notes, series = _measure(args, variations, load, interruption)
        except InterruptedRunError as error:
            return 128 + error.number
        except CuzkError:
            if interruption.number is not None:  # whatever the run met while it was ending
                return 128 + interruption.number
            raise
    if args.plot is not None:
        from cuzk_engine.bench import plot

        plot.draw(_title(args), _subtitle(facts, load), series, args.plot)
    if args.json:
        say_json(_document(args, facts, load, notes, series))
        return 0
    from cuzk_engine.bench.report import table

    say("\n".join([f"{_title(args)}: {_subtitle(facts, load)}", "", *table(series), "", *_explained(load, notes)]))
    if args.plot is not None:
        say(f"drawn into {args.plot}")
    return 0


def _measure(
    args: argparse.Namespace, variations: list[Variation], load: Load, interruption: Interruption
) -> tuple[dict[str, Any], list[str], list[Series]]:
    """What was measured on, what is to be said of it, and the figures."""
    from cuzk_engine.bench.schedule import measure

    line = ProgressLine(sys.stderr)

    def progress(phase: str, done: float) -> None:
        interruption.check()
        line.draw(phase, done)

    try:
        with _files(args, progress) as (key, witness), _engine(args, key, witness, interruption) as engine:
            notes = engine.notes(variations)
            facts = {**_target(args), **engine.describe()}
            series = measure(engine, variations, load, progress)
    finally:
        line.clear()
    return facts, notes + _notes(series), series


@contextlib.contextmanager
def _files(args: argparse.Namespace, progress: Progress) -> Iterator[tuple[Path, Path]]:
    """Key and witness."""
    if args.witness is not None:
        yield Path(args.target), args.witness
        return
    from cuzk_engine.bench.workloads import workload
    from cuzk_engine.curves import curve_by_name

    if ":" not in args.target or args.target.endswith(".zkey"):
        raise UsageError(f"{args.target}: a witness is missing; expected KEY.zkey WITNESS.wtns, or a profile")
    curve = curve_by_name(args.curve)
    if curve is None:
        raise UsageError(f'--curve: "{args.curve}" is not known, expected bn254 or bls12_381')
    with workload(args.target, curve, lambda phase, done: progress(f"making {args.target}: {phase}", done)) as files:
        yield files


def _engine(
    args: argparse.Namespace, key: Path, witness: Path, interruption: Interruption
) -> LocalEngine | RemoteEngine:
    if args.daemon is not None:
        from cuzk_engine.bench.remote import RemoteEngine

        return RemoteEngine(key, witness, args.device, connect(args), interruption)
    from cuzk_engine.bench.local import LocalEngine

    settings = configured.load(args)
    return LocalEngine(key, witness, configured.device_name(settings, args.device), settings, interruption)


def _check_plot(path: Path) -> None:
    from cuzk_engine.bench import plot

    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot: {path} is no .png, the only format that is written")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--plot: {path} cannot be written: expected a file in a folder that exists")
    plot.check_available()


def _target(args: argparse.Namespace) -> dict[str, Any]:
    if args.witness is None:
        return {"profile": args.target, "curve": args.curve}
    return {"key": str(args.target), "witness": str(args.witness)}


def _title(args: argparse.Namespace) -> str:
    return f"{args.target} on {args.curve}" if args.witness is None else Path(args.target).name


def _subtitle(facts: dict[str, Any], load: Load) -> str:
    where = f"{facts['device']} ({facts['device_name']}), {facts['where']}"
    return f"{load.count} proof{'s' if load.count > 1 else ''} a variation, {load.concurrency} at once, on {where}"


def _explained(load: Load, notes: list[str]) -> list[str]:
    warm_up = (
        f"The first {load.warm_up} of each variation warmed up and do not count."
        if load.warm_up
        else "Nothing warmed up before."
    )
    return [
        "A proof's seconds run from its start by a worker until it is verified; waiting for a worker is not in them.",
        f"{warm_up} {_rounds(load)}",
        "Medians of the rounds: proofs/min; busy, the share of a round in which a kernel ran on the device; idle, the",
        "rest by cause (short: between kernels that follow each other); kernels, the time in which one of a partition",
        "ran. Resident peak: with the mapped key.",
        *(f"Note: {note}." for note in notes),
    ]


def _rounds(load: Load) -> str:
    if load.rounds > 1:
        return f"{load.rounds} rounds a variation, in turn."
    return f"One round a variation; from -c {2 * load.enough} on there are several, in turn, and their spread."


def _notes(series: list[Series]) -> list[str]:
    return [
        f"{each.variation.name}: {count} of {len(each.proofs)} proofs were pre-staged as {used}, more did not fit"
        for each in series
        for used, count in each.staged_otherwise.items()
    ]


def _document(
    args: argparse.Namespace, facts: dict[str, Any], load: Load, notes: list[str], series: list[Series]
) -> dict[str, Any]:
    from cuzk_engine.build import build_id

    return {
        **facts,
        "build": facts.get("build") or build_id(),
        "count": load.count,
        "concurrency": load.concurrency,
        "warm_up": load.warm_up,
        "notes": notes,
        "variations": [each.document() for each in series],
    }


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) <= most):
        raise argparse.ArgumentTypeError(f'"{text}": expected a number from {least} to {most}')
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1, _MAX_COUNT)


def _concurrency(text: str) -> int:
    return _number(text, 1, _MAX_CONCURRENCY)


def _warm_up(text: str) -> int:
    return _number(text, 0, _MAX_COUNT)
