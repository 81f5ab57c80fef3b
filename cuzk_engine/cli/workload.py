"""``cuzk workload``: a circuit of a known kind and any size, with key and witness."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import ProgressLine, say, say_json
from cuzk_engine.errors import UsageError
from cuzk_engine.units import format_count

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "workload",
        help="write a circuit, key and witness to measure with",
        description="Writes circuit.r1cs, circuit.zkey, witness.wtns and verification_key.json of a profile: "
        "chain:2^k, dense:2^k, sha256:N (blocks) or porep:2^k, 2^k being the domain. Keys are for development only.",
        allow_abbrev=False,
    )
    parser.add_argument("profile", metavar="PROFILE")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--curve", metavar="bn254|bls12_381", default="bn254", help="which curve (bn254)")
    parser.add_argument("--seed", metavar="TEXT", help="take the key's secrets from TEXT: the same key each time")
    parser.add_argument("--force", action="store_true", help="replace files of these names in FOLDER")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from cuzk_engine.cli.setup import SEED_WARNING, WARNING
    from cuzk_engine.cli.signals import terminable
    from cuzk_engine.curves import curve_by_name
    from cuzk_engine.workload.make import check_folder, write_folder
    from cuzk_engine.workload.profiles import make_circuit

    started = time.monotonic()
    curve = curve_by_name(args.curve)
    if curve is None:
        raise UsageError(f'--curve: "{args.curve}" is not known, expected bn254 or bls12_381')
    circuit = make_circuit(args.profile, curve)
    check_folder(args.folder, replace=args.force)
    if args.seed is not None:
        print(f"cuzk: warning: {SEED_WARNING}", file=sys.stderr, flush=True)
    line = ProgressLine(sys.stderr)
    try:
        with terminable():
            write_folder(circuit, args.folder, seed=args.seed, replace=args.force, progress=line.draw)
    finally:
        line.clear()
    seconds = time.monotonic() - started
    if args.json:
        say_json(
            {
                "profile": circuit.profile,
                "folder": str(args.folder),
                "curve": curve.snarkjs_name,
                "constraints": circuit.n_constraints,
                "signals": circuit.n_wires,
                "public_signals": circuit.n_public,
                "domain_size": circuit.domain_size,
                "seeded": args.seed is not None,
                "seconds": seconds,
                "warning": WARNING,
            }
        )
        return 0
    log_domain = circuit.domain_size.bit_length() - 1
    size = f"{format_count(circuit.n_constraints, 'constraint')}, domain 2^{log_domain}"
    say(f"{args.folder}: {circuit.profile} on {curve.title}, {size}, {seconds:.1f} s")
    say(WARNING)
    return 0
