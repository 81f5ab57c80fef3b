"""What pre-staging, double-buffering, workers, evaluation and residency do to a device: one table.

    python benchmarks/pipeline.py KEY.zkey WITNESS.wtns [--device cuda:0] [--base best,reference] [--vary AXIS,…]
        [--product] [--count 100] [--vary-count 24] [--seconds 40] [--budget 200] [--threads 0] [--json FILE]

Two arrangements, and from each one axis at a time: the best one (ahead, double buffer, 2 workers, evaluation and key
on the device) and that of the reference's Phase 8 (off, none, 2 workers, both on the host). With ``--product`` all
others follow, each of ``--count`` partitions too. As many threads as workers prove the same witness in this process
until ``--count`` (``--vary-count``) partitions are counted or ``--seconds`` are over; the first two partitions of each
worker and the last one are left out. Every proof is verified. No row begins after ``--budget`` seconds; those that did
not are named. Rows that the file of ``--json`` holds already are shown and not run again: a table can be made in parts.

    ms          wall time a partition, from the end of the last one left out to the end of the last one counted
    kernels     time in which at least one kernel ran (union of the compute lane's spans), milliseconds a partition
    ratio       ms / kernels: what a partition costs beside its kernels
    busy        share of the wall time in which at least one kernel ran
    idle        milliseconds a partition by cause, of gaps of at least 0.1 ms; "short" below
    peak, plan  bytes of the device's ledger at the peak of the row, context included; planned for all workers at once
    lock        share of the time for which Python's interpreter lock was held
    uploads     GB/s of each kind of upload while it ran; * from pageable memory
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.bench.meter import Meter
from cuzk_engine.daemon.gil import GilWatch
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import CancelToken, Device, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.select import open_device, resolve_name
from cuzk_engine.diagnosis.gaps import find_gaps
from cuzk_engine.diagnosis.shares import shares, transfers
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.errors import CuzkError
from cuzk_engine.events import Event, Lane, Span
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Work, loss, modes
from cuzk_engine.pipeline.report import plan_report
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from cuzk_engine.units import format_size

_GAP_NS: Final = 100_000
_LEFT_OUT: Final = 2  # first partitions of each worker
_COPY_BYTES: Final = 1 << 30
_COPIES: Final = 7


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the partitions of a row run."""

    prestage: str
    double_buffer: str
    workers: str
    evaluate: str
    residency: str

    def settings(self) -> PipelineSettings:
        return PipelineSettings(
            Prestage(self.prestage), self.double_buffer == "on", Evaluation(self.evaluate), Residency(self.residency)
        )


BASES: Final = {
    "best": Arrangement("ahead", "on", "2", "device", "device"),
    "reference": Arrangement("off", "off", "2", "host", "host"),
}
AXES: Final = {
    "prestage": ("off", "locked", "ahead"),
    "double_buffer": ("on", "off"),
    "workers": ("1", "2", "3"),
    "evaluate": ("host", "device"),
    "residency": ("host", "device"),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One row. Milliseconds, bytes, GB/s. ``degraded``: what partitions gave up because memory was short → how many."""

    arrangement: Arrangement
    counted: int
    ms: float
    kernel_ms: float
    busy: float
    idle: dict[str, float]
    peak: int | None
    plan: int
    lock: float
    uploads: dict[str, float]
    degraded: dict[str, int]

    @property
    def ratio(self) -> float:
        return self.ms / self.kernel_ms if self.kernel_ms else math.inf


class Recorder:
    """An event sink that keeps a row's spans and the memory's peak."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.meter = Meter()

    def begin(self) -> None:
        self.spans = []
        self.meter.begin()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Span):
            self.spans.append(event)
        else:
            self.meter(event)


class Bench:
    """A device, a runner as the daemon has it, and one key."""

    def __init__(self, name: str, key: Path, witness: Path, threads: int = 0) -> None:
        self._path, self._witness = key, witness
        self.recorder = Recorder()
        name = resolve_name(name)
        self._host = HostMemory(host_budget().nbytes, self.recorder, device=name)
        self.device = open_device(name, self.recorder, host=self._host)
        self._tiers = KeyTiers(self.device, self._host)
        self.runner = Runner(self.device, KeyCache(tiers=self._tiers), self.recorder, evaluation_threads=threads)
        self.key = self.runner.keys.get(key)
        self.work = Work(self.key.sizes, self.key.device_matrices is not None, self.key.staging_bytes > 0)
        self._numbers = itertools.count()

    def prove(self, worker: int, settings: PipelineSettings, cancel: CancelToken) -> str:
        """What the partition gave up against ``settings``."""
        owner = Owner(f"bench-{next(self._numbers)}", 0, worker)
        outcome = self.runner.prove(self._path, self._witness, owner, settings, cancel=cancel)
        return loss(modes(settings, self.device.info.kind, self.work)[0], outcome.mode)

    def forget(self) -> None:
        """The device gives up its copies of the key, so that a row's memory is its own."""
        self._tiers.evict(self.key, None)

    def planned(self, settings: PipelineSettings, workers: int) -> int:
        return plan_report(self.device, self.work, settings, workers).total

    def close(self) -> None:
        self.runner.release_caches()
        self.device.close()
        self._host.close()


class Crew:
    """Worker threads that prove until enough partitions ended. ``ends``: when each did."""

    def __init__(self, bench: Bench, settings: PipelineSettings, workers: int) -> None:
        self._bench, self._settings, self._workers = bench, settings, workers
        self._lock = threading.Lock()
        self._cancel = CancelToken()
        self.ends: list[int] = []
        self.degraded: Counter[str] = Counter()
        self._fault: BaseException | None = None

    def run(self, wanted: int, seconds: float, ended: Callable[[int], None]) -> None:
        """``ended`` is called with the number of partitions that ended, one call at a time. Raises what a proof
        raised."""
        left = iter(range(wanted))
        deadline = time.monotonic() + seconds

        def work(worker: int) -> None:
            try:
                while time.monotonic() < deadline and self._fault is None and next(left, None) is not None:
                    lost = self._bench.prove(worker, self._settings, self._cancel)
                    with self._lock:
                        self.ends.append(time.monotonic_ns())
                        if lost:
                            self.degraded[lost] += 1
                        ended(len(self.ends))
            except BaseException as fault:
                self._fault = self._fault or fault
                self._cancel.set()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self._workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._fault is not None:
            raise self._fault


def measure(bench: Bench, watch: GilWatch, arrangement: Arrangement, count: int, seconds: float) -> Figures | None:
    """None where the time was over before two partitions could be counted."""
    workers, settings = int(arrangement.workers), arrangement.settings()
    first, wanted = _LEFT_OUT * workers, count + (_LEFT_OUT + 1) * workers
    crew = Crew(bench, settings, workers)
    looks: list[tuple[int, int]] = []

    def ended(number: int) -> None:
        if number in (first, wanted - workers):
            looks.append(watch.take())

    bench.recorder.begin()
    watch.resume()
    crew.run(wanted, seconds, ended)
    watch.pause()
    if len(looks) < 2:  # cut short: the last ones were looked at, too
        looks.append(watch.take())
    counted = len(crew.ends) - first - workers
    if counted < 2:
        return None
    start, end = crew.ends[first - 1], crew.ends[first + counted - 1]
    device = bench.device.info.id
    spans = SpanTable.of(span for span in bench.recorder.spans if span.device == device)
    found = shares(spans, start, end)
    idle = find_gaps(spans, start, end, device=device, threshold_ns=_GAP_NS)
    samples, held = looks[-1]
    causes = {str(cause): ns for cause, ns in idle.by_cause().items()} | {"short": idle.short_ns}
    return Figures(
        arrangement=arrangement,
        counted=counted,
        ms=(end - start) / counted / 1e6,
        kernel_ms=found.busy / counted / 1e6,
        busy=found.busy / found.window,
        idle={cause: ns / counted / 1e6 for cause, ns in causes.items()},
        peak=bench.recorder.meter.peak((device,)),
        plan=bench.planned(settings, workers),
        lock=held / samples if samples else 0.0,
        uploads=_uploads(spans.within(start, end)),
        degraded=dict(crew.degraded),
    )


def _uploads(spans: SpanTable) -> dict[str, float]:
    found = [copy for copy in transfers(spans) if copy.lane == Lane.H2D and copy.rate]
    return {copy.kind.partition(".")[2] + ("" if copy.pinned else "*"): (copy.rate or 0) / 1e9 for copy in found}


def pinned_copy_rate(device: Device) -> float | None:
    """GB/s of a plain copy of 1 GiB from page-locked memory to a GPU that does nothing else; None for the CPU."""
    if device.info.kind != "cuda":
        return None
    import cupy

    runtime = cupy.cuda.runtime
    rates = []
    with cupy.cuda.Device(int(device.info.id.partition(":")[2])), cupy.cuda.Stream(non_blocking=True) as stream:
        target, source = runtime.malloc(_COPY_BYTES), runtime.hostAlloc(_COPY_BYTES, 0)
        for _ in range(_COPIES):
            before, after = cupy.cuda.Event(), cupy.cuda.Event()
            before.record(stream)
            runtime.memcpyAsync(target, source, _COPY_BYTES, runtime.memcpyHostToDevice, stream.ptr)
            after.record(stream)
            after.synchronize()
            rates.append(_COPY_BYTES / cupy.cuda.get_elapsed_time(before, after) / 1e6)
        runtime.freeHost(source)
        runtime.free(target)
    return statistics.median(rates)


HEADS: Final = (
    "residency", "evaluate", "pre-staging", "buffers", "workers", "n", "ms", "kernels", "ratio", "busy", "idle, ms",
    "peak", "plan", "lock", "uploads, GB/s",
)  # fmt: skip


def row(figures: Figures) -> str:
    one = figures.arrangement
    idle = ", ".join(f"{cause} {ms:.2f}" for cause, ms in figures.idle.items() if ms >= 0.005)
    uploads = ", ".join(f"{kind} {rate:.1f}" for kind, rate in figures.uploads.items())
    plan = f"{format_size(figures.plan)} ({figures.plan / figures.peak:.3f})" if figures.peak else "–"
    lost = "".join(f"; {count} with {text}" for text, count in figures.degraded.items())
    cells = (
        one.residency, one.evaluate, one.prestage + lost, "2" if one.double_buffer == "on" else "1", one.workers,
        figures.counted, f"{figures.ms:.1f}", f"{figures.kernel_ms:.1f}", f"{figures.ratio:.3f}",
        f"{100 * figures.busy:.1f} %", idle or "–", "–" if figures.peak is None else format_size(figures.peak), plan,
        f"{100 * figures.lock:.1f} %", uploads or "–",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def rows(bases: list[str], axes: list[str], product: bool) -> Iterator[tuple[Arrangement, bool]]:
    """The arrangements in order of their weight, each once, with whether it is of the larger count."""
    seen: set[Arrangement] = set()

    def new(arrangement: Arrangement) -> bool:
        is_new = arrangement not in seen
        seen.add(arrangement)
        return is_new

    for base in bases:
        if new(BASES[base]):
            yield BASES[base], True
    if product:
        # What lies on the device between partitions changes last, since to bring it there takes long.
        for values in itertools.product(*(AXES[axis] for axis in reversed(AXES))):
            if new(arrangement := Arrangement(**dict(zip(reversed(AXES), values, strict=True)))):
                yield arrangement, True
        return
    for base, axis in itertools.product(bases, axes):
        for value in AXES[axis]:
            if new(changed := replace(BASES[base], **{axis: value})):
                yield changed, False


def earlier(path: Path | None, key: Path) -> dict[Arrangement, Figures]:
    """What the file of an earlier run holds of the key."""
    if path is None or not path.exists():
        return {}
    found = {}
    for document in map(json.loads, path.read_text().splitlines()):
        if document["key"] == str(key):
            values = {field.name: document[field.name] for field in fields(Figures)}
            arrangement = Arrangement(**document["arrangement"])
            found[arrangement] = Figures(**(values | {"arrangement": arrangement}))
    return found


def table(bench: Bench, args: argparse.Namespace, copy_rate: float | None) -> list[Figures]:
    """Prints the rows as they come."""
    watch, done, skipped, known = GilWatch(), [], [], earlier(args.json, args.key)
    previous = BASES["best"]  # in which the first proof was made
    watch.start()
    try:
        for arrangement, is_base in rows(args.base, args.vary, args.product):
            if arrangement in known:
                done.append(known[arrangement])
                print(row(done[-1]), flush=True)
                continue
            if time.monotonic() - args.began > args.budget:
                skipped.append(arrangement)
                continue
            if not _same_key(previous, arrangement):
                bench.forget()
            previous = arrangement
            count = args.count if is_base else args.vary_count
            try:
                figures = measure(bench, watch, arrangement, count, args.seconds)
            except CuzkError as error:  # the others may do better
                print(f"{arrangement}: {error}", flush=True)
                continue
            if figures is None:
                skipped.append(arrangement)
                continue
            done.append(figures)
            print(row(figures), flush=True)
            if args.json is not None:
                facts = {"key": str(args.key), "device": bench.device.info.name, "pinned_copy": copy_rate}
                with args.json.open("a") as out:
                    print(json.dumps({**facts, **asdict(figures), "ratio": figures.ratio}), file=out)
    finally:
        watch.stop()
    for one in skipped:
        print(f"no time was left for {one}")
    return done


def _same_key(one: Arrangement, other: Arrangement) -> bool:
    """Whether what is on the device between partitions is the same."""
    return (one.residency, one.evaluate) == (other.residency, other.evaluate)


def conclude(done: list[Figures], copy_rate: float | None) -> None:
    by = {figures.arrangement: figures for figures in done}
    best, reference = by.get(BASES["best"]), by.get(BASES["reference"])
    if best is not None and reference is not None:
        times = reference.ms / best.ms
        print(f"The reference's arrangement takes {times:.2f} times as long as the best one.")
    if copy_rate:
        kinds = sorted({kind for figures in done for kind in figures.uploads if not kind.endswith("*")})
        for kind in kinds:
            share = [figures.uploads[kind] / copy_rate for figures in done if kind in figures.uploads]
            print(f"Uploads of {kind}: {100 * min(share):.0f} to {100 * max(share):.0f} % of a plain pinned copy.")


def arguments() -> argparse.Namespace:
    def words(known: list[str]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            found = [] if text == "none" else text.replace("-", "_").split(",")
            if unknown := [word for word in found if word not in known]:
                raise argparse.ArgumentTypeError(f"{unknown[0]}: expected {', '.join(known)}, or none")
            return found

        return parse

    assert [field.name for field in fields(Arrangement)] == list(AXES)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("key", type=Path)
    parser.add_argument("witness", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--base", type=words(list(BASES)), default=list(BASES), help="arrangements to begin with")
    parser.add_argument("--vary", type=words(list(AXES)), default=list(AXES), help="axes to vary from each, or none")
    parser.add_argument("--product", action="store_true", help="all arrangements there are, instead of --vary")
    parser.add_argument("--count", type=int, default=100, help="partitions counted, of the arrangements")
    parser.add_argument("--vary-count", type=int, default=24, help="... of those that vary one axis")
    parser.add_argument("--seconds", type=float, default=40.0, help="most seconds a row")
    parser.add_argument("--budget", type=float, default=float("inf"), help="no row begins after so many seconds")
    parser.add_argument("--threads", type=int, default=0, help="that evaluate on the host; 0: all")
    parser.add_argument("--json", type=Path, help="append each row to this file, a JSON object a line")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    args.began = time.monotonic()
    try:
        bench = Bench(args.device, args.key, args.witness, args.threads)
        loaded = time.monotonic()
        copy_rate = pinned_copy_rate(bench.device)
        bench.prove(0, BASES["best"].settings(), CancelToken())
    except CuzkError as error:
        print(error, file=sys.stderr)
        return 1
    info, sizes = bench.device.info, bench.key.sizes
    print(f"{info.name} ({info.id}), {sizes.curve.title}, domain 2^{sizes.log_domain}, {args.key}")
    print(
        f"opened and key checked in {loaded - args.began:.1f} s, first proof after {time.monotonic() - loaded:.1f} s"
        + ("" if copy_rate is None else f"; a plain pinned copy of 1 GiB: {copy_rate:.1f} GB/s")
    )
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    conclude(table(bench, args, copy_rate), copy_rate)
    bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
