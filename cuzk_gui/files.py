"""Writing a proof: all of its files whole, or none. Reading a witness in parts."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cuzk_engine.client import ProofResult

_PART: Final = 1 << 20


def parts(file: str) -> Iterator[bytes]:
    """The bytes of a file. Raises OSError at once where it cannot be opened."""
    return _parts(open(file, "rb"))


def _parts(opened: BinaryIO) -> Iterator[bytes]:
    with opened:
        while part := opened.read(_PART):
            yield part


def names(partitions: int) -> list[str]:
    """The files of a job: ``proof.json`` and ``public.json``, numbered where it has several partitions."""
    if partitions <= 1:
        return ["proof.json", "public.json"]
    return [f"{name}_{number}.json" for number in range(1, partitions + 1) for name in ("proof", "public")]


def save_proof(folder: Path, proof: ProofResult) -> tuple[Path, ...]:
    """Writes the proof and its public values, or those of each partition, into ``folder``; raises OSError, and then
    leaves no file half-written."""
    pairs = proof.partitions if len(proof.partitions) > 1 else ((proof.proof_json, proof.public_json),)
    targets = tuple(folder / name for name in names(len(pairs)))
    texts = [text for pair in pairs for text in pair]
    for target in targets:
        if target.is_dir():  # it could not be replaced, when others were already
            raise IsADirectoryError(errno.EISDIR, "cannot be written: is a folder", str(target))
    made: list[Path] = []
    try:
        for target, text in zip(targets, texts, strict=True):
            made.append(_write_beside(target, text))
        for temporary, target in zip(list(made), targets, strict=True):
            os.replace(temporary, target)
            made.remove(temporary)
    finally:
        for temporary in made:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return targets


def _write_beside(target: Path, text: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        path.chmod(0o666 & ~mask)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
