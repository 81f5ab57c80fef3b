"""What a second GPU brings: the same partitions through an engine on one device, then on several.

    python benchmarks/several_gpus.py KEY.zkey WITNESS.wtns [--devices 0 0,1] [--count 60] [--job 5] [--bench] [--json]

For each list of devices (``gpus.devices``) an engine of its own is started, in a home folder of its own that shares
the caller's kernel cache. After two partitions a worker, jobs of ``--job`` partitions are handed in until ``--count``
of them are; the clock runs from the end of the first ones (two a worker) to the end of the last but one a worker.
Beside the throughput: each device's share of the time with a kernel running, idle by cause, and the share of the time
for which its process's interpreter lock was held. With ``--bench``: what ``cuzk bench --daemon`` says of the same. Exit
code 1 where the last list reaches less than ``--wanted`` (0.95 a device) times the throughput of the first.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine import paths
from cuzk_engine.client import EngineClient, JobInfo, JobState, TelemetryUpdate
from cuzk_engine.diagnosis.gaps import find_gaps
from cuzk_engine.diagnosis.shares import shares
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.errors import CuzkError
from cuzk_engine.events import Kind, Span
from tests.support.daemons import Daemon, wait_for

_LEFT_OUT: Final = 2  # first partitions of each worker
_START_SECONDS: Final = 60.0
_TELEMETRY_SECONDS: Final = 5.0
_COMMAND: Final = "import sys; from cuzk_engine.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """``idle``: share of the time by cause; ``lock``: None where nobody looked."""

    device: str
    partitions: int
    busy: float
    idle: dict[str, float]
    lock: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """``seconds``: of the ``counted`` partitions; ``wall``: of all, from the first submission to the last end."""

    devices: list[DeviceFigures]
    counted: int
    seconds: float
    partitions: int
    wall: float

    @property
    def per_second(self) -> float:
        return self.counted / self.seconds


class Listener:
    """Keeps the engine's spans, and knows which jobs have ended."""

    def __init__(self, client: EngineClient) -> None:
        self.spans: list[Span] = []
        self.lost = 0
        self._stream = client.telemetry()
        self._ended: set[str] = set()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        self._stream.cancel()
        self._thread.join()

    def wait(self, jobs: set[str]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: jobs <= self._ended, _TELEMETRY_SECONDS):
                raise CuzkError("the engine's events did not come")

    def _listen(self) -> None:
        for update in self._stream:
            self._take(update)

    def _take(self, update: TelemetryUpdate) -> None:
        self.spans += update.events.spans
        self.lost += update.events.dropped
        with self._changed:
            self._ended.update(job.id for job in update.jobs if job.state.ended)
            self._changed.notify_all()


class Engine:
    """An engine on ``devices``, and what is measured of it."""

    def __init__(self, daemon: Daemon, status: str, args: argparse.Namespace) -> None:
        self._daemon, self._status, self._args = daemon, status, args
        self._client = EngineClient(daemon.address)

    def measure(self) -> Figures:
        with self._client:
            wait_for(lambda: all(d.state == "ready" for d in self._client.identify().devices), _START_SECONDS)
            listener = Listener(self._client)
            try:
                return self._measure(listener)
            finally:
                listener.close()

    def _measure(self, listener: Listener) -> Figures:
        args, devices = self._args, self._client.identify().devices
        workers = sum(device.workers for device in devices)
        self._finish([self._submit(_LEFT_OUT * device.workers, device.id) for device in devices])
        before = self._looks()
        listener.spans.clear()
        start = time.monotonic_ns()
        sizes = [min(args.job, args.count - done) for done in range(0, args.count, args.job)]
        jobs = [self._submit(size) for size in sizes]
        self._finish(jobs)
        wall = (time.monotonic_ns() - start) / 1e9
        listener.wait({job.id for job in jobs})
        after = self._looks()
        if listener.lost:
            raise CuzkError(f"{listener.lost} events were lost")
        rows = [span for span in listener.spans if span.start_ns >= start]
        ends = sorted(span.end_ns for span in rows if span.kind == Kind.VERIFY)
        if len(ends) != args.count or args.count < (_LEFT_OUT + 1) * workers + 2:
            raise CuzkError(
                f"{len(ends)} partitions were seen, expected {args.count}, and enough for {workers} workers"
            )
        first, last = ends[_LEFT_OUT * workers - 1], ends[-workers - 1]
        table = SpanTable.of(rows)
        figures = []
        for device in devices:
            looks = [b - a for a, b in zip(before[device.id], after[device.id], strict=True)]
            count = sum(s.device == device.id and s.kind == Kind.VERIFY and first < s.end_ns <= last for s in rows)
            figures.append(_device(table, device.id, first, last, count, looks[1] / looks[0] if looks[0] else None))
        counted = args.count - (_LEFT_OUT + 1) * workers
        return Figures(figures, counted, (last - first) / 1e9, args.count, wall)

    def bench(self) -> str:
        """What ``cuzk bench`` prints."""
        args = self._args
        options = [args.key, args.witness, "-c", args.count, "-j", 8, "--daemon", self._daemon.address]
        command = [sys.executable, "-c", _COMMAND, "bench", *map(str, options)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _submit(self, count: int, device: str = "") -> JobInfo:
        more = [self._args.witness] * (count - 1)
        return self._client.submit(
            key_path=self._args.key, witness_path=self._args.witness, more_witnesses=more, device=device
        )

    def _finish(self, jobs: list[JobInfo]) -> None:
        for job in jobs:
            with self._client.watch(job.id) as changes:
                for info in changes:
                    job = info
            if job.state is not JobState.COMPLETED:
                raise CuzkError(job.error or f"job {job.id} ended as {job.state}")

    def _looks(self) -> dict[str, tuple[float, float]]:
        """Device → looks at its process's interpreter lock, and those at which it was held."""
        with urllib.request.urlopen(f"http://{self._status}/metrics") as answer:
            text = answer.read().decode()
        found = {}
        for device in self._client.identify().devices:
            values = [
                re.search(rf'^cuzk_device_gil_{name}_total{{device="{device.id}"}} (\S+)$', text, re.MULTILINE)
                for name in ("samples", "held_samples")
            ]
            looks, held = (float(value[1]) if value else 0.0 for value in values)
            found[device.id] = (looks, held)
        return found


def _device(table: SpanTable, device: str, start: int, end: int, count: int, lock: float | None) -> DeviceFigures:
    own = table.of_device(device)
    found, idle = shares(own, start, end), find_gaps(own, start, end, device=device)
    causes = {str(cause): ns for cause, ns in idle.by_cause().items()} | {"short": idle.short_ns}
    window = end - start
    return DeviceFigures(device, count, found.busy / window, {c: ns / window for c, ns in causes.items()}, lock)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def measure(devices: str, home: Path, args: argparse.Namespace) -> tuple[Figures, str]:
    allowed = json.dumps(sorted({str(path.parent) for path in (args.key, args.witness)}))
    config = f"allowed_paths = {allowed}\n[gpus]\ndevices = {json.dumps(devices.split(','))}\n"
    status = f"127.0.0.1:{_free_port()}"
    daemon = Daemon(home, fake=False, config=config, status_listen=status)
    try:
        engine = Engine(daemon.start(), status, args)
        figures = engine.measure()
        said = engine.bench() if args.bench else ""
        daemon.stop()
    finally:
        daemon.close()
    return figures, said


def report(devices: str, figures: Figures, said: str) -> None:
    print(
        f"{devices}: {figures.per_second:.2f} partitions a second ({figures.counted} in {figures.seconds:.2f} s; "
        f"all {figures.partitions} in {figures.wall:.2f} s)"
    )
    for one in figures.devices:
        idle = ", ".join(f"{cause} {100 * share:.1f} %" for cause, share in one.idle.items() if share >= 0.0005)
        lock = "not looked at" if one.lock is None else f"held {100 * one.lock:.1f} %"
        print(
            f"  {one.device}: {one.partitions} partitions, busy {100 * one.busy:.1f} %; idle: {idle or '–'}; "
            f"interpreter lock {lock}"
        )
    if said:
        print(f"cuzk bench --daemon, {devices}:\n{said}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("key", type=lambda text: Path(text).absolute())
    parser.add_argument("witness", type=lambda text: Path(text).absolute())
    parser.add_argument("--devices", nargs="+", default=["0", "0,1"], help="lists of devices: 0 0,1")
    parser.add_argument("--count", type=int, default=60, help="partitions of each engine")
    parser.add_argument("--job", type=int, default=5, help="partitions of a job")
    parser.add_argument("--wanted", type=float, help="ratio of the last list's throughput to the first's")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kernels = paths.cache_dir() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    rates, documents = [], []
    with tempfile.TemporaryDirectory(prefix="cuzk-gpus-") as folder:
        home = Path(folder)
        (home / "cache").mkdir(mode=0o700)
        (home / "cache" / "kernels").symlink_to(kernels)
        for devices in args.devices:
            figures, said = measure(devices, home, args)
            rates.append(figures.per_second)
            documents.append({"devices": devices, **asdict(figures), "per_second": figures.per_second, "bench": said})
            if not args.json:
                report(devices, figures, said)
    ratio = rates[-1] / rates[0]
    number = len(args.devices[-1].split(",")) / len(args.devices[0].split(","))
    wanted = 0.95 * number if args.wanted is None else args.wanted
    if args.json:
        print(json.dumps({"engines": documents, "ratio": ratio, "wanted": wanted}))
    else:
        print(f"ratio {ratio:.3f}, wanted {wanted:.2f}")
    return int(ratio < wanted)


if __name__ == "__main__":
    sys.exit(main())
