"""Proving keys that are ready for use: opened, checked once, known again, and never an old one.

A key is checked when it is first used: every coefficient on every load (an index out of range would be read out of
bounds), every point once for each content. What was checked is remembered by content hash in the cache folder, with the
file's identity (device, inode, size, times) as a quick way to the hash. The memory is a hint: it may be deleted,
damaged or unwritable, and costs a check then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine import native, paths
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import CuzkError, FormatError
from cuzk_engine.formats.atomic import write_atomically
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.formats.r1cs import R1cs, first_unsatisfied
from cuzk_engine.formats.source import Bytes, FileIdentity
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.formats.zkey import ZKEY_SPEC, ZKey
from cuzk_engine.groth16.density import count_present
from cuzk_engine.groth16.plan import CircuitSizes, Query
from cuzk_engine.groth16.proving_key import DeviceMatrices, HBasis, KeyElements, PointRange, ProvingKey
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.native import Data, Group, PointFault, PointProblem

log = logging.getLogger(__name__)

Progress = Callable[[float], None]

KEYS_KEPT: Final = 8  # mapped keys a process remembers; the pages belong to the system's cache either way
_CHECKS_KEPT: Final = 1000
_CHECK_VERSION: Final = 1  # raised when the checks become stricter: what was checked before counts no more
_CHUNK: Final = 8 << 20
_R1CS_LIMIT: Final = 64 << 20  # a larger constraint system is not searched for the violated constraint
_POINTS_AT_ONCE: Final = 1 << 18  # between two reports of progress
# A file that was written this shortly ago may change again without a new time stamp.
_SETTLED_NS: Final = 2_000_000_000


@dataclass(frozen=True, eq=False)
class LoadedKey:
    """A key whose coefficients and points have been checked. ``order`` puts its coefficients in rows' order; None: they
    are."""

    zkey: ZKey
    sizes: CircuitSizes
    order: npt.NDArray[np.uint32] | None
    verification_key: PreparedKey

    @property
    def path(self) -> str:
        return self.zkey.path

    @property
    def file_bytes(self) -> int:
        return self.zkey.file_bytes

    @property
    def elements(self) -> KeyElements:
        return self.zkey

    @property
    def h_basis(self) -> HBasis:
        return HBasis.COSET

    @property
    def device_matrices(self) -> DeviceMatrices:
        return DeviceMatrices(self.zkey.coefficients, self.order)

    @property
    def staging_bytes(self) -> int:
        return 0

    def is_unchanged(self) -> bool:
        """Whether the path still leads to the file that was loaded, in the same state."""
        return self.zkey.is_unchanged()

    def check_witness(self, witness: Witness) -> None:
        check_witness(self.zkey, witness)

    def evaluate(self, witness: Witness, a: Bytes, b: Bytes, c: Bytes, call: native.Call) -> None:
        zkey = self.zkey
        native.library().evaluate(
            zkey.curve,
            zkey.coefficients,
            zkey.n_coefficients,
            self.order,
            witness.raw,
            zkey.domain_size,
            a,
            b,
            c,
            call,
        )

    def ranges(self, query: Query) -> tuple[PointRange, ...]:
        return (PointRange(0, self.sizes.query_length(query)),)

    def points(self, query: Query, part: PointRange, staging: Bytes | None, call: native.Call) -> Bytes:
        zkey = self.zkey
        queries = {Query.H: zkey.h, Query.A: zkey.a, Query.B1: zkey.b1, Query.B2: zkey.b2, Query.L: zkey.l}
        return queries[query][part.first : part.first + part.n]

    def explain(self, witness: Witness) -> str:
        """Names the violated constraint, when the circuit lies beside the key."""
        path = Path(self.path).with_suffix(".r1cs")
        try:
            if not path.is_file() or path.stat().st_size > _R1CS_LIMIT:
                return ""
            r1cs = R1cs.open(path)
            if (r1cs.header.n_wires, r1cs.header.n_public) != (self.zkey.n_vars, self.zkey.n_public):
                return ""
            number = first_unsatisfied(r1cs, witness)
        except (OSError, FormatError):
            return ""
        if number is None:
            return f"; it satisfies {path.name}, which lies beside the key"
        return f"; constraint {number:,} of {path.name}, counted from 0, is the first that it violates"


class KeyCache:
    """Loaded keys by path. ``get`` may be called from any thread; one key is loaded once, however many ask for it."""

    def __init__(self, checks: CheckedKeys | None = None, threads: int = 0, kept: int = KEYS_KEPT) -> None:
        self._checks = CheckedKeys() if checks is None else checks
        self._threads = threads
        self._kept = kept
        self._changed = threading.Condition()
        self._keys: OrderedDict[str, ProvingKey] = OrderedDict()
        self._loading: set[str] = set()

    def get(
        self,
        path: Path | str,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
        circuit: Path | str | None = None,
    ) -> ProvingKey:
        """The key at ``path`` as the file is now; a replaced file is loaded anew.

        With ``circuit``, its constraint system, it is a bellperson key (params), else a zkey. Raises FormatError for a
        file that is no sound key, CancelledError.
        """
        cancel = CancelToken() if cancel is None else cancel
        name = os.path.abspath(path)
        if circuit is not None:
            name += f"\0{os.path.abspath(circuit)}"
        with self._loading_alone(name, cancel):
            with self._changed:
                known = self._keys.get(name)
                if known is not None and known.is_unchanged():
                    self._keys.move_to_end(name)
                    return known
                self._keys.pop(name, None)
            key = self._load(path, circuit, cancel, progress)
            with self._changed:
                self._keys[name] = key
                while len(self._keys) > self._kept:
                    self._keys.popitem(last=False)
            return key

    def evict(self, path: Path | str | None = None) -> None:
        """Forgets one key, or all; proofs that use it keep it until they are done."""
        with self._changed:
            if path is None:
                self._keys.clear()
            else:
                absolute = os.path.abspath(path)
                for name in [name for name in self._keys if name.partition("\0")[0] == absolute]:
                    del self._keys[name]

    def loaded(self) -> list[ProvingKey]:
        """The keys that are kept, least recently used first."""
        with self._changed:
            return list(self._keys.values())

    def _load(
        self, path: Path | str, circuit: Path | str | None, cancel: CancelToken, progress: Progress | None
    ) -> ProvingKey:
        if circuit is None:
            return load_key(path, self._checks, self._threads, cancel, progress)
        from cuzk_engine.params_keys import load_params

        return load_params(path, circuit, self._checks, self._threads, cancel, progress)

    @contextlib.contextmanager
    def _loading_alone(self, name: str, cancel: CancelToken) -> Iterator[None]:
        unsubscribe = cancel.on_set(self._notify)
        try:
            with self._changed:
                while name in self._loading and not cancel.is_set:
                    self._changed.wait()
                cancel.check()
                self._loading.add(name)
        finally:
            unsubscribe()
        try:
            yield
        finally:
            with self._changed:
                self._loading.remove(name)
                self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


class CheckedKeys:
    """Which contents were checked, in one JSON file of the cache folder (None: the platform's). Losing it costs checks
    only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        return (paths.cache_dir() if self._folder is None else self._folder) / "checked-keys.json"

    def known_hash(self, path: str, identity: FileIdentity | None) -> str | None:
        """The content hash of the file at ``path``, when it was hashed in this state."""
        if identity is None:
            return None
        entry = self._read()["files"].get(path)
        known = isinstance(entry, list) and entry[:-1] == list(astuple(identity)) and isinstance(entry[-1], str)
        return entry[-1] if known else None

    def is_checked(self, content: str) -> bool:
        return content in self._read()["checked"]

    def present(self, content: str) -> tuple[int, ...] | None:
        """What `count_present` found in this content, when it was checked."""
        found = self._read().get("present", {}).get(content)
        sound = isinstance(found, list) and len(found) == len(Query) and all(isinstance(n, int) for n in found)
        return tuple(found) if sound else None

    def remember(
        self, path: str, identity: FileIdentity | None, content: str, present: tuple[int, ...] | None = None
    ) -> None:
        """Notes that ``content`` was checked and has so many points ``present``, and that the file at ``path`` holds
        it in the state ``identity``."""
        with self._lock:
            state = self._read()
            state["checked"].pop(content, None)
            state["checked"][content] = time.time_ns()
            if present is not None:
                state.setdefault("present", {})[content] = list(present)
            if identity is not None:
                state["files"].pop(path, None)
                newest = max(identity.mtime_ns, identity.ctime_ns)
                if time.time_ns() - newest > _SETTLED_NS and FileIdentity.of(path) == identity:
                    state["files"][path] = [*astuple(identity), content]
            for part in ("checked", "files", "present"):
                for old in list(state.get(part, {}))[:-_CHECKS_KEPT]:
                    del state[part][old]
            try:
                paths.ensure_private(self.path.parent)
                write_atomically(self.path, json.dumps(state), mode=0o600)
            except (OSError, CuzkError) as error:
                log.debug("checked keys are not remembered: %s", error)

    def _read(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"version": _CHECK_VERSION, "checked": {}, "files": {}}
        try:
            state = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, CuzkError):
            return empty
        sound = (
            isinstance(state, dict)
            and state.get("version") == _CHECK_VERSION
            and isinstance(state.get("checked"), dict)
            and isinstance(state.get("files"), dict)
            and isinstance(state.get("present", {}), dict)
        )
        return state if sound else empty


def load_key(
    path: Path | str,
    checks: CheckedKeys,
    threads: int = 0,
    cancel: CancelToken | None = None,
    progress: Progress | None = None,
) -> LoadedKey:
    """Opens the key and checks it, its points only when their content was never checked before."""
    cancel = CancelToken() if cancel is None else cancel
    zkey = ZKey.open(path)
    order = check_coefficients(zkey, threads, cancel)
    name = os.path.abspath(path)
    content = checks.known_hash(name, zkey.identity)
    present = None if content is None else checks.present(content)
    if content is None or present is None or not checks.is_checked(content):
        content = content_hash(zkey.source.data, cancel)
        if not checks.is_checked(content):
            check_points(zkey, threads, cancel, progress)
        present = checks.present(content) or count_present(zkey, cancel.check)
        checks.remember(name, zkey.identity, content, present)
    verification_key = PreparedKey.checked(VerificationKey.from_zkey(zkey), zkey.path)
    return LoadedKey(zkey, CircuitSizes.of(zkey, present), order, verification_key)


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
