"""`cuzk prove` beside other provers: wall time and peak memory of whole processes on one key and witness.

    python benchmarks/compare.py KEY.zkey WITNESS.wtns [--only snarkjs rapidsnark …] [--pairs 5] [--json]
                                 [--cuzk PATH] [--snarkjs PATH] [--rapidsnark PATH] [--groth16py PYTHON] …

Measures whichever peers are found. Each run is a process of its own, start-up included; for a Python package it is a
Python that imports it. Runs come in pairs of cuzk and a peer, of which the first one alternates, so that neither
profits from the other's caches and a drift of the machine falls on both; the ratio is the median of the pairs' ratios.
Peak memory is the largest resident set of the process (a mapped key counts) as the kernel reports it to wait4; one that
is smaller than its launcher (about 10 MB) is shown as large as that.

A first, untimed pair fills the system's file cache, lets cuzk remember the check of the key, and has the peer's proof
verified; --cold has cuzk check the key's points in each run instead. CUZK_CPU_FEATURES= limits cuzk's instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a script: its own folder is there, the project's is not
    sys.path.insert(0, str(ROOT))

from benchmarks.peers import PEERS, Files, cuzk_program, verdict  # noqa: E402

MEMORY_EXTRA = 200 * 10**6
# A new process starts with the peak of the one that it was forked from, so the measured one is forked from a small one.
_LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(pid, 0)
print(json.dumps([time.perf_counter() - start, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)]))
"""


class FailedRunError(Exception):
    """A process that did not end well; the text says how and why."""


@dataclass(frozen=True)
class Run:
    seconds: float
    peak_bytes: int


@dataclass
class Pairs:
    """cuzk's runs and the peer's, one beside the other."""

    peer: str
    verdict: str = ""
    fault: str = ""
    ours: list[Run] = field(default_factory=list)
    theirs: list[Run] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [a.seconds / b.seconds for a, b in zip(self.ours, self.theirs, strict=True)]

    def document(self) -> dict[str, Any]:
        if self.fault:
            return {"peer": self.peer, "fault": self.fault}
        return {
            "peer": self.peer,
            "proof": self.verdict,
            "ratio": statistics.median(self.ratios),
            "ratios": self.ratios,
            "cuzk": figures(self.ours),
            self.peer: figures(self.theirs),
        }


def figures(runs: list[Run]) -> dict[str, Any]:
    seconds = [run.seconds for run in runs]
    return {
        "median_seconds": statistics.median(seconds),
        "seconds": seconds,
        "peak_bytes": max(run.peak_bytes for run in runs),
    }


def measure(command: list[str], environment: dict[str, str]) -> Run:
    """Wall time and peak resident set of one process. Raises FailedRunError."""
    with tempfile.TemporaryFile() as messages:
        launcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,
        )
        try:
            answer, _ = launcher.communicate()
        except BaseException:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
            raise
        messages.seek(0)
        output = messages.read()
    if launcher.returncode != 0:
        raise FailedRunError(f"could not be started: {_reason(output)}")
    seconds, peak, code = json.loads(answer)
    if code != 0:
        raise FailedRunError(f"ended with {code}: {_reason(output)}")
    return Run(seconds, peak)


def _reason(output: bytes) -> str:
    """The last line that speaks of an error, else the last one."""
    lines = [line.strip() for line in output[-(1 << 16) :].decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    return (errors or lines or ["without a word"])[-1][:300]


def run_pairs(name: str, program: str, cuzk: list[str], args: argparse.Namespace, folder: Path) -> Pairs:
    """``args.pairs`` pairs after an untimed one. A peer that fails ends its own; a cuzk that fails ends it all."""
    pairs = Pairs(name)
    home = folder / "home"
    environment = {**os.environ, "CUZK_HOME": str(home)}
    ours = Files(args.key, args.witness, folder / "cuzk.json", folder / "cuzk-public.json")
    theirs = Files(args.key, args.witness, folder / "peer.json", folder / "peer-public.json")
    for number in range(-1, args.pairs):
        runs: dict[str, Run] = {}
        for who in ("cuzk", name)[:: 1 if number % 2 else -1]:
            try:
                if who == "cuzk":
                    if args.cold:
                        shutil.rmtree(home, ignore_errors=True)
                    runs[who] = measure([*cuzk, "prove", *ours.arguments], environment)
                else:
                    runs[who] = measure(PEERS[name].command(program, theirs), environment)
            except FailedRunError as error:
                if who == "cuzk":
                    raise SystemExit(f"cuzk {error}") from error
                pairs.fault = str(error)
                return pairs
        if number < 0:
            pairs.verdict = verdict(theirs)
        else:
            pairs.ours.append(runs["cuzk"])
            pairs.theirs.append(runs[name])
    return pairs


def compare(args: argparse.Namespace) -> list[Pairs]:
    """All peers that were found, or those that ``args.only`` names."""
    cuzk = cuzk_program(args.cuzk)
    found = {name: peer.find(getattr(args, option_of(name))) for name, peer in PEERS.items()}
    missing = [name for name in args.only if found[name] is None]
    if missing:
        raise SystemExit(f"{missing[0]} not found; give its path with --{missing[0]} ({PEERS[missing[0]].hint})")
    chosen = {name: path for name, path in found.items() if path is not None and (not args.only or name in args.only)}
    if not chosen:
        hints = "; ".join(f"--{name} PATH ({peer.hint})" for name, peer in PEERS.items())
        raise SystemExit(f"no other prover was found to compare with; install one, or give its path: {hints}")
    results = []
    with tempfile.TemporaryDirectory(prefix="cuzk-benchmark-") as folder:
        for name, program in chosen.items():
            inside = Path(folder) / name
            inside.mkdir()
            results.append(run_pairs(name, program, cuzk, args, inside))
    return results


def option_of(name: str) -> str:
    return name.replace("-", "_")


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, allow_abbrev=False)
    made.add_argument("key", type=Path)
    made.add_argument("witness", type=Path)
    made.add_argument("--pairs", type=int, default=5, help="timed pairs (5)")
    made.add_argument("--cold", action="store_true", help="forget the check of the key before each run of cuzk")
    made.add_argument("--cuzk", help="path of the cuzk program")
    for name, peer in PEERS.items():
        made.add_argument(f"--{name}", help=peer.hint)
    made.add_argument("--json", action="store_true")
    return made


def surroundings(args: argparse.Namespace) -> dict[str, Any]:
    """What the figures belong to: files, processor, commit."""
    from cuzk_engine.devices.cpu import processor_name
    from cuzk_engine.native import library

    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "key": str(args.key),
        "key_bytes": args.key.stat().st_size,
        "witness": str(args.witness),
        "pairs": args.pairs,
        "cold": args.cold,
        "processor": processor_name(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "isa": library().isa(),
        "commit": described.stdout.strip() or "unknown",
    }


def lines_of(results: Iterable[Pairs]) -> list[str]:
    lines = []
    for pairs in results:
        if pairs.fault:
            lines.append(f"  {pairs.peer}: {pairs.fault}")
            continue
        for name, runs in (("cuzk", pairs.ours), (pairs.peer, pairs.theirs)):
            seconds = [run.seconds for run in runs]
            peak = max(run.peak_bytes for run in runs)
            spread = f"({min(seconds):.3f} to {max(seconds):.3f})"
            lines.append(
                f"  {name:<14} median {statistics.median(seconds):8.3f} s  {spread:<20}  peak {peak / 1e6:7.1f} MB"
            )
        ratios = pairs.ratios
        spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append(
            f"  cuzk / {pairs.peer}: {statistics.median(ratios):.3f} {spread}; the peer's proof is {pairs.verdict}"
        )
    return lines


def heading(facts: dict[str, Any]) -> str:
    return (
        f"{facts['key']}, {facts['pairs']} pairs, {facts['processor']}, {facts['cores']} cores, {facts['isa']}, "
        f"commit {facts['commit']}, load {facts['load']:.1f} before"
    )


def main() -> int:
    made = parser("cuzk prove beside other provers")
    made.add_argument("--only", nargs="+", choices=list(PEERS), default=[], help="these peers (all that are found)")
    args = made.parse_args()
    facts = surroundings(args)
    results = compare(args)
    if args.json:
        print(json.dumps({**facts, "results": [pairs.document() for pairs in results]}, indent=1))
    else:
        print("\n".join([heading(facts), *lines_of(results)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
