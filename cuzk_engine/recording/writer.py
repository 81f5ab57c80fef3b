"""Writes a recording from the batches of a telemetry stream.

Every chunk is a transaction in WAL mode: whatever ends the process, the file has all chunks up to the last one that was
written. Before a chunk goes into the journal the file itself gets room for it, so that a disk that becomes full keeps
nothing in the journal. ``close`` leaves one plain file, and none where it would hold nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cuzk_engine.diagnosis.table import Names
from cuzk_engine.errors import CuzkError
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.layout import (
    APPLICATION_ID,
    CHUNK_EVENTS,
    CHUNK_NS,
    PAGE_BYTES,
    SCHEMA,
    SCHEMA_VERSION,
)
from cuzk_engine.recording.levels import Levels
from cuzk_engine.recording.merge import merged
from cuzk_engine.telemetry.columns import count_events, decode_allocations
from cuzk_engine.telemetry.rows import sample_from_wire
from cuzk_engine.telemetry.tables import span_table

DEFAULT_LIMIT: Final = 1 << 30
SMALLEST_LIMIT: Final = 1 << 20
_DROP_BATCH: Final = 4
_PIECE: Final = 1 << 20
_ROOM: Final = 1 / 8  # of the limit, kept free for the next chunk and the levels


@dataclass(slots=True)
class _Kept:
    """What the file holds for certain. ``events``: those of dropped chunks, too; ``chunks``: those that are there."""

    chunks: int = 0
    events: int = 0
    lost: int = 0
    dropped_chunks: int = 0
    dropped_until_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None


class RecordingWriter:
    """``add`` takes batches in the order of the stream. Raises CuzkError, in one line, for a file that cannot be
    written."""

    def __init__(self, path: Path | str, *, limit: int = DEFAULT_LIMIT, address: str = "") -> None:
        self.path = Path(path)
        self.limit = max(limit, SMALLEST_LIMIT)
        self._kept = _Kept()
        self._pending: list[pb.TelemetryBatch] = []
        self._pending_events = 0
        self._head: pb.TelemetryBatch | None = None
        self._begun = False
        self._number = 0
        self._ledger: dict[tuple[str, str], int] = {}
        self._levels = Levels()
        self._descriptor = -1  # to give the file room; closed after the database, whose locks go with it
        self._database = self._create(address)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def events(self) -> int:
        return self._kept.events

    @property
    def lost(self) -> int:
        return self._kept.lost

    @property
    def dropped_chunks(self) -> int:
        return self._kept.dropped_chunks

    @property
    def dropped_until_ns(self) -> int | None:
        return self._kept.dropped_until_ns

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet; after ``close``: whether there is no file."""
        return not self._kept.chunks

    @property
    def covered_ns(self) -> int:
        """From the first event that is there to the last."""
        kept = self._kept
        begin = kept.first_ns if kept.dropped_until_ns is None else kept.dropped_until_ns
        return 0 if begin is None or kept.last_ns is None else kept.last_ns - begin

    @property
    def remains(self) -> str:
        """What of the recording is there after ``close``, as the end of a sentence about the file."""
        if self.is_empty:
            return "nothing was recorded, and no file is left"
        kept = f"{self.events:,} events of {self.covered_ns / 1e9:.1f} s are kept"
        journal = Path(f"{self.path}-wal")
        is_used = journal.exists() and journal.stat().st_size > 0
        return f"{kept}, in it and in {journal}: the two belong together" if is_used else f"{kept} in it"

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes, freed pages left out."""
        with self._faults():
            pages = self._database.execute("PRAGMA page_count").fetchone()[0]
            free = self._database.execute("PRAGMA freelist_count").fetchone()[0]
            return int((pages - free) * PAGE_BYTES)

    def add(self, batch: pb.TelemetryBatch) -> None:
        if batch.HasField("identity") or batch.settings or batch.memory_is_set:
            self._facts(batch)
        if self._head is None and not self._begun:
            self._head = batch
            return
        self._begin(batch.time_ns)
        if self._pending and batch.time_ns - self._pending[0].time_ns >= CHUNK_NS:
            self.flush()
        self._pending.append(batch)
        self._pending_events += count_events(batch)
        if self._pending_events >= CHUNK_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Writes what there is as a chunk."""
        self._begin()
        if not self._pending:
            return
        begin = self._pending[0].time_ns
        try:
            chunk = merged(self._pending)
        except ValueError as error:
            raise CuzkError(f"the engine sent what this version does not understand: {error}") from error
        self._pending, self._pending_events = [], 0
        with self._faults():
            self._write(chunk, begin)

    def close(self) -> None:
        """Writes what is left and leaves one plain file, or none where it would hold nothing; may be called twice."""
        if self._database is None:
            return
        try:
            try:
                self.flush()
            finally:
                self._put_in_order()
        finally:
            os.close(self._descriptor)
            if self.is_empty:
                self._remove()

    # ---- inside ----

    def _put_in_order(self) -> None:
        """The journal's pages into the file, which ends behind its last one."""
        database, self._database = self._database, None  # type: ignore[assignment]
        try:
            with self._faults():
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                database.execute("PRAGMA journal_mode=DELETE")
                nbytes = database.execute("PRAGMA page_count").fetchone()[0] * PAGE_BYTES
        finally:
            database.close()
        with self._faults():
            os.ftruncate(self._descriptor, nbytes)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _create(self, address: str) -> sqlite3.Connection:
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise CuzkError(f"{self.path}: exists already; name another file, or remove it") from None
        except OSError as error:
            raise CuzkError(f"{self.path}: cannot be made: {(error.strerror or str(error)).lower()}") from error
        self._descriptor = descriptor
        try:
            with self._faults():
                return self._set_up(address)
        except BaseException:  # an interruption included: half a recording is none
            os.close(descriptor)
            self._remove()
            raise

    def _set_up(self, address: str) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            database.execute(f"PRAGMA page_size={PAGE_BYTES}")
            with _transaction(database):
                database.execute(f"PRAGMA application_id={APPLICATION_ID}")
                database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                for statement in SCHEMA.values():
                    database.execute(statement)
                self._put(database, address=address, created_unix_ns=time.time_ns())
            # Only now: so the file without its journal, as somebody may copy it after a crash, is a recording too.
            for pragma in (
                "journal_mode=WAL",
                "synchronous=NORMAL",
                "wal_autocheckpoint=64",
                f"journal_size_limit={1 << 20}",
            ):
                database.execute(f"PRAGMA {pragma}")
        except BaseException:
            database.close()
            raise
        return database

    def _begin(self, next_ns: int | None = None) -> None:
        """The first message of a stream has the time of the connection; history that follows it is older."""
        if self._head is None:
            return
        head, self._head, self._begun = self._head, None, True
        first = pb.TelemetryBatch()
        first.CopyFrom(head)
        if next_ns is not None and next_ns < first.time_ns:
            first.wall_ns += next_ns - first.time_ns
            first.time_ns = next_ns
        first.marks.add(time_ns=head.time_ns, kind="recording", text="recording began")
        self._pending = [first]

    def _facts(self, batch: pb.TelemetryBatch) -> None:
        """What is known of the engine, in its newest form; and the ledger where the stream begins."""
        facts: dict[str, bytes] = {}
        if batch.HasField("identity"):
            facts["identity"] = batch.identity.SerializeToString()
        if batch.settings:
            facts["settings"] = pb.SettingList(settings=batch.settings).SerializeToString()
        if batch.memory_is_set:
            if self._pending:
                self.flush()
            self._ledger = {(row.device, row.purpose): row.bytes for row in batch.memory}
        with self._faults(), self._saved() as database:
            self._put(database, **facts)

    def _write(self, chunk: pb.TelemetryBatch, begin: int) -> None:
        spans = span_table(chunk.spans, chunk.strings, Names())  # of this chunk alone: every job has a name of its own
        allocations = decode_allocations(chunk.allocations, list(chunk.strings))
        start, end = min(begin, int(spans.start[0])) if len(spans) else begin, chunk.time_ns
        self._levels.memory(self._ledger, allocations, start, end)
        self._levels.spans(spans)
        for sample in chunk.samples:
            self._levels.sample(sample_from_wire(sample))
        kept = replace(self._kept, last_ns=end)
        kept.first_ns = start if kept.first_ns is None else min(kept.first_ns, start)
        events, data = count_events(chunk), zlib.compress(chunk.SerializeToString(), 6)
        row = (self._number, start, end, events, chunk.dropped, self._packed_ledger(), data)
        with self._saved() as database:
            if self._make_room(len(data), kept):
                database.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                kept.chunks += 1
                kept.events += events
            else:
                kept.lost += events
            kept.lost += chunk.dropped
            database.executemany("INSERT OR REPLACE INTO levels VALUES (?, ?, ?)", self._levels.changed())
            self._put(database, first_ns=kept.first_ns, last_ns=end, events=kept.events, lost=kept.lost)
        self._kept = kept
        self._number += 1
        for allocation in allocations:
            key = (allocation.device, allocation.purpose)
            self._ledger[key] = self._ledger.get(key, 0) + allocation.delta

    def _make_room(self, nbytes: int, kept: _Kept) -> bool:
        """Drops the oldest chunks, then the oldest fine levels, until the new chunk fits into the limit; False where
        it cannot."""
        allowed = self.limit - max(int(self.limit * _ROOM), 8 * PAGE_BYTES)
        database = self._database
        while self.file_bytes + nbytes > allowed:
            oldest = database.execute(
                "SELECT number, end_ns FROM chunks ORDER BY number LIMIT ?", (_DROP_BATCH,)
            ).fetchall()
            if oldest:
                database.execute("DELETE FROM chunks WHERE number <= ?", (oldest[-1][0],))
                kept.chunks -= len(oldest)
                kept.dropped_chunks += len(oldest)
                kept.dropped_until_ns = int(oldest[-1][1])
                self._put(database, dropped_until_ns=kept.dropped_until_ns)
            elif not database.execute(
                "DELETE FROM levels WHERE level = 0 AND number = (SELECT min(number) FROM levels WHERE level = 0)"
            ).rowcount:
                return False
        return True

    def _packed_ledger(self) -> bytes:
        memory = (
            pb.MemoryByPurpose(device=device, purpose=purpose, bytes=nbytes)
            for (device, purpose), nbytes in self._ledger.items()
            if nbytes
        )
        return pb.TelemetryBatch(memory=memory, memory_is_set=True).SerializeToString()

    def _put(self, database: sqlite3.Connection, **values: bytes | str | int) -> None:
        rows = [(key, value if isinstance(value, bytes) else str(value).encode()) for key, value in values.items()]
        database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise CuzkError(f"{self.path}: cannot be written: {(why or str(error)).lower()}") from error

    @contextlib.contextmanager
    def _saved(self) -> Iterator[sqlite3.Connection]:
        """A transaction whose pages the file has room for, however late they come into it."""
        with _transaction(self._database):
            yield self._database
            self._extend(self._database.execute("PRAGMA page_count").fetchone()[0] * PAGE_BYTES)

    def _extend(self, nbytes: int) -> None:
        """The file to at least ``nbytes``. SQLite ignores what lies behind the last of its pages."""
        at = os.fstat(self._descriptor).st_size
        while at < nbytes:
            at += os.pwrite(self._descriptor, bytes(min(nbytes - at, _PIECE)), at)


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # SQLite itself takes some back that fail
            database.execute("ROLLBACK")
        raise
