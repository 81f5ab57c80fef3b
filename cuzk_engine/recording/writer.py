"""Writes a recording from the batches of a telemetry stream.

Every chunk is a transaction in WAL mode: whatever ends the process, the file has all chunks up to the last one that was
written. ``close`` leaves one plain file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
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
_ROOM: Final = 1 / 8  # of the limit, kept free for the next chunk and the levels


class RecordingWriter:
    """``add`` takes batches in the order of the stream. Raises CuzkError, in one line, for a file that cannot be
    written."""

    def __init__(self, path: Path | str, *, limit: int = DEFAULT_LIMIT, address: str = "") -> None:
        self.path = Path(path)
        self.limit = max(limit, SMALLEST_LIMIT)
        self.events = 0
        self.lost = 0
        self.dropped_chunks = 0
        self.dropped_until_ns: int | None = None
        self._first_ns: int | None = None
        self._pending: list[pb.TelemetryBatch] = []
        self._pending_events = 0
        self._head: pb.TelemetryBatch | None = None
        self._begun = False
        self._number = 0
        self._ledger: dict[tuple[str, str], int] = {}
        self._levels = Levels()
        self._database = self._create(address)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
        """Writes what is left and leaves one plain file; may be called twice."""
        if self._database is None:
            return
        database = self._database
        try:
            self.flush()
            with self._faults():
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                database.execute("PRAGMA journal_mode=DELETE")
        finally:
            database.close()
            self._database = None  # type: ignore[assignment]

    # ---- inside ----

    def _create(self, address: str) -> sqlite3.Connection:
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise CuzkError(f"{self.path}: exists already; name another file, or remove it") from None
        except OSError as error:
            raise CuzkError(f"{self.path}: cannot be made: {(error.strerror or str(error)).lower()}") from error
        os.close(descriptor)
        try:
            with self._faults():
                return self._set_up(address)
        except BaseException:  # an interruption included: half a recording is none
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
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
        with self._faults():
            self._put(self._database, **facts)

    def _write(self, chunk: pb.TelemetryBatch, begin: int) -> None:
        spans = span_table(chunk.spans, chunk.strings, Names())  # of this chunk alone: every job has a name of its own
        allocations = decode_allocations(chunk.allocations, list(chunk.strings))
        start, end = min(begin, int(spans.start[0])) if len(spans) else begin, chunk.time_ns
        self._levels.memory(self._ledger, allocations, start, end)
        self._levels.spans(spans)
        for sample in chunk.samples:
            self._levels.sample(sample_from_wire(sample))
        self._first_ns = start if self._first_ns is None else min(self._first_ns, start)
        events, data = count_events(chunk), zlib.compress(chunk.SerializeToString(), 6)
        row = (self._number, start, end, events, chunk.dropped, self._packed_ledger(), data)
        database = self._database
        with _transaction(database):
            if self._make_room(len(data)):
                database.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                self.events += events
            else:
                self.lost += events
            self.lost += chunk.dropped
            database.executemany("INSERT OR REPLACE INTO levels VALUES (?, ?, ?)", self._levels.changed())
            self._put(database, first_ns=self._first_ns, last_ns=end, events=self.events, lost=self.lost)
        self._number += 1
        for allocation in allocations:
            key = (allocation.device, allocation.purpose)
            self._ledger[key] = self._ledger.get(key, 0) + allocation.delta

    def _make_room(self, nbytes: int) -> bool:
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
                self.dropped_chunks += len(oldest)
                self.dropped_until_ns = int(oldest[-1][1])
                self._put(database, dropped_until_ns=self.dropped_until_ns)
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
            raise CuzkError(f"{self.path}: cannot be written: {str(error).lower()}") from error


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
