"""Where the points of a loaded key are: on the device, page-locked in the host's memory, or mapped from the file.

A hot copy holds the points of the five queries, ready for use, in page-locked memory: uploads start from it at the
full rate, and a bellperson key's points are converted once, not once a proof. It is read-only once it was made, so that
a device may keep what it made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.devices.base import Bytes, CancelToken, Device, Owner, StagingBuffer
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.pages import block_bytes
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Purpose
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.plan import CircuitSizes, PointRange, Query
from cuzk_engine.groth16.proving_key import DeviceMatrices, HBasis, KeyElements, ProvingKey
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.key_checks import Progress

_NOBODY: Final = Owner()


class Tier(StrEnum):
    """Where a key's points are; each faster than the next."""

    DEVICE = "device"
    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, eq=False)
class HotKey:
    """A key with its points in page-locked memory. Everything else is the key's."""

    key: ProvingKey
    buffers: dict[Query, StagingBuffer]

    @property
    def hot_bytes(self) -> int:
        return sum(block_bytes(buffer.nbytes) for buffer in self.buffers.values())

    def free(self) -> int:
        """Gives the memory back; returns the bytes."""
        nbytes = self.hot_bytes
        for buffer in self.buffers.values():
            buffer.free()
        return nbytes

    @property
    def path(self) -> str:
        return self.key.path

    @property
    def file_bytes(self) -> int:
        return self.key.file_bytes

    @property
    def sizes(self) -> CircuitSizes:
        return self.key.sizes

    @property
    def elements(self) -> KeyElements:
        return self.key.elements

    @property
    def verification_key(self) -> PreparedKey:
        return self.key.verification_key

    @property
    def h_basis(self) -> HBasis:
        return self.key.h_basis

    @property
    def device_matrices(self) -> DeviceMatrices | None:
        return self.key.device_matrices

    @property
    def staging_bytes(self) -> int:
        return 0

    def is_unchanged(self) -> bool:
        return self.key.is_unchanged()

    def check_witness(self, witness: Witness) -> None:
        self.key.check_witness(witness)

    def evaluate(self, witness: Witness, a: Bytes, b: Bytes, c: Bytes, call: native.Call) -> None:
        self.key.evaluate(witness, a, b, c, call)

    def ranges(self, query: Query) -> Sequence[PointRange]:
        return self.key.ranges(query)

    def points(self, query: Query, part: PointRange, staging: Bytes | None, call: native.Call) -> Bytes:
        size = self.sizes.point_bytes(query)
        data = self.buffers[query].data
        return data[part.first * size : (part.first + part.n) * size].reshape(part.n, size)

    def explain(self, witness: Witness) -> str:
        return self.key.explain(witness)


class KeyTiers:
    """Moves keys between the tiers of one device. ``host``: the memory that hot copies are counted in."""

    def __init__(self, device: Device, host: HostMemory, threads: int = 0) -> None:
        self._device = device
        self._host = host
        self._threads = threads

    def add_reclaimer(self, reclaimer: Callable[[int], int], idle: Callable[[], int]) -> None:
        self._host.ledger.add_reclaimer(reclaimer, idle)

    def announce(self) -> None:
        """A hot copy is not in use any more: who waits for the host's memory may have it."""
        self._host.ledger.changed()

    def heat(self, key: ProvingKey, cancel: CancelToken, progress: Progress | None) -> HotKey | None:
        """A hot copy of the key; None where the device gains nothing from one, where the host's budget does not admit
        it, or where its memory cannot be locked. Raises CancelledError, FormatError."""
        if not self._device.info.page_locks:
            return None
        whole = {query: key.sizes.query_length(query) * key.sizes.point_bytes(query) for query in Query}
        with ExitStack() as stack:
            buffers: dict[Query, StagingBuffer] = {}
            done, total = 0, sum(whole.values())
            for query, nbytes in whole.items():
                try:
                    buffer = self._device.staging(nbytes, Purpose.SRS, _NOBODY, pinned=True)
                except OutOfDeviceMemoryError:
                    return None
                buffers[query] = stack.enter_context(buffer)
                if nbytes and not buffer.pinned:
                    return None  # pageable memory is what the file's pages are already
                for part in key.ranges(query):
                    self._fill(key, query, part, buffer.data, cancel)
                    done += part.n * key.sizes.point_bytes(query)
                    if progress is not None:
                        progress(done / total)
                _seal(buffer.data)
            stack.pop_all()
        return HotKey(key, buffers)

    def device_bytes(self, key: ProvingKey, hot: HotKey | None) -> int:
        """What the device keeps of all points of a key; 0 where it lacks some."""
        best = 0
        for origin in (key, hot):
            sources = [] if origin is None else _sources(origin)
            found = [self._resident(source) for source in sources]
            if found and all(found):
                best = max(best, sum(found))
        return best

    def evict(self, key: ProvingKey | None, hot: HotKey | None) -> int:
        """Has the device give up what it keeps of a key or of its hot copy and nobody uses; returns the bytes."""
        sources = [source for origin in (key, hot) if origin is not None for source in _sources(origin)]
        if key is not None and key.device_matrices is not None:
            sources.append(key.device_matrices.coefficients)
        return self._device.evict(sources) if sources else 0

    def _resident(self, source: Bytes) -> int:
        with self._device.lease([source]) as lease:
            return lease.nbytes

    def _fill(self, key: ProvingKey, query: Query, part: PointRange, data: Bytes, cancel: CancelToken) -> None:
        size = key.sizes.point_bytes(query)
        target = data[part.first * size : (part.first + part.n) * size]
        found = key.points(query, part, target, native.Call(self._threads, cancel.address)).reshape(-1)
        if found.size and found.ctypes.data != target.ctypes.data:
            call = native.Call(native.memory_threads(self._threads), cancel.address)
            native.library().bytes_copy(target, found, found.size, call)
        cancel.check()


def _sources(key: ProvingKey) -> list[Bytes]:
    """The bytes that what a device keeps of a key's points was made from; none where they are converted each time."""
    if key.staging_bytes:
        return []
    call = native.Call()
    parts = ((query, PointRange(0, key.sizes.query_length(query))) for query in Query)
    return [key.points(query, part, None, call) for query, part in parts if part.n]


def _seal(data: Bytes) -> None:
    """Nobody writes to it any more, so that what was made from it stays true."""
    owner = data
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    owner.flags.writeable = False
