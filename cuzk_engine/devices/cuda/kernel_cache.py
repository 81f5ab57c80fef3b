"""Compiled kernels in a folder that several processes may share.

An entry is one file, put in place whole; a hash in it finds what a full disk or a power cut has left of one. A folder
that cannot be used costs one warning and the time to compile. Entries that nobody has used for longest go once the
folder is larger than its bound, so that those of old versions do not stay for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

MOST_BYTES: Final = 512 << 20
_MAGIC: Final = b"cuzkcub1"
_DIGEST: Final = 32
_SUFFIX: Final = ".kernel"
_TEMPORARY: Final = ".tmp"
_ABANDONED_SECONDS: Final = 3600.0
_TOUCH_SECONDS: Final = 3600.0  # how exact "last used" is


@dataclass(frozen=True, slots=True)
class Entry:
    """``cubin``: machine code; ``report``: the compiler's words on registers and spills."""

    cubin: bytes
    report: str


class KernelCache:
    """``folder`` is made when it is first written. Never raises: what cannot be read is compiled again."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self._most_bytes = folder, most_bytes

    def has(self, key: str) -> bool:
        try:
            return self._path(key).stat().st_size > 0
        except OSError:
            return False

    def get(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(self.folder, "read", error)
            return None
        with contextlib.suppress(OSError):  # in a folder that is another user's, only reading works
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        return _decode(data)

    def put(self, key: str, entry: Entry) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_encode(entry))
                os.replace(temporary, self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            _warn(self.folder, "written", error)
            return
        self._shrink(keep=self._path(key))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _shrink(self, keep: Path) -> None:
        """Removes what is beyond the bound, least recently used first. Others may do the same at the same time."""
        found: list[tuple[float, int, Path]] = []
        now = time.time()
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if path.suffix == _TEMPORARY and now - status.st_mtime > _ABANDONED_SECONDS:
                        path.unlink()
                    elif path.suffix == _SUFFIX:
                        found.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in found) - self._most_bytes
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            if path != keep:
                with contextlib.suppress(OSError):
                    path.unlink()
                    excess -= size


def _encode(entry: Entry) -> bytes:
    report = entry.report.encode()
    body = len(report).to_bytes(4, "little") + report + entry.cubin
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(data: bytes) -> Entry | None:
    """None for what is no whole entry."""
    body = data[len(_MAGIC) + _DIGEST :]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + _DIGEST]:
        return None
    end = 4 + int.from_bytes(body[:4], "little")
    return Entry(body[end:], body[4:end].decode())


_warned: set[Path] = set()
_warning = threading.Lock()


def _warn(folder: Path, what: str, error: OSError) -> None:
    """Once a process and folder."""
    with _warning:
        if folder in _warned:
            return
        _warned.add(folder)
    words = (error.strerror or str(error)).lower()
    log.warning(
        "kernel cache %s cannot be %s (%s): kernels are compiled at every start; make it writable, or set CUZK_HOME",
        folder,
        what,
        words,
    )
