"""Proving keys that are ready for use: opened, checked once, known again, and never an old one.

A key is checked when it is first used: every coefficient on every load (an index out of range would be read out of
bounds), every point once for each content. What was checked is remembered by content hash in the cache folder, with the
file's identity (device, inode, size, times) as a quick way to the hash. The memory is a hint: it may be deleted,
damaged or unwritable, and costs a check then.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cuzk_engine import native
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.formats.r1cs import R1cs, first_unsatisfied
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.density import count_densities
from cuzk_engine.groth16.plan import QUERIES, CircuitSizes, PointRange, Query
from cuzk_engine.groth16.proving_key import DeviceMatrices, HBasis, KeyElements, ProvingKey
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.key_checks import (
    CheckedKeys,
    Progress,
    check_coefficients,
    check_points,
    content_hash,
)
from cuzk_engine.key_tiers import HotKey, KeyTiers, Tier

KEYS_KEPT: Final = 8  # mapped keys a process remembers; the pages belong to the system's cache either way
_R1CS_LIMIT: Final = 64 << 20  # a larger constraint system is not searched for the violated constraint


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

    @cached_property
    def _queries(self) -> dict[Query, Bytes]:
        return {query: getattr(self.zkey, query.value.lower()) for query in QUERIES}

    def points(self, query: Query, part: PointRange, staging: Bytes | None, call: native.Call) -> Bytes:
        whole = self._queries[query]
        if part.n == len(whole):  # a device knows it again without asking for its address
            return whole
        return whole[part.first : part.first + part.n]

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


class KeyState(NamedTuple):
    """A loaded key. ``nbytes``: what it takes where its tier is: page-locked and device memory, or else mapped pages of
    its file, which are the system's cache and not counted as used. ``last_used_ns``: CLOCK_MONOTONIC."""

    path: str
    nbytes: int
    tier: Tier
    users: int
    last_used_ns: int


@dataclass(eq=False, slots=True)
class _Entry:
    key: ProvingKey
    users: int = 0
    last_used_ns: int = 0
    hot: HotKey | None = None
    hot_users: int = 0
    not_before_ns: int = 0  # a hot copy that had to give way is not made again at once
    forgotten: bool = False


class KeyUse:
    """A key in use, and the copy of it that is asked for, until the end of a block. See `KeyCache.use`."""

    __slots__ = ("_cache", "_copy", "_entry", "key")

    def __init__(self, cache: KeyCache, entry: _Entry, copy: HotKey | None) -> None:
        self._cache, self._entry, self._copy = cache, entry, copy
        self.key: ProvingKey = entry.key if copy is None else copy

    def __enter__(self) -> ProvingKey:
        return self.key

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """In place of the block's end, once."""
        try:
            if self._copy is not None:
                self._cache._cool(self._entry)
        finally:
            self._cache._let_go(self._entry)


class KeyCache:
    """Loaded keys by path, and their hot copies. One key is loaded once, however many ask for it; any thread may call.

    A key in use is never dropped. Of the others, least recently used first: more than ``kept`` go when another one is
    loaded, hot copies when the host's memory is short. For another key they go only after ``min_idle_ns`` without
    use; a proof's own need comes first. ``tiers``: where hot copies are made; None: nowhere.
    """

    def __init__(
        self,
        checks: CheckedKeys | None = None,
        threads: int = 0,
        kept: int = KEYS_KEPT,
        tiers: KeyTiers | None = None,
        min_idle_ns: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.checks = CheckedKeys() if checks is None else checks
        self._threads = threads
        self._kept = kept
        self._tiers = tiers
        self._min_idle_ns = min_idle_ns
        self._clock = clock
        self._lock = threading.RLock()  # quicker to take than the condition around it
        self._changed = threading.Condition(self._lock)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._loading: set[str] = set()
        self._heating = threading.local()
        if tiers is not None:
            tiers.add_reclaimer(self._reclaim, self._idle)

    def use(
        self,
        path: Path | str,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
        circuit: Path | str | None = None,
        *,
        hot: bool = False,
    ) -> KeyUse:
        """The key at ``path`` as the file is now, kept until the end of the block; a replaced file is loaded anew.

        With ``hot`` its points are views of a page-locked copy, made now where there is none, if the host's budget
        admits it; whoever waits for such memory waits for the block to end. With ``circuit``, its constraint system,
        it is a bellperson key (params), else a zkey. Raises FormatError for a file that is no sound key,
        CancelledError.
        """
        cancel = CancelToken() if cancel is None else cancel
        entry, copy = self._acquire(path, cancel, progress, circuit), None
        if hot:
            try:
                copy = self._hot_copy(entry, cancel, progress)
            except BaseException:
                self._let_go(entry)
                raise
        return KeyUse(self, entry, copy)

    @contextmanager
    def use_hot(
        self, key: ProvingKey, cancel: CancelToken | None = None, progress: Progress | None = None
    ) -> Iterator[ProvingKey]:
        """For a key in use: the same key with its points in page-locked memory, where a copy is or can be made now;
        else ``key``. It stays for the block."""
        entry, copy = self._entry_of(key), None
        if entry is not None:
            copy = self._hot_copy(entry, CancelToken() if cancel is None else cancel, progress)
        try:
            yield key if copy is None else copy
        finally:
            if entry is not None and copy is not None:
                self._cool(entry)

    def get(
        self,
        path: Path | str,
        cancel: CancelToken | None = None,
        progress: Progress | None = None,
        circuit: Path | str | None = None,
    ) -> ProvingKey:
        """Loads the key, as `use`, and leaves it in the cache."""
        with self.use(path, cancel, progress, circuit) as key:
            return key

    def load(self, path: Path | str, *, hot: bool, circuit: Path | str | None = None) -> bool:
        """Loads the key, and its hot copy where that is wanted and possible; whether there was nothing left to do."""
        before = self._state_of(path)
        with self.use(path, circuit=circuit, hot=hot):
            after = self._state_of(path)
        return before is not None and before == after

    def evict(self, path: Path | str | None = None) -> int | None:
        """Forgets one key, or all; proofs that use it keep it until they are done. Returns the bytes that were given
        back now (device, page-locked, else mapped); None where it was not loaded."""
        absolute = None if path is None else os.path.abspath(path)
        with self._lock:
            names = [name for name in self._entries if absolute is None or name.partition("\0")[0] == absolute]
            entries = [self._entries.pop(name) for name in names]
            for entry in entries:
                entry.forgotten = True
        return sum(self._drop(entry) for entry in entries) if entries else None

    def loaded(self) -> list[ProvingKey]:
        """The keys that are kept, least recently used first."""
        with self._lock:
            return [entry.key for entry in self._entries.values()]

    def known(self, path: Path | str) -> ProvingKey | None:
        """The key at ``path`` where it is loaded, as the file is now."""
        entry = self._entries.get(os.path.abspath(path))
        return entry.key if entry is not None and entry.key.is_unchanged() else None

    def states(self) -> list[KeyState]:
        """What the keys that are kept take, and where."""
        with self._lock:
            entries = [(e.key, e.hot, e.users, e.last_used_ns) for e in self._entries.values()]
        return [self._state(*entry) for entry in entries]

    # ---- use ----

    def _acquire(
        self, path: Path | str, cancel: CancelToken, progress: Progress | None, circuit: Path | str | None
    ) -> _Entry:
        name = path if isinstance(path, str) and path in self._entries else os.path.abspath(path)
        if circuit is not None:
            name += f"\0{os.path.abspath(circuit)}"
        cancel.check()
        found = None if name in self._loading else self._known(name)
        if found is not None:
            return found
        with self._loading_alone(name, cancel):
            return self._known(name) or self._add(name, self._load(path, circuit, cancel, progress))

    def _known(self, name: str) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return None
            if entry.key.is_unchanged():
                entry.users += 1
                self._entries.move_to_end(name)
                return entry
            del self._entries[name]
            entry.forgotten = True
        self._drop(entry)
        return None

    def _add(self, name: str, key: ProvingKey) -> _Entry:
        entry = _Entry(key, users=1, last_used_ns=self._clock())
        with self._lock:
            self._entries[name] = entry
            surplus = len(self._entries) - self._kept
            oldest = self._clock() - self._min_idle_ns
            unused = [n for n, e in self._entries.items() if not e.users and e.last_used_ns <= oldest]
            dropped = [self._entries.pop(n) for n in unused[: max(0, surplus)]]
            for old in dropped:
                old.forgotten = True
        for old in dropped:
            self._drop(old)
        return entry

    def _let_go(self, entry: _Entry) -> None:
        with self._lock:
            entry.users -= 1
            entry.last_used_ns = self._clock()
        if entry.forgotten:
            self._drop(entry)

    # ---- hot copies ----

    def _entry_of(self, key: ProvingKey) -> _Entry | None:
        with self._lock:
            return next((entry for entry in self._entries.values() if entry.key is key), None)

    def _hot_copy(self, entry: _Entry, cancel: CancelToken, progress: Progress | None) -> HotKey | None:
        """As `_heat`, by one thread at a time."""
        with self._loading_alone(f"{entry.key.path}\0hot", cancel):
            return self._heat(entry, cancel, progress)

    def _heat(self, entry: _Entry, cancel: CancelToken, progress: Progress | None) -> HotKey | None:
        """The hot copy, counted as used; None where it cannot be had."""
        if self._tiers is None:
            return None
        with self._lock:
            if entry.hot is not None:
                entry.hot_users += 1
                return entry.hot
            if self._clock() < entry.not_before_ns:
                return None
        self._heating.active = True  # what has to give way for it must have been idle for long
        try:
            copy = self._tiers.heat(entry.key, cancel, progress)
        finally:
            self._heating.active = False
        with self._lock:
            entry.hot = copy
            entry.hot_users += copy is not None
            if copy is None:
                entry.not_before_ns = self._clock() + self._min_idle_ns
            return copy

    def _cool(self, entry: _Entry) -> None:
        """Ends a use of a hot copy."""
        with self._lock:
            entry.hot_users -= 1
            entry.last_used_ns = self._clock()
        if entry.forgotten:
            self._drop(entry)
        if self._tiers is not None:
            self._tiers.announce()

    def _reclaim(self, nbytes: int) -> int:
        """Gives up hot copies that no proof uses; for the host's ledger."""
        oldest = self._clock() - (self._min_idle_ns if getattr(self._heating, "active", False) else 0)
        freed = 0
        while freed < nbytes:
            with self._lock:
                entry = next((e for e in self._entries.values() if self._may_cool(e, oldest)), None)
                if entry is None:
                    break
                copy, entry.hot = entry.hot, None
                entry.not_before_ns = self._clock() + self._min_idle_ns
            assert copy is not None
            freed += self._give_up(copy)
        return freed

    @staticmethod
    def _may_cool(entry: _Entry, oldest: int) -> bool:
        return entry.hot is not None and not entry.hot_users and entry.last_used_ns <= oldest

    def _idle(self) -> int:
        with self._lock:
            return sum(e.hot.hot_bytes for e in self._entries.values() if e.hot is not None and not e.hot_users)

    def _drop(self, entry: _Entry) -> int:
        """Gives up what a forgotten key holds and nobody uses; returns the bytes."""
        with self._lock:
            copy = None if entry.hot_users else entry.hot
            if copy is not None:
                entry.hot = None
            unused = entry.users == 0
        freed = 0 if copy is None else self._give_up(copy)
        if unused and self._tiers is not None:
            freed += self._tiers.evict(entry.key, None)
        return freed or (entry.key.file_bytes if unused else 0)

    def _give_up(self, copy: HotKey) -> int:
        if self._tiers is not None:
            self._tiers.evict(None, copy)
        return copy.free()

    def _state_of(self, path: Path | str) -> KeyState | None:
        found = [state for state in self.states() if state.path == os.path.abspath(path)]
        return None if not found else found[0]._replace(users=0, last_used_ns=0)

    def _state(self, key: ProvingKey, hot: HotKey | None, users: int, last_used_ns: int) -> KeyState:
        on_device = 0 if self._tiers is None else self._tiers.device_bytes(key, hot)
        hot_bytes = 0 if hot is None else hot.hot_bytes
        tier = Tier.DEVICE if on_device else Tier.HOT if hot is not None else Tier.WARM
        return KeyState(key.path, on_device + hot_bytes or key.file_bytes, tier, users, last_used_ns)

    # ---- loading ----

    def _load(
        self, path: Path | str, circuit: Path | str | None, cancel: CancelToken, progress: Progress | None
    ) -> ProvingKey:
        if circuit is None:
            return load_key(path, self.checks, self._threads, cancel, progress)
        from cuzk_engine.params_keys import load_params

        return load_params(path, circuit, self.checks, self._threads, cancel, progress)

    @contextlib.contextmanager
    def _loading_alone(self, name: str, cancel: CancelToken) -> Iterator[None]:
        unsubscribe = cancel.on_set(self._notify)
        try:
            with self._lock:
                while name in self._loading and not cancel.is_set:
                    self._changed.wait()
                cancel.check()
                self._loading.add(name)
        finally:
            unsubscribe()
        try:
            yield
        finally:
            with self._lock:
                self._loading.remove(name)
                self._changed.notify_all()

    def _notify(self) -> None:
        with self._lock:
            self._changed.notify_all()


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
    densities = None if content is None else checks.densities(content)
    if content is None or densities is None:
        content = content_hash(zkey.source.data, cancel)
        if not checks.is_checked(content):
            check_points(zkey, threads, cancel, progress)
        densities = checks.densities(content) or count_densities(zkey, threads, cancel.address)
        checks.remember(name, zkey.identity, content, densities)
    verification_key = PreparedKey.checked(VerificationKey.from_zkey(zkey), zkey.path)
    sizes = CircuitSizes.of(zkey, densities.present, densities.general)
    return LoadedKey(zkey, sizes, order, verification_key)
