"""The five MSMs of a proof, in launches of at most a batch each, and the addition of their results on the host.

With double-buffering the result of launch i − 1 is fetched and added while launch i runs; without it the host waits
after each launch. Both give the same sums. Points that travel are sent to the device one launch ahead:

    send 0 · transforms · launch 0 · send 1 · launch 1 · send 2 · fetch 0 · launch 2 · send 3 · fetch 1 …
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cuzk_engine import native
from cuzk_engine.devices.base import Buffer, Bytes, Device, DeviceEvent, Msm, Reservation, StagingBuffer
from cuzk_engine.events import Kind, Purpose
from cuzk_engine.groth16.assemble import add_points
from cuzk_engine.groth16.plan import QUERIES, CircuitSizes, PointRange, Query
from cuzk_engine.groth16.proving_key import ProvingKey
from cuzk_engine.native import Group
from cuzk_engine.pipeline.modes import Mode, Prestage, Work
from cuzk_engine.pipeline.plan import conversion_bytes, conversions, msm_need, outstanding, residents
from cuzk_engine.pipeline.progress import Run
from cuzk_engine.pipeline.staging import Vectors, do_all


class _Launch(NamedTuple):
    """``share``: of its query's points; ``first``: the number of its first scalar in their vector; ``nbytes``: of the
    result."""

    query: Query
    group: Group
    part: PointRange
    share: float
    first: int
    nbytes: int
    of_h: bool  # the scalars are those of the H query, else the witness's
    frees: bool  # the last one that reads its scalars


@dataclass(slots=True)
class _Sent:
    """The points of a launch, and where they travel to."""

    points: Bytes
    buffer: Buffer | None = None
    event: DeviceEvent | None = None

    def arrive(self) -> None:
        if self.event is not None:
            self.event.wait()

    def free(self) -> None:
        if self.buffer is not None:
            self.buffer.free()


@dataclass(slots=True)
class _Running:
    launch: _Launch
    sent: _Sent
    result: Buffer
    event: DeviceEvent

    def end(self) -> None:
        self.event.wait()
        self.sent.free()


class Sums:
    """A context manager that waits for what it launched and frees what it allocated. ``room``: the reservation that has
    room for a query's points, if they are not on the device. ``arrived`` is called when a result is there, and so
    everything that was uploaded before."""

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
        self._call = native.Call(threads, run.cancel.address)  # of conversions, one after another
        self._arrived = arrived
        self._resident = residents(work, mode)
        self._launches = _all_launches(work.sizes, mode.batch)
        self._sent: deque[_Sent] = deque()  # not launched yet
        self._running: deque[_Running] = deque()
        self._sums: dict[Query, bytes] = {}
        self._results: list[Buffer] = []
        self._converted: list[StagingBuffer] = []
        self._reading: dict[int, _Sent] = {}  # what last read each of them

    def __enter__(self) -> Sums:
        return self

    def __exit__(self, *exc: object) -> None:
        frees = [one.free for one in (*self._sent, *[running.sent for running in self._running])]
        frees += [result.free for result in self._results]
        frees += [buffer.free for buffer in self._converted]
        try:
            # The host's memory that they come from may go.
            do_all([*[one.arrive for one in self._sent], self.finish])
        finally:
            do_all(frees)

    @property
    def known(self) -> Mapping[Query, bytes]:
        """The sums that are there."""
        running = {one.launch.query for one in self._running}
        return {query: point for query, point in self._sums.items() if query not in running}

    def send_first(self) -> None:
        """Sends the points of the first launch, unless they have to be converted: the transforms come first then."""
        if not self._work.converts:
            self._send(0)

    def launch(self, vectors: Vectors) -> None:
        """Launches everything; what was not collected yet is running then, or done."""
        count, sent, running = outstanding(self._mode, self._device.info), self._sent, self._running
        largest = self._sizes.curve.g2_bytes
        for _ in range(count):
            self._results.append(self._device.result(largest, self._run.owner))
        for number, launch in enumerate(self._launches):
            while len(running) >= count:
                self._collect_first()
            if not sent:
                self._send(number)
            self._launch_one(launch, vectors, sent.popleft(), self._results[number % count])
            self._send(number + 1)
            if not self._mode.double_buffer:
                with self._run.span(Kind.RESULT_SYNC):
                    running[-1].event.wait()
            elif len(running) == count:
                self._collect_first()

    def finish(self) -> None:
        """Waits until everything that was launched has ended: nothing but the results is held then."""
        if self._running:
            with self._run.span(Kind.RESULT_SYNC):
                do_all([running.end for running in self._running])

    def collect(self) -> dict[Query, bytes]:
        """The sums, one affine point in Montgomery form each."""
        while self._running:
            self._collect_first()
        return self._sums

    def _send(self, number: int) -> None:
        """Brings the points of a launch on their way, where they travel."""
        if number >= len(self._launches):
            return
        launch = self._launches[number]
        query, part = launch.query, launch.part
        target = self._conversion(number) if self._work.converts else None
        sent = _Sent(self._key.points(query, part, target, self._call))
        self._sent.append(sent)
        if target is not None:
            self._reading[number % len(self._converted)] = sent
        if query in self._resident:
            return
        if msm_need(self._sizes, self._device, query, part, resident=False).transit:
            sent.buffer = self._device.allocate(sent.points.nbytes, Purpose.SRS, self._run.owner)
            sent.event = self._device.upload(sent.buffer, sent.points, Kind.UPLOAD_SRS, self._run.owner)

    def _conversion(self, number: int) -> Bytes:
        """What the points of a launch are converted into, once nobody reads it any more."""
        if not self._converted:
            nbytes, pinned = conversion_bytes(self._work, self._mode), self._mode.prestage is not Prestage.OFF
            for _ in range(conversions(self._mode)):
                self._converted.append(self._device.staging(nbytes, Purpose.SRS, self._run.owner, pinned=pinned))
        index = number % len(self._converted)
        if index in self._reading:
            self._reading[index].arrive()
        return self._converted[index].data

    def _launch_one(self, launch: _Launch, vectors: Vectors, sent: _Sent, result: Buffer) -> None:
        query, group, part, _, first, _, of_h, frees = launch
        run = self._run
        scalars, after = (vectors.abc[0], None) if of_h else (vectors.witness, vectors.ready["w"])
        operation = Msm(
            self._sizes.curve, group, sent.points, scalars, first, part.n, result,
            query in self._resident, self._room[query], sent.buffer,
        )  # fmt: skip
        try:
            event = self._device.launch(operation, run.owner, run.cancel, after)
        except BaseException:
            self._sent.appendleft(sent)
            raise
        self._running.append(_Running(launch, sent, result, event))
        if frees:
            scalars.free()

    def _collect_first(self) -> None:
        running, run = self._running[0], self._run
        launch = running.launch
        query = launch.query
        running.event.wait()
        found = self._device.download(running.result, launch.nbytes, Kind.DOWNLOAD_RESULT, run.owner)
        self._running.popleft()
        running.sent.free()
        known = self._sums.get(query)
        self._sums[query] = found if known is None else add_points(self._sizes.curve, launch.group, known, found)
        self._arrived()
        run.advance(run.costs.msm(query) * launch.share)


@lru_cache(maxsize=64)
def _all_launches(sizes: CircuitSizes, batch: int) -> tuple[_Launch, ...]:
    found = []
    for query in QUERIES:
        parts, whole, nbytes = sizes.launches(query, batch), sizes.query_length(query), sizes.point_bytes(query)
        offset = sizes.n_public + 1 if query is Query.L else 0
        found += [
            _Launch(
                query, Group(query.group), part, part.n / whole if whole else 1.0, offset + part.first, nbytes,
                query is Query.H, part is parts[-1] and query in (Query.H, QUERIES[-1]),
            )
            for part in parts
        ]  # fmt: skip
    return tuple(found)
