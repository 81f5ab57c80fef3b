"""Jobs and circuits in one SQLite file: what is in it was accepted, and survives any crash.

One thread uses it. Proofs and public signals are kept with their job; a witness never is, only its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from cuzk_engine.client.types import CircuitInfo, JobState, PhaseTime, Priority
from cuzk_engine.errors import CuzkError
from cuzk_engine.paths import ensure_private

_SCHEMA_VERSION: Final = 1
_TOMBSTONES: Final = 100_000  # ids of dropped jobs that are still told apart from unknown ones

_SCHEMA: Final = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    state TEXT NOT NULL,
    submitted_unix_ns INTEGER NOT NULL,
    finished_unix_ns INTEGER NOT NULL,
    body TEXT NOT NULL,
    proof_json TEXT NOT NULL DEFAULT '',
    public_json TEXT NOT NULL DEFAULT ''
);
CREATE INDEX jobs_by_state ON jobs (state, finished_unix_ns);
CREATE TABLE expired (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);
CREATE TABLE circuits (id TEXT PRIMARY KEY, body TEXT NOT NULL);
"""

CIRCUIT_KIND: Final = "circom"
"""The kind of a job that proves a registered circuit; other kinds are those of cuzk.v1."""


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job. ``order`` grows with each accepted job; ``suspect``: a device process died while it ran, so the next
    time it runs alone."""

    id: str
    kind: str = CIRCUIT_KIND
    request_id: str = ""
    circuit_id: str = ""
    circuit_name: str = ""
    curve: str = ""
    label: str = ""
    key_path: str = ""
    key_identity: tuple[int, ...] = ()
    witness_path: str = ""
    spooled: bool = False
    wanted_device: str = ""
    state: JobState = JobState.QUEUED
    priority: Priority = Priority.NORMAL
    order: int = 0
    phase: str = ""
    progress: float = 0.0
    device: str = ""
    partitions: int = 1
    partitions_done: int = 0
    error: str = ""
    submitted_unix_ns: int = 0
    started_unix_ns: int = 0
    finished_unix_ns: int = 0
    last_activity_unix_ns: int = 0
    phases: list[PhaseTime] = field(default_factory=list)
    attempts: int = 0
    suspect: bool = False
    alone: bool = False  # runs with no other job on its device: memory was short, or it is suspect
    cancelling: bool = False


@dataclass(frozen=True, slots=True)
class CircuitRecord:
    """A registered key: what the client sees and the state of the file when it was looked at."""

    info: CircuitInfo
    identity: tuple[int, ...]  # device, inode, size, mtime, ctime


class Store:
    """Opened once by the supervisor. Every method that writes has written to the disk when it returns."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file. Raises CuzkError naming it."""
        self._path = path
        ensure_private(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.close(descriptor)
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("PRAGMA journal_size_limit = 4194304")
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            raise CuzkError(
                f"{path}: the job store cannot be opened: {error}; move the file away to start anew"
            ) from error

    def close(self) -> None:
        self._database.close()

    # ---- jobs ----

    def insert(self, job: JobRecord) -> None:
        """Accepts a job and gives it its ``order``. Raises sqlite3.Error; nothing is kept then."""
        cursor = self._database.execute(
            "INSERT INTO jobs (id, request_id, state, submitted_unix_ns, finished_unix_ns, body) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (job.id, job.request_id or None, job.state, job.submitted_unix_ns, job.finished_unix_ns, _job_body(job)),
        )
        job.order = cursor.lastrowid or 0

    def update(self, job: JobRecord, proof_json: str | None = None, public_json: str | None = None) -> None:
        self._database.execute(
            "UPDATE jobs SET state = ?, finished_unix_ns = ?, body = ?, proof_json = coalesce(?, proof_json), "
            "public_json = coalesce(?, public_json) WHERE id = ?",
            (job.state, job.finished_unix_ns, _job_body(job), proof_json, public_json, job.id),
        )

    def get(self, job_id: str) -> JobRecord | None:
        return self._one("SELECT number, body FROM jobs WHERE id = ?", job_id)

    def by_request(self, request_id: str) -> JobRecord | None:
        return self._one("SELECT number, body FROM jobs WHERE request_id = ?", request_id)

    def proof(self, job_id: str) -> tuple[str, str]:
        """proof.json and public.json; empty texts for a job without them."""
        row = self._database.execute("SELECT proof_json, public_json FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return (row[0], row[1]) if row else ("", "")

    def unfinished(self) -> list[JobRecord]:
        """Queued and running jobs, in the order in which they were accepted."""
        rows = self._database.execute(
            "SELECT number, body FROM jobs WHERE state IN (?, ?) ORDER BY number", (JobState.QUEUED, JobState.RUNNING)
        )
        return [self._job(number, body) for number, body in rows]

    def newest(self, limit: int) -> list[JobRecord]:
        rows = self._database.execute("SELECT number, body FROM jobs ORDER BY number DESC LIMIT ?", (limit,))
        return [self._job(number, body) for number, body in rows]

    def drop_finished(self, before_unix_ns: int, keep: int) -> int:
        """Drops jobs that ended before a time, and the oldest beyond ``keep``; returns how many."""
        ended = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
        with self._transaction():
            rows = self._database.execute(
                "SELECT id FROM jobs WHERE state IN (?, ?, ?) AND (finished_unix_ns < ? OR number NOT IN ("
                "SELECT number FROM jobs WHERE state IN (?, ?, ?) ORDER BY finished_unix_ns DESC LIMIT ?))",
                (*ended, before_unix_ns, *ended, keep),
            ).fetchall()
            self._database.executemany("INSERT OR IGNORE INTO expired (id) VALUES (?)", rows)
            self._database.executemany("DELETE FROM jobs WHERE id = ?", rows)
            self._database.execute(
                "DELETE FROM expired WHERE number <= (SELECT max(number) FROM expired) - ?", (_TOMBSTONES,)
            )
        return len(rows)

    def is_expired(self, job_id: str) -> bool:
        return self._database.execute("SELECT 1 FROM expired WHERE id = ?", (job_id,)).fetchone() is not None

    # ---- circuits ----

    def put_circuit(self, circuit: CircuitRecord) -> None:
        body = json.dumps({"info": asdict(circuit.info), "identity": circuit.identity})
        self._database.execute("INSERT OR REPLACE INTO circuits (id, body) VALUES (?, ?)", (circuit.info.id, body))

    def circuits(self) -> list[CircuitRecord]:
        found = []
        for circuit, body in self._database.execute("SELECT id, body FROM circuits ORDER BY rowid"):
            try:
                document = json.loads(body)
                found.append(CircuitRecord(CircuitInfo(**document["info"]), tuple(document["identity"])))
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(f"circuit {circuit}") from error
        return found

    def remove_circuit(self, circuit_id: str) -> bool:
        return self._database.execute("DELETE FROM circuits WHERE id = ?", (circuit_id,)).rowcount > 0

    def _prepare(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._transaction():
                for statement in _SCHEMA.split(";"):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        elif version != _SCHEMA_VERSION:
            raise CuzkError(
                f"{self._path}: the job store has version {version}, this build knows {_SCHEMA_VERSION}: "
                "use the build that wrote it, or move the file away"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _one(self, query: str, *values: Any) -> JobRecord | None:
        row = self._database.execute(query, values).fetchone()
        return self._job(row[0], row[1]) if row else None

    def _job(self, number: int, body: str) -> JobRecord:
        try:
            return _job_from(number, body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"job number {number}") from error

    def _damaged(self, what: str) -> CuzkError:
        return CuzkError(f"{self._path}: {what} is not as this build writes it: move the file away to start anew")


def _job_body(job: JobRecord) -> str:
    document = asdict(job)
    del document["order"]
    return json.dumps(document)


def _job_from(number: int, body: str) -> JobRecord:
    document = json.loads(body)
    known = {item.name for item in fields(JobRecord)}
    values: dict[str, Any] = {name: value for name, value in document.items() if name in known}
    values["state"] = JobState(values["state"])
    values["priority"] = Priority(values["priority"])
    values["phases"] = [PhaseTime(**phase) for phase in document["phases"]]
    values["key_identity"] = tuple(values["key_identity"])
    return JobRecord(**values, order=number)
