"""Files that commands write: the two of a proof, and those that take more than a proof to make again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cuzk_engine.errors import CuzkError, FormatError, UsageError
from cuzk_engine.paths import why_not_writable


def check_pair(proof: Path, public: Path, inputs: Iterable[tuple[str, Path]] = ()) -> None:
    """Refuses, before any work, outputs that cannot be meant or written; ``inputs``: what they must not replace. Raises
    UsageError, CuzkError."""
    inputs = list(inputs)
    mode, _ = _look_at(proof), _look_at(public)
    if _same_file(proof, public) and (mode is None or stat.S_ISREG(mode)):
        raise UsageError(f"{proof}: proof and public signals cannot be written to one file")
    for output in (proof, public):
        for name, path in inputs:
            if _same_file(output, path):
                raise UsageError(f"{output}: is {name}, it would be overwritten")
        mode = _look_at(output)
        if mode is not None and stat.S_ISDIR(mode):
            raise CuzkError(f"{output}: cannot be written: is a folder")
        folder = Path(os.path.realpath(output)).parent
        if not os.path.isdir(folder):
            raise CuzkError(f"{output}: cannot be written: the folder {folder} does not exist")
        place = output if mode is not None else folder
        if not os.access(place, os.W_OK):
            raise CuzkError(f"{output}: cannot be written: {why_not_writable(place)}")


def _look_at(output: Path) -> int | None:
    """What kind of file is there, as os.stat says it; None for none."""
    try:
        return os.stat(output).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CuzkError(f"{output}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def check_new(output: Path) -> None:
    """Refuses, before any work, an output that would replace a file, for commands whose --force allows it. Raises
    CuzkError."""
    from cuzk_engine.formats.atomic import would_replace

    if would_replace(output):
        raise CuzkError(f"{output}: exists already{_found(output)}; name another file, or give --force to replace it")


def _found(output: Path) -> str:
    """What a file is, by its beginning; "" for one that cannot be read."""
    from cuzk_engine.formats.guess import HEAD_BYTES, guess
    from cuzk_engine.formats.params import structure_of
    from cuzk_engine.formats.source import SourceFile
    from cuzk_engine.units import format_size

    try:
        source = SourceFile.open(output)
    except FormatError:
        return ""
    kind = guess(source.data[:HEAD_BYTES].tobytes()) or ("a bellperson key" if structure_of(source) else "")
    kind = kind.partition(";")[0]  # without what to do with it
    return f" ({kind}{', ' if kind else ''}{format_size(source.size)})"


def write_pair(proof: Path, proof_data: bytes | str, public: Path, public_json: str) -> None:
    """Writes both files, or neither: an old file is put back when the second one cannot be put in place."""
    from cuzk_engine.formats.atomic import PendingFile, write_atomically

    with PendingFile(proof, proof_data) as first, PendingFile(public, public_json) as second:
        old = _kept(proof)
        existed = os.path.exists(proof)
        first.commit()
        try:
            second.commit()
        except BaseException:
            if old is not None:
                write_atomically(proof, old)
            elif not existed:
                proof.unlink(missing_ok=True)
            raise


def _kept(proof: Path) -> bytes | None:
    """What the old file holds, None for none. Raises CuzkError."""
    if not os.path.isfile(proof):
        return None
    try:
        return proof.read_bytes()
    except OSError as error:  # one may be allowed to write a file and not to read it
        why = (error.strerror or str(error)).lower()
        raise CuzkError(f"{proof}: cannot be replaced: the old file cannot be read: {why}") from error


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
