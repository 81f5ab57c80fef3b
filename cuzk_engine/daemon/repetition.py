"""Whether a request that comes again under its id asks for the same: one request id gives one job, and what is seen to
ask for something else is an error, not the old job.

A streamed witness is gone once its job has ended. Until this process ends it is known by its size and a digest, whose
key is random and kept nowhere else: the digest tells nobody anything of the witness.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import open_regular, read_at

_CHUNK: Final = 1 << 20
_REMEMBERED: Final = 4096
_DIGEST_BYTES: Final = 16


class Contents(NamedTuple):
    """What a witness is known by. Never to be logged or stored."""

    nbytes: int
    digest: bytes


class Measure:
    """Takes the bytes of a witness piece by piece."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES)
        self._nbytes = 0

    def update(self, data: bytes | bytearray) -> None:
        self._hash.update(data)
        self._nbytes += len(data)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def contents(self) -> Contents:
        return Contents(self._nbytes, self._hash.digest())


class Repetition:
    """Knows the newest ``remembered`` streamed witnesses; those of jobs that have not ended it finds in the spool."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._key = secrets.token_bytes(32)
        self._remembered = remembered
        self._streamed: dict[str, Contents] = {}  # of which job; the oldest first

    def measure(self) -> Measure:
        return Measure(self._key)

    def remember(self, job: JobRecord, contents: Contents) -> None:
        """``contents``: of the witness that was streamed for the new job."""
        self._streamed[job.id] = contents
        while len(self._streamed) > self._remembered:
            del self._streamed[next(iter(self._streamed))]

    def contents_of(self, known: JobRecord, part: Partition) -> Contents | None:
        """Of a job's witness; None where nothing is known of it any more. Reads a file."""
        return self._streamed.get(known.id) or self._read(part.witness_path)

    def check_paths(self, known: JobRecord, parts: Sequence[Partition], witnesses: Sequence[str]) -> None:
        """Witnesses given by path. Files of other names are compared; one that cannot be read any more counts as the
        same, since a request may come again late. Raises RefusedError."""
        _check_number(known, parts, len(witnesses))
        for path, part in zip(witnesses, parts, strict=True):
            if not known.spooled and _differ(path, part.witness_path):
                raise _refusal(known, path, f"the witness {part.witness_path}")
            if known.spooled and path != part.witness_path and self._is_other(known, part, path):
                raise _refusal(known, path, "a witness that was streamed")

    def check_streamed(self, known: JobRecord, part: Partition, contents: Contents) -> None:
        """A witness that was streamed. Raises RefusedError."""
        had = self.contents_of(known, part)
        if had is not None and had != contents:
            raise refusal_of_stream(known, part)

    def _is_other(self, known: JobRecord, part: Partition, path: str) -> bool:
        """Whether the witness at ``path`` is seen to be another one than that of the job."""
        had = self.contents_of(known, part)
        found = None if had is None else self._read(path)
        return found is not None and found != had

    def _read(self, path: str) -> Contents | None:
        """Of a file; None for one that cannot be read."""
        measure = self.measure()
        try:
            with open_regular(path) as (descriptor, _):
                while data := read_at(descriptor, _CHUNK, measure.nbytes):
                    measure.update(data)
        except (FormatError, OSError):
            return None
        return measure.contents()


def check_circuit(known: JobRecord, circuit_id: str, key_path: str) -> None:
    """``known``: the job that has the request's id; ``circuit_id`` or ``key_path``, "" for what was not given. Raises
    RefusedError."""
    if (circuit_id and circuit_id != known.circuit_id) or (key_path and _differ(key_path, known.key_path)):
        raise _refusal(known, f"{key_path or circuit_id}", f"the key {known.key_path}")


def only_part(known: JobRecord, parts: Sequence[Partition]) -> Partition:
    """The partition that a streamed witness is compared with. Raises RefusedError where there are several."""
    _check_number(known, parts, 1)
    return parts[0]


def refusal_of_stream(known: JobRecord, part: Partition) -> RefusedError:
    if known.spooled:
        return _refusal(known, "this one", "another witness that was streamed")
    return _refusal(known, "the streamed one", f"the witness {part.witness_path}")


def _check_number(known: JobRecord, parts: Sequence[Partition], number: int) -> None:
    if number != len(parts):
        raise _refusal(known, str(number), f"{len(parts)} witness{'es' if len(parts) > 1 else ''}")


def _refusal(known: JobRecord, found: str, had: str) -> RefusedError:
    return RefusedError(
        Reason.INVALID_ARGUMENT,
        f"request_id {known.request_id[:80]!r} is that of job {known.id}, which has {had}, not {found}: "
        "give a new job an id of its own",
    )


def _differ(one: str, other: str) -> bool:
    if one == other:
        return False
    try:
        with open_regular(one) as (first, status), open_regular(other) as (second, status_of_other):
            if status.st_size != status_of_other.st_size:
                return True
            places = range(0, status.st_size, _CHUNK)
            return any(read_at(first, _CHUNK, place) != read_at(second, _CHUNK, place) for place in places)
    except (FormatError, OSError):
        return False
