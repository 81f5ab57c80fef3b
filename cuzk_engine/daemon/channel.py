"""Messages between the supervisor and a device process, over one local socket.

A frame is two little-endian u32 lengths, then a JSON object, then bytes (telemetry columns, or a proof's public
signals; empty for most). Large vectors never pass through here.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from functools import cache
from typing import Any, Final

_LENGTHS: Final = struct.Struct("<II")
MAX_JSON: Final = 64 << 20
MAX_BLOB: Final = 64 << 20  # a proof travels with its public signals, 32 bytes each

Message = dict[str, Any]

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))  # made once: that takes as long as to encode a message


_decode: Final = json.JSONDecoder().decode


def encode(message: Message, blob: bytes = b"") -> bytes:
    """Its frame. Raises ValueError for one that is too large."""
    body = _bare(message["type"]) if len(message) == 1 else _ENCODER.encode(message).encode()
    if len(body) > MAX_JSON or len(blob) > MAX_BLOB:
        raise ValueError(f"a message of {len(body)} + {len(blob)} bytes is too large")
    return b"".join((_LENGTHS.pack(len(body), len(blob)), body, blob))


@cache
def _bare(kind: str) -> bytes:
    """A message that says nothing but what it is."""
    return _ENCODER.encode({"type": kind}).encode()


class BlockingChannel:
    """The device process's side: any thread sends, one receives. ``writes`` counts what was sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")
        self._sending = threading.Lock()
        self.writes = 0

    def send(self, message: Message, blob: bytes = b"") -> None:
        """Raises OSError when the supervisor has gone, ValueError for a message that is too large."""
        self.write(encode(message, blob))

    def write(self, frames: bytes) -> None:
        """Messages that are encoded already. Raises OSError."""
        with self._sending:
            self.writes += 1
            self._socket.sendall(frames)

    def receive(self) -> Message | None:
        """The next message, or None when the supervisor has gone."""
        try:
            head = self._reader.read(_LENGTHS.size)
            if len(head) < _LENGTHS.size:
                return None
            body_size, blob_size = _LENGTHS.unpack(head)
            if body_size > MAX_JSON or blob_size > MAX_BLOB:
                return None
            size = body_size + blob_size
            data = self._reader.read(size)
        except OSError:
            return None
        if len(data) < size:
            return None
        message: Message = _decode(data[:body_size].decode())
        return message

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class AsyncChannel:
    """The supervisor's side, on its event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connection: socket.socket) -> AsyncChannel:
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 20)
        return cls(reader, writer)

    def send(self, message: Message) -> None:
        """Queues a message; one to a process that has gone is dropped, since its end is seen by ``receive``."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def receive(self) -> tuple[Message, bytes] | None:
        """The next message and its bytes, or None when the process has gone or sends what is no message."""
        try:
            body_size, blob_size = _LENGTHS.unpack(await self._reader.readexactly(_LENGTHS.size))
            if body_size > MAX_JSON or blob_size > MAX_BLOB:
                return None
            body = await self._reader.readexactly(body_size)
            blob = await self._reader.readexactly(blob_size)
            return json.loads(body), blob
        except (asyncio.IncompleteReadError, OSError, ValueError):
            return None

    def close(self) -> None:
        self._writer.close()
