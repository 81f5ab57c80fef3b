"""The two stories of docs/stories.md on any device, a GPU too, as recordings: an engine and `cuzk record`, no window.

    python tools/record_stories.py [--device cuda:0] [--out FOLDER] [--profile porep:2^20]

memory.cuzkrec: two workers, room for one, and no plan. Allocations fail; what would have fitted is applied, and none
fails any more. idle.cuzkrec: one worker, evaluation on the host, no pre-staging; what the findings suggest is applied,
one after the other. ``cuzk app FILE`` shows them on any machine that has the same version.

Each step is checked: where one does not happen, one line says which, the exit code is 1 and that recording is not left.
The engine has a home folder of its own among the temporary files, which is gone afterwards, as is the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.cli.signals import terminable
from cuzk_engine.client import CuzkError, EngineClient, JobInfo, JobState, SettingChange, start_daemon, stop_daemon
from cuzk_engine.client.recording import Recording
from cuzk_engine.devices import arena
from cuzk_engine.devices.cuda import limit
from cuzk_engine.devices.select import resolve_name
from cuzk_engine.diagnosis.summary import WHOLE
from cuzk_engine.diagnosis.words import ms, percent
from cuzk_engine.events import Finding, Incident, Mark, Remedy
from cuzk_engine.pipeline.admission import ENVIRONMENT as NO_PLAN
from cuzk_engine.recording.contents import Contents
from cuzk_engine.units import format_size
from tests.support.stories import (
    CUZK,
    Circuit,
    Recorder,
    StoryError,
    comes_true,
    environment,
    expect,
    say,
    wait_for,
    write_config,
)

_SETTINGS: Final = {"pipeline.evaluate": '"host"', "srs.residency": '"host"'}
MEMORY_SETTINGS: Final = {**_SETTINGS, "pipeline.prestage": '"ahead"', "gpus.gpu_workers_per_device": "2"}
IDLE_SETTINGS: Final = {**_SETTINGS, "pipeline.prestage": '"off"', "gpus.gpu_workers_per_device": "1"}
PROFILES: Final = {"cpu": "porep:2^12", "cuda": "porep:2^20"}
_READY_S: Final = 120.0  # a GPU's kernels may have to be compiled
_WAIT_S: Final = 30.0
_FINDING_S: Final = 8.0  # findings come every three seconds
_SETTLE_NS: Final = 1_500_000_000  # so long after its end all of a job is told
_MOST_JOBS: Final = 10  # times that jobs are handed in before a finding is given up
_CHANGES: Final = 2  # of the second story


class Listener:
    """What the telemetry tells of incidents, findings and settings."""

    def __init__(self, client: EngineClient) -> None:
        self.incidents: list[Incident] = []
        self.findings: list[Finding] = []
        self.changes: list[Mark] = []
        self._now_ns = 0
        self._stream = client.telemetry()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        self._stream.cancel()
        self._thread.join()

    def settle(self) -> None:
        """Until all that has happened by now is known."""
        wanted = self._now_ns + _SETTLE_NS
        wait_for(lambda: self._now_ns >= wanted, "telemetry", _WAIT_S)

    def _listen(self) -> None:
        with contextlib.suppress(CuzkError):  # that it ended is seen by whoever waits
            for update in self._stream:
                self.incidents += update.events.incidents
                self.findings += update.events.findings
                self.changes += (mark for mark in update.events.marks if mark.kind == "setting")
                self._now_ns = update.time_ns


class Stage:
    """An engine, and a client that hands in proofs as other programs do."""

    def __init__(self, client: EngineClient, circuit: Circuit, heard: Listener) -> None:
        self.heard = heard
        self._client, self._circuit = client, circuit

    def prove(self, count: int, label: str) -> None:
        """So many jobs. Raises StoryError for one that fails."""
        failed = [job for job in self.try_to_prove(count, label) if job.state is not JobState.COMPLETED]
        expect(not failed, "; ".join(f"job {job.label!r} is {job.state}: {job.error}" for job in failed[:1]))

    def try_to_prove(self, count: int, label: str) -> list[JobInfo]:
        """So many jobs, ended and told."""
        key, witness = self._circuit.key, self._circuit.witness
        jobs = [self._client.submit(key_path=key, witness_path=witness, label=f"{label} {i + 1}") for i in range(count)]
        ended = [self._ended(job) for job in jobs]
        self.heard.settle()
        return ended

    def apply(self, remedy: Remedy) -> None:
        before = len(self.heard.changes)
        self.set(remedy.key, remedy.value, remedy.device)
        wait_for(lambda: len(self.heard.changes) > before, f"{remedy.key} = {remedy.value}", _WAIT_S)
        say(f"applied {remedy.key} = {remedy.value}: {remedy.text}")

    def set(self, key: str, value: str, device: str = "") -> None:
        self._client.apply_settings([SettingChange(key, value, device)])

    def _ended(self, job: JobInfo) -> JobInfo:
        with self._client.watch(job.id) as changes:
            for info in changes:
                job = info
        return job


@contextlib.contextmanager
def engine(home: Path, circuit: Circuit) -> Iterator[tuple[Stage, str]]:
    """A stage, and the engine's address."""
    address = f"unix://{home}/run/engine.sock"
    try:
        start_daemon(started_by="stories", listen=address)
        with EngineClient(address) as client:
            wait_for(lambda: all(d.state == "ready" for d in client.identify().devices), "the device", _READY_S)
            with contextlib.closing(Listener(client)) as heard:
                yield Stage(client, circuit, heard), address
    finally:
        stop_daemon(address=address, drain_timeout=1.0)


@contextlib.contextmanager
def recording(file: Path, address: str) -> Iterator[None]:
    recorder = Recorder(file, address, "--history", "0ms")
    try:
        recorder.await_start()
        yield
    except BaseException:
        with contextlib.suppress(StoryError):  # what ended the story is told
            recorder.stop()
        raise
    recorder.stop()


def memory_story(home: Path, circuit: Circuit, device: str, file: Path) -> None:
    write_config(circuit.key.parent, device, MEMORY_SETTINGS)
    hook = _limit(device)
    room = room_for_one(circuit.key, device, hook)
    say(f"{hook} = {format_size(room)} has room for one worker")
    with environment(**{NO_PLAN: "1", hook: f"{room}B"}), engine(home, circuit) as (stage, address):
        # One partition alone first: kernels are compiled and the key is checked before the story begins.
        stage.set("pipeline.prestage", "locked")
        stage.prove(1, "warm")
        stage.set("pipeline.prestage", "ahead")
        with recording(file, address):
            stage.try_to_prove(10, "before")
            failed = stage.heard.incidents
            expect(failed, "no allocation failed")
            say(failed[0].message)
            remedies = failed[0].picture.remedies if failed[0].picture else ()
            expect(remedies, "nothing would have fitted")
            stage.apply(remedies[0])
            count = len(failed)
            stage.prove(10, "after")
            expect(len(failed) == count, f"{len(failed) - count} more allocations failed after the change")


def idle_story(home: Path, circuit: Circuit, device: str, file: Path) -> None:
    write_config(circuit.key.parent, device, IDLE_SETTINGS)
    with engine(home, circuit) as (stage, address):
        stage.prove(2, "warm")
        with recording(file, address):
            applied: set[tuple[str, str]] = set()
            for number in range(_CHANGES):
                found = _suggested(stage, f"part {number + 1}", applied, _MOST_JOBS if number == 0 else 1)
                if found is None:
                    expect(number, "no finding suggests a change")
                    return
                finding, remedy = found
                say(finding.title)
                stage.apply(remedy)
                applied.add((remedy.key, remedy.value))
            stage.prove(20, f"part {_CHANGES + 1}")


def _suggested(stage: Stage, label: str, applied: set[tuple[str, str]], attempts: int) -> tuple[Finding, Remedy] | None:
    """What would save most by the newest findings, which need some seconds of work."""
    since = len(stage.heard.findings)

    def fresh() -> list[tuple[Finding, Remedy]]:
        newest = {finding.kind: finding for finding in stage.heard.findings[since:]}
        return [(f, r) for f in newest.values() for r in f.remedies if (r.key, r.value) not in applied]

    for _ in range(attempts):
        stage.prove(20, label)
        if comes_true(fresh, _FINDING_S):
            return max(fresh(), key=lambda pair: pair[1].gain or 0.0)
    return None


def room_for_one(key: Path, device: str, hook: str) -> int:
    """Bytes besides a GPU's context that hold all of one worker and an eighth of what another has beside it. Some
    buffers are as large as there is room, so it is asked again with what was found."""
    room = 0
    for _ in range(4):
        with environment(**({hook: f"{room}B"} if room else {})):
            report = _plan(key, device)
        asked = report["choices"][0]
        wanted = asked["peak"] - report["by_purpose"].get("context", 0) + (asked["total"] - asked["peak"]) // 8
        if wanted == room:
            break
        room = wanted
    return room


def _plan(key: Path, device: str) -> Any:
    """Of a process of its own, so that its context on a GPU is gone afterwards."""
    command = [*CUZK, "plan", str(key), "--device", device, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    expect(done.stdout, f"cuzk plan: {done.stderr.strip().removeprefix('cuzk: error: ')}")
    return json.loads(done.stdout)


def _limit(device: str) -> str:
    return arena.ENVIRONMENT if device == "cpu" else limit.ENVIRONMENT


def shown(file: Path, device: str) -> Iterator[str]:
    """One line for each stretch between two changes of settings."""
    with Recording.open(file) as record:
        changes = [mark for mark in Contents.load(record).marks if mark.kind == "setting"]
        edges = [record.info.start_ns, *(mark.time_ns for mark in changes), record.info.end_ns]
        for name, stretch in zip(["at first", *(mark.text for mark in changes)], pairwise(edges), strict=True):
            contents = Contents.load(record, *stretch)
            found = contents.summary(device)
            count, took = (found.partitions[WHOLE].count, found.partition_ns) if found.partitions else (0, None)
            each = f", {ms(round(took))} each" if took else ""
            yield (
                f"{name}: {count} partitions{each}; kernels ran in {percent(found.busy_share_with_work)} of the time; "
                f"allocations failed: {sum(i.kind == 'out-of-memory' for i in contents.incidents)}"
            )


def record_all(device: str, profile: str, out: Path) -> None:
    """Raises StoryError, CuzkError, OSError."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cuzk-stories-") as folder, environment(CUZK_HOME=folder):
        home = Path(folder)
        print(f"circuit {profile}", flush=True)
        circuit = Circuit.make(profile, home / "circuit")
        for name, story in (("memory", memory_story), ("idle", idle_story)):
            print(f"story {name} on {device}", flush=True)
            file = home / f"{name}.cuzkrec"
            try:
                story(home, circuit, device, file)
            except StoryError as error:
                raise StoryError(f"story {name}: {error}") from error
            left = Path(shutil.move(file, out / file.name))
            print(f"{left}, {format_size(left.stat().st_size)}:", flush=True)
            for line in shown(left, device):
                say(line)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Records two stories of one device.", allow_abbrev=False)
    parser.add_argument("--device", default="cuda:0", metavar="auto|cpu|cuda:N", help="where to prove (cuda:0)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="leave the recordings there (here)")
    parser.add_argument(
        "--profile", metavar="PROFILE", help=f"the circuit ({PROFILES['cuda']}; cpu: {PROFILES['cpu']})"
    )
    args = parser.parse_args(arguments)
    try:
        with terminable():
            device = resolve_name(args.device)
            record_all(device, args.profile or PROFILES[device.partition(":")[0]], args.out)
    except KeyboardInterrupt:
        return 130
    except (StoryError, CuzkError) as error:
        print(f"cuzk: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cuzk: error: {error.filename}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
