"""Whether a request that comes again under its id asks for the same: one request id gives one job, and what asks for
something else is an error, not the old job.

Until this process ends a witness is known by its size and a digest, whose key is random and kept nowhere else: the
digest tells nobody anything of the witness. After that the store knows the state of its file, and the file itself says
what was in it while it is still in that state. What cannot be compared any more counts as the same only where it is
asked for in the same way: by the same path, with nothing new there, or streamed with as many bytes.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cuzk_engine.daemon.files import file_identity
from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import FileIdentity, open_regular, read_at, reason

_CHUNK: Final = 1 << 20
_REMEMBERED: Final = 1 << 14
_DIGEST_BYTES: Final = 16
_TICK_NS: Final = 2 * 10**9  # the coarsest time stamps of a file system in use
_SIZE: Final = 2  # its place in a file's identity


class Contents(NamedTuple):
    """What a witness is known by; ``digest`` is empty where only its size is. Never to be logged or stored."""

    nbytes: int
    digest: bytes

    def differ(self, other: Contents) -> bool:
        """Whether they are seen to be of two witnesses."""
        return self.nbytes != other.nbytes or (self.digest != other.digest and b"" not in (self.digest, other.digest))


class Seen(NamedTuple):
    """A witness as it was handed in. ``identity``: the state of its file; ``settled``: any change of it since would
    show there."""

    contents: Contents
    identity: tuple[int, ...] = ()
    settled: bool = False


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
    """Knows the newest ``remembered`` witnesses of jobs that have a request id. Methods that say so read files."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._key = secrets.token_bytes(32)
        self._remembered = remembered
        self._jobs: dict[str, tuple[Seen, ...]] = {}  # the oldest first
        self._number = 0
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ends the reading of large files."""
        self._stop.set()

    def measure(self) -> Measure:
        return Measure(self._key)

    def look(self, path: str) -> Seen:
        """Reads a witness that is handed in. Raises FormatError, and RefusedError for one that changes meanwhile."""
        now, measure = time.time_ns(), self.measure()
        try:
            with open_regular(path) as (descriptor, status):
                identity = FileIdentity.from_stat(status)
                while data := read_at(descriptor, _CHUNK, measure.nbytes):
                    if self._stop.is_set():
                        raise RefusedError(Reason.FAILED_PRECONDITION, "the engine is stopping")
                    measure.update(data)
        except OSError as error:
            raise FormatError(path, f"cannot be read: {reason(error)}") from error
        if FileIdentity.of(path) != identity:
            raise RefusedError(
                Reason.FAILED_PRECONDITION, f"{path}: changed while it was read; try again when it is written"
            )
        return Seen(measure.contents(), tuple(identity), now - identity.ctime_ns > _TICK_NS)

    def remember(self, job: JobRecord, seen: Iterable[Seen]) -> None:
        """``seen``: of each partition of the new job, in order."""
        self._jobs[job.id] = tuple(seen)
        self._number += len(self._jobs[job.id])
        while self._number > self._remembered:
            self._number -= len(self._jobs.pop(next(iter(self._jobs))))

    def check_paths(self, known: JobRecord, parts: Sequence[Partition], witnesses: Sequence[str]) -> None:
        """Witnesses given by path. Reads files. Raises RefusedError."""
        _check_number(known, parts, len(witnesses))
        for path, part in zip(witnesses, parts, strict=True):
            self._check_path(known, part, path)

    def check_streamed(self, known: JobRecord, part: Partition, contents: Contents) -> None:
        """A witness that was streamed. Reads files. Raises RefusedError."""
        had = self.contents_of(known, part)
        if had is not None and had.differ(contents):
            raise refusal_of_stream(known, part)

    def contents_of(self, known: JobRecord, part: Partition) -> Contents | None:
        """What a stream has to be, None where nothing is known of what was streamed. Reads files. Raises RefusedError
        where the job's witness was given by path and cannot be compared any more."""
        had = self._had(known, part)
        if had is None and not known.spooled:
            raise refusal_of_stream(known, part)
        if had is None and part.witness_identity:
            return Contents(part.witness_identity[_SIZE], b"")
        return had

    def check_inputs(self, known: JobRecord, contents: Contents) -> None:
        """The inputs of a proof of cuzk.v1. Raises RefusedError."""
        seen = self._jobs.get(known.id)
        if seen is not None and seen[0].contents != contents:
            raise _refusal(known, "these", "other inputs")

    def _check_path(self, known: JobRecord, part: Partition, path: str) -> None:
        seen, state = self._seen(known, part), file_identity(path)
        is_place = not known.spooled and path == part.witness_path
        if seen is not None and seen.settled and state == seen.identity:
            return
        if seen is None and is_place and _is_as_stored(part, state):
            return
        had, found = self._had(known, part), self._read(path)
        if found is None and is_place:  # it comes late
            return
        if had is None or found is None or had != found:
            text = "a witness that was streamed" if known.spooled else f"the witness {part.witness_path}"
            raise _refusal_of_file(known, path, text, is_place)

    def _seen(self, known: JobRecord, part: Partition) -> Seen | None:
        seen = self._jobs.get(known.id)
        return seen[part.number] if seen else None

    def _had(self, known: JobRecord, part: Partition) -> Contents | None:
        """Of a job's witness, as it was handed in; None where that is not known any more."""
        seen = self._seen(known, part)
        if seen is not None:
            return seen.contents
        is_there = known.spooled or _is_as_stored(part, file_identity(part.witness_path))
        return self._read(part.witness_path) if is_there else None

    def _read(self, path: str) -> Contents | None:
        """Of a file; None for one that cannot be read."""
        try:
            return self.look(path).contents
        except FormatError:
            return None


def check_kind(known: JobRecord, kind: str) -> None:
    """``known``: the job that has the request's id. Raises RefusedError."""
    if known.kind != kind:
        raise _refusal(known, kind, f"the kind {known.kind}")


def check_circuit(known: JobRecord, circuit_id: str, key_path: str = "") -> None:
    """``circuit_id``: the circuit that is asked for, "" where the key at ``key_path`` cannot be read, which counts as
    the same only where the job's key was. Raises RefusedError."""
    is_place = key_path == known.key_path
    if circuit_id != known.circuit_id and (circuit_id or not is_place):
        raise _refusal_of_file(known, key_path or circuit_id, f"the key {known.key_path}", is_place)


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


def _is_as_stored(part: Partition, state: tuple[int, ...]) -> bool:
    """Whether a file is in the state in which the store knows it; true where it knows none, as of older jobs. Device
    and inode are left out: not every file system keeps them through a restart of the machine."""
    return not part.witness_identity or state[_SIZE:] == part.witness_identity[_SIZE:]


def _refusal_of_file(known: JobRecord, found: str, had: str, is_place: bool) -> RefusedError:
    """``is_place``: both are at the same path."""
    return _refusal(known, "as it is now", f"{had} as it was then") if is_place else _refusal(known, found, had)


def _refusal(known: JobRecord, found: str, had: str) -> RefusedError:
    return RefusedError(
        Reason.INVALID_ARGUMENT,
        f"request_id {known.request_id[:80]!r} is that of job {known.id}, which has {had}, not {found}: "
        "give a new job an id of its own",
    )
