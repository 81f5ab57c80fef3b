"""`cuzk prove` beside `snarkjs groth16 prove`: wall time and peak memory on one key and witness, in alternating pairs.

    python benchmarks/prove_vs_snarkjs.py KEY.zkey WITNESS.wtns [--pairs 5] [--cuzk PATH] [--snarkjs PATH] [--json]

Each run is a process of its own, start-up included. Peak memory is the largest resident set of the process (its mapped
key counts) as the kernel reports it to wait4. A first, untimed pair fills the system's file cache and lets cuzk
remember the check of the key; --cold has cuzk check the key's points in each run instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MEMORY_EXTRA = 200 * 10**6
WANTED_RATIO = 0.5
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Run:
    seconds: float
    peak_bytes: int


def measure(command: list[str], environment: dict[str, str]) -> Run:
    """Wall time and peak resident set of one process, which must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    messages = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {messages.decode(errors='replace').strip()}")
    return Run(seconds, usage.ru_maxrss * 1024)


def find(option: str | None, candidates: list[str | None], name: str) -> str:
    """The absolute path of a program, or an error that says how to give it."""
    for candidate in [option] if option else candidates:
        if candidate and Path(candidate).exists():
            return str(Path(candidate).absolute())
    raise SystemExit(f"{name} not found; give its path with --{name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="cuzk prove beside snarkjs groth16 prove", allow_abbrev=False)
    parser.add_argument("key", type=Path)
    parser.add_argument("witness", type=Path)
    parser.add_argument("--pairs", type=int, default=5, help="timed pairs (5)")
    parser.add_argument("--cold", action="store_true", help="forget the check of the key before each run of cuzk")
    parser.add_argument("--cuzk", help="path of the cuzk program")
    parser.add_argument("--snarkjs", help="path of the snarkjs program")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    cuzk = find(args.cuzk, [str(Path(sys.executable).parent / "cuzk"), shutil.which("cuzk")], "cuzk")
    snarkjs = find(args.snarkjs, [str(ROOT / "node_modules/.bin/snarkjs"), shutil.which("snarkjs")], "snarkjs")
    runs: dict[str, list[Run]] = {"cuzk": [], "snarkjs": []}
    with tempfile.TemporaryDirectory(prefix="cuzk-benchmark-") as folder:
        files = [str(args.key), str(args.witness), f"{folder}/proof.json", f"{folder}/public.json"]
        commands = {"cuzk": [cuzk, "prove", *files], "snarkjs": [snarkjs, "groth16", "prove", *files]}
        environment = {**os.environ, "CUZK_HOME": f"{folder}/home"}
        for pair in range(-1, args.pairs):
            # Which one goes first alternates, so that neither profits from the other's caches.
            for name in sorted(commands, reverse=pair % 2 == 0):
                if args.cold:
                    shutil.rmtree(f"{folder}/home", ignore_errors=True)
                run = measure(commands[name], environment)
                if pair >= 0:
                    runs[name].append(run)
    report(args, runs)
    return 0


def report(args: argparse.Namespace, runs: dict[str, list[Run]]) -> None:
    seconds = {name: statistics.median(run.seconds for run in results) for name, results in runs.items()}
    peaks = {name: max(run.peak_bytes for run in results) for name, results in runs.items()}
    ratio = seconds["cuzk"] / seconds["snarkjs"]
    bound = 2 * args.key.stat().st_size + MEMORY_EXTRA
    if args.json:
        document = {
            "key_bytes": args.key.stat().st_size,
            "pairs": args.pairs,
            "processors": len(os.sched_getaffinity(0)),
            "seconds": {name: [run.seconds for run in results] for name, results in runs.items()},
            "median_seconds": seconds,
            "ratio": ratio,
            "peak_bytes": peaks,
            "peak_bound": bound,
        }
        print(json.dumps(document, indent=1))
        return
    print(f"{args.key}, {args.pairs} pairs, {len(os.sched_getaffinity(0))} processors")
    for name, results in runs.items():
        low, high = min(run.seconds for run in results), max(run.seconds for run in results)
        print(f"  {name:<8} median {seconds[name]:6.3f} s  ({low:.3f} to {high:.3f})  peak {peaks[name] / 1e6:7.1f} MB")
    print(f"  time     {ratio:.3f} of snarkjs's, wanted at most {WANTED_RATIO}")
    print(f"  memory   {peaks['cuzk'] / 1e6:.1f} MB, wanted at most {bound / 1e6:.1f} MB (twice the key and 200 MB)")


if __name__ == "__main__":
    sys.exit(main())
