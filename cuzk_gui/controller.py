"""What the window does with its engine: follow its state, start and stop it, hand in proofs, take what it sends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, Signal

from cuzk_engine.client import CircuitInfo, DaemonStatus, JobInfo, JobState, ProcessState, ProofResult, SettingChange
from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_gui.bridge import Bridge, StreamEnded
from cuzk_gui.engine import Connection, Engine
from cuzk_gui.files import parts, save_proof
from cuzk_gui.models import jobs as job_words
from cuzk_gui.models import words
from cuzk_gui.models.digest import Digest
from cuzk_gui.models.log import LogEntry, tail_of_file
from cuzk_gui.models.process import Action, EngineView, Tone
from cuzk_gui.models.session import Session

HISTORY_NS: Final = 3_600_000_000_000  # of a running engine, as far as it keeps it
_POLL_S: Final = 1.0
_CIRCUITS_S: Final = 2.0  # between two looks at the list of circuits
_POLL_STREAMING_S: Final = 10.0
_APPLY_S: Final = 0.006
_LAG_NS: Final = 120_000_000
_SILENCE_NS: Final = 1_500_000_000


@dataclass(frozen=True, slots=True)
class Proof:
    """What is to be proved. ``circuit``: the name under which the key is registered, "" for the engine's choice."""

    key: str
    witness: str
    label: str = ""
    circuit: str = ""


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """What the memory plan shall say: a circuit on a device, as if ``changes`` were made."""

    circuit: str
    device: str
    changes: tuple[SettingChange, ...] = ()


class Controller(QObject):
    """``tick`` is called by the window's timer, and everything else on the same thread.

    Signals: ``noticed`` a line for the user; ``engine_changed`` state, status or what is asked; ``circuits_changed``;
    ``submitted`` a job's id; ``completed`` a job of this window has ended in a proof.
    """

    noticed = Signal(str, Tone)
    engine_changed = Signal()
    circuits_changed = Signal()
    submitted = Signal(str)
    completed = Signal(str)

    def __init__(self, engine: Engine, session: Session) -> None:
        super().__init__()
        self.session = session
        self.engine = EngineView(elsewhere=engine.elsewhere)
        self.circuits: list[CircuitInfo] = []
        self._process = engine
        self._bridge = Bridge(engine, session.names)
        self._polling = False
        self._next_poll = 0.0
        self._clock_offset: int | None = None
        self._received = 0.0
        self._mine: set[str] = set()
        self._waiting: list[Proof] = []
        self._tail_shown = False
        self._stream_fault = ""
        self._circuits_due = False
        self._next_circuits = 0.0
        self.closed = False

    # ---- time ----

    def now_ns(self) -> int:
        """The engine's clock at this moment, a little behind so that what has happened is there; it stands while
        nothing comes."""
        latest = self.session.latest_ns
        if self._clock_offset is None or not self._bridge.streaming:
            return latest
        return min(time.monotonic_ns() + self._clock_offset - _LAG_NS, latest + _SILENCE_NS)

    def tick(self) -> bool:
        """Delivers answers, takes in telemetry for a part of a frame, looks at the engine when it is time.

        Returns whether the session changed.
        """
        self._bridge.deliver()
        changed = False
        limit = time.monotonic() + _APPLY_S
        while time.monotonic() < limit:
            item = self._bridge.take()
            if item is None:
                break
            changed = True
            if isinstance(item, StreamEnded):
                self._stream_ended(item.reason)
            else:
                self._take_in(item)
        now = time.monotonic()
        if self._circuits_due and now >= self._next_circuits:
            self._circuits_due, self._next_circuits = False, now + _CIRCUITS_S
            self.refresh_circuits()
        if now >= self._next_poll and not self._polling:
            self._poll()
        return changed

    def _take_in(self, digest: Digest) -> None:
        had_identity = self.session.identity
        self.session.apply(digest)
        offset = digest.time_ns - time.monotonic_ns()
        if digest.last:
            self._clock_offset = offset if self._clock_offset is None else max(self._clock_offset - 10_000, offset)
        if self.session.identity != had_identity:
            self._set_engine(identity=self.session.identity)
        self._look_at_jobs(digest.jobs)

    # ---- process ----

    def attempt(
        self, work: Callable[[], object], done: Callable[[object], None], failed: Callable[[str], None]
    ) -> None:
        """Runs what may block, and answers on this thread with its result or one line."""
        self._bridge.call(work, done, failed)

    def act(self, action: Action) -> None:
        """Starts, stops or restarts the engine."""
        if self.engine.asked or self.closed:
            return
        work = {
            Action.START: self._process.start,
            Action.STOP: self._process.stop,
            Action.RESTART: self._process.restart,
        }
        self._set_engine(asked=action)
        self._bridge.call(work[action], partial(self._acted, action), partial(self._act_failed, action))

    def _acted(self, action: Action, status: DaemonStatus) -> None:
        if action is not Action.START:
            self._end_stream()
        self._set_engine(asked=None)
        self._see_status(status)
        if action is Action.STOP:
            self.noticed.emit(_sentence(status.message), Tone.QUIET)

    def _act_failed(self, action: Action, message: str) -> None:
        self._set_engine(asked=None)
        self._waiting.clear()
        self.noticed.emit(_sentence(message), Tone.BAD)
        self._next_poll = 0.0

    def _poll(self) -> None:
        self._polling = True
        self._bridge.call(self._process.status, self._polled, self._poll_failed)

    def _polled(self, status: DaemonStatus) -> None:
        self._polling = False
        self._next_poll = time.monotonic() + (_POLL_STREAMING_S if self._bridge.streaming else _POLL_S)
        self._see_status(status)

    def _poll_failed(self, message: str) -> None:
        self._polling = False
        self._next_poll = time.monotonic() + 5 * _POLL_S
        self.noticed.emit(_sentence(message), Tone.BAD)

    def _see_status(self, status: DaemonStatus) -> None:
        self._set_engine(status=status)
        answering = status.state in (ProcessState.READY, ProcessState.DRAINING)
        fault, self._stream_fault = self._stream_fault, ""
        if fault and answering:  # else the state says it
            self.noticed.emit(_sentence(fault), Tone.WARN)
        if answering and not self._bridge.streaming and not self.engine.asked:
            self._begin_stream(status)
        if status.state is ProcessState.CRASHED and not self._tail_shown:
            self._show_tail(status)
        elif answering:
            self._tail_shown = False

    def _begin_stream(self, status: DaemonStatus) -> None:
        self.session.log_path = status.log_path or ""
        gap_ns = round((time.monotonic() - self._received) * 1e9) + 1_000_000_000 if self._received else HISTORY_NS
        history_ns = min(gap_ns, HISTORY_NS)
        self.session.begin_stream(history_ns)
        self._bridge.open_stream(status.address, history_ns)
        known = set(self.session.jobs.order)
        self._bridge.ask(lambda c: c.jobs(), partial(self._jobs_listed, known), self._complain)
        self.refresh_circuits()
        waiting, self._waiting = self._waiting, []
        for proof in waiting:
            self.submit(proof)

    def _stream_ended(self, reason: str) -> None:
        self._end_stream()
        self._next_poll = 0.0
        if not self.engine.asked:
            self._stream_fault = reason

    def _end_stream(self) -> None:
        if self.session.identity is not None or self._bridge.streaming:
            self._received = time.monotonic()
            self._bridge.close_stream()
            self.session.disconnected()
        self._set_engine(identity=None)

    def _show_tail(self, status: DaemonStatus) -> None:
        self._tail_shown = True
        if not status.log_path:
            return
        path = status.log_path

        def shown(lines: list[LogEntry]) -> None:
            there = set(self.session.log.entries)
            self.session.log.add(LogEntry("", "ERROR", f"the engine ended; what else is at the end of {path}:"))
            for line in lines:
                if line not in there:
                    self.session.log.add(line)
            self.session.version += 1

        self._bridge.call(lambda: tail_of_file(path), shown, lambda _: None)

    def _set_engine(self, **changes: object) -> None:
        changed = replace(self.engine, **changes)  # type: ignore[arg-type]
        if changed != self.engine:
            self.engine = changed
            self.engine_changed.emit()

    # ---- proofs ----

    def submit(self, proof: Proof) -> None:
        """Hands a proof in."""

        def hand_in(connection: Connection) -> JobInfo:
            if proof.circuit:
                connection.register_circuit(proof.key, proof.circuit)
            if self.engine.elsewhere:  # its machine has the key, this one the witness
                return connection.submit_stream(parts(proof.witness), key_path=proof.key, label=proof.label)
            return connection.submit(key_path=proof.key, witness_path=proof.witness, label=proof.label)

        self._bridge.ask(hand_in, self._submitted, self._complain)

    def start_and_submit(self, proof: Proof) -> None:
        """Hands a proof in as soon as the engine is ready."""
        self._waiting.append(proof)
        self.act(Action.START)

    def cancel(self, job_id: str) -> None:
        def cancelled(was_running: bool) -> None:
            self.noticed.emit(
                "The job stops soon." if was_running else "The job was taken out of the queue.", Tone.QUIET
            )

        self._bridge.ask(lambda c: c.cancel(job_id), cancelled, self._complain)

    def save(self, job_id: str, folder: Path) -> None:
        """Fetches the proof and writes proof.json and public.json into ``folder``."""

        def fetched(proof: ProofResult) -> None:
            self._bridge.call(lambda: save_proof(folder, proof), saved, failed)

        def saved(files: tuple[Path, ...]) -> None:
            rest = f"{files[1].name}" if len(files) == 2 else f"{len(files) - 1} files more"
            self.noticed.emit(f"Saved {files[0]} and {rest}.", Tone.GOOD)

        def failed(message: str) -> None:
            self.noticed.emit(f"The proof was not saved: {message}", Tone.BAD)

        self._bridge.ask(lambda c: c.fetch(job_id), fetched, failed)

    def fetch(self, job_id: str, done: Callable[[ProofResult], None], failed: Callable[[str], None]) -> None:
        self._bridge.ask(lambda c: c.fetch(job_id), done, failed)

    def _submitted(self, job: JobInfo) -> None:
        self._mine.add(job.id)
        known = self.session.jobs.get(job.id)
        if known is None:
            self.session.jobs.update([job])
        else:
            self._look_at_jobs([known])
        self.submitted.emit(job.id)

    def _jobs_listed(self, known: set[str], jobs: list[JobInfo]) -> None:
        listed = {job.id: job for job in jobs}
        for job_id in self.session.jobs.order:
            mine = self.session.jobs.get(job_id)
            if mine is None or (job_id in known and job_id not in listed):
                continue
            theirs = listed.get(job_id)
            if theirs is None or mine.last_activity_unix_ns > theirs.last_activity_unix_ns:
                listed[job_id] = mine
        self.session.jobs.replace(listed.values())
        self.session.version += 1

    def _look_at_jobs(self, jobs: object) -> None:
        for job in jobs:  # type: ignore[attr-defined]
            ended = bool(getattr(job.state, "ended", False))
            if ended or all(job.circuit_id != circuit.id for circuit in self.circuits):
                self._circuits_due = True  # used just now, or registered by somebody else
            if job.id not in self._mine or not ended:
                continue
            self._mine.discard(job.id)
            name = job_words.title(job)
            if job.state == JobState.COMPLETED:
                took = words.duration(job_words.elapsed_ns(job, time.time_ns()))
                self.noticed.emit(f"{name}: proved in {took}, {job_words.progress_text(job)}.", Tone.GOOD)
                self.completed.emit(job.id)
            elif job.state == JobState.FAILED:
                self.noticed.emit(f"{name} failed: {job.error}", Tone.BAD)
            self.refresh_circuits()

    # ---- settings and circuits ----

    def apply_setting(self, change: SettingChange) -> None:
        self.session.settings.ask(change)
        self.session.version += 1

        def applied(settings: object) -> None:
            self.session.settings.settle(change)
            self.session.settings.update(settings)  # type: ignore[arg-type]
            self.session.version += 1

        def refused(message: str) -> None:
            self.session.settings.settle(change)
            self.session.version += 1
            self._complain(message)

        self._bridge.ask(lambda c: c.apply_settings([change]), applied, refused)

    def plan(self, query: PlanQuery, done: Callable[[MemoryPlanInfo], None], failed: Callable[[str], None]) -> None:
        """Asks for the memory plan; a failure is one line."""
        self._bridge.ask(
            lambda c: c.plan(circuit_id=query.circuit, device=query.device, settings=query.changes), done, failed
        )

    def register(self, key: str) -> None:
        def registered(circuit: CircuitInfo) -> None:
            self.noticed.emit(
                f"Registered {circuit.name}: {words.curve(circuit.curve)}, domain {circuit.domain_size:,}.", Tone.GOOD
            )
            self.refresh_circuits()

        self._bridge.ask(lambda c: c.register_circuit(key), registered, self._complain)

    def refresh_circuits(self) -> None:
        def listed(circuits: list[CircuitInfo]) -> None:
            self.circuits = circuits
            self.circuits_changed.emit()

        self._bridge.ask(lambda c: c.circuits(), listed, lambda _: None)

    def _complain(self, message: str) -> None:
        self.noticed.emit(_sentence(message), Tone.BAD)

    # ---- the end ----

    def shut_down_engine(self, timeout_s: float) -> None:
        """Asks the engine to finish what runs and end; waits at most ``timeout_s`` for its agreement."""
        agreed: list[bool] = []
        self._bridge.ask(
            lambda c: c.shutdown(drain=True, timeout=60.0),
            lambda _: agreed.append(True),
            lambda _: agreed.append(False),
        )
        deadline = time.monotonic() + timeout_s
        while not agreed and time.monotonic() < deadline:
            self._bridge.deliver()
            self._bridge.rest(0.01)

    def close(self, timeout_s: float = 1.2) -> bool:
        """Ends threads and the connection; False when a call hangs and was left behind."""
        if self.closed:
            return True
        self.closed = True
        return self._bridge.close(timeout_s)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
