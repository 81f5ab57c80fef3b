"""What is checked of a key before its first use, and the memory of what was checked."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine import native, paths
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import CuzkError, FormatError
from cuzk_engine.formats.atomic import write_atomically
from cuzk_engine.formats.source import Bytes, FileIdentity, open_regular, read_at
from cuzk_engine.formats.zkey import ZKEY_SPEC, ZKey
from cuzk_engine.groth16.density import Densities
from cuzk_engine.groth16.plan import Query
from cuzk_engine.native import Data, Group, PointFault, PointProblem

log = logging.getLogger(__name__)

Progress = Callable[[float], None]

_CHECKS_KEPT: Final = 1000
_CHECK_VERSION: Final = 2  # raised when the checks become stricter: what was checked before counts no more
_CHUNK: Final = 8 << 20
_POINTS_AT_ONCE: Final = 1 << 18  # between two reports of progress
# A file that was written this shortly ago may change again without a new time stamp.
_SETTLED_NS: Final = 2_000_000_000


class CheckedKeys:
    """Which contents were checked, and their densities, in one JSON file of the cache folder (None: the platform's).
    Losing it costs checks only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @cached_property  # a Path interns its parts each time, and Python's table of those grows even if they are gone
    def path(self) -> Path:
        return (paths.cache_dir() if self._folder is None else self._folder) / "checked-keys.json"

    def known_hash(self, path: str, identity: FileIdentity | None) -> str | None:
        """The content hash of the file at ``path``, when it was hashed in this state."""
        if identity is None:
            return None
        entry = self._read()["files"].get(path)
        known = isinstance(entry, list) and entry[:-1] == list(identity) and isinstance(entry[-1], str)
        return entry[-1] if known else None

    def is_checked(self, content: str) -> bool:
        return content in self._read()["checked"]

    def densities(self, content: str) -> Densities | None:
        """What was counted in this content, when it was checked; None for an entry without all of it."""
        counts = self._read()["checked"].get(content)
        wanted = len(Query) + 1
        if not (isinstance(counts, list) and len(counts) == wanted and all(type(n) is int and n >= 0 for n in counts)):
            return None
        return Densities(tuple(counts[:-1]), counts[-1])

    def remember(
        self, path: str, identity: FileIdentity | None, content: str, densities: Densities | None = None
    ) -> None:
        """Notes that ``content`` was checked and what was counted in it, and that the file at ``path`` holds it in the
        state ``identity``."""
        with self._lock:
            state = self._read()
            known = state["checked"].pop(content, None)
            state["checked"][content] = known if densities is None else [*densities.present, densities.general]
            if identity is not None:
                state["files"].pop(path, None)
                newest = max(identity.mtime_ns, identity.ctime_ns)
                if time.time_ns() - newest > _SETTLED_NS and FileIdentity.of(path) == identity:
                    state["files"][path] = [*identity, content]
            for part in ("checked", "files"):
                for old in list(state[part])[:-_CHECKS_KEPT]:
                    del state[part][old]
            try:
                paths.ensure_private(self.path.parent)
                if self.path.exists() and not self.path.is_file():
                    raise CuzkError(f"{self.path}: is no regular file")
                write_atomically(self.path, json.dumps(state), mode=0o600)
            except (OSError, CuzkError) as error:
                log.debug("checked keys are not remembered: %s", error)

    def _read(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"version": _CHECK_VERSION, "checked": {}, "files": {}}
        try:
            with open_regular(self.path) as (descriptor, status):  # a pipe in its place is not waited for
                state = json.loads(read_at(descriptor, status.st_size))
        except (OSError, ValueError, RecursionError, CuzkError):
            return empty
        sound = (
            isinstance(state, dict)
            and state.get("version") == _CHECK_VERSION
            and isinstance(state.get("checked"), dict)
            and isinstance(state.get("files"), dict)
        )
        return state if sound else empty


def content_hash(data: Bytes, cancel: CancelToken) -> str:
    """BLAKE2b-256, 64 hexadecimal digits, as ``ZKey.content_hash`` computes it; can be cancelled."""
    digest = hashlib.blake2b(digest_size=32)
    for start in range(0, data.size, _CHUNK):
        cancel.check()
        digest.update(data[start : start + _CHUNK].data)
    return digest.hexdigest()


def check_coefficients(zkey: ZKey, threads: int, cancel: CancelToken) -> npt.NDArray[np.uint32] | None:
    """Raises FormatError that names the first bad coefficient; returns their order by rows, None when they are in
    order."""
    library, n = native.library(), zkey.n_coefficients
    call = native.Call(threads, cancel.address)
    facts = library.coefficients_check(zkey.curve, zkey.coefficients, n, zkey.n_vars, zkey.domain_size, call)
    if isinstance(facts, int):
        raise FormatError(zkey.path, _bad_coefficient(zkey, facts))
    if facts.is_sorted:
        return None
    order = np.empty(n, dtype=np.uint32)
    scratch = native.aligned((zkey.domain_size + 1) * 8)
    library.coefficients_order(zkey.coefficients, n, zkey.domain_size, order, scratch, call)
    return order


def _bad_coefficient(zkey: ZKey, index: int) -> str:
    row = zkey.coefficients[index].tobytes()
    matrix, constraint, signal = (int.from_bytes(row[start : start + 4], "little") for start in (0, 4, 8))
    where = f"section 4 ({ZKEY_SPEC.names[4]}), entry {index:,}"
    if matrix > 1:
        return f"{where}: matrix is {matrix:,}, expected 0 (A) or 1 (B)"
    if constraint >= zkey.domain_size:
        return f"{where}: constraint is {constraint:,}, expected below the domain size {zkey.domain_size:,}"
    if signal >= zkey.n_vars:
        return f"{where}: signal is {signal:,}, expected below the number of signals {zkey.n_vars:,}"
    return f"{where}: the coefficient is not below the prime of {zkey.curve.title}'s scalar field"


_FAULTS: Final = {
    PointFault.COORDINATE: "a coordinate is not below the prime of the base field",
    PointFault.OFF_CURVE: "is not on its curve",
    PointFault.SUBGROUP: "is not of the group's order",
}


def check_points(zkey: ZKey, threads: int, cancel: CancelToken, progress: Progress | None = None) -> None:
    """Every point of the key must have coordinates below q and lie on its curve; those of the header must have order r,
    too.

    Points of the queries are not tested for their order, which would take as long as many proofs: a proof that such a
    point spoils is refused by the verification before it leaves. Raises FormatError that names section and index.
    """
    curve, library = zkey.curve, native.library()

    def check(group: Group, points: Data, n: int, subgroup: bool) -> PointProblem | None:
        return library.points_check(curve, group, points, n, subgroup, native.Call(threads, cancel.address))

    header = {
        "alpha1": (Group.G1, zkey.alpha1),
        "beta1": (Group.G1, zkey.beta1),
        "delta1": (Group.G1, zkey.delta1),
        "beta2": (Group.G2, zkey.beta2),
        "gamma2": (Group.G2, zkey.gamma2),
        "delta2": (Group.G2, zkey.delta2),
    }
    for name, (group, point) in header.items():
        problem = check(group, point, 1, True)
        if problem is not None:
            raise FormatError(zkey.path, f"section 2 ({ZKEY_SPEC.names[2]}), {name}: {_FAULTS[problem.fault]}")
    sections = {
        3: (Group.G1, zkey.ic),
        5: (Group.G1, zkey.a),
        6: (Group.G1, zkey.b1),
        7: (Group.G2, zkey.b2),
        8: (Group.G1, zkey.l),
        9: (Group.G1, zkey.h),
    }
    total, done = sum(points.size for _, points in sections.values()), 0
    for section, (group, points) in sections.items():
        for start in range(0, len(points), _POINTS_AT_ONCE):
            part = points[start : start + _POINTS_AT_ONCE]
            problem = check(group, part, len(part), False)
            if problem is not None:
                where = f"section {section} ({ZKEY_SPEC.names[section]}), point {start + problem.index:,}"
                raise FormatError(zkey.path, f"{where}: {_FAULTS[problem.fault]}")
            done += part.size
            if progress is not None:
                progress(done / total)
