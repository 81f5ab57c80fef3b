"""Proofs and public signals on their way into the job store, and out of it to whoever fetches them.

Those of a circuit with very many public signals keep the interpreter and the disk busy for so long that the event loop
would serve nobody meanwhile. They are made, written and read in another thread, through a connection of its own to the
store's file; small ones are not worth the way there.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cuzk_engine.client.api import MAX_MESSAGE
from cuzk_engine.client.types import CircuitInfo
from cuzk_engine.daemon.channel import MAX_BLOB
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.records import JobRecord, Kept
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.store import Store, proofs_alone, results_from
from cuzk_engine.formats.proof import VALUE_BYTES, PublicSignals
from cuzk_engine.proto import engine_v1_pb2 as pb

_SMALL_PUBLIC: Final = 1024 * VALUE_BYTES  # as the device process sends them
_SMALL_RESULT: Final = 256 << 10  # of a whole job
_FEW_PROOFS: Final = 64
PAGE_BYTES: Final = 4 << 20  # where a page ends; it is longer by less than one partition


class Results:
    def __init__(self, store: Store, jobs: JobManager) -> None:
        self._store = store
        self._jobs = jobs

    async def take(self, job_id: str, number: int, proof: str, public: bytes) -> tuple[str, str] | Kept:
        """What a partition has proved, as texts to be stored with its end; a large one is in the store already.

        ``public``: plain values, 32 bytes each, little-endian.
        """
        if len(public) <= _SMALL_PUBLIC:
            return proof, PublicSignals.from_bytes(public).to_json()
        job = self._jobs.active(job_id)
        if job is None:  # it has ended meanwhile: nobody will ask
            return Kept(0)
        return await asyncio.to_thread(_keep, self._store.path, (job.order, number), proof, public)

    async def page(self, job: JobRecord, first: int) -> pb.Proof:
        """Partitions from ``first`` on. Raises RefusedError."""
        self._jobs.check_proved(job)
        if first >= job.partitions:
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"job {job.id} has {job.partitions} partitions: there is none from {first} on"
            )
        if _is_small(job):
            return _page(job, first, self._jobs.proofs(job)[first:])
        return await asyncio.to_thread(self._page_of_large, job, first)

    async def whole(self, job: JobRecord) -> pb.Proof:
        """All partitions in one message. Raises RefusedError where it would be too large for one."""
        self._jobs.check_proved(job)
        if _is_small(job):
            return _whole(job, self._jobs.proofs(job))
        return await asyncio.to_thread(self._whole_of_large, job)

    async def proofs(self, job: JobRecord) -> list[str]:
        """proof.json of each partition, in order; the public signals are not read. Raises RefusedError."""
        self._jobs.check_proved(job)
        if job.partitions <= _FEW_PROOFS:
            return self._store.proofs_alone(job)
        return await asyncio.to_thread(self._many_proofs, job)

    # ---- in another thread ----

    def _page_of_large(self, job: JobRecord, first: int) -> pb.Proof:
        with contextlib.closing(_connection(self._store.path)) as database:
            return _page(job, first, _pairs(database, job, first))

    def _whole_of_large(self, job: JobRecord) -> pb.Proof:
        with contextlib.closing(_connection(self._store.path)) as database:
            return _whole(job, _pairs(database, job, 0))

    def _many_proofs(self, job: JobRecord) -> list[str]:
        with contextlib.closing(_connection(self._store.path)) as database:
            return proofs_alone(database, job.order)


def check_deliverable(circuit: CircuitInfo) -> None:
    """Raises RefusedError for a circuit whose public signals no device process could hand over."""
    most = MAX_BLOB // VALUE_BYTES
    if circuit.n_public > most:
        raise RefusedError(
            Reason.INVALID_ARGUMENT,
            f"{circuit.key_path}: the circuit has {circuit.n_public:,} public signals, the engine delivers up to "
            f"{most:,}: make them private and publish a hash of them, or use `cuzk prove`",
        )


def _is_small(job: JobRecord) -> bool:
    return 0 < job.result_bytes <= _SMALL_RESULT


def _connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _keep(path: Path, where: tuple[int, int], proof: str, public: bytes) -> tuple[str, str] | Kept:
    """Writes a result ahead of its partition's end; the texts themselves where that does not work."""
    text = PublicSignals.from_bytes(public).to_json()
    try:
        with contextlib.closing(_connection(path)) as database:
            # The disk is waited for after the transaction: the loop's own ones wait for this one. If the machine fails
            # before, the partition has not ended.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(  # nothing where the job was dropped
                "INSERT OR REPLACE INTO results SELECT job, number, ?, ? FROM partitions WHERE job = ? AND number = ?",
                (proof, text, *where),
            )
            database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except sqlite3.Error:
        return proof, text
    return Kept(len(proof) + len(text))


def _pairs(database: sqlite3.Connection, job: JobRecord, first: int) -> Iterator[tuple[str, str]]:
    """One after the other, read when it is asked for."""
    expected = first
    for number, proof, public in results_from(database, job.order, first):
        if number != expected:
            break
        yield proof, public
        expected += 1
    if expected < job.partitions:
        raise sqlite3.DatabaseError(f"the result of partition {expected + 1} of job {job.id} is missing")


def _page(job: JobRecord, first: int, pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> pb.Proof:
    answer, size, number = pb.Proof(curve=job.curve), 0, first
    for proof, public in pairs:
        answer.partitions.add(proof_json=proof, public_json=public)
        number += 1
        size += len(proof) + len(public)
        if size >= PAGE_BYTES:
            break
    answer.next = number if number < job.partitions else 0
    return answer


def _whole(job: JobRecord, pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> pb.Proof:
    answer, size = pb.Proof(curve=job.curve), 0
    for number, (proof, public) in enumerate(pairs):
        if number == 0:
            answer.proof_json, answer.public_json = proof, public
            size += len(proof) + len(public)
        if job.partitions > 1:
            answer.partitions.add(proof_json=proof, public_json=public)
            size += len(proof) + len(public)
        if size > MAX_MESSAGE - (1 << 20):  # room for the lengths of all of them
            raise RefusedError(
                Reason.FAILED_PRECONDITION,
                f"the result of job {job.id} is larger than the {MAX_MESSAGE >> 20} MiB of one answer: fetch it in "
                "pages, with `first` of FetchRequest",
            )
    return answer
