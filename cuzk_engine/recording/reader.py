"""Reads recordings. Nothing in a file is trusted: not its schema, no length, no number."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message

from cuzk_engine.diagnosis.table import Names, SpanTable
from cuzk_engine.errors import FormatError
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.layout import (
    APPLICATION_ID,
    BUCKETS,
    LEVELS,
    MAX_CHUNK_BYTES,
    SCHEMA,
    SCHEMA_VERSION,
)
from cuzk_engine.recording.levels import Row, unpack
from cuzk_engine.telemetry.tables import span_table

_MAGIC: Final = b"SQLite format 3\x00"
_IN_WAL_MODE: Final = b"\x02\x02"
_MAX_BLOB: Final = 64 << 20
_MAX_NUMBER: Final = 1 << 62  # nanoseconds: a century and a half

M = TypeVar("M", bound=Message)


def is_recording(head: bytes) -> bool:
    """Whether a file that starts with ``head`` (at least 72 bytes of it) says that it is a recording."""
    return head.startswith(_MAGIC) and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


class RecordingReader:
    """An open recording. ``damage``: None, or one sentence that says from where on it cannot be read; known for sure
    when all chunks were read. Raises FormatError for what is no recording."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.damage: str | None = None
        self._cut = ""
        self._check_head()
        self._database = self._open()
        try:
            self._check_schema()
            self.meta: Mapping[str, bytes] = self._read_meta()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> RecordingReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    # ---- what it is ----

    @property
    def identity(self) -> pb.Identity:
        """The engine; empty where it did not say."""
        return self._message(pb.Identity(), "identity")

    @property
    def settings(self) -> list[pb.Setting]:
        """As they were last."""
        return list(self._message(pb.SettingList(), "settings").settings)

    @property
    def is_cut(self) -> bool:
        """Whether the file is shorter than it says."""
        return bool(self._cut)

    @property
    def address(self) -> str:
        return self.meta.get("address", b"").decode(errors="replace")

    def number(self, key: str) -> int | None:
        """Of ``first_ns``, ``last_ns``, ``events``, ``lost``, ``dropped_until_ns``, ``created_unix_ns``."""
        text = self.meta.get(key, b"")
        number = int(text) if text.isdigit() and len(text) < 20 else None
        return None if number is None or number > _MAX_NUMBER else number

    # ---- what it holds ----

    def batches(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[pb.TelemetryBatch]:
        """As a stream would begin at that time: a message with identity, settings and what was in use, then the
        chunks that reach into the time, in order."""
        is_first = True
        for number, low, high, _, ledger, data in self._chunks():
            if (start_ns is not None and high < start_ns) or (end_ns is not None and low > end_ns):
                continue
            try:
                batch = _unpacked(data)
                before = pb.TelemetryBatch.FromString(ledger)
            except (ValueError, DecodeError, zlib.error) as error:
                self._is_damaged(number, error)
                return
            if is_first:
                is_first = False
                yield self._head(batch, before, low)
            yield batch

    def readable(self) -> tuple[int, int | None]:
        """How many events the rows hold that can be read, and up to when; a quick look that unpacks none of them."""
        events, end = 0, None
        for _, _, high, count, _, _ in self._chunks():
            events, end = events + count, high
        return events, end

    def _head(self, batch: pb.TelemetryBatch, before: pb.TelemetryBatch, low: int) -> pb.TelemetryBatch:
        """The first message; what it says is taken out of the first chunk."""
        head = pb.TelemetryBatch(time_ns=low, wall_ns=batch.wall_ns - batch.time_ns + low, memory_is_set=True)
        head.memory.extend(before.memory)
        head.identity.CopyFrom(batch.identity if batch.HasField("identity") else self.identity)
        head.settings.extend(batch.settings or self.settings)
        for name in ("memory", "memory_is_set", "identity", "settings"):
            batch.ClearField(name)
        return head

    def span_tables(
        self, names: Names, start_ns: int | None = None, end_ns: int | None = None
    ) -> Iterator[tuple[SpanTable, pb.TelemetryBatch]]:
        """The spans of each chunk as columns, and the chunk itself."""
        for batch in self.batches(start_ns, end_ns):
            try:
                table = span_table(batch.spans, batch.strings, names)
            except ValueError as error:
                self._is_damaged(None, error)
                return
            yield table, batch

    def level(self, level: int) -> Iterator[tuple[int, Row]]:
        """(time of the first bucket, row) of a coarse level, in order; buckets of ``LEVELS[level]`` nanoseconds."""
        query = "SELECT number, data FROM levels WHERE level = ? ORDER BY number"
        try:
            for number, data in self._database.execute(query, (level,)):
                if isinstance(number, int) and isinstance(data, bytes):
                    yield number * BUCKETS * LEVELS[level], unpack(data)
        except (sqlite3.Error, ValueError) as error:
            self._is_damaged(None, error)

    # ---- inside ----

    def _check_head(self) -> None:
        try:
            if stat.S_ISFIFO(os.stat(self.path).st_mode):  # opening it would wait for a writer
                raise FormatError(self.path, "is a pipe, expected a regular file")
            with self.path.open("rb") as file:
                head = file.read(100)
                nbytes = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise FormatError(self.path, f"cannot be opened: {(error.strerror or str(error)).lower()}") from error
        if not head:
            raise FormatError(self.path, "is empty, expected a recording")
        if not head.startswith(_MAGIC):
            raise FormatError(self.path, "is no recording (cuzk record makes one)")
        has_journal = self._journal().exists()
        # In a recording that is being written, the first page may still be in the journal only.
        if not is_recording(head) and not has_journal:
            raise FormatError(self.path, "is an SQLite database, but no recording of cuzk")
        if has_journal:
            return
        expected = int.from_bytes(head[28:32], "big") * int.from_bytes(head[16:18], "big")  # pages, bytes of one
        if nbytes < expected:
            self._cut = f"it was cut, {nbytes:,} bytes of {expected:,} are there"
            self.damage = f"{self.path}: {self._cut}"
        elif head[18:20] == _IN_WAL_MODE:
            missing = f"{self._journal()}, where its end may be, is missing"
            self.damage = f"{self.path}: the recorder did not end it, and {missing}"

    def _journal(self) -> Path:
        return Path(f"{self.path}-wal")

    def _open(self) -> sqlite3.Connection:
        problem: sqlite3.Error | None = None
        name = f"file:{quote(os.fsencode(self.path.absolute()))}?mode=ro"
        for suffix in ("", "&immutable=1"):  # a folder that cannot be written has no room for WAL's shared memory
            database = sqlite3.connect(name + suffix, uri=True, isolation_level=None, check_same_thread=False)
            try:
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BLOB)
                database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                # A file that was cut off is shorter than its header says; only so does SQLite read it all the same.
                for pragma in (
                    "query_only=1",
                    "trusted_schema=0",
                    "cell_size_check=1",
                    "mmap_size=0",
                    "writable_schema=1",
                ):
                    database.execute(f"PRAGMA {pragma}")
                database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if problem is not None and self._journal().exists() and self._journal().stat().st_size:
                    text = f"cannot be read in part: {self._journal()}, which belongs to it, cannot be used here"
                    self.damage = f"{self.path}: {text}: {str(problem).lower()}"
                return database
            except sqlite3.Error as error:
                database.close()
                problem = error
        raise FormatError(self.path, f"cannot be read: {str(problem).lower()}")

    def _check_schema(self) -> None:
        application, version, found = 0, 0, {}
        with self._damage_is_error():
            application = self._database.execute("PRAGMA application_id").fetchone()[0]
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            rows = self._database.execute("SELECT type, name, sql FROM sqlite_schema LIMIT 20").fetchall()
            found = {name: (kind, sql) for kind, name, sql in rows}
        if application != APPLICATION_ID:
            raise FormatError(self.path, "is an SQLite database, but no recording of cuzk")
        if version > SCHEMA_VERSION:
            text = f"was recorded by a newer version of cuzk (form {version}, this one reads up to {SCHEMA_VERSION})"
            raise FormatError(self.path, text)
        if found != {name: ("table", sql) for name, sql in SCHEMA.items()}:
            raise FormatError(self.path, f"is damaged: {self._cut or 'its tables are not those of a recording'}")

    def _read_meta(self) -> dict[str, bytes]:
        with self._damage_is_error():
            rows = self._database.execute("SELECT key, value FROM meta LIMIT 100").fetchall()
            return {str(key): value for key, value in rows if isinstance(value, bytes)}
        raise AssertionError

    def _chunks(self) -> Iterator[tuple[int, int, int, int, bytes, bytes]]:
        """Row by row, so that one that cannot be read ends it after all before it."""
        columns = "number, start_ns, end_ns, events, ledger, data"
        query = f"SELECT {columns} FROM chunks WHERE number > ? ORDER BY number LIMIT 1"
        number = -1
        while True:
            try:
                row = self._database.execute(query, (number,)).fetchone()
            except (sqlite3.Error, OverflowError) as error:
                self._is_damaged(number + 1, error)
                return
            if row is None:
                return
            # Pages that are missing read as zeros, or as rows without sense.
            if tuple(map(type, row)) != (int, int, int, int, bytes, bytes) or row[0] <= number:
                self._is_damaged(number + 1, ValueError("the row is not one of a recording"))
                return
            number = row[0]
            yield row

    def _is_damaged(self, number: int | None, error: Exception) -> None:
        where = f"from chunk {number} on" if number is not None else "in part"
        self.damage = f"{self.path}: cannot be read {where}: {self._cut or ' '.join(str(error).lower().split())}"

    def _message(self, message: M, key: str) -> M:
        with contextlib.suppress(DecodeError):
            message.ParseFromString(self.meta.get(key, b""))
        return message

    @contextlib.contextmanager
    def _damage_is_error(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise FormatError(self.path, f"is damaged: {str(error).lower()}") from error


def _unpacked(data: bytes) -> pb.TelemetryBatch:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, MAX_CHUNK_BYTES)
    if not unpacker.eof:
        raise ValueError("a chunk is not whole, or larger than any")
    return pb.TelemetryBatch.FromString(text)
