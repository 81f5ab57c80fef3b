"""What pre-staging, double-buffering, workers, evaluation and residency do to a device: one table.

    python benchmarks/pipeline.py KEY.zkey WITNESS.wtns [--device cuda:0] [--count 100] [--seconds 60]
        [--workers 1,2,3] [--prestage off,locked,ahead] [--double-buffer on,off] [--evaluate host,device]
        [--residency host,device] [--json FILE]

Every combination proves the same witness until ``--count`` partitions are counted (or ``--seconds`` are over), with as
many threads as workers in this process; the first two partitions of each worker and the last ones are left out. Every
proof is verified.

    ms          wall time a partition, from the end of the last one left out to the end of the last one counted
    busy        share of it in which at least one kernel ran (union of the compute lane's spans)
    ratio       wall time over kernel time (the same union): what a partition costs beside its kernels
    idle        by cause, milliseconds a partition, of gaps of at least 0.1 ms
    peak        bytes of the device's ledger, context included, against the plan
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.select import open_device
from cuzk_engine.diagnosis.gaps import find_gaps
from cuzk_engine.diagnosis.shares import shares, transfers
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.events import Event, Sample, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from cuzk_engine.units import format_size

_GAP_NS = 100_000
_AXES = ("residency", "evaluate", "prestage", "double_buffer", "workers")


@dataclass(frozen=True, slots=True)
class Figures:
    """One row. Milliseconds and bytes."""

    workers: int
    prestage: str
    double_buffer: bool
    evaluate: str
    residency: str
    counted: int
    ms: float
    kernel_ms: float
    busy: float
    idle: dict[str, float]
    short_idle: float
    peak: int
    plan: int
    staged: dict[str, int]
    upload_gb_s: dict[str, float]


class Recorder:
    """An event sink that keeps what the figures need."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.samples: list[Sample] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Span):
            self.spans.append(event)
        elif isinstance(event, Sample):
            self.samples.append(event)


class Crew:
    """Worker threads that prove until enough partitions ended. ``ends``: when each partition ended."""

    def __init__(self, runner: Runner, key: Path, witness: Path, settings: PipelineSettings, workers: int) -> None:
        self._runner, self._key, self._witness, self._settings = runner, key, witness, settings
        self._workers = workers
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._cancel = CancelToken()
        self.ends: list[int] = []
        self.staged: dict[str, int] = {}
        self.planned = 0
        self.fault: BaseException | None = None

    def run(self, count: int, seconds: float) -> None:
        threads = [threading.Thread(target=self._work, args=(w,), daemon=True) for w in range(self._workers)]
        deadline = time.monotonic() + seconds
        wanted = count + 3 * self._workers
        for thread in threads:
            thread.start()
        while not self._stop.wait(0.02):
            if len(self.ends) >= wanted or time.monotonic() > deadline:
                self._stop.set()
        for thread in threads:
            thread.join()
        if self.fault is not None:
            raise self.fault

    def _work(self, worker: int) -> None:
        try:
            while not self._stop.is_set():
                owner = Owner(f"bench-{next(self._numbers)}", 0, worker)
                outcome = self._runner.prove(self._key, self._witness, owner, self._settings, cancel=self._cancel)
                with self._lock:
                    self.ends.append(time.monotonic_ns())
                    self.planned = max(self.planned, outcome.peak_bytes)
                    name = str(outcome.prestage)
                    self.staged[name] = self.staged.get(name, 0) + 1
        except BaseException as fault:
            self.fault = fault
            self._cancel.set()
            self._stop.set()


def measure(
    runner: Runner,
    recorder: Recorder,
    key: Path,
    witness: Path,
    settings: PipelineSettings,
    workers: int,
    **limits: Any,
) -> Figures:
    crew = Crew(runner, key, witness, settings, workers)
    runner.device.reset_peak()
    recorder.spans.clear()
    crew.run(limits["count"], limits["seconds"])
    ends = sorted(crew.ends)
    first, last = 2 * workers, len(ends) - workers
    if last - first < 2:
        raise SystemExit(f"only {len(ends)} partitions in {limits['seconds']} s: give it more")
    start, end, counted = ends[first - 1], ends[last - 1], last - first
    device = runner.device.info.id
    spans = SpanTable.of(span for span in recorder.spans if span.device == device)
    found = shares(spans, start, end)
    idle = find_gaps(spans, start, end, device=device, threshold_ns=_GAP_NS)
    rates = {
        f"{t.kind} {'pinned' if t.pinned else 'pageable'}": t.rate / 1e9
        for t in transfers(spans.within(start, end))
        if t.rate and t.lane == "h2d"
    }
    return Figures(
        workers,
        str(settings.prestage),
        settings.double_buffer,
        str(settings.evaluate),
        str(settings.residency),
        counted,
        (end - start) / counted / 1e6,
        found.busy / counted / 1e6,
        found.busy / found.window,
        {cause: ns / counted / 1e6 for cause, ns in idle.by_cause().items()},
        idle.short_ns / counted / 1e6,
        runner.device.memory().peak,
        crew.planned,
        dict(crew.staged),
        rates,
    )


def row(figures: Figures) -> str:
    idle = ", ".join(f"{cause} {ms:.2f}" for cause, ms in figures.idle.items() if ms >= 0.005)
    staged = "" if set(figures.staged) == {figures.prestage} else f" (ran {figures.staged})"
    return (
        f"| {figures.residency} | {figures.evaluate} | {figures.prestage}{staged} | "
        f"{'on' if figures.double_buffer else 'off'} | {figures.workers} | {figures.ms:.1f} | "
        f"{100 * figures.busy:.1f} % | {figures.ms / figures.kernel_ms:.3f} | "
        f"{idle or '–'} | {format_size(figures.peak)} |"
    )


def combinations(args: argparse.Namespace) -> Iterator[tuple[PipelineSettings, int]]:
    for residency, evaluate, prestage, double, workers in itertools.product(
        args.residency, args.evaluate, args.prestage, args.double_buffer, args.workers
    ):
        yield (
            replace(
                PipelineSettings(),
                prestage=Prestage(prestage),
                double_buffer=double == "on",
                evaluate=Evaluation(evaluate),
                residency=Residency(residency),
            ),
            int(workers),
        )


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("key", type=Path)
    parser.add_argument("witness", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="most seconds a row")
    parser.add_argument("--json", type=Path, help="append each row to this file, a JSON object a line")
    words = {
        "workers": "1,2,3",
        "prestage": "off,locked,ahead",
        "double-buffer": "on,off",
        "evaluate": "host,device",
        "residency": "host,device",
    }
    for name, default in words.items():
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=default.split(","))
    args = parser.parse_args()
    recorder = Recorder()
    device = open_device(args.device, recorder)
    runner = Runner(device, KeyCache(), recorder)
    key = runner.keys.get(args.key)
    print(
        f"{device.info.name} ({device.info.id}), {key.sizes.curve.title}, domain 2^{key.sizes.log_domain}, {args.key}"
    )
    print("| residency | evaluate | pre-staging | double buffer | workers | ms | busy | ratio | idle, ms | peak |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for settings, workers in combinations(args):
        figures = measure(
            runner, recorder, args.key, args.witness, settings, workers, count=args.count, seconds=args.seconds
        )
        print(row(figures), flush=True)
        if args.json is not None:
            with args.json.open("a") as out:
                print(json.dumps(asdict(figures)), file=out)
    runner.release_caches()
    device.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
