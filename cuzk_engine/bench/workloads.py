"""Keys and witnesses of profiles, kept in the cache folder for the next time.

A folder's name says everything that its files depend on: profile, curve and the text of the code that made them. The
folders together are bounded: the longest unused ones go first, never one that somebody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cuzk_engine import paths
from cuzk_engine.curves import Curve
from cuzk_engine.errors import CuzkError
from cuzk_engine.groth16.setup import Progress
from cuzk_engine.workload.make import WTNS, ZKEY, write_folder
from cuzk_engine.workload.profiles import make_circuit

LIMIT: Final = 8 << 30
_MADE_BY: Final = ("workload", "groth16", "formats")
_LOCK: Final = ".in-use"
_DONE: Final = ".complete"
_DIGITS: Final = 12


@contextlib.contextmanager
def workload(profile: str, curve: Curve, progress: Progress, limit: int = LIMIT) -> Iterator[tuple[Path, Path]]:
    """Key and witness of ``profile``, made where they are not there; nobody removes them within the block.

    Raises UsageError for an unknown profile, CuzkError where they cannot be written.
    """
    circuit = make_circuit(profile, curve)
    root = paths.ensure_private(paths.cache_dir() / "bench")
    folder = root / folder_name(circuit.profile, curve)
    while True:
        with _held(folder, fcntl.LOCK_EX) as descriptor:
            if not (folder / _DONE).is_file():
                write_folder(circuit, folder, replace=True, progress=progress)
                (folder / _DONE).touch()
            os.utime(folder / _DONE)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not (folder / _DONE).is_file():
                continue  # removed while the lock changed hands
            _shrink(root, limit)
            yield folder / ZKEY, folder / WTNS
            return


def folder_name(profile: str, curve: Curve) -> str:
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for part in _MADE_BY:
        for path in sorted((package / part).glob("*.py")):
            digest.update(path.read_bytes())
    return f"{profile.replace(':', '-').replace('^', '-')}-{curve.name}-{digest.hexdigest()[:_DIGITS]}"


def _shrink(root: Path, limit: int) -> None:
    """Removes folders, the longest unused ones first, until what is left is within ``limit``."""
    found = [(_last_use(folder), _size(folder), folder) for folder in root.iterdir() if folder.is_dir()]
    total = sum(size for _, size, _ in found)
    for _, size, folder in sorted(found):
        if total <= limit:
            return
        with contextlib.suppress(BlockingIOError, CuzkError), _held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


@contextlib.contextmanager
def _held(folder: Path, how: int) -> Iterator[int]:
    """A lock on ``folder``, which is made where it is not there."""
    descriptor = -1
    try:
        while True:
            paths.ensure_private(folder)
            try:
                descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(descriptor, how)
                if os.path.samestat(os.fstat(descriptor), os.stat(folder / _LOCK)):
                    break
            except FileNotFoundError:
                pass  # somebody removed the folder meanwhile
            except BlockingIOError:
                raise
            except OSError as error:
                raise CuzkError(f"{folder}: cannot be written: {(error.strerror or str(error)).lower()}") from error
            if descriptor >= 0:
                os.close(descriptor)
                descriptor = -1
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _last_use(folder: Path) -> float:
    try:
        return (folder / _DONE).stat().st_mtime
    except OSError:
        return 0.0  # made in part: of no use, unless somebody holds it


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total
