"""``cuzk doctor``: what keeps cuzk from working well, and what to do about it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json

if TYPE_CHECKING:
    from cuzk_engine.doctor.check import Check

    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="look for what keeps cuzk from working well",
        description="Looks at Python, the native library, processor, memory, NVIDIA's driver, CuPy, configuration, "
        "folders and the engine's process, and says what to do. Changes nothing. Exit code 1 when it finds a problem.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", default="", help="configuration file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.doctor.check import Verdict

    checks = examine(args.config)
    counts = {verdict: sum(check.verdict is verdict for check in checks) for verdict in Verdict}
    if args.json:
        from dataclasses import asdict

        say_json(
            {
                "problems": counts[Verdict.PROBLEM],
                "warnings": counts[Verdict.WARNING],
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        say("\n".join(_lines(checks)))
        say(f"{_count(counts[Verdict.PROBLEM], 'problem')}, {_count(counts[Verdict.WARNING], 'warning')}")
    return 1 if counts[Verdict.PROBLEM] else 0


def examine(config: str) -> list[Check]:
    """Every check, in the order in which one needs the other."""
    from cuzk_engine import paths
    from cuzk_engine.doctor import engine, gpu, machine
    from cuzk_engine.doctor.check import run_all

    settings, configuration = engine.load(config)
    cards = gpu.look()
    first = run_all(
        [
            ("python", machine.python),
            ("native library", machine.native_library),
            ("processor", machine.processor),
            ("memory", lambda: machine.memory(settings.text("cpu.arena"))),
            ("memory lock limit", lambda: machine.locked_memory(cards.present)),
            ("nvidia driver", lambda: gpu.driver(cards)),
            ("cupy", lambda: gpu.cupy(cards)),
            ("kernel cache", lambda: gpu.kernel_cache(paths.cache_dir() / "kernels")),
            ("bellman locks", lambda: gpu.bellman_lock(cards)),
            ("configuration", lambda: configuration),
            ("folders", engine.folders),
            ("engine", lambda: engine.daemon(config)),
        ]
    )
    return first + run_all([("status page", lambda: engine.status_port(settings, first[-1]))])


def _lines(checks: list[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.verdict:<7}  {check.name:<{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':<7}  {'':<{width}}  → {check.advice}")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
