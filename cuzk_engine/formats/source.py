"""Regular files as read-only bytes: opened without hanging, mapped without copying, and known again later.

A mapped file has one weakness that no check removes: when another program cuts the file short in place, touching a page
beyond the new end raises SIGBUS, which ends the process. What is done about it:

- Files below `COPY_BELOW` are read into memory, so that nothing can happen to them afterwards.
- `SourceFile.is_unchanged` tells by size, times, device and inode whether the path still leads to the same file; a
  long-lived process asks before it uses a mapping again, and loads the file anew when the answer is no.
- Replacing a file by rename, as careful writers do, is harmless: the mapping keeps the old file.

What remains is a file of more than 4 MiB that is truncated in place while it is being read. A process that serves
others therefore maps keys in a child process that can be started again, or passes a larger `copy_below`.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cuzk_engine.errors import FormatError

Bytes = npt.NDArray[np.uint8]
BytesLike = bytes | bytearray | memoryview | mmap.mmap

COPY_BELOW: Final = 4 << 20
_BYTE: Final = np.dtype(np.uint8)
_HASH_CHUNK: Final = 1 << 20
_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class FileIdentity(NamedTuple):
    """What tells one state of a file from another without reading it.

    The change time is part of it because the modification time can be set back (`cp -p`, `rsync -t`, `touch -r`).
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileIdentity:
        return _identity((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    @classmethod
    def of(cls, path: Path | str) -> FileIdentity | None:
        """The identity of the file that `path` leads to now, or None where there is none that can be looked at."""
        try:
            return cls.from_stat(os.stat(path))
        except OSError:
            return None


_identity: Final[Callable[[tuple[int, ...]], FileIdentity]] = partial(tuple.__new__, FileIdentity)


@contextmanager
def open_regular(path: Path | str) -> Iterator[tuple[int, os.stat_result]]:
    """Descriptor and status of a regular file, opened for reading; never waits for a writer of a pipe.

    Raises FormatError for everything else: a missing file, a dangling link, a folder, a pipe, a device, no permission.
    """
    descriptor = _open(path)
    try:
        yield descriptor, _regular(path, descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path | str) -> int:
    try:
        # Looked at before it is opened, since opening a pipe or a device can already do something to it. O_NONBLOCK is
        # for the path that becomes a pipe in between; it has no effect on regular files.
        _refuse_special(path, os.stat(path))
        return os.open(path, _READING)
    except (OSError, ValueError) as error:
        raise FormatError(path, _cannot_open(path, error)) from error


def _regular(path: Path | str, descriptor: int) -> os.stat_result:
    status = os.fstat(descriptor)
    _refuse_special(path, status)
    return status


def read_at(descriptor: int, size: int, offset: int = 0) -> bytearray:
    """Up to `size` bytes from `offset`; fewer only where the file ends."""
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    view.release()
    del data[done:]
    return data


@dataclass(frozen=True, eq=False)
class SourceFile:
    """The bytes of one file, or of a buffer that stands for one.

    `data` is a read-only uint8 array over the mapping or the copy. Views of it keep the mapping alive, and it goes when
    the last of them goes; there is nothing to close.
    """

    path: str  # as messages name it
    data: Bytes
    identity: FileIdentity | None  # None for a buffer
    mapped: bool

    @classmethod
    def open(cls, path: Path | str, *, copy_below: int = COPY_BELOW) -> SourceFile:
        """Maps a regular file, or copies it when it is smaller than `copy_below` bytes."""
        descriptor = _open(path)
        try:
            identity = FileIdentity.from_stat(_regular(path, descriptor))
            size = identity.size
            mapped = size >= copy_below and size > 0
            buffer: BytesLike
            try:
                # The mapping duplicates the descriptor, so each mapped file holds one until the last view goes.
                buffer = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if mapped else read_at(descriptor, size)
            except (OSError, ValueError) as error:
                raise FormatError(path, f"cannot be read: {reason(error)}") from error
            if len(buffer) != size or FileIdentity.from_stat(os.fstat(descriptor)) != identity:
                raise FormatError(path, "changed while it was read; try again when the program that writes it is done")
        finally:
            os.close(descriptor)
        return cls(str(path), _read_only(buffer), identity, mapped)

    @classmethod
    def from_buffer(cls, data: BytesLike, name: str) -> SourceFile:
        """Bytes that came another way, such as shared memory; not copied. `name` stands for the path in messages."""
        return cls(name, _read_only(data), None, mapped=False)

    @property
    def size(self) -> int:
        return int(self.data.size)

    def is_unchanged(self) -> bool:
        """Whether the path still leads to the file that was opened, in the same state. A buffer never changes."""
        return self.identity is None or FileIdentity.of(self.path) == self.identity

    def content_hash(self) -> str:
        """BLAKE2b-256 of all bytes, 64 hexadecimal digits; computed once, about a second for each GB."""
        return self._content_hash

    @cached_property
    def _content_hash(self) -> str:
        digest = hashlib.blake2b(digest_size=32)
        for start in range(0, self.size, _HASH_CHUNK):
            digest.update(self.data[start : start + _HASH_CHUNK].data)
        return digest.hexdigest()


def _read_only(buffer: BytesLike) -> Bytes:
    data = np.frombuffer(buffer, _BYTE)
    data.setflags(write=False)
    return data


def reason(error: Exception) -> str:
    """The system's words for an error, without number and path."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()


def _cannot_open(path: Path | str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        try:
            target = os.readlink(path)
        except (OSError, ValueError):
            return "no such file"
        return f"is a link to {target}, which does not exist"
    if isinstance(error, PermissionError):
        return "permission denied: the file or a folder on the way to it may not be read"
    return f"cannot be opened: {reason(error)}"


def _refuse_special(path: Path | str, status: os.stat_result) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe" if stat.S_ISFIFO(mode) else "device"
        raise FormatError(path, f"is a {'socket' if stat.S_ISSOCK(mode) else kind}, expected a regular file")
