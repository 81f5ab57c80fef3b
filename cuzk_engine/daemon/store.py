"""Jobs and circuits in one SQLite file: what is in it was accepted, and survives any crash.

One thread uses it; another may read results, or write one ahead of its partition's end, through a connection of its
own. Proofs and public signals have a table of their own, so that to note a change of a partition does not write its
result anew; a witness is never kept, only its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from cuzk_engine.client.types import CircuitInfo, JobState, PhaseTime, Priority
from cuzk_engine.daemon.records import CircuitRecord, JobRecord, Partition, PartitionState
from cuzk_engine.errors import CuzkError
from cuzk_engine.paths import ensure_private

_SCHEMA_VERSION: Final = 3
_TOMBSTONES: Final = 100_000  # ids of dropped jobs that are still told apart from unknown ones

_SCHEMA: Final = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    state TEXT NOT NULL,
    submitted_unix_ns INTEGER NOT NULL,
    finished_unix_ns INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, finished_unix_ns);
CREATE TABLE expired (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);
CREATE TABLE circuits (id TEXT PRIMARY KEY, body TEXT NOT NULL);
"""

_PARTITIONS: Final = """
CREATE TABLE partitions (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (job, number)
)
"""

_RESULTS: Final = """
CREATE TABLE results (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    proof_json TEXT NOT NULL,
    public_json TEXT NOT NULL,
    PRIMARY KEY (job, number)
)
"""


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
            # Nothing in it is secret: a dropped result of many pages is not filled with zeros, which takes seconds.
            self._database.execute("PRAGMA secure_delete = FAST")
            self._prepare()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise CuzkError(
                f"{path}: the job store cannot be opened: {error}; move the file away to start anew"
            ) from error

    def close(self) -> None:
        self._database.close()

    @property
    def path(self) -> Path:
        return self._path

    # ---- jobs ----

    def insert(self, job: JobRecord) -> None:
        """Accepts a job with its partitions and gives it its ``order``. Raises sqlite3.Error; nothing is kept then."""
        values = (job.id, job.request_id or None, job.state, job.submitted_unix_ns, job.finished_unix_ns)
        with self._transaction():
            cursor = self._database.execute(
                "INSERT INTO jobs (id, request_id, state, submitted_unix_ns, finished_unix_ns, body) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*values, _job_body(job)),
            )
            order = cursor.lastrowid or 0
            self._database.executemany(
                "INSERT INTO partitions (job, number, body) VALUES (?, ?, ?)",
                [(order, part.number, _partition_body(part)) for part in job.parts],
            )
        job.order = order

    def update(self, job: JobRecord, parts: Iterable[Partition] = ()) -> None:
        """Writes a job and some of its partitions, with their proofs where they have any. Raises sqlite3.Error;
        nothing is written then."""
        with self._transaction():
            self._database.execute(
                "UPDATE jobs SET state = ?, finished_unix_ns = ?, body = ? WHERE number = ?",
                (job.state, job.finished_unix_ns, _job_body(job), job.order),
            )
            for part in parts:
                where = job.order, part.number
                self._database.execute(
                    "UPDATE partitions SET body = ? WHERE job = ? AND number = ?", (_partition_body(part), *where)
                )
                if part.proof is not None:
                    self._database.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", (*where, *part.proof))

    def get(self, job_id: str) -> JobRecord | None:
        return self._one("SELECT number, body FROM jobs WHERE id = ?", job_id)

    def by_request(self, request_id: str) -> JobRecord | None:
        return self._one("SELECT number, body FROM jobs WHERE request_id = ?", request_id)

    def proofs(self, job: JobRecord) -> dict[int, tuple[str, str]]:
        """Number of the partition → proof.json and public.json, of those that have them."""
        return {number: (proof, public) for number, proof, public in results_from(self._database, job.order)}

    def proofs_alone(self, job: JobRecord) -> list[str]:
        """proof.json of each partition, in order."""
        return proofs_alone(self._database, job.order)

    def partitions(self, job: JobRecord) -> list[Partition]:
        """In order."""
        rows = self._database.execute(
            "SELECT body FROM partitions WHERE job = ? ORDER BY number", (job.order,)
        ).fetchall()
        try:
            return [_partition_from(body) for (body,) in rows]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"job number {job.order}") from error

    def unfinished(self) -> list[JobRecord]:
        """Queued and running jobs with their partitions, in the order in which they were accepted. Raises CuzkError
        for a damaged file."""
        query = "SELECT number, body FROM jobs WHERE state IN (?, ?) ORDER BY number"
        with self._damage_is_named():
            rows = self._database.execute(query, (JobState.QUEUED, JobState.RUNNING))
            jobs = [self._job(number, body) for number, body in rows]
            for job in jobs:
                job.parts = self.partitions(job)
        return jobs

    def newest(self, limit: int) -> list[JobRecord]:
        rows = self._database.execute("SELECT number, body FROM jobs ORDER BY number DESC LIMIT ?", (limit,))
        return [self._job(number, body) for number, body in rows]

    def drop_finished(self, before_unix_ns: int, keep: int) -> int:
        """Drops jobs that ended before a time, and the oldest beyond ``keep``; returns how many."""
        ended = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
        with self._transaction():
            rows = self._database.execute(
                "SELECT id, number FROM jobs WHERE state IN (?, ?, ?) AND (finished_unix_ns < ? OR number NOT IN ("
                "SELECT number FROM jobs WHERE state IN (?, ?, ?) ORDER BY finished_unix_ns DESC LIMIT ?))",
                (*ended, before_unix_ns, *ended, keep),
            ).fetchall()
            self._database.executemany("INSERT OR IGNORE INTO expired (id) VALUES (?)", [(row[0],) for row in rows])
            self._database.executemany("DELETE FROM results WHERE job = ?", [(row[1],) for row in rows])
            self._database.executemany("DELETE FROM partitions WHERE job = ?", [(row[1],) for row in rows])
            self._database.executemany("DELETE FROM jobs WHERE number = ?", [(row[1],) for row in rows])
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
        """Raises CuzkError for a damaged file."""
        with self._damage_is_named():
            rows = self._database.execute("SELECT id, body FROM circuits ORDER BY rowid").fetchall()
        found = []
        for circuit, body in rows:
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
        if not 0 <= version <= _SCHEMA_VERSION:
            raise CuzkError(
                f"{self._path}: the job store has version {version}, this build knows {_SCHEMA_VERSION}: "
                "use the build that wrote it, or move the file away"
            )
        if version == _SCHEMA_VERSION:
            return
        with self._transaction():
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    self._database.execute(statement)
            self._database.execute(_RESULTS)
            if version < 2:
                self._database.execute(_PARTITIONS)
            if version == 1:
                self._divide_jobs()
            if version == 2:
                self._part_results()
            self._database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _divide_jobs(self) -> None:
        """From version 1, in which a job had one witness and its proof beside it."""
        rows = self._database.execute("SELECT number, body, proof_json, public_json FROM jobs").fetchall()
        for number, body, proof, public in rows:
            try:
                part = _partition_of_version_1(json.loads(body))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._damaged(f"job number {number}") from error
            self._database.execute("INSERT INTO partitions VALUES (?, 0, ?)", (number, _partition_body(part)))
            if proof:
                self._database.execute("INSERT INTO results VALUES (?, 0, ?, ?)", (number, proof, public))
        self._database.execute("ALTER TABLE jobs DROP COLUMN proof_json")
        self._database.execute("ALTER TABLE jobs DROP COLUMN public_json")

    def _part_results(self) -> None:
        """From version 2, in which a partition had its result beside it."""
        self._database.execute(
            "INSERT INTO results SELECT job, number, proof_json, public_json FROM partitions WHERE proof_json != ''"
        )
        self._database.execute("ALTER TABLE partitions DROP COLUMN proof_json")
        self._database.execute("ALTER TABLE partitions DROP COLUMN public_json")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _damage_is_named(self) -> Iterator[None]:
        """For what is read when the daemon starts: pages may be damaged that nothing has read before."""
        try:
            yield
        except sqlite3.Error as error:
            raise CuzkError(
                f"{self._path}: the job store is damaged: {error}; move the file away to start anew"
            ) from error

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


def results_from(database: sqlite3.Connection, order: int, first: int = 0) -> Iterator[tuple[int, str, str]]:
    """Number, proof.json and public.json of the partitions of a job from ``first`` on, as far as they have them; one
    is read when it is asked for."""
    return database.execute(
        "SELECT number, proof_json, public_json FROM results WHERE job = ? AND number >= ? ORDER BY number",
        (order, first),
    )


def proofs_alone(database: sqlite3.Connection, order: int) -> list[str]:
    """proof.json of each partition of a job, in order; the public signals are not read."""
    rows = database.execute("SELECT proof_json FROM results WHERE job = ? ORDER BY number", (order,))
    return [proof for (proof,) in rows]


def _job_body(job: JobRecord) -> str:
    skipped = ("order", "since_ns", "parts")
    document = {item.name: getattr(job, item.name) for item in fields(JobRecord) if item.name not in skipped}
    return json.dumps({**document, "phases": [asdict(phase) for phase in job.phases]})


def _job_from(number: int, body: str) -> JobRecord:
    values = _known(JobRecord, json.loads(body))
    values["state"] = JobState(values["state"])
    values["priority"] = Priority(values["priority"])
    values["phases"] = [PhaseTime(**phase) for phase in values["phases"]]
    values["key_identity"] = tuple(values["key_identity"])
    return JobRecord(**values, order=number, parts=[])


def _partition_body(part: Partition) -> str:
    document = asdict(part)
    del document["proof"]
    return json.dumps(document)


def _partition_from(body: str) -> Partition:
    values = _known(Partition, json.loads(body))
    values["state"] = PartitionState(values["state"])
    values["phases"] = [PhaseTime(**phase) for phase in values["phases"]]
    values["witness_identity"] = tuple(values.get("witness_identity", ()))
    return Partition(**values)


def _partition_of_version_1(job: dict[str, Any]) -> Partition:
    states = {
        JobState.QUEUED: PartitionState.PENDING,
        JobState.RUNNING: PartitionState.GPU,
        JobState.COMPLETED: PartitionState.DONE,
    }
    return Partition(
        witness_path=job["witness_path"],
        state=states.get(JobState(job["state"]), PartitionState.FAILED),
        device=job["device"],
        attempts=job["attempts"],
        deaths=max(0, job["attempts"] - 1) if job["suspect"] else 0,
        alone=job["suspect"],
        phases=[PhaseTime(**phase) for phase in job["phases"]],
    )


def _known(record: type[Any], document: dict[str, Any]) -> dict[str, Any]:
    """What this build knows of a document; one of a later build may hold more."""
    names = {item.name for item in fields(record)}
    return {name: value for name, value in document.items() if name in names}
