"""The part of one proof that uses the device: from the reservation to the five sums.

    ahead         evaluate · upload · lock { H, MSMs } · last sums
    locked, off   evaluate · lock { upload, H, MSMs } · last sums       off: from pageable memory

The lock is given up when the last launch was enqueued, so that the next worker's kernels begin beside this one's last
ones; where the memory that counts once for all workers is needed for both, when the last launch has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from cuzk_engine.devices.base import CosetExtend, Device, Evaluate, HJoin, Quotient
from cuzk_engine.devices.tables import TableCache
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Picture
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.plan import QUERIES, Query
from cuzk_engine.groth16.proving_key import HBasis, ProvingKey
from cuzk_engine.pipeline.admission import Admitted, Barrier
from cuzk_engine.pipeline.modes import Work
from cuzk_engine.pipeline.plan import MATRICES, TABLE
from cuzk_engine.pipeline.progress import Run
from cuzk_engine.pipeline.staging import Staging, Vectors, allocate_abc
from cuzk_engine.pipeline.sums import Sums

PAST_NS = 10 * 10**9  # the events before an incident that belong to its picture


class Partition:
    """One partition that was admitted. ``while_running``: host work that is done while the last sums run, with those
    that are there."""

    def __init__(
        self,
        device: Device,
        tables: TableCache,
        run: Run,
        key: ProvingKey,
        work: Work,
        witness: Witness,
        threads: int,
        barrier: Barrier | None,
        while_running: Callable[[Mapping[Query, bytes]], object],
        evaluation_threads: int = 0,
    ) -> None:
        self._device, self._tables, self._run, self._key, self._work = device, tables, run, key, work
        self._witness = witness
        self._threads = threads
        self._evaluation_threads = evaluation_threads or threads
        self._barrier = barrier
        self._while_running = while_running
        self.picture: Picture | None = None

    def run(self, stack: ExitStack, admitted: Admitted) -> dict[Query, bytes]:
        """The five sums. Everything is freed when ``stack`` ends."""
        mode = admitted.mode
        with Staging(self._device, self._run, self._key, self._witness, mode) as staging:
            with _Freezing(self):
                staging.prepare(self._evaluation_threads)
                vectors = None
                if mode.is_ahead:
                    if self._barrier is not None:
                        self._barrier(self._run.owner)
                    vectors = staging.upload(stack)
            with self._sums(admitted, staging) as sums:
                return self._sum(sums, admitted, staging, vectors)

    def _sum(self, sums: Sums, admitted: Admitted, staging: Staging, vectors: Vectors | None) -> dict[Query, bytes]:
        with _Locked(self._device, self._run), ExitStack() as inside, _Freezing(self):
            if vectors is None:
                vectors = staging.upload(inside)
            sums.send_first()
            self._transform(inside, admitted, vectors)
            with self._run.phase("msm"):
                sums.launch(vectors)
                if admitted.reservation is not None and not admitted.reservation.settle_early():
                    sums.finish()
        if admitted.reservation is not None:
            admitted.reservation.settle()  # nothing more is allocated: the next in line may have the rest
        with self._run.phase("msm"), _Freezing(self):
            self._while_running(sums.known)
            return sums.collect()

    def _sums(self, admitted: Admitted, staging: Staging) -> Sums:
        return Sums(
            self._device,
            self._run,
            self._key,
            self._work,
            admitted.mode,
            {query: admitted.room(query) for query in QUERIES},
            self._threads,
            arrived=staging.free,
        )

    def take_picture(self, error: OutOfDeviceMemoryError) -> None:
        """Of who held what, when an allocation failed for the first time."""
        if self.picture is None:
            self.picture = freeze(self._device, error, self._run.owner.worker)

    def _transform(self, inside: ExitStack, admitted: Admitted, vectors: Vectors) -> None:
        """Leaves the scalars of the H query in ``a``."""
        device, run, sizes = self._device, self._run, self._work.sizes
        owner, cancel, curve, log_n = run.owner, run.cancel, sizes.curve, sizes.log_domain
        if admitted.mode.on_device:
            self._evaluate(inside, admitted, vectors)
        a, b, c = vectors.abc
        with (
            run.phase("ntt"),
            self._tables.use(curve, log_n, admitted.room(TABLE), owner, cancel) as table,
        ):
            extended = [CosetExtend(curve, buffer, log_n, table) for buffer in (a, b, c)]
            join = (
                HJoin(curve, a, b, c, sizes.domain_size)
                if self._key.h_basis is HBasis.COSET
                else Quotient(curve, a, b, c, log_n, table)
            )
            if admitted.mode.on_device:  # all three are there at a time
                device.launch_each((*extended, join), owner, cancel, vectors.ready["a"])
            else:
                for name, operation in zip("abc", extended, strict=True):
                    device.launch(operation, owner, cancel, vectors.ready[name])
                device.launch(join, owner, cancel)
            b.free()
            c.free()
        run.advance(run.costs.transforms())

    def _evaluate(self, inside: ExitStack, admitted: Admitted, vectors: Vectors) -> None:
        device, run, sizes = self._device, self._run, self._work.sizes
        matrices = self._key.device_matrices
        assert matrices is not None
        vectors.abc = a, b, c = allocate_abc(inside, device, run, sizes.vector_bytes)
        with run.phase("evaluate"):
            operation = Evaluate(
                sizes.curve, matrices.coefficients, matrices.order, vectors.witness, a, b, c, sizes.domain_size,
                room=admitted.room(MATRICES),
            )  # fmt: skip
            done = device.launch(operation, run.owner, run.cancel, vectors.ready["w"])
            vectors.ready.update(dict.fromkeys("abc", done))
        run.advance(run.costs.evaluate())


class _Freezing:
    """A block in which a failed allocation leaves a picture, taken before anything is freed."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OutOfDeviceMemoryError):
            self._partition.take_picture(error)


class _Locked:
    """A block that holds the device's compute lock; the wait for it is a phase."""

    __slots__ = ("_lock", "_run")

    def __init__(self, device: Device, run: Run) -> None:
        self._run, self._lock = run, device.compute_lock(run.owner, run.cancel)

    def __enter__(self) -> None:
        is_held = False
        try:
            with self._run.phase("lock"):
                self._lock.__enter__()
                is_held = True
        except BaseException:  # it was cancelled as soon as it had the lock
            if is_held:
                self._lock.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._lock.__exit__(kind, error, trace)


def freeze(device: Device, error: OutOfDeviceMemoryError, worker: int) -> Picture:
    """Who holds what now, without the settings and what would have helped."""
    return Picture(
        capacity=error.capacity,
        free=error.free,
        holdings=device.holdings(),
        host=device.host.holdings(),
        others=device.others(),
        purpose=str(error.purpose),
        worker=worker,
        since_ns=time.monotonic_ns() - PAST_NS,
    )
