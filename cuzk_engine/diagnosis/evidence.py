"""The sentence that goes with a gap: what was going on, with figures."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from cuzk_engine.diagnosis.causes import FINISHING, Stretches
from cuzk_engine.diagnosis.intervals import clip, clipped, normalise, total
from cuzk_engine.diagnosis.shares import holds
from cuzk_engine.diagnosis.table import SpanTable
from cuzk_engine.diagnosis.words import kind_words, listed, ms, rate, short
from cuzk_engine.events import Cause, Kind, Lane, Sample
from cuzk_engine.units import format_size

BUSY_WITH_OTHERS: Final = 0.5  # utilisation of a card that runs no kernel of ours
SETTLED_NS: Final = 1_000_000_000  # a card's utilisation is a mean over up to this time
HOT: Final = 85.0  # °C
THROTTLED_CLOCK: Final = 0.8  # of the highest clock seen
_WORTH_TELLING: Final = 0.2  # of a gap, that no span covers
_HOST_WORK: Final = (Kind.READ_WITNESS, Kind.EVALUATE, Kind.PAGE_LOCK, Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC)
_UPLOADS: Final = (Kind.UPLOAD_WITNESS, Kind.UPLOAD_ABC)


class Around:
    """What lies around the idle stretches of one device, found quickly."""

    def __init__(self, spans: SpanTable, idle: Stretches, device: str, samples: Sequence[Sample]) -> None:
        self.device = device
        self._compute = spans.where(spans.in_lane(Lane.COMPUTE))
        self._idle = idle
        self._samples = samples
        self._times = [sample.time_ns for sample in samples]
        self._top_clock = max((s.clock for s in samples if s.clock is not None), default=None)
        others = spans.where(~spans.in_lane(Lane.COMPUTE) & ~spans.of_kind(Kind.LOCK_HELD))
        self._others = others
        number, pieces = clipped(others.start, others.end, idle.rows)
        stretch = np.searchsorted(idle.rows[:, 0], pieces[:, 0], side="right") - 1
        order = np.argsort(stretch, kind="stable")
        self._rows = number[order]
        self._bounds = np.searchsorted(stretch[order], np.arange(len(idle.rows) + 1))
        self._by_end = np.argsort(self._compute.end, kind="stable")
        self._ends = self._compute.end[self._by_end]
        self._held = holds(spans)

    def ended_by(self, stretch: int) -> tuple[str, int] | None:
        """Job and worker of the kernel that ended a stretch."""
        at = int(np.searchsorted(self._compute.start, self._idle.rows[stretch, 1]))
        return self._owner(at) if at < len(self._compute) else None

    def before(self, stretch: int) -> tuple[str, int] | None:
        """Job and worker of the kernel before a stretch."""
        at = int(np.searchsorted(self._ends, self._idle.rows[stretch, 0], side="right")) - 1
        return self._owner(int(self._by_end[at])) if at >= 0 else None

    def spans(self, stretch: int, start: int, end: int, *kinds: Kind) -> SpanTable:
        """What workers did in [start, end) of a stretch, but for kernels."""
        own = self._others.where(self._rows[self._bounds[stretch] : self._bounds[stretch + 1]])
        return own.where((own.start < end) & (own.end > start) & own.of_kind(*kinds))

    def is_held(self, start: int, end: int) -> bool:
        return bool(((self._held.start < end) & (self._held.end > start)).any())

    def samples(self, start: int, end: int) -> Sequence[Sample]:
        return self._samples[bisect_left(self._times, start) : bisect_right(self._times, end)]

    def sample_at(self, time_ns: int) -> Sample | None:
        """The newest one up to then."""
        at = bisect_right(self._times, time_ns) - 1
        return self._samples[at] if at >= 0 else None

    @property
    def top_clock(self) -> float | None:
        return self._top_clock

    def _owner(self, row: int) -> tuple[str, int]:
        compute = self._compute
        return compute.text(int(compute.job[row])), int(compute.worker[row])


def reconsidered(cause: Cause, around: Around, stretch: int, start: int, end: int) -> Cause:
    """What samples say of a gap that spans explain badly: another program has the card, or it is throttled.

    Only of GPUs: the CPU's utilisation has our own host work in it. A lock that one partition holds all the time
    explains nothing either."""
    if cause is Cause.LOCK_HANDOVER and _within_one_hold(around, stretch, start, end):
        cause = Cause.UNKNOWN
    if around.device == "cpu":
        return cause
    if cause is Cause.MEMORY_WAIT and _others_hold(around, stretch, start, end):
        return Cause.OTHER_PROCESS
    if cause not in (Cause.LOCK_HANDOVER, Cause.UNKNOWN):
        return cause
    if _foreign_utilisation(around, start, end) is not None:
        return Cause.OTHER_PROCESS
    return Cause.THROTTLED if _throttled(around, start, end) is not None else cause


def _within_one_hold(around: Around, stretch: int, start: int, end: int) -> bool:
    """Whether the lock changes nothing: one partition's kernels before and after, and no upload that they wait for."""
    owner = around.before(stretch)
    if owner is None or owner != around.ended_by(stretch):
        return False
    return not len(around.spans(stretch, start, end, *_UPLOADS, Kind.LOCK_WAIT).of_worker(owner[1]))


def evidence(cause: Cause, around: Around, stretch: int, start: int, end: int) -> str:
    """One sentence."""
    length = ms(end - start)
    maker = _SENTENCES.get(cause)
    text = maker(around, stretch, start, end) if maker is not None else ""
    return f"{length} without a kernel: {text}" if text else f"{length} without a kernel"


def _queue_empty(around: Around, stretch: int, start: int, end: int) -> str:
    finishing = around.spans(stretch, start, end, *FINISHING)
    if len(finishing):
        return f"no job waited, {_by_worker(finishing, start, end)}"
    return "no job ran or waited"


def _host_starved(around: Around, stretch: int, start: int, end: int) -> str:
    work = around.spans(stretch, start, end, *_HOST_WORK, *FINISHING)
    if not len(work):
        return "no worker had a partition ready: one was between two steps, or had not begun"
    rest = end - start - total(clip(normalise(work.start, work.end), start, end))
    idle = f", and for {ms(rest)} between steps or before a new one" if rest > _WORTH_TELLING * (end - start) else ""
    return f"{_by_worker(work, start, end)}{idle}; no other partition was ready"


def _srs_cold(around: Around, stretch: int, start: int, end: int) -> str:
    loads = around.spans(stretch, start, end, Kind.LOAD_KEY)
    if len(loads):
        return _by_worker(loads, start, end)
    return _copies(around.spans(stretch, start, end, Kind.UPLOAD_SRS), start, end)


def _pageable_upload(around: Around, stretch: int, start: int, end: int) -> str:
    copies = around.spans(stretch, start, end, *_UPLOADS)
    return f"{_copies(copies.where(copies.pinned == 0), start, end)}, while the lock was held"


def _lock_handover(around: Around, stretch: int, start: int, end: int) -> str:
    uploads = around.spans(stretch, start, end, *_UPLOADS)
    before, after = around.before(stretch), around.ended_by(stretch)
    words = [_copies(uploads, start, end)] if len(uploads) else []
    if before is not None and after is not None and before != after:
        words.append(f"from job {short(before[0])} of worker {before[1]} to job {short(after[0])} of worker {after[1]}")
    waits = around.spans(stretch, start, end, Kind.LOCK_WAIT)
    if len(waits):
        longest = int((waits.end - waits.start).max())
        words.append(f"a worker had waited for the lock for {ms(longest)}")
    held = "the lock was held" if around.is_held(start, end) else "the lock changed hands"
    return ", ".join([held, *words])


def _result_sync(around: Around, stretch: int, start: int, end: int) -> str:
    waits = around.spans(stretch, start, end, Kind.RESULT_SYNC)
    if len(waits):
        return (
            f"{_by_worker(waits, start, end)} {len(waits)} times" if len(waits) > 1 else _by_worker(waits, start, end)
        )
    return f"{_copies(around.spans(stretch, start, end, Kind.DOWNLOAD_RESULT), start, end)}, while the lock was held"


def _memory_wait(around: Around, stretch: int, start: int, end: int) -> str:
    waits = around.spans(stretch, start, end, Kind.MEMORY_WAIT)
    asked = int(waits.size.max()) if len(waits) else 0
    return (
        _by_worker(waits, start, end) + (f" for {format_size(asked)}" if asked else "") + _memory_words(around, start)
    )


def _compile(around: Around, stretch: int, start: int, end: int) -> str:
    compiled = around.spans(stretch, start, end, Kind.COMPILE)
    return f"{_by_worker(compiled, start, end)}, which happens once for each card and version"


def _pool_trim(around: Around, stretch: int, start: int, end: int) -> str:
    return _by_worker(around.spans(stretch, start, end, Kind.POOL_TRIM), start, end)


def _other_process(around: Around, stretch: int, start: int, end: int) -> str:
    used = _foreign_utilisation(around, start, end)
    if used is not None:
        return f"the card was {100 * used:.0f} % busy, with kernels of another program"
    waits = around.spans(stretch, start, end, Kind.MEMORY_WAIT)
    return f"{_by_worker(waits, start, end)} for {format_size(int(waits.size.max()))}{_memory_words(around, start)}"


def _throttled_words(around: Around, stretch: int, start: int, end: int) -> str:
    sample = _throttled(around, start, end)
    assert sample is not None
    return f"the card ran at {sample.clock:.0f} of {around.top_clock:.0f} MHz at {sample.temperature:.0f} °C"


def _unknown(around: Around, stretch: int, start: int, end: int) -> str:
    where = "one worker held the lock" if around.is_held(start, end) else "a partition was under way"
    return f"{where}, and no span, sample or wait explains it"


_SENTENCES: Final[dict[Cause, Callable[[Around, int, int, int], str]]] = {
    Cause.QUEUE_EMPTY: _queue_empty,
    Cause.HOST_STARVED: _host_starved,
    Cause.SRS_COLD: _srs_cold,
    Cause.LOCK_HANDOVER: _lock_handover,
    Cause.PAGEABLE_UPLOAD: _pageable_upload,
    Cause.RESULT_SYNC: _result_sync,
    Cause.MEMORY_WAIT: _memory_wait,
    Cause.POOL_TRIM: _pool_trim,
    Cause.KERNEL_COMPILE: _compile,
    Cause.OTHER_PROCESS: _other_process,
    Cause.THROTTLED: _throttled_words,
    Cause.UNKNOWN: _unknown,
}


def _by_worker(rows: SpanTable, start: int, end: int) -> str:
    """ "worker 0 was evaluating a, b, c (812 ms) and verifying (2.1 ms)", of each worker that did something."""
    spent: dict[int, dict[str, int]] = {}
    for worker, kind, low, high in zip(
        rows.worker.tolist(), rows.kind.tolist(), rows.start.tolist(), rows.end.tolist(), strict=True
    ):
        text = rows.text(kind)
        word = f"uploading {kind_words(text)}" if text in _UPLOADS else kind_words(text)
        kinds = spent.setdefault(worker, {})
        kinds[word] = kinds.get(word, 0) + min(high, end) - max(low, start)
    parts = []
    for worker, kinds in sorted(spent.items()):
        words = [f"{word} ({ms(took)})" for word, took in sorted(kinds.items(), key=lambda item: -item[1])]
        parts.append(f"worker {worker} was {listed(words)}" if worker >= 0 else f"the engine was {listed(words)}")
    return ", ".join(parts)


def _copies(rows: SpanTable, start: int, end: int) -> str:
    """ "12.0 MiB of a, b, c from pageable memory at 6.6 GB/s (1.9 ms)"."""
    if not len(rows):
        return ""
    took = int((rows.end - rows.start).sum())
    inside = int((np.minimum(rows.end, end) - np.maximum(rows.start, start)).sum())
    size = int(rows.size.sum())
    what = listed(sorted({kind_words(rows.text(kind)) for kind in rows.kind.tolist()}))
    memory = {0: " from pageable memory", 1: " from page-locked memory"}.get(int(rows.pinned.min()), "")
    if rows.text(int(rows.kind[0])) == Kind.DOWNLOAD_RESULT:
        memory = ""
    speed = f" at {rate(size * 1e9 / took)}" if took and size else ""
    return f"{format_size(size)} of {what}{memory}{speed} ({ms(inside)})"


def _memory_words(around: Around, time_ns: int) -> str:
    sample = around.sample_at(time_ns)
    if sample is None or sample.memory_used is None or sample.memory_capacity is None:
        return ""
    words = f"; {format_size(sample.memory_used)} of {format_size(sample.memory_capacity)} were in use"
    if around.device != "cpu" and sample.memory_other:
        words += f", {format_size(sample.memory_other)} by other programs"
    return words


def _others_hold(around: Around, stretch: int, start: int, end: int) -> bool:
    """Whether other programs hold as much as a worker waits for."""
    sample = around.sample_at(end)
    waits = around.spans(stretch, start, end, Kind.MEMORY_WAIT)
    if sample is None or not sample.memory_other or not len(waits):
        return False
    return sample.memory_other >= int(waits.size.max()) > 0


def _foreign_utilisation(around: Around, start: int, end: int) -> float | None:
    """The utilisation that cannot be ours: of a sample whose whole time lies in the gap."""
    readings = [s.utilisation for s in around.samples(start + SETTLED_NS, end) if s.utilisation is not None]
    most = max(readings, default=0.0)
    return most if most >= BUSY_WITH_OTHERS else None


def _throttled(around: Around, start: int, end: int) -> Sample | None:
    for sample in around.samples(start, end):
        if sample.clock is None or sample.temperature is None or around.top_clock is None:
            continue
        if sample.temperature >= HOT and sample.clock <= THROTTLED_CLOCK * around.top_clock:
            return sample
    return None
