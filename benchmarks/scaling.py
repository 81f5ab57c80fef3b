"""How the time of `cuzk prove` grows with the circuit, with the curve and with a second core; and what memory it takes.

    python benchmarks/scaling.py [--sizes 14 15 … 20] [--rounds 3] [--threads-at 18] [--json]

Circuits are `chain:2^k`, made in a temporary folder. Whole processes, warm file cache, medians; the sizes and curves
of a round are run in turn, so that a drift of the machine falls on all alike. The scaling from one thread to two is
that of a proof in this process with the key loaded, beside that of scalar multiplications in registers between the same
runs. The bound of the memory is the mapped key plus 12 field elements for each element of the domain plus 150 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compare import Run, measure
from peers import cuzk_program

from cuzk_engine import native
from cuzk_engine.curves import BN254
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.select import open_device
from cuzk_engine.formats.points import encode_g1
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Runner

CURVES = ("bn254", "bls12_381")
MEMORY_BASE = 150_000_000
BYTES_A_ELEMENT = 12 * 32


def make(cuzk: list[str], folder: Path, curve: str, log_n: int) -> Path:
    target = folder / f"{curve}-{log_n}"
    command = [*cuzk, "workload", f"chain:2^{log_n}", str(target), "--curve", curve]
    subprocess.run(command, check=True, capture_output=True)
    return target


def prove(cuzk: list[str], circuit: Path) -> Run:
    """One proof as a process."""
    files = [str(circuit / name) for name in ("circuit.zkey", "witness.wtns", "proof.json", "public.json")]
    return measure([*cuzk, "prove", *files], dict(os.environ))


def prove_here(circuit: Path, threads: int, keys: KeyCache) -> float:
    """Seconds of one proof in this process, the key loaded."""
    device = open_device("cpu", threads=threads)
    try:
        runner = Runner(device, keys, threads=threads)
        runner.prove(circuit / "circuit.zkey", circuit / "witness.wtns", Owner())
        start = time.monotonic()
        runner.prove(circuit / "circuit.zkey", circuit / "witness.wtns", Owner())
        return time.monotonic() - start
    finally:
        device.close()


def processors() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def multiplications(threads: int, points: int = 4000) -> float:
    """Seconds of ``points`` scalar multiplications, which are field multiplications in registers and little else."""
    library = native.library()
    scalar = (BN254.r - 2).to_bytes(32, "little") * points
    montgomery = encode_g1(BN254, BN254.g1)
    out = native.aligned(points * 64)
    start = time.monotonic()
    library.point_op(
        BN254, native.Group.G1, native.PointOp.MUL, out, montgomery * points, scalar, points, native.Call(threads)
    )
    return time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(range(14, 21)), metavar="K")
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=CURVES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads-at", type=int, default=18, metavar="K")
    parser.add_argument("--cuzk", help="path of the cuzk program")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cuzk = cuzk_program(args.cuzk)
    runs: dict[tuple[str, int], list[Run]] = {}
    one: list[float] = []
    two: list[float] = []
    loops: list[float] = []
    keys = KeyCache()
    with tempfile.TemporaryDirectory(prefix="cuzk-scaling-") as name:
        folder = Path(name)
        circuits = {(curve, log_n): make(cuzk, folder, curve, log_n) for log_n in args.sizes for curve in args.curves}
        for key, circuit in circuits.items():  # checks the key, fills the file cache
            prove(cuzk, circuit)
            runs[key] = []
        for _ in range(args.rounds):
            for key, circuit in circuits.items():
                runs[key].append(prove(cuzk, circuit))
            if (circuit := circuits.get((args.curves[0], args.threads_at))) and len(processors()) > 1:
                one.append(prove_here(circuit, 1, keys))
                two.append(prove_here(circuit, 2, keys))
                loops.append(multiplications(1) / multiplications(2))
        key_bytes = {key: (circuit / "circuit.zkey").stat().st_size for key, circuit in circuits.items()}
    result = summary(runs, key_bytes, one, two, loops)
    print(json.dumps(result, indent=1) if args.json else "\n".join(lines(result)))
    return 0


def summary(
    runs: dict[tuple[str, int], list[Run]],
    key_bytes: dict[tuple[str, int], int],
    one: list[float],
    two: list[float],
    loops: list[float],
) -> dict[str, Any]:
    seconds = {key: statistics.median(run.seconds for run in of) for key, of in runs.items()}
    rows = [
        {
            "curve": curve,
            "log_domain": log_n,
            "seconds": seconds[curve, log_n],
            "of_half": seconds[curve, log_n] / half if (half := seconds.get((curve, log_n - 1))) else None,
            "of_bn254": seconds[curve, log_n] / other if (other := seconds.get(("bn254", log_n))) else None,
            "peak_bytes": max(run.peak_bytes for run in of),
            "memory_bound": key_bytes[curve, log_n] + BYTES_A_ELEMENT * 2**log_n + MEMORY_BASE,
        }
        for (curve, log_n), of in runs.items()
    ]
    result: dict[str, Any] = {"isa": native.library().isa(), "rows": rows, "load": os.getloadavg()[0]}
    if one:
        result["second_thread"] = statistics.median(a / b for a, b in zip(one, two, strict=True))
        result["second_thread_of_multiplications"] = statistics.median(loops)
    return result


def lines(result: dict[str, Any]) -> list[str]:
    text = [f"{result['isa']}, {len(processors())} cores, load {result['load']:.1f}"]
    text.append("curve      domain   seconds  of half  of BN254   peak MB   bound MB")
    for row in result["rows"]:
        text.append(
            f"{row['curve']:<10} 2^{row['log_domain']:<5} {row['seconds']:8.3f}  {_ratio(row['of_half'])}  "
            f"{_ratio(row['of_bn254'])}  {row['peak_bytes'] / 1e6:8.0f}   {row['memory_bound'] / 1e6:8.0f}"
        )
    if "second_thread" in result:
        mine, loop = result["second_thread"], result["second_thread_of_multiplications"]
        text.append(
            f"a second thread: {mine:.2f} times as fast; multiplications alone {loop:.2f}; share {mine / loop:.2f}"
        )
    return text


def _ratio(value: float | None) -> str:
    return "      –" if value is None else f"{value:7.2f}"


if __name__ == "__main__":
    sys.exit(main())
