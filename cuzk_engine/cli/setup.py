"""``cuzk setup``: a Groth16 key for development, made by one party."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli.console import ProgressLine, say, say_json
from cuzk_engine.errors import UsageError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]

WARNING: Final = "for development only: whoever ran this command could forge proofs"
SEED_WARNING: Final = (
    "--seed: everybody who knows the seed can make the same key and forge proofs; use it in tests only"
)


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "setup",
        help="make a proving key for development",
        description="Makes a Groth16 proving key from a constraint system, for development and tests: whoever runs "
        "this could forge proofs. Keys that others have to trust come from a ceremony.",
        allow_abbrev=False,
    )
    parser.add_argument("circuit", metavar="CIRCUIT.r1cs", type=Path)
    parser.add_argument("key", metavar="KEY.zkey", type=Path)
    parser.add_argument("--seed", metavar="TEXT", help="take the secrets from TEXT: the same key each time, for tests")
    parser.add_argument(
        "--format",
        choices=("zkey", "params"),
        default="zkey",
        help="layout of the key: zkey (snarkjs), or params (bellperson; BLS12-381 only)",
    )
    parser.add_argument("--force", action="store_true", help="replace KEY.zkey where it exists")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.cli import outputs
    from cuzk_engine.cli.signals import terminable
    from cuzk_engine.formats.atomic import write_atomically
    from cuzk_engine.formats.source import SourceFile
    from cuzk_engine.groth16.layouts import write_params, write_zkey
    from cuzk_engine.groth16.setup import System
    from cuzk_engine.groth16.toxic import ToxicWaste

    started = time.monotonic()
    if args.key.exists() and args.circuit.exists() and args.key.samefile(args.circuit):
        raise UsageError(f"{args.key}: is the constraint system, it would be overwritten")
    if not args.force:
        outputs.check_new(args.key)
    if args.seed is not None:
        print(f"cuzk: warning: {SEED_WARNING}", file=sys.stderr, flush=True)
    line = ProgressLine(sys.stderr)
    layout = write_zkey if args.format == "zkey" else write_params
    try:
        with terminable():
            line.draw("constraints", 0.0)
            system = System.load(SourceFile.open(args.circuit))
            toxic = (
                ToxicWaste.random(system.curve) if args.seed is None else ToxicWaste.from_seed(system.curve, args.seed)
            )
            write_atomically(args.key, lambda stream: layout(system, toxic, stream, line.draw), replace=args.force)
    finally:
        line.clear()
    seconds = time.monotonic() - started
    if args.json:
        say_json(
            {
                "key": str(args.key),
                "format": args.format,
                "curve": system.curve.snarkjs_name,
                "constraints": system.header.n_constraints,
                "signals": system.header.n_wires,
                "public_signals": system.header.n_public,
                "domain_size": system.domain_size,
                "bytes": args.key.stat().st_size,
                "seeded": args.seed is not None,
                "seconds": seconds,
                "warning": WARNING,
            }
        )
        return 0
    say(f"{args.key}: {system.curve.title} key, domain 2^{system.log_domain}, {seconds:.1f} s")
    say(WARNING)
    return 0
