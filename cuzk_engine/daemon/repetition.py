"""Whether a request that comes again under its id asks for the same: one request id gives one job, and what is seen to
ask for something else is an error, not the old job."""

from __future__ import annotations

from collections.abc import Sequence

from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import open_regular, read_at

_CHUNK = 1 << 20


def check_same(
    known: JobRecord, parts: Sequence[Partition], circuit_id: str, key_path: str, witnesses: Sequence[str]
) -> None:
    """``known``: the job that has the request's id; ``circuit_id`` or ``key_path``, "" for what was not given. Files of
    other names are compared; one that cannot be read any more counts as the same, since a request may come again late.
    Raises RefusedError."""
    if (circuit_id and circuit_id != known.circuit_id) or (key_path and _differ(key_path, known.key_path)):
        raise _refusal(known, f"{key_path or circuit_id}", f"the key {known.key_path}")
    if len(witnesses) != len(parts):
        raise _refusal(known, str(len(witnesses)), f"{len(parts)} witness{'es' if len(parts) > 1 else ''}")
    for path, part in zip(witnesses, parts, strict=True):
        if _differ(path, part.witness_path):
            raise _refusal(
                known, path, "a witness that was streamed" if known.spooled else f"the witness {part.witness_path}"
            )


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
