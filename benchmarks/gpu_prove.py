"""Time of whole proofs on a GPU: key resident, witness page-locked, from the upload to the affine proof.

    python benchmarks/gpu_prove.py KEY.zkey WITNESS.wtns [--device 0] [--runs 7] [--parallel 2] [--spans] [--modes]

The first proof, which loads the key onto the device, is shown apart. Then the median of the runs after two more.
Reading and checking the witness and its copy to page-locked memory come before the clock; every proof is verified,
outside the clock. ``--modes`` shows the medians of every combination of pre-staging, double buffering, evaluation and
residency instead.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.devices.cuda.limit import read_limit
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.events import Event, Kind, Lane, Span
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.paths import cache_dir
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from cuzk_engine.units import format_size

OUTSIDE = ("load_key", "read_witness", "verify")


def lane_spans(events: list[Event], lane: str) -> list[Span]:
    return sorted((e for e in events if isinstance(e, Span) and e.lane == lane), key=lambda span: span.start_ns)


def by_kind(events: list[Event]) -> dict[str, float]:
    """Milliseconds of the device's spans by kind; those that overlap count twice."""
    sums: defaultdict[str, float] = defaultdict(float)
    for lane in (Lane.COMPUTE, Lane.H2D, Lane.D2H):
        for span in lane_spans(events, lane):
            sums[str(span.kind)] += (span.end_ns - span.start_ns) / 1e6
    return dict(sums)


def gaps(events: list[Event]) -> Iterator[tuple[float, float, str]]:
    """(start, length, what came before) in ms, of the times within the lock in which no span of the compute lane
    runs."""
    held = [span for span in lane_spans(events, Lane.LOCK) if span.kind == Kind.LOCK_HELD]
    if not held:
        return
    start, end = held[0].start_ns, held[0].end_ns
    reached, last = start, "lock"
    for span in lane_spans(events, Lane.COMPUTE):
        if span.start_ns > reached:
            yield (reached - start) / 1e6, (span.start_ns - reached) / 1e6, last
        if span.end_ns > reached:
            reached, last = span.end_ns, str(span.kind)
    if end > reached:
        yield (reached - start) / 1e6, (end - reached) / 1e6, last


def show_spans(events: list[Event]) -> None:
    compute = lane_spans(events, Lane.COMPUTE)
    first = compute[0].start_ns
    for span in compute:
        begin, end = ((x - first) / 1e6 for x in (span.start_ns, span.end_ns))
        print(f"    {begin:9.3f} {end:9.3f} {end - begin:8.3f}  {span.kind}")


@dataclass
class Times:
    first: float = 0.0
    totals: list[float] = field(default_factory=list)
    phases: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    prestage: str = ""
    planned: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.totals)


def measure(
    runner: Runner, key: Path, witness: Witness, settings: PipelineSettings, runs: int, events: list[Event]
) -> Times:
    """``events`` holds those of the last run afterwards."""
    times = Times()
    for run in range(runs + 3):
        del events[:]
        outcome = runner.prove(key, witness, Owner("benchmark", 0, 0), settings)
        inside = {name: ns / 1e6 for name, ns in outcome.phases.items() if name not in OUTSIDE}
        times.prestage, times.planned = str(outcome.prestage), max(times.planned, outcome.peak_bytes)
        if run == 0:
            times.first = sum(inside.values())
        if run > 2:
            times.totals.append(sum(inside.values()))
            for name, value in inside.items():
                times.phases[name].append(value)
    return times


def every_mode() -> Iterator[PipelineSettings]:
    evaluations, residencies = (Evaluation.HOST, Evaluation.DEVICE), (Residency.HOST, Residency.DEVICE)
    for prestage, double, evaluate, residency in itertools.product(Prestage, (True, False), evaluations, residencies):
        yield PipelineSettings(prestage, double, evaluate, residency)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("key", type=Path)
    parser.add_argument("witness", type=Path)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--parallel", type=int, default=2, help="MSMs under way at a time")
    parser.add_argument("--spans", action="store_true", help="list the spans of the last run")
    parser.add_argument("--modes", action="store_true", help="every combination of the pipeline's settings")
    args = parser.parse_args()
    events: list[Event] = []
    started = time.perf_counter()
    kernels = cache_dir() / "kernels"
    host = HostMemory(host_budget().nbytes, events.append, device=f"cuda:{args.device}")
    device = CudaDevice(args.device, kernels, events.append, read_limit(), host, parallel=args.parallel)
    opened = time.perf_counter() - started
    runner = Runner(device, KeyCache(tiers=KeyTiers(device, host)))
    started = time.perf_counter()
    key = runner.keys.get(args.key)
    loaded = time.perf_counter() - started
    witness = Witness.open(args.witness)
    print(f"{device.info.name}, {key.sizes.curve.title}, domain 2^{key.sizes.log_domain}, {args.key}")
    print(f"device opened in {opened:.2f} s, key loaded and checked in {loaded:.2f} s", flush=True)
    if args.modes:
        for settings in every_mode():
            times = measure(runner, args.key, witness, settings, args.runs, events)
            double = "double" if settings.double_buffer else "single"
            words = f"{settings.prestage} {double} evaluate={settings.evaluate} srs={settings.residency}"
            print(f"  {words}: {times.median:.2f} ms, was {times.prestage}", flush=True)
            device.release_residents()
        runner.release_caches()
        device.close()
        host.close()
        return 0
    times = measure(runner, args.key, witness, PipelineSettings(), args.runs, events)
    memory = device.memory()
    print(f"first proof {times.first:.1f} ms")
    print(f"proof {times.median:.2f} ms (best {min(times.totals):.2f}, worst {max(times.totals):.2f})")
    print("phases: " + shown({name: statistics.median(values) for name, values in times.phases.items()}))
    print("device, last run: " + shown(by_kind(events)))
    idle = sorted(gaps(events), key=lambda gap: -gap[1])
    print(f"no kernel for {sum(gap[1] for gap in idle):.2f} ms of the lock; longest: ", end="")
    print(", ".join(f"{length:.2f} at {start:.2f} after {last}" for start, length, last in idle[:5]))
    if args.spans:
        show_spans(events)
    purposes = ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in memory.by_purpose.items())
    peak = memory.peak - device.context_bytes
    ratio = times.planned / peak
    print(f"peak {format_size(peak)}, planned {format_size(times.planned)} ({ratio:.3f} times); held: {purposes}")
    runner.release_caches()
    device.close()
    host.close()
    return 0


def shown(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in times.items())


if __name__ == "__main__":
    sys.exit(main())
