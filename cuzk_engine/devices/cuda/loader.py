"""A key's points and coefficients on their way to the device: to stay there, for one launch, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from cuzk_engine.devices import base
from cuzk_engine.devices.base import Bytes, Msm, Owner, StagingBuffer
from cuzk_engine.devices.cuda import need
from cuzk_engine.devices.cuda.feeder import Feeder, Numbers, is_pinned, present_rows
from cuzk_engine.devices.cuda.guard import Guard
from cuzk_engine.devices.cuda.memory import CudaBuffer, Memory
from cuzk_engine.devices.cuda.need import ENTRY_BYTES
from cuzk_engine.devices.cuda.operations import Points, points_in
from cuzk_engine.devices.cuda.resident import Resident, Residents
from cuzk_engine.devices.cuda.slots import Slot
from cuzk_engine.devices.cuda.timeline import Timeline, span_times
from cuzk_engine.devices.ledger import Reservation
from cuzk_engine.events import Kind, Lane, Purpose

_NOBODY = Owner()


def own_reservation(room: base.Reservation | None) -> Reservation | None:
    """Raises TypeError for a reservation of another kind of device."""
    if room is not None and not isinstance(room, Reservation):
        raise TypeError("a reservation of another kind of device")
    return room


class Loader:
    """Copies on a stream of its own, so that what waits for kernels holds up no witness. ``page_locked`` gives host
    memory to copy through."""

    def __init__(
        self,
        memory: Memory,
        residents: Residents,
        timeline: Timeline,
        guard: Guard,
        page_locked: Callable[[int], StagingBuffer],
    ) -> None:
        self._memory, self._residents, self._timeline, self._guard = memory, residents, timeline, guard
        self._feeder = Feeder(page_locked)
        self._stream: Any = cupy.cuda.Stream(non_blocking=True)

    def close(self) -> None:
        self._feeder.close()

    def points(
        self, operation: Msm, sent: CudaBuffer | None, slot: Slot, owner: Owner
    ) -> tuple[Points, Resident | None]:
        """The points on the device: resident where they can be, until they are `let_go`, else in ``sent``, or in
        ``slot`` for this launch alone."""
        if operation.resident:
            found = self._residents.acquire("points", operation.points, lambda: self.make(operation, owner))
            if found is not None:
                return found.value, found
        return self.bring(operation, sent, slot, owner), None

    def let_go(self, points: Resident) -> None:
        self._residents.let_go(points)

    def make(self, operation: Msm, owner: Owner) -> tuple[CudaBuffer, Points]:
        """Brings points that are to stay."""
        data = operation.points
        size, room = need.point_bytes(operation.curve, operation.group), own_reservation(operation.room)
        numbers = present_rows(data)
        count = len(data) if numbers is None else len(numbers)
        nbytes = count * (size if numbers is None else size + 4)
        block = self._memory.allocate(nbytes, Purpose.SRS, _NOBODY, room)
        try:
            self.load(block, data, owner, numbers)
            return block, points_in(block, size, count, picked=numbers is not None)
        except BaseException:
            block.free()
            raise

    def bring(self, operation: Msm, sent: CudaBuffer | None, slot: Slot, owner: Owner) -> Points:
        """Points for one launch."""
        data = operation.points
        if sent is None:
            sent = self._memory.allocate(int(data.nbytes), Purpose.SRS, owner)
            slot.keep(sent)
            self.load(sent, data, owner)
        size = need.point_bytes(operation.curve, operation.group)
        return replace(points_in(sent, size, len(data), picked=False), travel=True)

    @contextmanager
    def parts(self, data: Bytes, stream: Any, owner: Owner) -> Iterator[Callable[[], Iterator[tuple[int, Any]]]]:
        """Coefficients (n, 44) part by part through two buffers, as often as it is asked: the first one's number, and
        the part. What ``stream`` does with a part is enqueued when the next one is asked for."""
        step = need.part_entries()
        size = min(len(data), step) * ENTRY_BYTES
        with ExitStack() as stack:
            buffers = [stack.enter_context(self._memory.allocate(size, Purpose.SCRATCH, owner)) for _ in range(2)]

            def parts() -> Iterator[tuple[int, Any]]:
                for number, first in enumerate(range(0, len(data), step)):
                    buffer, rows = buffers[number % 2], data[first : first + step]
                    self.load(buffer, rows, owner)
                    buffer.before_read(stream)
                    yield first, buffer.array(rows.shape, np.uint8)
                    buffer.was_read(stream, stream.record(cupy.cuda.Event(disable_timing=True)))

            try:
                yield parts
            except BaseException:
                stream.synchronize()  # the last part may be read yet, and no event ends that
                raise

    def load(self, target: CudaBuffer, rows: Bytes, owner: Owner, numbers: Numbers | None = None) -> Any:
        """Rows of the key to the start of ``target``, or those of them with these ``numbers`` and the numbers behind
        them; one span. Returns the event of its end, when pageable rows were read."""
        stream = self._stream
        with self._guard:
            target.before_write(stream)
            marks, end = self._timeline.moments.marks(1), self._timeline.moments.end()
            pinned = is_pinned(rows)
            marks.begin(stream)
            try:
                nbytes = self._feeder.feed(rows, target.address, stream, numbers)
                if numbers is not None:
                    words = numbers.view(np.uint8).reshape(len(numbers), 4)
                    nbytes += self._feeder.feed(words, target.address + nbytes, stream)
                end.record(stream)
            except BaseException:
                stream.synchronize()  # a copy may be under way, and no event ends it
                raise
            target.was_written(stream, end)
            times = span_times(Lane.H2D, Kind.UPLOAD_SRS, nbytes, pinned)
            self._timeline.add(marks, (end,), times, owner, rows)
        return end
