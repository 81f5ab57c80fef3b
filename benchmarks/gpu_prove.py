"""Time of whole proofs on a GPU: key resident, witness page-locked, from the upload to the affine proof.

    python benchmarks/gpu_prove.py KEY.zkey WITNESS.wtns [--device cuda:0] [--runs 7] [--pageable]

The first proof, which loads the key onto the device, is shown apart. Then the median of the runs after two more.
Reading and checking the witness comes before the clock; every proof is verified, outside the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cupy
import numpy as np

from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.select import open_device
from cuzk_engine.events import Event, Lane, Span
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Runner
from cuzk_engine.units import format_size

OUTSIDE = ("load_key", "read_witness", "verify")


def page_locked(witness: Witness) -> Witness:
    """The same with its values in page-locked memory."""
    raw = witness.raw
    copy = np.frombuffer(cupy.cuda.alloc_pinned_memory(raw.nbytes), np.uint8, raw.nbytes).reshape(raw.shape)
    copy[...] = raw
    return replace(witness, raw=copy)


def by_kind(events: list[Event]) -> dict[str, float]:
    """Milliseconds of the device's spans by kind; those that overlap count twice."""
    sums: defaultdict[str, float] = defaultdict(float)
    for event in events:
        if isinstance(event, Span) and event.lane in (Lane.COMPUTE, Lane.H2D, Lane.D2H):
            sums[str(event.kind)] += (event.end_ns - event.start_ns) / 1e6
    return dict(sums)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("key", type=Path)
    parser.add_argument("witness", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--pageable", action="store_true", help="leave the witness in pageable memory")
    args = parser.parse_args()
    events: list[Event] = []
    started = time.perf_counter()
    device = open_device(args.device, events.append)
    opened = time.perf_counter() - started
    runner = Runner(device, KeyCache())
    started = time.perf_counter()
    key = runner.keys.get(args.key)
    loaded = time.perf_counter() - started
    witness = Witness.open(args.witness)
    witness = witness if args.pageable else page_locked(witness)
    phases: defaultdict[str, list[float]] = defaultdict(list)
    totals = []
    for run in range(args.runs + 3):
        del events[:]
        outcome = runner.prove(args.key, witness, Owner("benchmark", 0, 0))
        inside = {name: ns / 1e6 for name, ns in outcome.phases.items() if name not in OUTSIDE}
        if run == 0:
            print(f"{device.info.name}, {key.sizes.curve.title}, domain 2^{key.sizes.log_domain}, {args.key}")
            print(f"device opened in {opened:.2f} s, key loaded and checked in {loaded:.2f} s")
            print(f"first proof {sum(inside.values()):.1f} ms: {shown(inside)}", flush=True)
        if run > 2:
            totals.append(sum(inside.values()))
            for name, value in inside.items():
                phases[name].append(value)
    memory = device.memory()
    print(f"proof {statistics.median(totals):.2f} ms (best {min(totals):.2f}, worst {max(totals):.2f})")
    print("phases: " + shown({name: statistics.median(values) for name, values in phases.items()}))
    print("device, last run: " + shown(by_kind(events)))
    purposes = ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in memory.by_purpose.items())
    print(f"peak {format_size(memory.peak)} (planned {format_size(outcome.peak_bytes)}); held: {purposes}")
    device.close()
    return 0


def shown(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in times.items())


if __name__ == "__main__":
    sys.exit(main())
