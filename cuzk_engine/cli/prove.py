"""``cuzk prove``: one proof, verified, written whole or not at all; on this process's device or by a running engine.

The work runs in a thread of its own, while the main thread only waits: an interruption sets the cancel flag, which
everything that takes long looks at, and the thread ends by itself, leaving no file. Once both files are complete on the
disk the proof is delivered; an interruption then comes too late and the command succeeds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.cli import configured, outputs
from cuzk_engine.cli.console import OutputError, ProgressLine, say, say_json
from cuzk_engine.cli.engine import accepted, add_options, check_options, connect
from cuzk_engine.cli.signals import handled
from cuzk_engine.errors import CancelledError, CuzkError, UsageError

if TYPE_CHECKING:
    from cuzk_engine.devices.base import CancelToken
    from cuzk_engine.runner import PipelineSettings, Runner

    Subparsers = argparse._SubParsersAction[Any]

_REDRAW_S: Final = 0.1


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "prove",
        help="make a proof, verify it, write it",
        description="Makes a Groth16 proof, verifies it and writes it; writes nothing unless everything succeeded. "
        "With a bellperson key (KEY.params) and its circuit (--circuit) a proof is 192 bytes; several witnesses give "
        "as many proofs, one after the other in one file, and a list of their public signals.",
        allow_abbrev=False,
    )
    parser.add_argument("key", metavar="KEY.zkey", type=Path)
    parser.add_argument("witness", metavar="WITNESS.wtns", type=Path, nargs="+")
    parser.add_argument("proof", metavar="PROOF.json", type=Path)
    parser.add_argument("public", metavar="PUBLIC.json", type=Path)
    parser.add_argument(
        "--circuit", metavar="CIRCUIT", type=Path, help="constraint system (r1cs or pce) of a bellperson key"
    )
    parser.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="where to prove (auto)")
    add_options(parser, "have the engine at ADDR prove, as 127.0.0.1:9820")
    configured.add_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    check_options(args)
    configured.check_option(args)
    check_inputs(args)
    check_outputs(args)
    work = _prove_by_daemon if args.daemon is not None else _prove_here
    task = _Task(args, work)
    with _interruptible(task):
        task.wait(ProgressLine(sys.stderr))
        if task.error is not None:
            if task.interrupted_by is not None:  # whatever the work met while it was ending
                return 128 + task.interrupted_by
            raise task.error
        with contextlib.suppress(OutputError):  # the proof is where it should be
            if args.json:
                say_json(task.result)
            else:
                say(_summary(args, task.result))
    return 0


def check_inputs(args: argparse.Namespace) -> None:
    """Refuses, before any work, what does not go together."""
    if args.circuit is not None:
        if args.daemon is not None:
            raise UsageError("--circuit: the engine proves with zkey files only; prove without --daemon")
        return
    if len(args.witness) > 1:
        # Most likely an argument too many.
        raise UsageError(f"{len(args.witness)} witnesses: only a bellperson key takes several (see cuzk prove --help)")
    if args.daemon is not None:
        return  # the files may be on its machine
    from cuzk_engine.formats.params import structure_of
    from cuzk_engine.formats.source import SourceFile

    source = SourceFile.open(args.key)
    if source.data[:4].tobytes() != b"zkey" and structure_of(source) == "params":
        raise UsageError(f"{args.key}: is a bellperson key; give its constraint system, too: --circuit CIRCUIT.r1cs")


def check_outputs(args: argparse.Namespace) -> None:
    """Refuses, before any work, outputs that cannot be meant or written."""
    inputs = [("the key", args.key), *(("the witness", path) for path in args.witness)]
    if args.circuit is not None:
        inputs.append(("the circuit", args.circuit))
    outputs.check_pair(args.proof, args.public, inputs)


@dataclass
class _Task:
    """The work of one command in a thread, its progress and how it ended."""

    args: argparse.Namespace
    work: Callable[[_Task], dict[str, Any]]
    progress: tuple[str, float] = ("start", 0.0)
    committing: bool = False
    interrupted_by: int | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._done = threading.Event()
        self._on_interrupt: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="prove", daemon=True)

    def wait(self, line: ProgressLine) -> None:
        """Until the work has ended; the only thing the main thread does. It looks up now and then even where nothing
        is drawn: a signal that comes just before a thread falls asleep, or to another thread, does not wake it."""
        self._thread.start()
        while not self._done.wait(_REDRAW_S):
            line.draw(*self.progress)
        line.clear()
        self._thread.join()

    def interrupt(self, number: int, frame: FrameType | None = None) -> None:
        """A signal handler. The first signal asks the work to end, a second one does not wait for that."""
        if self.interrupted_by is not None and not self.committing:
            os._exit(128 + number)
        self.interrupted_by = number
        if self._on_interrupt is not None:
            self._on_interrupt()

    def when_interrupted(self, callback: Callable[[], None]) -> None:
        """``callback`` makes the work end; it is called from a signal handler, at once when the signal came before."""
        self._on_interrupt = callback
        if self.interrupted_by is not None:
            callback()

    def report(self, phase: str, fraction: float) -> None:
        self.progress = (phase, fraction)

    def compiling(self, architecture: str, done: int, total: int) -> None:
        """In the middle of a proof: the bar stays where it is."""
        from cuzk_engine.devices.cuda.compiling import progress_text

        self.progress = (progress_text(architecture, done, total), self.progress[1])

    def deliver(self, proof: bytes | str, public_json: str) -> None:
        """The point of no return: from here on both files appear, or an error is told."""
        self.committing = True
        if self.interrupted_by is not None:
            raise CancelledError("cancelled")
        outputs.write_pair(self.args.proof, proof, self.args.public, public_json)

    def _run(self) -> None:
        try:
            self.result = self.work(self)
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()


def _interruptible(task: _Task) -> contextlib.AbstractContextManager[None]:
    """SIGINT and SIGTERM go to the task for the time of the block."""
    return handled(task.interrupt)


def _prove_here(task: _Task) -> dict[str, Any]:
    started = time.monotonic_ns()
    from cuzk_engine.devices.base import CancelToken, Owner
    from cuzk_engine.keys import KeyCache
    from cuzk_engine.runner import Runner

    cancel = CancelToken()
    task.when_interrupted(cancel.set)
    args = task.args
    settings = configured.load(args)
    wanted = configured.pipeline_settings(settings)
    with configured.open_device(settings, args.device, task.compiling) as opened:
        device, threads = opened.device, opened.threads
        evaluation_threads = settings.number("synthesis.threads")
        runner = Runner(device, KeyCache(threads=threads), threads=threads, evaluation_threads=evaluation_threads)
        if args.circuit is not None:
            return _prove_partitions(task, runner, wanted, cancel, started)
        outcome = runner.prove(args.key, args.witness[0], Owner(), wanted, task.report, cancel)
        task.deliver(outcome.proof.to_json(), outcome.public.to_json())
        return {
            "proof": str(args.proof),
            "public": str(args.public),
            "curve": outcome.proof.curve.snarkjs_name,
            "public_signals": len(outcome.public.values),
            "device": outcome.device,
            "device_name": device.info.name,
            "verified": True,
            "seconds": (time.monotonic_ns() - started) / 1e9,
            "phases": {name: nanoseconds / 1e9 for name, nanoseconds in outcome.phases.items()},
            "peak_device_bytes": outcome.peak_bytes,
        }


def _prove_partitions(
    task: _Task, runner: Runner, settings: PipelineSettings, cancel: CancelToken, started: int
) -> dict[str, Any]:
    """One proof a witness, with a bellperson key."""
    from cuzk_engine.devices.base import Owner
    from cuzk_engine.formats.compressed_proof import encode_proofs
    from cuzk_engine.formats.proof import public_lists_json
    from cuzk_engine.runner import ProofOutcome

    args, total = task.args, len(task.args.witness)
    outcomes: list[ProofOutcome] = []

    def progress(phase: str, fraction: float) -> None:
        name = phase if total == 1 else f"{phase}, proof {len(outcomes) + 1} of {total}"
        task.report(name, (len(outcomes) + fraction) / total)

    for number, witness in enumerate(args.witness):
        owner = Owner(partition=number)
        outcomes.append(runner.prove(args.key, witness, owner, settings, progress, cancel, args.circuit))
    publics = [outcome.public for outcome in outcomes]
    public_json = publics[0].to_json() if total == 1 else public_lists_json(publics)
    task.deliver(encode_proofs([outcome.proof for outcome in outcomes]), public_json)
    phases: dict[str, float] = {}
    for outcome in outcomes:
        for name, nanoseconds in outcome.phases.items():
            phases[name] = phases.get(name, 0.0) + nanoseconds / 1e9
    return {
        "proof": str(args.proof),
        "public": str(args.public),
        "curve": outcomes[0].proof.curve.snarkjs_name,
        "proofs": total,
        "public_signals": len(publics[0].values),
        "device": outcomes[0].device,
        "device_name": runner.device.info.name,
        "verified": True,
        "seconds": (time.monotonic_ns() - started) / 1e9,
        "phases": phases,
        "peak_device_bytes": max(outcome.peak_bytes for outcome in outcomes),
    }


def _prove_by_daemon(task: _Task) -> dict[str, Any]:
    started = time.monotonic_ns()
    from cuzk_engine.client import JobState

    args = task.args
    with connect(args) as client:
        device = "" if args.device == "auto" else args.device
        job = client.submit(key_path=args.key.absolute(), witness_path=args.witness[0].absolute(), device=device)
        job_id = job.id
        # A call from within a signal handler could wait for a lock that the interrupted code holds.
        task.when_interrupted(lambda: threading.Thread(target=_cancel_job, args=(args, job_id)).start())
        with accepted(job_id), client.watch(job_id) as updates:
            for job in updates:
                task.report(job.phase or job.state.value, job.progress)
        if job.state is JobState.CANCELLED:
            raise CancelledError(f"job {job_id} was cancelled")
        if job.state is not JobState.COMPLETED:
            raise CuzkError(job.error or f"job {job_id} ended as {job.state.value}")
        result = client.fetch(job_id)
    task.deliver(result.proof_json, result.public_json)
    return {
        "proof": str(args.proof),
        "public": str(args.public),
        "curve": result.curve,
        "device": job.device,
        "job": job_id,
        "verified": True,
        "seconds": (time.monotonic_ns() - started) / 1e9,
        "phases": {phase.name: phase.nanoseconds / 1e9 for phase in job.phases},
    }


def _cancel_job(args: argparse.Namespace, job_id: str) -> None:
    # The engine may be gone, or the job done: then nothing is left to cancel.
    with contextlib.suppress(CuzkError), connect(args) as client:
        client.cancel(job_id)


def _summary(args: argparse.Namespace, result: dict[str, Any]) -> str:
    count = result.get("proofs", 1)
    what = "proof" if count == 1 else f"{count} proofs"
    return f"{args.proof}, {args.public}: {what} verified, {result['seconds']:.2f} s on {result['device']}"
