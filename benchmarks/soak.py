"""A day's worth of partitions in a few minutes: does the engine's memory stay flat?

    .venv/bin/python benchmarks/soak.py [--minutes 20] [--profile chain:2^4] [--partitions N] [--watch] [--json]

Starts an engine of its own on the CPU, in a home folder of its own, and keeps it busy with a small circuit: jobs of
one to ten partitions with all priorities, some streamed, some cancelled, and a setting changed now and then. A day of
the reference daemon's Phase 9 is about 27,000 partitions (32.1 s for ten). Every second the resident memory of each of
the engine's processes is read, without the pages that are mapped from files; ``--json`` gives all readings, in bytes.

Growth is the median of the last quarter against the median of the second quarter: the first quarter is warm-up, in
which caches and the pools of allocators fill. The slope is that of the straight line through all readings of the second
half. Exit code 1 where a process grew by more than ``--bound`` (2 %) or has more threads or open files than before, a
job ended otherwise than it should, or something is left at the end: device memory besides what caches keep, spooled
witnesses, more jobs in the store than are kept. The sizes of the store and of the log, which have bounds of their own,
are told.

``--watch``: a client reads the telemetry all the time, as the window does, and ``cuzk record --limit 16MiB`` runs
beside it, whose memory is held to the same bound.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from cuzk_engine.cli.main import main as command_line
from cuzk_engine.client import EngineClient, JobInfo, JobState, Priority, SettingChange
from cuzk_engine.events import Purpose
from tests.support.daemons import Daemon, wait_for

_KEPT = 200  # finished jobs
_CACHED = {Purpose.SRS, Purpose.NTT, Purpose.MATRICES, Purpose.CONTEXT}
_DEPTH = 24  # jobs that wait or run at once
_TIDY_S = 10.0
_CANCEL_EVERY = 17
_SETTING_EVERY_S = 5.0
_MORE = 2  # threads or open files: those of a pool that had not been needed yet
_HISTORY_NS = 600 * 10**9
_RECORDING = "16MiB"
_RECORDING_BYTES = 16 << 20
_SETTINGS = [
    ("pipeline.prestage", ("off", "locked", "ahead")),
    ("pipeline.double_buffer", ("true", "false")),
    ("pipeline.evaluate", ("host", "device")),
    ("gpus.gpu_workers_per_device", ("1", "2", "3")),
]


@dataclass(slots=True)
class Tally:
    """What happened. A reading a second: ``memory``: process → bytes; ``handles``: process's threads or open files →
    how many; ``files``: the store, the log → bytes."""

    ended: Counter[str] = field(default_factory=Counter)
    partitions: int = 0
    faults: list[str] = field(default_factory=list)
    memory: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    handles: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    files: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def private_bytes(process: psutil.Process) -> int:
    info = process.memory_info()
    return int(info.rss) - int(getattr(info, "shared", 0))


def folder_bytes(folder: Path) -> int:
    found = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # rotated just now
            found += path.stat().st_size
    return found


def left_behind(client: EngineClient, home: Path) -> list[str]:
    """What an engine with nothing to do should not have."""
    found = []
    with client.telemetry() as updates:
        memory = next(update.memory for update in updates if update.memory is not None)
    for (device, purpose), nbytes in memory.items():
        if nbytes and purpose not in _CACHED:
            found.append(f"{device} still holds {nbytes} bytes for {purpose}")
    found += [f"{path} was left" for path in (home / "run").rglob("*.wtns")]
    try:  # the store is tidied now and then
        wait_for(lambda: len(client.jobs(limit=10 * _KEPT)) <= _KEPT, _TIDY_S)
    except AssertionError:
        found.append(f"{len(client.jobs(limit=10 * _KEPT))} jobs are in the store, expected {_KEPT}")
    return found


class Soak:
    """Submits, cancels and changes settings until the time or the partitions are over."""

    def __init__(
        self, daemon: Daemon, client: EngineClient, key: Path, witness: Path, seed: int, recorder: int | None
    ) -> None:
        self._daemon, self._client = daemon, client
        self._key, self._witness = key, witness
        self._recorder = recorder
        self._random = random.Random(seed)
        self._open: dict[str, bool] = {}  # job → whether it was cancelled
        self.tally = Tally()

    def run(self, seconds: float, partitions: int | None) -> None:
        over = threading.Event()
        reader = threading.Thread(target=self._read, args=(over,))
        reader.start()
        try:
            self._keep_busy(time.monotonic() + seconds, partitions)
        finally:
            over.set()
            reader.join()
        self.tally.faults += left_behind(self._client, self._daemon.home)

    def _keep_busy(self, end: float, partitions: int | None) -> None:
        next_setting = time.monotonic()
        while time.monotonic() < end and (partitions is None or self.tally.partitions < partitions):
            while len(self._open) < _DEPTH:
                self._submit()
            self._collect()
            now = time.monotonic()
            if now >= next_setting:
                next_setting = now + _SETTING_EVERY_S
                key, values = self._random.choice(_SETTINGS)
                self._client.apply_settings([SettingChange(key, self._random.choice(values))])
        while self._open:
            self._collect()

    def _submit(self) -> None:
        count = self._random.randint(1, 10)
        priority = self._random.choice(list(Priority))
        if count == 1:
            job = self._client.submit_stream(self._witness.read_bytes(), key_path=self._key, priority=priority)
        else:
            more = [self._witness] * (count - 1)
            job = self._client.submit(
                key_path=self._key, witness_path=self._witness, more_witnesses=more, priority=priority
            )
        cancelled = self._random.randrange(_CANCEL_EVERY) == 0
        if cancelled:
            self._client.cancel(job.id)
        self._open[job.id] = cancelled

    def _collect(self) -> None:
        """Waits for the oldest job, then takes all that have ended."""
        oldest = next(iter(self._open))
        with self._client.watch(oldest) as stream:
            for job in stream:
                last = job
        self._end(last)
        for job in self._client.jobs(limit=4 * _DEPTH):
            if job.id in self._open and job.state.ended:
                self._end(job)

    def _end(self, job: JobInfo) -> None:
        cancelled = self._open.pop(job.id)
        tally = self.tally
        tally.ended[str(job.state)] += 1
        tally.partitions += job.partitions_done
        if job.state is JobState.FAILED or (job.state is JobState.CANCELLED and not cancelled):
            tally.faults.append(f"job {job.id}: {job.state} {job.error}")
        if job.state is JobState.COMPLETED:
            proof = self._client.fetch(job.id)
            proofs = len(proof.partitions) or 1
            if proofs != job.partitions:
                tally.faults.append(f"job {job.id}: {proofs} proofs of {job.partitions} partitions")

    def _read(self, over: threading.Event) -> None:
        """Once a second, whatever the jobs do."""
        assert self._daemon.process is not None
        processes = {"supervisor": psutil.Process(self._daemon.process.pid)}
        for device in self._client.identify().devices:
            processes[f"device {device.id}"] = psutil.Process(device.pid)
        if self._recorder is not None:
            processes["recorder"] = psutil.Process(self._recorder)
        tally = self.tally
        while not over.wait(1.0):
            for name, process in processes.items():
                with contextlib.suppress(psutil.NoSuchProcess):  # that it was started again is told at the end
                    tally.memory[name].append(private_bytes(process))
                    tally.handles[f"threads of {name}"].append(process.num_threads())
                    tally.handles[f"open files of {name}"].append(process.num_fds())
            for name, folder in (("store", "data"), ("log", "log")):
                tally.files[name].append(folder_bytes(self._daemon.home / folder))


@contextlib.contextmanager
def watching(daemon: Daemon, home: Path) -> Iterator[int]:
    """Follows the telemetry as the window does, and records it; gives the recorder's process."""
    recording = home / "soak.cuzkrec"
    command = [sys.executable, "-c", "import sys; from cuzk_engine.cli.main import main; sys.exit(main())", "record"]
    command += [str(recording), "--daemon", daemon.address, "--limit", _RECORDING]
    with EngineClient(daemon.address) as client, client.telemetry(_HISTORY_NS, columns=True) as updates:
        reader = threading.Thread(target=lambda: [None for _ in updates])
        reader.start()
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for(recording.exists, 30.0)
            yield recorder.pid
            recorder.send_signal(signal.SIGINT)
            if (code := recorder.wait(60)) or recording.stat().st_size > _RECORDING_BYTES:
                raise SystemExit(f"{recording}: {recording.stat().st_size} bytes, exit code {code} of the recorder")
        finally:
            recorder.kill()
            recorder.wait()
            updates.cancel()
            reader.join()


def slope(readings: list[int]) -> float:
    """Bytes a minute in the second half."""
    half = readings[len(readings) // 2 :]
    return 60 * statistics.linear_regression(range(len(half)), half).slope if len(half) > 1 else 0.0


def more_handles(handles: dict[str, list[int]]) -> list[str]:
    """What grew. Ten readings at the ends of the second and of the last quarter."""
    found = []
    for name, readings in handles.items():
        early, late = max(readings[: len(readings) // 2][-10:], default=0), min(readings[-10:], default=0)
        if late > early + _MORE:
            found.append(f"{name}: {early}, later {late}")
    return found


def growth(readings: list[int]) -> tuple[int, int, float]:
    """Medians of the second and of the last quarter, and the growth between them."""
    quarter = max(1, len(readings) // 4)
    early, late = statistics.median(readings[quarter : 2 * quarter]), statistics.median(readings[-quarter:])
    return int(early), int(late), late / early - 1


def minutes(readings: list[int]) -> list[int]:
    return [int(statistics.median(readings[at : at + 60])) for at in range(0, len(readings), 60)]


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--partitions", type=int, help="ends when so many are proved, if that is sooner")
    parser.add_argument("--profile", default="chain:2^4")
    parser.add_argument("--bound", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--watch", action="store_true", help="with a client that follows, and a recording")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cuzk-soak-") as folder:
        home = Path(folder)
        circuit = home / "circuit"
        if command_line(["workload", args.profile, str(circuit)]):
            return 1
        config = f'[gpus]\ndevices = ["cpu"]\n[jobs]\nkeep_finished = {_KEPT}\n'
        daemon = Daemon(home, fake=False, config=config).start()
        try:
            watch = watching(daemon, home) if args.watch else contextlib.nullcontext()
            with EngineClient(daemon.address) as client, watch as recorder:
                before = client.identify()
                soak = Soak(daemon, client, circuit / "circuit.zkey", circuit / "witness.wtns", args.seed, recorder)
                started = time.monotonic()
                soak.run(60 * args.minutes, args.partitions)
                seconds = time.monotonic() - started
                same = [d.pid for d in before.devices] == [d.pid for d in client.identify().devices]
        finally:
            daemon.stop()
    return report(soak.tally, seconds, same, args)


def report(tally: Tally, seconds: float, same: bool, args: argparse.Namespace) -> int:
    faults = list(tally.faults)
    if not same:
        faults.append("a device process was started again")
    rows = {name: growth(readings) for name, readings in tally.memory.items()}
    faults += [f"{name} grew by {100 * g:.1f} %" for name, (_, _, g) in rows.items() if g > args.bound]
    faults += more_handles(tally.handles)
    if args.json:
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "partitions": tally.partitions,
                    "jobs": dict(tally.ended),
                    "memory": {
                        name: {
                            "early": a,
                            "late": b,
                            "growth": g,
                            "slope": slope(tally.memory[name]),
                            "minutes": minutes(tally.memory[name]),
                            "readings": tally.memory[name],
                        }
                        for name, (a, b, g) in rows.items()
                    },
                    "handles": {name: minutes(readings) for name, readings in tally.handles.items()},
                    "files": {name: minutes(readings) for name, readings in tally.files.items()},
                    "faults": faults,
                }
            )
        )
        return 1 if faults else 0
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(tally.ended.items()))
    print(f"{tally.partitions} partitions in {seconds / 60:.1f} min ({jobs})")
    for name, (early, late, g) in rows.items():
        by_half = slope(tally.memory[name]) / 2**10
        print(
            f"{name}: {early / 2**20:.1f} MiB, later {late / 2**20:.1f} MiB ({100 * g:+.2f} %); "
            f"slope of the second half {by_half:+.1f} KiB a minute"
        )
        by_minute = " ".join(f"{n / 2**20:.1f}" for n in minutes(tally.memory[name]))
        print(f"  median of each minute, MiB: {by_minute}")
    for name, readings in (*tally.handles.items(), *tally.files.items()):
        print(f"{name}, by the minute: {' '.join(map(str, minutes(readings)))}")
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
