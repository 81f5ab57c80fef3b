"""``cuzk doctor``: what keeps cuzk from working well, and what to do about it."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json
from cuzk_engine.units import format_count

if TYPE_CHECKING:
    from cuzk_engine.doctor.cards import CardState
    from cuzk_engine.doctor.check import Check

    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="look for what keeps cuzk from working well",
        description="Looks at Python, the native library, processor, memory, NVIDIA's driver, its cards, CuPy, "
        "configuration, folders and the engine's process, and says what to do. Changes nothing. Exit code 1 when it "
        "finds a problem.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", default="", help="configuration file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.doctor.check import Verdict

    checks, cards = examine(args.config)
    counts = {verdict: sum(check.verdict is verdict for check in checks) for verdict in Verdict}
    if args.json:
        from dataclasses import asdict

        say_json(
            {
                "problems": counts[Verdict.PROBLEM],
                "warnings": counts[Verdict.WARNING],
                "checks": [asdict(check) for check in checks],
                "cards": [card.as_json() for card in cards],
            }
        )
    else:
        say("\n".join(_lines(checks)))
        say(f"{format_count(counts[Verdict.PROBLEM], 'problem')}, {format_count(counts[Verdict.WARNING], 'warning')}")
    return 1 if counts[Verdict.PROBLEM] else 0


def examine(config: str) -> tuple[list[Check], list[CardState]]:
    """Every check, in the order in which one needs the other; and the cards."""
    from cuzk_engine import paths
    from cuzk_engine.devices.cuda import probe
    from cuzk_engine.doctor import cards as each_card
    from cuzk_engine.doctor import engine, gpu, machine
    from cuzk_engine.doctor.check import Verdict, ok, run_all

    settings, configuration = engine.load(config)
    cards, kernels = gpu.look(), paths.cache_dir() / "kernels"
    states: list[CardState] = []

    def look_at_each() -> Check:
        states.extend(each_card.states(cards, probe.cupy_cuda(), kernels))
        return ok("cards", f"{len(states)}")

    more = [check for check in (each_card.visible(cards), each_card.mig(cards)) if check is not None]
    more += [check for check in run_all([("cards", look_at_each)]) if check.verdict is not Verdict.OK]
    first = run_all(
        [
            ("python", machine.python),
            ("native library", machine.native_library),
            ("processor", machine.processor),
            ("memory", lambda: machine.memory(settings.text("cpu.arena"), budget=settings.text("memory.total_budget"))),
            ("memory lock limit", lambda: machine.locked_memory(cards.present)),
            ("surroundings", machine.surroundings),
            ("nvidia driver", lambda: gpu.driver(cards)),
            ("nvml", lambda: gpu.monitoring(cards)),
            ("cupy", lambda: gpu.cupy(cards)),
            *((f"cuda:{state.number}", partial(each_card.check, state)) for state in states),
            *((check.name, partial(_same, check)) for check in more),
            ("kernel cache", lambda: gpu.kernel_cache(kernels)),
            ("bellman locks", lambda: gpu.bellman_lock(cards)),
            ("configuration", lambda: configuration),
            ("folders", engine.folders),
            ("engine", lambda: engine.daemon(config)),
        ]
    )
    return first + run_all([("status page", lambda: engine.status_port(settings, first[-1]))]), states


def _same(check: Check) -> Check:
    return check


def _lines(checks: list[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.verdict:<7}  {check.name:<{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':<7}  {'':<{width}}  → {check.advice}")
    return lines
