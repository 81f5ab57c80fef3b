"""`cuzk prove` beside `snarkjs groth16 prove`, held against what is wanted: the ratio of the wall times, and a bound on
cuzk's peak memory.

    python benchmarks/prove_vs_snarkjs.py KEY.zkey WITNESS.wtns [--pairs 5] [--cold] [--snarkjs PATH] …

How it is measured stands in compare.py. Exit code 1 when a bound does not hold.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.compare import MEMORY_EXTRA, compare, heading, lines_of, parser, surroundings

WANTED_RATIO = 0.5


def main() -> int:
    args = parser("cuzk prove beside snarkjs groth16 prove").parse_args()
    args.only = ["snarkjs"]
    facts = surroundings(args)
    (pairs,) = compare(args)
    if pairs.fault:
        raise SystemExit(f"snarkjs {pairs.fault}")
    ratio = statistics.median(pairs.ratios)
    peak = max(run.peak_bytes for run in pairs.ours)
    bound = 2 * args.key.stat().st_size + MEMORY_EXTRA
    if args.json:
        wanted = {"wanted_ratio": WANTED_RATIO, "peak_bound": bound}
        print(json.dumps({**facts, **wanted, **pairs.document()}, indent=1))
    else:
        print("\n".join([heading(facts), *lines_of([pairs])]))
        print(f"  time     {ratio:.3f} of snarkjs's, wanted at most {WANTED_RATIO}")
        print(f"  memory   {peak / 1e6:.1f} MB, wanted at most {bound / 1e6:.1f} MB (twice the key and 200 MB)")
    return 0 if ratio <= WANTED_RATIO and peak <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
