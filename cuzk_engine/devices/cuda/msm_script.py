"""The launches of a multi-scalar multiplication as a script.

Windows are taken in parts, the highest first. While the buckets of one part are filled, those of the one before it are
reduced and the entries of the one after it sorted, on streams of higher priority. What is left at the ends is the sort
of the first part and the reduction of the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda.need import FR_BYTES, point_bytes
from cuzk_engine.devices.cuda.phases import Phases, Table
from cuzk_engine.devices.cuda.programs import MsmPrograms
from cuzk_engine.devices.cuda.script import Given, Recorder, Ref, Region, Script
from cuzk_engine.devices.cuda.shape import Shape, image_bytes, part_bytes


class Base(IntEnum):
    """What a script's addresses count from. ``SUM``: of the result, XYZZ; ``RESULT``: affine; ``INDEX``: the numbers of
    the points' scalars; ``FIRST``: the number of the first one."""

    SCRATCH = 0
    SUM = 1
    POINTS = 2
    SCALARS = 3
    RESULT = 4
    INDEX = 5
    FIRST = 6


class On(IntEnum):
    """Streams: ``CALLER`` starts it and is joined at its end, ``FRONT`` sorts, ``FILL`` and the next one fill buckets,
    ``BACK`` reduces."""

    CALLER = 0
    FRONT = 1
    FILL = 2
    FILL_TOO = 3
    BACK = 4


@dataclass(frozen=True, slots=True)
class Variant:
    """``length``: of the vector that the scalars are picked from, 0 where they are taken as they stand; with
    ``indexed`` by the points' numbers, with ``travel`` leaving out points at infinity. ``affine``: the result is wanted
    in that form."""

    form: Shape
    reversed_bits: int = 0
    length: int = 0
    indexed: bool = False
    travel: bool = False
    affine: bool = True


def record_msm(curve: Curve, group: int, names: MsmPrograms, variant: Variant) -> Script:
    """Its block of scratch and the SUM take what `need.msm_arena_bytes` says."""
    form, size = variant.form, point_bytes(curve, group)
    recorder = Recorder(Base.SCRATCH)
    phases = Phases(recorder, curve, group, names)
    points, total = Ref(Base.POINTS, 0, form.n * size), Ref(Base.SUM, 0, 2 * size)
    with recorder.on(On.CALLER):
        scalars = _scalars(recorder, phases, variant, points)
        called = recorder.record()
    _sum(recorder, phases, variant, called, points, scalars, total)
    if variant.affine:
        with recorder.on(On.CALLER):
            phases.write_affine(total, Ref(Base.RESULT, 0, size))
    return recorder.script()


def _scalars(recorder: Recorder, phases: Phases, variant: Variant, points: Ref) -> Ref:
    n = variant.form.n
    if not variant.length:
        return Ref(Base.SCALARS, 0, n * FR_BYTES)
    whole = Ref(Base.SCALARS, 0, variant.length * FR_BYTES)
    index = Ref(Base.INDEX, 0, 4 * n) if variant.indexed else None
    there = points if variant.travel else None
    with recorder.using(recorder.region(n * FR_BYTES)):
        return phases.pick(whole, index, Given(Base.FIRST), variant.reversed_bits, there, n)


def _sum(
    recorder: Recorder, phases: Phases, variant: Variant, called: int, points: Ref, scalars: Ref, total: Ref
) -> None:
    form = variant.form
    order = 0 if variant.length else variant.reversed_bits
    images = recorder.block(image_bytes(form, total.nbytes)) if form.halves == 2 else None
    works = [_Work(recorder.region(part_bytes(form, total.nbytes))) for _ in range(form.work_sets)]
    for stream in (On.FRONT, On.FILL):
        with recorder.on(stream):
            recorder.wait(called)
    with recorder.on(On.FILL):  # beside the sort
        table = phases.images(points, form, images)
        ready = recorder.record()
    with recorder.on(On.FILL_TOO):
        recorder.wait(ready)
    over = called
    for number, (first, count) in enumerate(form.groups()):
        work = works[number % len(works)]
        work.region.again()
        filling = (On.FILL, On.FILL_TOO)[number % 2]
        with recorder.using(work.region):
            part = _Part(recorder, phases, form.part(count), filling, scalars, table, total)
            work.over = over = part.record(form.windows, first, order, number == 0, work.over)
    with recorder.on(On.CALLER):
        recorder.wait(over)


@dataclass(slots=True)
class _Work:
    """Memory of a part at a time; ``over``: the event after which it is free again."""

    region: Region
    over: int | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """Some windows of the sum."""

    recorder: Recorder
    phases: Phases
    form: Shape
    filling: On
    scalars: Ref
    table: Table
    total: Ref

    def record(self, windows: int, first: int, order: int, fresh: bool, free: int | None) -> int:
        """Windows from ``first`` of all ``windows``, after the event ``free``; returns the event of the end."""
        recorder, phases, form = self.recorder, self.phases, self.form
        with recorder.on(On.FRONT):
            if free is not None:
                recorder.wait(free)
            digits = phases.digits(self.scalars, form, windows, first)
            values, begin, end = phases.sort(digits, form, order)
            sums = recorder.empty((form.buckets + form.slots) * self.total.nbytes)
            tasks, totals, classes, groups = phases.tasks(begin, end, form, sums)
            is_sorted = recorder.mark("sort")
        with recorder.on(self.filling):
            recorder.wait(is_sorted)
            phases.accumulate(tasks, totals, classes, groups, values, self.table, form, sums)
            is_filled = recorder.mark("accumulate")
        with recorder.on(On.BACK):
            recorder.wait(is_filled)
            sums_of_windows = phases.reduce(sums, form)
            recorder.mark("reduce")
            phases.total(sums_of_windows, form, fresh, self.total)
            return recorder.mark("total")
