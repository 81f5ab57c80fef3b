"""The device protocol: what the proving pipeline may ask of a device, whatever it is.

The pipeline allocates buffers (each with a purpose and an owner), uploads into them, launches named operations on them,
waits for events, downloads small results and frees. On a GPU, ``upload`` and ``launch`` enqueue on a stream and return;
on the CPU they have happened when they return. Code that waits on the returned events is right on both. A device knows
nothing of jobs' meaning, files or settings.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.errors import CancelledError
from cuzk_engine.events import Event as EngineEvent
from cuzk_engine.events import Holding, OtherProcess, Purpose

Bytes = npt.NDArray[np.uint8]
T = TypeVar("T")
EventSink = Callable[[EngineEvent], None]
"""Receives every span, allocation and incident; must be quick and callable from any thread."""


class Owner(NamedTuple):
    """Whom an allocation, transfer or launch is for. A tuple, since it is looked up for each of them."""

    job: str = ""
    partition: int = -1
    worker: int = -1


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is. ``capacity`` in bytes; ``inert_settings`` are settings that make no difference on it;
    ``page_locks``: whether page-locked host memory makes its uploads faster, so that a copy into it pays;
    ``parallel_launches``: MSMs that can be under way at a time, each with its scratch."""

    id: str
    kind: str  # "cpu" | "cuda"
    name: str
    capacity: int
    capacity_source: str
    isa: str = ""
    uuid: str = ""
    bus_id: str = ""
    inert_settings: tuple[str, ...] = ()
    page_locks: bool = False
    parallel_launches: int = 1


class Buffer(Protocol):
    """Memory of a device. ``free`` may be called twice; a buffer is a context manager that frees.

    It may be freed as soon as all that uses it was launched: the bytes are the ledger's again at once, and what comes
    later stands behind those launches.
    """

    @property
    def nbytes(self) -> int: ...
    @property
    def purpose(self) -> Purpose: ...
    def free(self) -> None: ...
    def __enter__(self) -> Buffer: ...
    def __exit__(self, *exc: object) -> None: ...


class DeviceEvent(Protocol):
    """A point in a device's work. ``wait`` blocks the calling thread without the interpreter lock."""

    def wait(self) -> None: ...
    def done(self) -> bool: ...


class Reservation(Protocol):
    """Memory promised to one owner, until it is released; a context manager that releases."""

    def shrink(self, nbytes: int) -> None:
        """Gives back a part that turned out not to be needed."""
        ...

    def settle(self) -> None:
        """Gives back all that is not in use: nothing more will be allocated."""
        ...

    def settle_early(self) -> bool:
        """The same while the compute lock is held, so that it may be given up with work under way: what is in use of
        the serial part counts besides that of others from then on. False where there is no room for that; nothing
        changes then."""
        ...

    def release(self) -> None: ...
    def __enter__(self) -> Reservation: ...
    def __exit__(self, *exc: object) -> None: ...


class CancelToken:
    """A flag that native calls look at; set from any thread. ``address`` is that of an int32."""

    def __init__(self) -> None:
        self._flag = ctypes.c_int32()
        self.address = ctypes.addressof(self._flag)
        self._lock = threading.RLock()  # entered again by a signal handler that sets
        self._callbacks: dict[object, Callable[[], None]] = {}

    @property
    def is_set(self) -> bool:
        return self._flag.value != 0

    def set(self) -> None:
        self._flag.value = 1
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls ``callback`` once the flag is set (at once when it is), in the thread that sets it: for waiters on a
        condition. The returned function ends that."""
        key = object()
        with self._lock:
            self._callbacks[key] = callback
        if self.is_set:
            callback()

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return unsubscribe

    def check(self) -> None:
        """Raises CancelledError when the flag is set."""
        if self._flag.value:
            raise CancelledError("cancelled")


# ---- operations: one named tuple each, `launch` takes any of them ----
# Vectors are of Fr, n * 32 bytes, Montgomery form unless said otherwise.


class Evaluate(NamedTuple):
    """a = A·w, b = B·w, c = a∘b over the ``domain`` rows; ``witness`` plain, ``coefficients`` as section 4 of a zkey
    (n, 44)."""

    curve: Curve
    coefficients: Bytes
    order: npt.NDArray[np.uint32] | None
    witness: Buffer
    a: Buffer
    b: Buffer
    c: Buffer
    domain: int
    room: Reservation | None = None  # see Msm


class NttTable(NamedTuple):
    """Fill ``table`` with the twiddles of size 2^log_n."""

    curve: Curve
    log_n: int
    table: Buffer


class CosetExtend(NamedTuple):
    """Values on the domain → values on the odd coset, in place, natural order on both sides.

    A device may keep vectors in another order and without a factor, as long as every operation and ``Msm`` know of it.
    """

    curve: Curve
    data: Buffer
    log_n: int
    table: Buffer


class HJoin(NamedTuple):
    """a = a∘b − c, leaving Montgomery form: the scalars of the H query in snarkjs's basis."""

    curve: Curve
    a: Buffer
    b: Buffer
    c: Buffer
    n: int


class Quotient(NamedTuple):
    """From a, b, c on the odd coset: a = the coefficients of (a·b − c)/(X^n − 1), lowest first, n = 2^log_n, leaving
    Montgomery form: the scalars of an H query in powers of tau."""

    curve: Curve
    a: Buffer
    b: Buffer
    c: Buffer
    log_n: int
    table: Buffer


class Msm(NamedTuple):
    """result = Σ scalars[i]·points[i], one affine point in Montgomery form. ``points`` (n, point bytes) may be mapped
    from the key file; ``scalars`` plain, ``n`` of them starting at element ``offset`` of the buffer.

    ``resident``: the points may stay on the device for later launches with the same bytes; what they take there leaves
    ``room``, the reservation that was made for it, and where they are there already ``room`` shrinks by it (None: no
    room was made, since a lease holds them; else they stay only where memory is free). Otherwise they travel for this
    launch alone: ``sent`` holds them, so that their upload overlaps the launches before (None: the launch brings them
    itself, where the device does not read the host's memory).

    All that a launch takes besides is given back to the ledger when its event was waited for, or when the next launch
    but ``DeviceInfo.parallel_launches`` takes its place.
    """

    curve: Curve
    group: int  # 1 or 2
    points: Bytes
    scalars: Buffer
    offset: int
    n: int
    result: Buffer
    resident: bool = True
    room: Reservation | None = None
    sent: Buffer | None = None


Operation = Evaluate | NttTable | CosetExtend | HJoin | Quotient | Msm


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that an operation takes on a device at most. ``scratch``: from its launch to its end. ``transit``: points
    that travel for it. ``stay``: what remains on the device for the next proofs; 0 where the device
    reads the host's memory."""

    scratch: int
    transit: int = 0
    stay: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """What is really free. ``capacity``: what the ledger may hand out at present, other programs' memory and the margin
    taken off. ``used``: the ledger's bytes; ``idle``: the part of them that caches would give back if asked.
    ``others``: bytes of other programs; None where it cannot be told."""

    capacity: int
    used: int
    idle: int
    others: int | None
    margin: int


class Turn(Protocol):
    """A chance to reserve memory. ``alone``: nobody else has a reservation, so nothing will be given back."""

    @property
    def alone(self) -> bool: ...
    def promise(self, held: int, serial: int) -> Reservation | None:
        """As `Device.reserve`, without waiting: None where it does not fit now, unused caches given up."""
        ...


class HostBudget(Protocol):
    """The host memory that staging and conversions take from, whoever uses it."""

    def reserve(self, held: int, serial: int, owner: Owner, cancel: CancelToken) -> Reservation: ...
    def holdings(self) -> tuple[Holding, ...]: ...
    def memory(self) -> MemoryUse: ...
    def usable(self) -> int:
        """What partitions can have of it: all but what devices hold as long as they are open."""
        ...


class StagingBuffer(Protocol):
    """Host memory that an upload starts from, counted in the host's ledger until ``free``; a context manager that
    frees. ``pinned``: whether it is page-locked."""

    @property
    def data(self) -> Bytes: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def pinned(self) -> bool: ...
    def free(self) -> None: ...
    def __enter__(self) -> StagingBuffer: ...
    def __exit__(self, *exc: object) -> None: ...


class Lease(Protocol):
    """Keeps what is resident on a device from being given up, until it is released; a context manager that releases.
    ``nbytes``: device bytes of those of the asked for sources that are there; ``each``: of each of them, in their
    order."""

    @property
    def nbytes(self) -> int: ...
    @property
    def each(self) -> Sequence[int]: ...
    def release(self) -> None: ...
    def __enter__(self) -> Lease: ...
    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A ledger's state: bytes now and at the peak, by purpose and in sum."""

    capacity: int
    used: int
    peak: int
    by_purpose: dict[str, int] = field(default_factory=dict)


class Device(Protocol):
    """See the module's text. Every method may be called from several worker threads; ``compute_lock`` serialises
    kernels."""

    @property
    def info(self) -> DeviceInfo: ...

    def reserve(self, held: int, serial: int, owner: Owner, cancel: CancelToken) -> Reservation:
        """Promises ``held`` bytes for as long as the reservation lives, and ``serial`` more for while the owner holds
        the compute lock. Waits until that is possible; must not be called while the lock is held. Raises
        MemoryPlanError where it can never fit, CancelledError when ``cancel`` was set. An owner has one reservation at
        a time, and its allocations count against it."""
        ...

    def try_reserve(self, held: int, serial: int, owner: Owner) -> Reservation | None:
        """The same without waiting: None where it does not fit now."""
        ...

    def admit(self, attempt: Callable[[Turn], T | None], owner: Owner, cancel: CancelToken, wanted: int = 0) -> T:
        """For who can do with less: calls ``attempt`` when it is the owner's turn, and again after each change, until
        it returns something made with a promise. ``wanted``: bytes, for the span of a wait. Raises MemoryPlanError
        where nothing it asked for can ever fit, CancelledError."""
        ...

    def allocate(self, nbytes: int, purpose: Purpose, owner: Owner, out_of: Reservation | None = None) -> Buffer:
        """``nbytes`` ≥ 0 of uninitialised memory. Raises OutOfDeviceMemoryError with the numbers; nothing is kept then.
        With ``out_of`` the bytes leave that reservation and belong to ``owner``, who outlives it: for caches."""
        ...

    def result(self, nbytes: int, owner: Owner) -> Buffer:
        """A buffer for the result of a sum: as `allocate`, or one that the device has."""
        ...

    def add_reclaimer(self, reclaimer: Callable[[int], int], idle: Callable[[], int] | None = None) -> None:
        """A function that frees about so many bytes of unused caches when memory is short, and returns how many it
        freed; ``idle``: how many it could free."""
        ...

    def upload(self, target: Buffer, source: Bytes, kind: str, owner: Owner) -> DeviceEvent:
        """Copies host bytes to the start of ``target``; a span of ``kind`` on lane h2d. ``source`` must stay until the
        event is done."""
        ...

    def download(self, source: Buffer, nbytes: int, kind: str, owner: Owner) -> bytes:
        """The first ``nbytes`` of ``source``, waited for; a span on lane d2h."""
        ...

    def launch(
        self, operation: Operation, owner: Owner, cancel: CancelToken, after: DeviceEvent | None = None
    ) -> DeviceEvent:
        """Runs ``operation`` after ``after``; spans on lane compute. Scratch it needs is taken from the ledger for its
        duration. Raises CancelledError when ``cancel`` was set."""
        ...

    def launch_each(
        self, operations: Sequence[Operation], owner: Owner, cancel: CancelToken, after: DeviceEvent | None = None
    ) -> DeviceEvent:
        """The same for one operation after the other, at least one; the event of the last."""
        ...

    def msm_need(self, curve: Curve, group: int, n: int, present: int, *, resident: bool) -> Need:
        """For the plan: what ``launch`` of an ``Msm`` of ``n`` points takes, of which ``present`` are not at
        infinity."""
        ...

    def evaluate_need(
        self,
        curve: Curve,
        coefficients: int,
        n_vars: int,
        domain: int,
        *,
        prepared: bool = False,
        general: int | None = None,
    ) -> Need:
        """For the plan: what ``launch`` of an ``Evaluate`` takes besides its buffers; ``prepared``: the matrices are
        resident already. ``general``: how many coefficients are neither one nor minus one; None: not counted."""
        ...

    def lease(self, sources: Sequence[Bytes]) -> Lease:
        """Holds what was made of these host bytes (points, coefficients) and is resident."""
        ...

    def evict(self, sources: Sequence[Bytes]) -> int:
        """Gives up what was made of these host bytes, or of parts of them, and nobody holds; returns the device's
        bytes."""
        ...

    def staging(self, nbytes: int, purpose: Purpose, owner: Owner, *, pinned: bool) -> StagingBuffer:
        """Host memory to fill and to upload from. ``pinned``: page-locked, from the device's pool of such memory, where
        the device knows it; where it cannot be had, pageable memory, after one warning that names the limit. Raises
        OutOfDeviceMemoryError when the host's budget is spent."""
        ...

    @property
    def host(self) -> HostBudget:
        """What `staging` counts its bytes in."""
        ...

    def room(self) -> Room:
        """What is really free now."""
        ...

    def usable(self) -> int:
        """What a partition could have at most at present: other programs hold the rest, and the context. Asked before
        every partition."""
        ...

    def table_bytes(self, curve: Curve, log_n: int) -> int:
        """Bytes of the table that ``NttTable`` fills for 2^log_n."""
        ...

    def holdings(self) -> tuple[Holding, ...]:
        """Who holds what of the device's memory, largest first."""
        ...

    def others(self) -> tuple[OtherProcess, ...]:
        """Programs besides the engine that hold memory of the device, as far as they can be seen."""
        ...

    def compute_lock(self, owner: Owner, cancel: CancelToken) -> AbstractContextManager[None]:
        """Held while kernels of one partition run; first come, first served. Emits lock.wait and lock.held spans.
        Raises CancelledError when ``cancel`` is set while waiting."""
        ...

    def memory(self) -> MemoryUse: ...

    def close(self) -> None:
        """Gives back everything; further calls raise."""
        ...
