"""Registered circuits: keys known under an id made from their content."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Final

from cuzk_engine.client.types import CircuitInfo
from cuzk_engine.daemon import files
from cuzk_engine.daemon.files import AllowedPaths
from cuzk_engine.daemon.records import CircuitRecord
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.store import Store
from cuzk_engine.errors import FormatError

_REPLACED_KEPT: Final = 4


class Circuits:
    """On the event loop; files are read in threads."""

    def __init__(self, store: Store, allowed: AllowedPaths) -> None:
        self._store = store
        self._allowed = allowed
        self._by_id = {record.info.id: record for record in store.circuits()}
        self._stop = threading.Event()
        self._registering = asyncio.Lock()  # one large file is hashed at a time

    def stop(self) -> None:
        """Ends the reading of large files."""
        self._stop.set()

    def list(self) -> list[CircuitInfo]:
        return [record.info for record in self._by_id.values()]

    async def register(self, path: str, name: str = "") -> CircuitRecord:
        """Checks header and sizes and remembers the key. Raises FormatError, RefusedError."""
        resolved = self._allowed.check(path)
        known = self._known(resolved, files.file_identity(resolved))
        if known is not None and name in ("", known.info.name):
            return known
        facts = await asyncio.to_thread(files.read_key, resolved)
        async with self._registering:
            known = self._known(resolved, facts.identity)
            content = known.info.id if known else await asyncio.to_thread(files.content_hash, resolved, self._stop)
        if files.file_identity(resolved) != facts.identity:
            raise RefusedError(
                Reason.FAILED_PRECONDITION, f"{path}: changed while it was read; try again when it is written"
            )
        info = files.circuit_from(resolved, name, facts, content)
        before = self._by_id.get(info.id)
        if before is not None:
            info = replace(info, name=name or before.info.name, last_used_unix_ns=before.info.last_used_unix_ns)
        record = CircuitRecord(info, facts.identity)
        self._store.put_circuit(record)
        self._by_id[info.id] = record
        self._forget_replaced(record)
        return record

    async def find(self, circuit_id: str) -> CircuitRecord:
        """The circuit of an id, its file in the state in which it was registered. Raises RefusedError."""
        record = self._by_id.get(circuit_id)
        if record is None:
            raise RefusedError(Reason.NOT_FOUND, f"circuit {circuit_id[:80]!r} is not registered")
        if files.file_identity(record.info.key_path) == record.identity:
            return record
        again = await self.register(record.info.key_path)
        if again.info.id != circuit_id:
            raise RefusedError(
                Reason.FAILED_PRECONDITION,
                f"{record.info.key_path}: holds another key than when circuit {circuit_id} was registered; it is now "
                f"circuit {again.info.id}",
            )
        return again

    async def id_of(self, path: str) -> str:
        """The circuit that the key at a checked path is or would be, "" where there is none to be read; registers
        nothing. Raises RefusedError."""
        known = self._known(path, files.file_identity(path))
        if known is not None:
            return known.info.id
        try:
            async with self._registering:
                return files.circuit_id(await asyncio.to_thread(files.content_hash, path, self._stop))
        except (FormatError, OSError):
            return ""

    def named(self, text: str) -> CircuitRecord | None:
        """A circuit by id or display name."""
        found = self._by_id.get(text)
        return found or next((record for record in self._by_id.values() if record.info.name == text), None)

    def used(self, circuit_id: str) -> None:
        record = self._by_id.get(circuit_id)
        if record is not None:
            record = CircuitRecord(replace(record.info, last_used_unix_ns=time.time_ns()), record.identity)
            self._by_id[circuit_id] = record
            self._store.put_circuit(record)

    def remove(self, circuit_id: str) -> None:
        """Raises RefusedError NOT_FOUND. Jobs that use it keep the path of their key."""
        if self._by_id.pop(circuit_id, None) is None:
            raise RefusedError(Reason.NOT_FOUND, f"circuit {circuit_id[:80]!r} is not registered")
        self._store.remove_circuit(circuit_id)

    def _forget_replaced(self, record: CircuitRecord) -> None:
        """Keys that were at the same path before; of the last few it is still known what became of them."""
        path = record.info.key_path
        replaced = [r.info.id for r in self._by_id.values() if r.info.key_path == path and r is not record]
        for circuit_id in replaced[:-_REPLACED_KEPT]:
            self.remove(circuit_id)

    def _known(self, path: str, identity: tuple[int, ...]) -> CircuitRecord | None:
        if not identity:
            return None
        return next(
            (r for r in self._by_id.values() if r.info.key_path == path and tuple(r.identity) == identity), None
        )
