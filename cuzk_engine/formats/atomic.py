"""Files written whole or not at all.

A regular file is written under a temporary name in its own folder, flushed to the disk and renamed over the old one.
On any failure, a full disk or an interruption included, the temporary file is removed and an existing file stays as it
was. Pipes and devices that exist are written directly, since a rename would replace them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Protocol, Self, TypeAlias

from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.source import reason


class Sink(Protocol):
    """Where a file's data goes, piece by piece; a binary file is one."""

    def write(self, data: bytes | memoryview, /) -> object: ...


Producer: TypeAlias = Callable[[Sink], None]
"""Writes a file's data, for what is too large to be held at once."""

_OWN_DESCRIPTOR: Final = re.compile(r"/dev/fd/([0-9]{1,6})|/proc/self/fd/([0-9]{1,6})", re.ASCII)
_STANDARD: Final = {"/dev/stdout": 1, "/dev/stderr": 2}


def write_atomically(
    path: Path | str, data: bytes | str | Producer, *, mode: int | None = None, replace: bool = True
) -> None:
    """Writes `data` (text as UTF-8, or what a producer writes) to `path`, all or nothing.

    `mode` are the permission bits; without it an existing file keeps its own and a new one follows the umask. A
    symbolic link stays, and what it leads to is replaced. Without `replace` a file that is there is an error, one
    that came while the data was made included. Raises CuzkError, one line that names the path.
    """
    with PendingFile(path, data, mode=mode, replace=replace) as pending:
        pending.commit()


def would_replace(path: Path | str) -> bool:
    """Whether writing to `path` replaces a file: pipes, devices and this process's own descriptors are only written
    to."""
    try:
        return _own_descriptor(os.fspath(path)) is None and stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def prepared(
    files: Iterable[tuple[Path | str, bytes | str]], *, mode: int | None = None
) -> Iterator[list[PendingFile]]:
    """Several files, none of which appears before all are safely on the disk: there they are now, to be put in place
    one by one. The data of one is asked for when the one before has been written, and is not held any longer."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(PendingFile(path, data, mode=mode)) for path, data in files]


class PendingFile:
    """Data on the disk beside its target, to be put in place by `commit` and thrown away by the end of the block."""

    def __init__(
        self, path: Path | str, data: bytes | str | Producer, *, mode: int | None = None, replace: bool = True
    ) -> None:
        self._path = os.fspath(path)
        self._data: bytes | Producer = data.encode("utf-8") if isinstance(data, str) else data
        self._mode = mode
        self._replace = replace
        self._target: str | None = None  # None: written directly
        self._temporary: str | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException as error:
            self._discard()
            if isinstance(error, (OSError, ValueError)):
                self._fail(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def commit(self) -> None:
        """Makes the data appear under its path."""
        try:
            if self._target is None:
                _write_directly(self._path, self._data)
                return
            assert self._temporary is not None
            self._refuse_existing(self._target)
            os.replace(self._temporary, self._target)
            self._temporary = None
            _sync_folder(os.path.dirname(self._target))
        except OSError as error:
            self._fail(error)

    def _prepare(self) -> None:
        if _own_descriptor(self._path) is not None:
            return
        existing: os.stat_result | None
        try:
            existing = os.stat(self._path)
        except FileNotFoundError:
            existing = None
        if existing is not None and stat.S_ISDIR(existing.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if existing is not None and not stat.S_ISREG(existing.st_mode):
            return
        # A link stays a link: what it leads to is replaced, or made where it does not exist yet.
        target = os.path.realpath(self._path)
        self._refuse_existing(target)
        if existing is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "the file is read-only")
        mode = self._mode if existing is None or self._mode is not None else stat.S_IMODE(existing.st_mode)
        self._write_temporary(os.path.dirname(target), mode)
        self._target, self._data = target, b""  # it is on the disk

    def _write_temporary(self, folder: str, mode: int | None) -> None:
        name = os.path.join(folder, f".cuzk-{secrets.token_hex(8)}.tmp")
        # Private until it is complete when a mode is asked for; otherwise the system applies the umask.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._temporary = name
        descriptor = os.open(name, flags, 0o666 if mode is None else 0o600)
        try:
            _produce(descriptor, self._data)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _refuse_existing(self, target: str) -> None:
        if not self._replace and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "somebody else made a file of this name meanwhile")

    def _discard(self) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._temporary = None

    def _fail(self, error: OSError | ValueError) -> NoReturn:
        code = error.errno if isinstance(error, OSError) else None
        words = {
            errno.ENOSPC: "no space left on the device",
            errno.EDQUOT: "the disk quota is used up",
            errno.ENXIO: "nobody reads from this pipe",
        }
        if code == errno.ENOENT:
            words[code] = f"the folder {os.path.dirname(os.path.realpath(self._path))} does not exist"
        raise CuzkError(f"{self._path}: cannot be written: {words.get(code or 0) or reason(error)}") from error


def _own_descriptor(path: str) -> int | None:
    """The descriptor that a path like /dev/stdout stands for; writing to it keeps its position and what was written."""
    if path in _STANDARD:
        return _STANDARD[path]
    match = _OWN_DESCRIPTOR.fullmatch(path)
    return int(match[1] or match[2]) if match else None


def _write_directly(path: str, data: bytes | Producer) -> None:
    own = _own_descriptor(path)
    if own is not None:
        _produce(own, data)
        return
    # O_NONBLOCK: a pipe without a reader is an error at once instead of a wait.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.set_blocking(descriptor, True)
        _produce(descriptor, data)
    finally:
        os.close(descriptor)


def _produce(descriptor: int, data: bytes | Producer) -> None:
    if callable(data):
        data(_Descriptor(descriptor))
    else:
        _write_fully(descriptor, data)


class _Descriptor:
    """Writes at once: a buffer would have to be written out after an interruption, too, which a full pipe prevents."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes | memoryview, /) -> None:
        _write_fully(self._descriptor, data)


def _write_fully(descriptor: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: str) -> None:
    """Makes a rename survive a power cut; not every file system can, and the file is complete either way."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
