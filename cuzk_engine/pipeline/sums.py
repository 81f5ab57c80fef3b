"""The five MSMs of a proof, in launches of at most a batch each, and the addition of their results on the host.

With double-buffering the result of launch i − 1 is fetched and added while launch i runs; without it the host waits
after each launch. Both give the same sums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cuzk_engine import native
from cuzk_engine.devices.base import Buffer, Bytes, Device, DeviceEvent, Msm, Reservation, StagingBuffer
from cuzk_engine.events import Kind, Purpose
from cuzk_engine.groth16.assemble import add_points
from cuzk_engine.groth16.plan import PointRange, Query
from cuzk_engine.groth16.proving_key import ProvingKey
from cuzk_engine.native import Group
from cuzk_engine.pipeline.modes import Mode, Prestage, Work
from cuzk_engine.pipeline.plan import OUTSTANDING, conversion_bytes, conversions, is_resident
from cuzk_engine.pipeline.progress import Run
from cuzk_engine.pipeline.staging import Vectors


@dataclass(frozen=True, slots=True)
class _Launch:
    query: Query
    part: PointRange
    is_last: bool  # of its query


@dataclass(slots=True)
class _Running:
    launch: _Launch
    result: Buffer
    event: DeviceEvent


class Sums:
    """A context manager that frees what it allocated. ``room``: the reservation that has room for a query's points, if
    they are not on the device. ``arrived`` is called when a result is there, and so everything that was uploaded
    before."""

    def __init__(
        self,
        device: Device,
        run: Run,
        key: ProvingKey,
        work: Work,
        mode: Mode,
        room: Mapping[Query, Reservation | None],
        threads: int,
        arrived: Callable[[], None],
    ) -> None:
        self._device, self._run, self._key, self._work, self._mode = device, run, key, work, mode
        self._sizes = work.sizes
        self._room = room
        self._threads = threads
        self._arrived = arrived
        self._running: deque[_Running] = deque()
        self._sums: dict[Query, bytes] = {}
        self._results: list[Buffer] = []
        self._converted: list[StagingBuffer] = []

    def __enter__(self) -> Sums:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._converted:  # uploads may still read them
                self.finish()
        finally:
            for buffer in self._converted:
                buffer.free()
            for result in self._results:
                result.free()

    def launch(self, vectors: Vectors) -> None:
        """Launches everything; what was not collected yet is running then, or done."""
        outstanding = OUTSTANDING if self._mode.double_buffer else 1
        self._allocate(outstanding)
        buffers = [buffer.data for buffer in self._converted]
        for number, launch in enumerate(self._launches()):
            while len(self._running) >= outstanding:
                self._collect_first()
            target = buffers[number % len(buffers)] if buffers else None
            self._launch_one(launch, vectors, target, self._results[number % outstanding])
            if not self._mode.double_buffer:
                with self._run.span(Kind.RESULT_SYNC):
                    self._running[-1].event.wait()
            elif len(self._running) == outstanding:
                self._collect_first()

    def finish(self) -> None:
        """Waits until everything that was launched has ended."""
        if self._running:
            with self._run.span(Kind.RESULT_SYNC):
                self._running[-1].event.wait()

    def collect(self) -> dict[Query, bytes]:
        """The sums, one affine point in Montgomery form each."""
        while self._running:
            self._collect_first()
        return self._sums

    def _launches(self) -> Iterator[_Launch]:
        for query in Query:
            parts = self._sizes.launches(query, self._mode.batch)
            for part in parts:
                yield _Launch(query, part, part is parts[-1])

    def _allocate(self, outstanding: int) -> None:
        device, owner = self._device, self._run.owner
        largest = max(self._sizes.point_bytes(query) for query in Query)
        for _ in range(outstanding):
            self._results.append(device.allocate(largest, Purpose.RESULT, owner))
        if self._work.converts:
            nbytes, pinned = conversion_bytes(self._work, self._mode), self._mode.prestage is not Prestage.OFF
            for _ in range(conversions(self._mode)):
                self._converted.append(device.staging(nbytes, Purpose.SRS, owner, pinned=pinned))

    def _launch_one(self, launch: _Launch, vectors: Vectors, converted: Bytes | None, result: Buffer) -> None:
        query, part, sizes, run = launch.query, launch.part, self._sizes, self._run
        scalars = vectors.abc[0] if query is Query.H else vectors.witness
        offset = sizes.n_public + 1 if query is Query.L else 0
        call = native.Call(self._threads, run.cancel.address)
        points = self._key.points(query, part, converted, call)
        operation = Msm(
            sizes.curve, query.group, points, scalars, offset + part.first, part.n, result,
            resident=is_resident(self._work, self._mode, query), room=self._room[query],
        )  # fmt: skip
        after = None if query is Query.H else vectors.ready["w"]
        self._running.append(_Running(launch, result, self._device.launch(operation, run.owner, run.cancel, after)))
        if launch.is_last and query is Query.H:
            vectors.abc[0].free()
        elif launch.is_last and query is tuple(Query)[-1]:
            vectors.witness.free()

    def _collect_first(self) -> None:
        running = self._running.popleft()
        query, part, sizes = running.launch.query, running.launch.part, self._sizes
        running.event.wait()
        nbytes = sizes.point_bytes(query)
        found = self._device.download(running.result, nbytes, Kind.DOWNLOAD_RESULT, self._run.owner)
        known = self._sums.get(query)
        self._sums[query] = found if known is None else add_points(sizes.curve, Group(query.group), known, found)
        self._arrived()
        whole = sizes.query_length(query)
        self._run.advance(self._run.costs.msm(query) * (part.n / whole if whole else 1))
