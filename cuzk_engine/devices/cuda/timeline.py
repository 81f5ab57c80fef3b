"""Spans with the device's own time stamps, on the host's monotonic clock, and events to wait for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import cupy
from cupy.cuda import runtime

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.devices.cuda.driver import Context
from cuzk_engine.devices.cuda.faults import status_of
from cuzk_engine.devices.cuda.moments import Marks, Moment, Moments
from cuzk_engine.events import Kind, Lane, new_span

_CALIBRATION_LIFE_NS: Final = 10_000_000_000  # elapsed times are 32-bit floats: 1 µs of resolution after 10 s
_TRIES: Final = 3
_LATELY_NS: Final = 100_000_000  # for which spans that are over may wait for others

_handle: Final = attrgetter("ptr")
_consume: Final = deque[None](maxlen=0).extend


class Times(NamedTuple):
    """Spans in columns: what picks the times of their begins and of their ends out of all, their lanes and kinds, and
    of transfers the bytes and whether they were page-locked."""

    begins: Callable[[Sequence[int]], Sequence[int]]
    ends: Callable[[Sequence[int]], Sequence[int]]
    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]
    nbytes: tuple[int, ...]
    pinned: tuple[bool | None, ...]


class _Pending(NamedTuple):
    """Spans between events, the driver's ``handles``, which are over with the last of their ``ends``. ``marks`` go back
    then, and ``kept`` is what must live until then."""

    marks: Marks
    handles: tuple[int, ...]
    ends: tuple[Moment, ...]
    times: Times
    owner: Owner
    kept: object


_new_pending: Final[Callable[[tuple[object, ...]], _Pending]] = partial(tuple.__new__, _Pending)  # as `new_span`


class Timeline:
    """The spans of one device that are not yet over. Any thread may call; the device must be the current one."""

    def __init__(self, device: str, sink: EventSink | None) -> None:
        self._device, self._sink = device, sink
        self.moments = Moments()
        self._context = Context()
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []  # in the order of their launches
        self._last: dict[Owner, Moment] = {}  # the end of each owner's last one of them
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._base: tuple[Any, int] = None, 0
        self._collected_ns = 0
        self._calibrate()

    @property
    def pending(self) -> list[_Pending]:
        with self._lock:
            return list(self._pending)

    def _calibrate(self) -> None:
        """A pair of one moment on both clocks, the tightest of a few."""
        best = None
        for _ in range(_TRIES):
            event = cupy.cuda.Event()
            before = time.monotonic_ns()
            event.record(self._stream)
            event.synchronize()
            after = time.monotonic_ns()
            if best is None or after - before < best:
                best, self._base = after - before, (event, (before + after) // 2)

    def add(
        self,
        marks: Marks,
        ends: tuple[Moment, ...],
        times: Times,
        owner: Owner,
        kept: object = None,
    ) -> None:
        """Spans between ``marks``, from ``moments``, to which they go back, and ``ends``, the last of which is over no
        sooner than the others."""
        if self._sink is None and kept is None:
            self.moments.give_back(marks)
            return
        handles = (*marks.handles, *map(_handle, ends))
        one = _new_pending((marks, handles, ends, times, owner, kept))
        with self._lock:
            self._pending.append(one)
            self._last[owner] = ends[-1]

    def ended(self, end: Moment) -> None:
        """``end`` was waited for: what is over is emitted, unless that was done lately and the owner of ``end`` has
        launched more since, which it will wait for, too."""
        with self._lock:
            is_due = end in self._last.values() or time.monotonic_ns() - self._collected_ns > _LATELY_NS
        if is_due:
            self.collect()

    def collect(self) -> None:
        """Emits the spans that are over. Raises CuPy's error where the driver refuses to tell, once: the spans that it
        refuses are dropped."""
        sink = self._sink
        with self._lock:
            pending = self._pending
            if not pending:
                return
            self._collected_ns = time.monotonic_ns()
            if self._collected_ns - self._base[1] > _CALIBRATION_LIFE_NS:
                self._calibrate()
            base, base_ns = self._base
            try:
                found = self._context.event_times(base.ptr, [one.handles for one in pending])
            except BaseException:
                self._drop_what_fails()
                raise
            self._keep(one for one, at in zip(pending, found, strict=True) if at is None)
        for one, at in zip(pending, found, strict=True):
            if at is not None:
                if sink is not None:
                    self._emit(sink, one, at, base_ns)
                self.moments.give_back(one.marks)

    def _keep(self, pending: Iterable[_Pending]) -> None:
        """These are pending, and no others. Under the lock."""
        self._pending = list(pending)
        self._last = {one.owner: one.ends[-1] for one in self._pending}

    def _drop_what_fails(self) -> None:
        """So that one event that the driver knows nothing of fails no later call. Its kept things are in use no more
        then."""
        runtime.deviceSynchronize()
        self._calibrate()  # it may have been the base
        self._keep(one for one in self._pending if self._is_known(one))

    def _is_known(self, one: _Pending) -> bool:
        try:
            self._context.event_times(self._base[0].ptr, [one.handles])
        except Exception as error:
            if status_of(error) is None:
                raise
            return False
        return True

    def _emit(self, sink: EventSink, one: _Pending, at: list[int], base_ns: int) -> None:
        """``at``: when the events were, in nanoseconds after the base. Column by column: without steps of the
        interpreter for each span."""
        begins, ends, lanes, kinds, nbytes, pinned = one.times
        at = [*map(base_ns.__add__, at)]
        ended = ends(at)
        began = map(min, begins(at), ended)  # they may lie on two streams: the end can come before the begin
        rows = zip(
            began, ended, repeat(self._device), lanes, kinds, *map(repeat, one.owner), nbytes, pinned, strict=False
        )
        _consume(map(sink, map(new_span, rows)))

    def clear(self) -> None:
        """Forgets what is pending: the device is gone."""
        with self._lock:
            self._keep(())


class CudaEvent:
    """A moment of a device; see DeviceEvent. ``guard`` makes the device the current one and translates its errors;
    ``over`` is called when it is known to have happened, and so has ``ended``, an event before it."""

    __slots__ = ("_ended", "_guard", "_kept", "_over", "_timeline", "event")

    def __init__(
        self,
        event: Moment,
        timeline: Timeline,
        guard: AbstractContextManager[None],
        kept: object = None,
        over: Callable[[], None] | None = None,
        ended: Moment | None = None,
    ) -> None:
        self.event = event
        self._timeline, self._guard, self._kept, self._over = timeline, guard, kept, over
        self._ended = ended or event

    def wait(self) -> None:
        with self._guard:
            self.event.synchronize()
            self._timeline.ended(self.event)
            if self._over is not None:
                self._ended.over = True
                self._over()

    def done(self) -> bool:
        with self._guard:
            over = self.event.done
        if over:
            self.wait()
        return over


PHASES: Final = {
    "sort": Kind.MSM_DIGITS,
    "accumulate": Kind.MSM_ACCUMULATE,
    "reduce": Kind.MSM_REDUCE,
    "total": Kind.MSM_REDUCE,
}


@lru_cache(maxsize=256)
def span_times(lane: Lane, kind: str, nbytes: int = 0, pinned: bool | None = None) -> Times:
    """Of what lies between its begin and its end."""
    return _times([(0, 1, lane, kind)], nbytes, pinned)


@lru_cache(maxsize=256)
def step_times(*kinds: str) -> Times:
    """Of kernels, each between a begin and an end of its own."""
    return _times([(2 * k, 2 * k + 1, Lane.COMPUTE, kind) for k, kind in enumerate(kinds)])


def _times(spans: list[tuple[int, int, Lane, str]], nbytes: int = 0, pinned: bool | None = None) -> Times:
    """From the numbers of the events that spans lie between, their lanes and their kinds; bytes are transferred on
    other lanes than the kernels'."""
    firsts, lasts, lanes, kinds = zip(*spans, strict=True)
    moved = [lane is not Lane.COMPUTE for lane in lanes]
    return Times(
        _picking(firsts), _picking(lasts), lanes, kinds,
        tuple(nbytes if one else 0 for one in moved), tuple(pinned if one else None for one in moved),
    )  # fmt: skip


def _picking(numbers: tuple[int, ...]) -> Callable[[Sequence[int]], Sequence[int]]:
    if len(numbers) == 1:  # of one alone a getter gives no sequence
        return itemgetter(slice(numbers[0], numbers[0] + 1))
    return itemgetter(*numbers)


@lru_cache(maxsize=256)
def msm_times(phases: tuple[str, ...], fetched: int = 0) -> Times:
    """The spans of an MSM from the names of the phases at whose ends its events are. Event 0 is its begin, the last one
    comes after the affine form, which counts as reduction; ``fetched``: bytes of the result that go to the host, which
    ends with another event.

    The parts' sorts follow each other, and so do their accumulations; a part's reduction follows its accumulation."""
    spans: list[tuple[int, int, Lane, str]] = []
    last_of: dict[str, int] = {}
    before = 0
    for number, phase in enumerate(phases, 1):
        start = before
        if phase in ("sort", "accumulate"):
            start = last_of.get(phase, before)
        spans.append((start, number, Lane.COMPUTE, PHASES[phase]))
        last_of[phase] = before = number
    if phases:
        spans.append((before, len(phases) + 1, Lane.COMPUTE, Kind.MSM_REDUCE))
    if fetched:
        spans.append((len(phases) + 1, len(phases) + 2, Lane.D2H, Kind.DOWNLOAD_RESULT))
    return _times(spans, fetched, pinned=True)
