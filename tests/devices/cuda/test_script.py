"""What recorded MSMs do with their memory and their streams: no GPU knows better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.msm_script import Base, On, Variant, record_msm
from cuzk_engine.devices.cuda.need import FR_BYTES, point_bytes
from cuzk_engine.devices.cuda.programs import Program
from cuzk_engine.devices.cuda.script import Copy, Given, Launch, Record, Recorder, Ref, Script, Wait, Zero
from cuzk_engine.devices.cuda.shape import Shape, aligned_size, image_bytes, scratch_bytes, shape

Clock = dict[int, int]


def recorded(curve: Curve, group: int, variant: Variant) -> Script:
    return record_msm(curve, group, programs.msm(curve, group), variant)


def references(operation: Any) -> tuple[Ref, ...]:
    match operation:
        case Launch():
            return tuple(a for a in operation.arguments if isinstance(a, Ref))
        case Zero(_, target):
            return (target,)
        case Copy(_, target, source):
            return target, source
    return ()


def ordered(script: Script) -> Iterator[tuple[Any, Clock]]:
    """Operations with what is over before them: stream → number of its operation."""
    clocks: dict[int, Clock] = {stream: {} for stream in On}
    events: dict[int, Clock] = {}
    for operation in script.operations:
        clock = clocks[operation.stream]
        if isinstance(operation, Record):
            assert operation.event not in events, "an event recorded twice"
            events[operation.event] = dict(clock)
        elif isinstance(operation, Wait):
            for stream, number in events[operation.event].items():
                clock[stream] = max(clock.get(stream, 0), number)
        else:
            before = dict(clock)
            clock[operation.stream] = clock.get(operation.stream, 0) + 1
            yield operation, before
    assert set(events) == set(range(len(script.marks) + script.inner))


def assert_ordered(script: Script, read_by_many: tuple[Ref, ...]) -> None:
    """Whatever uses bytes comes after all that used them before, except for readers of what is only read after its
    first use."""
    uses: list[tuple[int, int, int, int, int, bool]] = []  # base, start, end, stream, number, whether shared
    for operation, before in ordered(script):
        number = before.get(operation.stream, 0) + 1
        found = []
        for ref in references(operation):
            if ref.base not in (Base.SCRATCH, Base.SUM):
                continue
            end = ref.offset + ref.nbytes
            shared = any(ref.base == r.base and r.offset <= ref.offset < r.offset + r.nbytes for r in read_by_many)
            earlier = [use for use in uses if use[0] == ref.base and use[1] < end and use[2] > ref.offset]
            if shared and earlier:
                earlier = earlier[:1]
            for _, _, _, stream, when, _ in earlier:
                assert before.get(stream, 0) >= when, (operation, stream)
            found.append((ref.base, ref.offset, end, operation.stream, number, shared))
        uses += found


FORMS = [
    (curve, group, n, method, halves, parts)
    for curve in (BN254, BLS12_381)
    for group in (1, 2)
    for n, parts in ((1, 1), (33, 2), (3000, 3), (1 << 16, 1), (1 << 20, 2), (1 << 22, 4), (1 << 14, 99))
    for method in ("xyzz", "affine")
    for halves in (1, 2)
]


def form_of(curve: Curve, group: int, n: int, method: Any, halves: int, parts: int) -> Shape:
    whole = shape(curve, n, group, method=method, halves=halves)
    return replace(whole, parts=min(parts, whole.windows))


@pytest.mark.parametrize(("curve", "group", "n", "method", "halves", "parts"), FORMS)
def test_memory(curve: Curve, group: int, n: int, method: str, halves: int, parts: int) -> None:
    """Exactly the planned bytes; nothing beyond a block; nothing that another stream may still use."""
    size = point_bytes(curve, group)
    form = form_of(curve, group, n, method, halves, parts)
    script = recorded(curve, group, Variant(form))
    assert script.scratch_bytes + aligned_size(2 * size) == scratch_bytes(form, 2 * size)
    limits = {
        Base.SCRATCH: script.scratch_bytes,
        Base.SUM: 2 * size,
        Base.POINTS: n * size,
        Base.SCALARS: n * FR_BYTES,
        Base.RESULT: size,
    }
    most = dict.fromkeys(limits, 0)
    for operation in script.operations:
        for ref in references(operation):
            base = Base(ref.base)
            assert 0 <= ref.offset <= ref.offset + ref.nbytes <= limits[base]
            assert ref.offset % 4 == 0
            most[base] = max(most[base], ref.offset + ref.nbytes)
    if form.parts == 1:  # else the last part's memory is that of a smaller one
        assert aligned_size(most[Base.SCRATCH]) == script.scratch_bytes
    assert all(most[base] == limits[base] for base in limits if base != Base.SCRATCH)
    images = Ref(Base.SCRATCH, 0, image_bytes(form, 2 * size) if halves == 2 else 0)
    assert_ordered(script, (images,))


@pytest.mark.parametrize("indexed", [True, False])
def test_memory_with_scalars_that_are_picked(indexed: bool) -> None:
    n, length = 1000, 3000
    form = replace(shape(BN254, n), parts=2)
    variant = Variant(form, 0, length, indexed=indexed, travel=not indexed)
    script, size = recorded(BN254, 1, variant), BN254.g1_bytes
    picked = aligned_size(n * FR_BYTES)
    assert script.scratch_bytes + aligned_size(2 * size) == scratch_bytes(form, 2 * size) + picked
    gather, *rest = (one for one in script.operations if isinstance(one, Launch))
    scalars, index, first, *_, there, _, out = gather.arguments
    assert (scalars, first) == (Ref(Base.SCALARS, 0, length * FR_BYTES), Given(Base.FIRST))
    null = np.uint64(0)
    assert (index, there) == ((Ref(Base.INDEX, 0, 4 * n), null) if indexed else (null, Ref(Base.POINTS, 0, n * size)))
    assert out == Ref(Base.SCRATCH, 0, n * FR_BYTES)
    digits = [one for one in rest if one.name.startswith("msm_digits")]
    assert [one.arguments[0] for one in digits] == [out] * 2
    assert not any(ref.base == Base.SCALARS for one in rest for ref in references(one))
    assert_ordered(script, (Ref(Base.SCRATCH, picked, image_bytes(form, 2 * size)), out))


def test_a_wait_that_is_missing_is_found() -> None:
    """By the check of the order: each of the waits is needed."""
    form = replace(shape(BN254, 3000), parts=3)
    script = recorded(BN254, 1, Variant(form))
    images = Ref(Base.SCRATCH, 0, image_bytes(form, 2 * BN254.g1_bytes))
    waits = [one for one in script.operations if isinstance(one, Wait)]
    needless = 0
    for wait in waits:
        without = replace(script, operations=tuple(one for one in script.operations if one is not wait))
        try:
            assert_ordered(without, (images,))
        except AssertionError:
            continue
        needless += 1
    # Only what FRONT and FILL wait for in the beginning is none of the script's work.
    assert (len(waits), needless) == (11, 2)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_phases(parts: int) -> None:
    """Each part is sorted, filled, reduced and added; filling takes turns; the caller is joined."""
    form = replace(shape(BN254, 3000), parts=parts)
    script = recorded(BN254, 1, Variant(form))
    assert script.marks == ("sort", "accumulate", "reduce", "total") * parts
    marked = [one for one in script.operations if isinstance(one, Record) and one.event < len(script.marks)]
    turns = [(On.FRONT, (On.FILL, On.FILL_TOO)[k % 2], On.BACK, On.BACK) for k in range(parts)]
    assert [one.stream for one in marked] == [stream for turn in turns for stream in turn]
    join, affine = script.operations[-2:]
    assert join == Wait(On.CALLER, len(script.marks) - 1)
    assert isinstance(affine, Launch)
    assert (affine.name, affine.stream) == ("sums_to_affine", On.CALLER)
    totals = [one for one in script.operations if isinstance(one, Launch) and one.name == "msm_total"]
    assert [int(one.arguments[3]) for one in totals] == [1] + [0] * (parts - 1)  # type: ignore[arg-type]
    digits = [one for one in script.operations if isinstance(one, Launch) and one.name.startswith("msm_digits")]
    windows = [(int(one.arguments[4]), int(one.arguments[5])) for one in digits]  # type: ignore[arg-type]
    assert windows == [(first, count) for first, count in form.groups()]


def test_without_the_affine_form() -> None:
    script = recorded(BN254, 1, Variant(shape(BN254, 100), affine=False))
    assert script.operations[-1] == Wait(On.CALLER, len(script.marks) - 1)
    assert not any(ref.base == Base.RESULT for one in script.operations for ref in references(one))


def test_reversed_order_is_the_sorts() -> None:
    for bits in (0, 11):
        script = recorded(BN254, 1, Variant(shape(BN254, 1 << 11), bits))
        (scatter,) = [one for one in script.operations if isinstance(one, Launch) and one.name == "sort_scatter"]
        assert scatter.arguments[-1] == np.uint32(bits)


# ---- the recorder ----

PROGRAM = Program("some.cu")


def test_a_region_that_is_too_small() -> None:
    recorder = Recorder(0)
    region = recorder.region(1024)
    with recorder.using(region):
        recorder.empty(512)
        recorder.empty(1)
        region.again()
        assert recorder.empty(1024) == Ref(0, 0, 1024)
        with pytest.raises(MemoryError, match="takes 1536 bytes of a part of its block, its plan is 1024"):
            recorder.empty(0)


def test_events_of_marks_come_first() -> None:
    recorder = Recorder(0)
    with recorder.on(3):
        first = recorder.record()
        recorder.mark("one")
        second = recorder.record()
        last = recorder.mark("two")
        for event in (first, second, last):
            recorder.wait(event)
    script = recorder.script()
    assert [one.event for one in script.operations if isinstance(one, Record)] == [2, 0, 3, 1]
    assert [one.event for one in script.operations if isinstance(one, Wait)] == [2, 3, 1]
    assert (script.marks, script.inner) == (("one", "two"), 2)


def test_parts_of_arrays() -> None:
    array = Ref(1, 512, 100)
    assert array[4:] == Ref(1, 516, 96)
    assert array[:40] == Ref(1, 512, 40)
    assert array[40:80] == Ref(1, 552, 40)
    assert array[90:200] == Ref(1, 602, 10)


@pytest.mark.parametrize(("grid", "block"), [(0, 32), ((1, 0), 32), (1, 0)])
def test_an_empty_grid_is_refused(grid: Any, block: int) -> None:
    recorder = Recorder(0)
    with recorder.on(0), pytest.raises(ValueError, match="some_kernel: a grid of"):
        recorder.launch(PROGRAM, "some_kernel", grid, block, ())
