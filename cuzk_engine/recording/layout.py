"""The file: an SQLite database of three tables, told apart from other databases by its application id.

``meta``    key → value: ``identity`` and ``settings`` (messages of ``cuzk.engine.v1``), ``address``, numbers as text
``chunks``  zlib of a ``TelemetryBatch``: the columns of about two seconds; ``ledger``: a batch whose ``memory`` is what
            was in use before it; ``lost``: events that the engine told were lost
``levels``  zlib of JSON: 256 buckets of 1 s or 60 s of every device; they stay when chunks are dropped for the limit

A reader compares the text of the schema with the one here: a database with views, triggers or other columns is no
recording.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = int.from_bytes(b"cuzk", "big")
SCHEMA_VERSION: Final = 1
PAGE_BYTES: Final = 16384

SCHEMA: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "chunks": (
        "CREATE TABLE chunks (number INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, "
        "events INTEGER NOT NULL, lost INTEGER NOT NULL, ledger BLOB NOT NULL, data BLOB NOT NULL)"
    ),
    "levels": (
        "CREATE TABLE levels (level INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, "
        "PRIMARY KEY (level, number)) WITHOUT ROWID"
    ),
}
"""Table → its statement, exactly as it stands in the file."""

CHUNK_EVENTS: Final = 20_000
CHUNK_NS: Final = 2_000_000_000
MAX_CHUNK_BYTES: Final = 256 << 20  # unpacked; more is no chunk of ours
LEVELS: Final = (1_000_000_000, 60_000_000_000)  # bucket lengths
BUCKETS: Final = 256  # in a row of ``levels``
MAX_LEVEL_BYTES: Final = 16 << 20
