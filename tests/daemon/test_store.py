"""Jobs and circuits on the disk."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from cuzk_engine.client import CircuitInfo, JobState, PhaseTime, Priority
from cuzk_engine.daemon.records import CircuitRecord, JobRecord, Partition, PartitionState
from cuzk_engine.daemon.store import Store
from cuzk_engine.errors import CuzkError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def ended(name: str, at: int) -> JobRecord:
    return JobRecord(name, state=JobState.COMPLETED, finished_unix_ns=at)


def test_a_job_comes_back_as_it_was(store: Store) -> None:
    job = JobRecord(
        "a",
        request_id="r",
        curve="bn128",
        key_identity=(1, 2, 3),
        priority=Priority.HIGH,
        phases=[PhaseTime("msm", 5)],
        spooled=True,
        parts=[Partition(0, "/w0"), Partition(1, "/w1", refused={"cpu": "too small"}, phases=[PhaseTime("msm", 5)])],
    )
    store.insert(job)
    found = store.get("a")
    assert found is not None
    assert found is not job
    assert found.parts == []
    found.parts = store.partitions(found)
    assert asdict(found) == asdict(job)
    by_request = store.by_request("r")
    assert by_request is not None
    assert by_request.id == "a"
    assert store.get("b") is store.by_request("x") is None


def test_the_file_is_private_and_survives(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "jobs.sqlite"
    store = Store(path)
    store.insert(JobRecord("a"))
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()
    again = Store(path)
    assert [job.id for job in again.unfinished()] == ["a"]
    again.close()


def test_request_ids_are_unique_and_empty_ones_are_none(store: Store) -> None:
    store.insert(JobRecord("a", request_id="same"))
    with pytest.raises(sqlite3.IntegrityError):
        store.insert(JobRecord("b", request_id="same"))
    store.insert(JobRecord("c"))
    store.insert(JobRecord("d"))
    assert [job.id for job in store.newest(10)] == ["d", "c", "a"]


def test_a_proof_is_kept_by_later_updates(store: Store) -> None:
    job = JobRecord("a", state=JobState.RUNNING, parts=[Partition(0), Partition(1)])
    store.insert(job)
    assert store.proofs(job) == {}
    second = job.parts[1]
    second.proof, second.state = ("proof", "public"), PartitionState.DONE
    store.update(job, [second])
    second.proof = None
    store.update(job, job.parts)
    assert store.proofs(job) == {1: ("proof", "public")}
    (again,) = store.unfinished()
    assert [part.state for part in again.parts] == ["pending", "done"]
    job.state = JobState.COMPLETED
    store.update(job)
    assert store.unfinished() == []


def test_partitions_go_with_their_job(store: Store) -> None:
    job = JobRecord("a", state=JobState.COMPLETED, parts=[Partition(0), Partition(1)])
    store.insert(job)
    store.drop_finished(1, 0)
    assert store.partitions(job) == []


def test_a_store_of_version_1_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, request_id TEXT UNIQUE,
            state TEXT NOT NULL, submitted_unix_ns INTEGER NOT NULL, finished_unix_ns INTEGER NOT NULL,
            body TEXT NOT NULL, proof_json TEXT NOT NULL DEFAULT '', public_json TEXT NOT NULL DEFAULT '');
        CREATE INDEX jobs_by_state ON jobs (state, finished_unix_ns);
        CREATE TABLE expired (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);
        CREATE TABLE circuits (id TEXT PRIMARY KEY, body TEXT NOT NULL);
        PRAGMA user_version = 1;
        """
    )
    for name, state, attempts, proof in (
        ("done", "completed", 1, "{}"),
        ("ran", "running", 1, ""),
        ("new", "queued", 0, ""),
    ):
        body = {
            "id": name, "kind": "circom", "request_id": "", "circuit_id": "c", "circuit_name": "", "curve": "bn128",
            "label": "", "key_path": "/k", "key_identity": [1], "witness_path": f"/{name}", "spooled": False,
            "wanted_device": "", "state": state, "priority": "high", "phase": "", "progress": 0.0, "device": "cpu",
            "partitions": 1, "partitions_done": 0, "error": "", "submitted_unix_ns": 1, "started_unix_ns": 0,
            "finished_unix_ns": 0, "last_activity_unix_ns": 0, "phases": [{"name": "msm", "nanoseconds": 5}],
            "attempts": attempts, "suspect": False, "alone": False, "cancelling": False,
        }  # fmt: skip
        row = (name, state, json.dumps(body), proof, "[]" if proof else "")
        database.execute(
            "INSERT INTO jobs (id, state, submitted_unix_ns, finished_unix_ns, body, proof_json, public_json) "
            "VALUES (?, ?, 1, 0, ?, ?, ?)",
            row,
        )
    database.commit()
    database.close()
    for _ in range(2):
        store = Store(path)
        done = store.get("done")
        assert done is not None
        assert store.proofs(done) == {0: ("{}", "[]")}
        assert [(job.id, job.priority) for job in store.unfinished()] == [("ran", "high"), ("new", "high")]
        parts = [job.parts[0] for job in store.unfinished()]
        assert [(part.witness_path, part.state.runs, part.attempts) for part in parts] == [
            ("/ran", True, 1),
            ("/new", False, 0),
        ]
        store.close()


def test_a_store_of_version_2_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    store = Store(path)
    job = JobRecord("a", state=JobState.COMPLETED, parts=[Partition(0), Partition(1)])
    store.insert(job)
    store.close()
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            DROP TABLE results;
            ALTER TABLE partitions ADD COLUMN proof_json TEXT NOT NULL DEFAULT '';
            ALTER TABLE partitions ADD COLUMN public_json TEXT NOT NULL DEFAULT '';
            UPDATE partitions SET proof_json = 'proof', public_json = 'public' WHERE number = 1;
            PRAGMA user_version = 2;
            """
        )
    database.close()
    for _ in range(2):
        store = Store(path)
        assert store.proofs(job) == {1: ("proof", "public")}
        assert [part.number for part in store.partitions(job)] == [0, 1]
        store.close()


def test_old_and_surplus_jobs_are_dropped_and_remembered_as_expired(store: Store) -> None:
    for number in range(10):
        store.insert(ended(f"j{number}", at=number))
    store.insert(JobRecord("waiting"))
    assert store.drop_finished(before_unix_ns=3, keep=100) == 3
    assert store.drop_finished(before_unix_ns=0, keep=2) == 5
    assert [job.id for job in store.newest(100)] == ["waiting", "j9", "j8"]
    assert store.is_expired("j0")
    assert store.is_expired("j7")
    assert not store.is_expired("j8")
    assert not store.is_expired("unknown")


def test_a_request_id_is_free_again_once_its_job_is_dropped(store: Store) -> None:
    job = ended("a", at=1)
    job.request_id = "r"
    store.insert(job)
    store.drop_finished(2, 100)
    assert store.by_request("r") is None
    store.insert(JobRecord("b", request_id="r"))


def test_circuits(store: Store) -> None:
    info = CircuitInfo("id", "name", "/k", "bn128", 1, 2, 4, 8, 0)
    store.put_circuit(CircuitRecord(info, (1, 2)))
    store.put_circuit(CircuitRecord(info, (3, 4)))
    assert store.circuits() == [CircuitRecord(info, (3, 4))]
    assert store.remove_circuit("id")
    assert not store.remove_circuit("id")


@pytest.mark.parametrize("fault", ["text", "version", "folder"])
def test_what_is_no_store_is_named(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "jobs.sqlite"
    if fault == "text":
        path.write_text("this is no database" * 100)
    elif fault == "folder":
        path.mkdir()
    else:
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 99")
        database.close()
    with pytest.raises(CuzkError, match=r"jobs\.sqlite: the job store"):
        Store(path)


@pytest.mark.parametrize("body", ["", "{bad", "[]", "{}", '{"state": "no", "priority": 2, "phases": []}'])
def test_a_damaged_row_is_named(store: Store, tmp_path: Path, body: str) -> None:
    store.insert(JobRecord("a"))
    store.put_circuit(CircuitRecord(CircuitInfo("c", "n", "/k", "bn128", 1, 1, 4, 9, 0), ()))
    with sqlite3.connect(tmp_path / "jobs.sqlite") as other:
        other.execute("UPDATE jobs SET body = ?", (body,))
        other.execute("UPDATE circuits SET body = ?", (body,))
    other.close()
    for look in (store.unfinished, lambda: store.newest(1), lambda: store.get("a")):
        with pytest.raises(
            CuzkError, match=r"jobs\.sqlite: job number 1 is not as this build writes it: move the file"
        ):
            look()
    with pytest.raises(CuzkError, match=r"jobs\.sqlite: circuit c is not as this build writes it: move the file"):
        store.circuits()


@pytest.mark.parametrize(
    ("text", "read"),
    [(b'"request_id"', Store.unfinished), (b'"witness_path"', Store.unfinished), (b'"key_path"', Store.circuits)],
)
def test_bytes_that_are_no_text_are_named_when_they_are_read(
    store: Store, tmp_path: Path, text: bytes, read: Callable[[Store], object]
) -> None:
    path = tmp_path / "jobs.sqlite"
    if read is Store.unfinished:
        store.insert(JobRecord("a"))
    else:
        store.put_circuit(CircuitRecord(CircuitInfo("id", "name", "/k", "bn128", 1, 2, 4, 8, 0), (1, 2)))
    store.close()
    data = path.read_bytes()
    assert text in data
    path.write_bytes(data.replace(text, b"\xff" * len(text)))
    again = Store(path)
    try:
        with pytest.raises(
            CuzkError, match=r"jobs\.sqlite: the job store is damaged: .*; move the file away to start anew"
        ):
            read(again)
    finally:
        again.close()
