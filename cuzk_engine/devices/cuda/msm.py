"""Multi-scalar multiplication on a GPU, by buckets (Pippenger).

digits → sort by window and bucket → tasks of equal length → bucket sums → row and column sums → result. The
algorithms are described in kernels/msm/: digits_cuda.hpp, sort.cu, tasks_cuda.hpp, tree_cuda.hpp, reduce_cuda.hpp.

Windows are taken in parts, the highest first. While the buckets of one part are filled, those of the one before it are
reduced and the entries of the one after it sorted, on streams of higher priority. What is left at the ends is the sort
of the first part and the reduction of the last.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.programs import MsmPrograms
from cuzk_engine.devices.cuda.shape import (
    LEVELS,
    SCAN_TILE,
    TILE,
    Shape,
    aligned_size,
    fold_steps,
    image_bytes,
    part_bytes,
    scratch_bytes,
    shape,
)
from cuzk_engine.devices.cuda.tree import Tree

_FAN_IN_LOG = 4  # as in tasks_cuda.hpp

__all__ = ["Msm", "Shape", "scratch_bytes", "shape"]


def _event() -> Any:
    return cupy.cuda.Event(disable_timing=True)


class _WorkSet:
    """Memory of a part at a time; ``allocate`` stands for CuPy's allocator."""

    def __init__(self, nbytes: int) -> None:
        self._block = cupy.empty(nbytes, dtype=np.uint8)
        self.used = 0
        self.over: Any = None  # the event after which it is free again

    def allocate(self, nbytes: int) -> Any:
        offset = self.used
        self.used += aligned_size(nbytes)
        if self.used > self._block.nbytes:
            raise MemoryError(f"an MSM's part takes {self.used} bytes, its plan is {self._block.nbytes}")
        return self._block.data + offset


class Streams:
    """Of an MSM: ``front`` sorts, ``filling`` fill buckets, ``back`` reduces. CUDA takes a priority out of its range as
    the nearest one in it."""

    def __init__(self, priority: int = -5, filling: int = -4) -> None:
        self.front, self.back = (cupy.cuda.Stream(non_blocking=True, priority=min(priority, 0)) for _ in range(2))
        self.filling = [cupy.cuda.Stream(non_blocking=True, priority=min(filling, 0)) for _ in range(2)]


class Msm:
    """Sums of scalars times points of one group of one curve. Keeps no arrays between calls: memory comes from CuPy's
    allocator.

    ``names``: its programs, None for those that were best on an H200.
    """

    def __init__(
        self,
        kernels: Kernels,
        curve: Curve,
        group: int,
        names: MsmPrograms | None = None,
    ) -> None:
        self._kernels, self.curve, self.group = kernels, curve, group
        self._lanes = group
        self.coordinate_bytes = curve.n8q * group
        self.point_bytes, self.sum_bytes = 2 * self.coordinate_bytes, 4 * self.coordinate_bytes
        names = names or programs.msm(curve, group)
        self._digits, self._sort, self._tasks = names.digits, names.sort, names.tasks
        self._accumulate, self._merge, self._fold = names.accumulate, names.merge, names.fold
        self._bits, self._finish, self._fixed, self._affine = names.bits, names.finish, names.fixed, names.affine
        self._images = names.images
        self._tree = Tree(kernels, names.tree, curve.n8q)
        self._streams = Streams()

    # ---- the phases ----

    def digits(self, scalars: Any, part: Shape, form: Shape | None = None, first: int = 0) -> Any:
        """Digits of the windows of ``part``, which are those of ``form`` from ``first`` on, window after window."""
        whole = form or part
        out = cupy.empty(part.entries, dtype=np.uint32)
        words = [np.uint32(x) for x in (part.n, part.bits, whole.windows, first, part.windows)]
        name = "msm_digits_of_halves" if part.halves == 2 else "msm_digits"
        self._kernels.launch(self._digits, name, min(-(-part.n // 256), 132 * 32), 256, (scalars, *words, out))
        return out

    def _scan(self, data: Any) -> Any:
        """Exclusive prefix sums in place; returns the total, an array of one."""
        n = data.size
        blocks = -(-n // SCAN_TILE)
        sums = cupy.empty(blocks + 1, dtype=np.uint32)
        self._kernels.launch(self._sort, "scan_tiles", blocks, 256, (data, np.uint64(n), sums))
        self._kernels.launch(self._sort, "scan_sums", 1, 1024, (sums, np.uint32(blocks)))
        self._kernels.launch(self._sort, "scan_add", blocks, 256, (data, np.uint64(n), sums))
        return sums[blocks:]

    def sort(self, digits: Any, form: Shape, reversed_bits: int = 0) -> tuple[Any, Any, Any]:
        """Entries (point's number in the table, sign in bit 31) ordered by window and bucket, and where those of each
        bucket begin and end."""
        launch, program = self._kernels.launch, self._sort
        tiles = -(-form.numbers // TILE)
        low, segments = form.low_bits, form.segments
        bins = segments // form.windows
        counts = cupy.empty(segments * tiles, dtype=np.uint32)
        words = (np.uint32(form.numbers), np.uint32(low), np.uint32(bins))
        grid = (tiles, form.windows)
        launch(program, "sort_count", grid, 512, (digits, *words, counts), shared=4 * bins)
        total = self._scan(counts)
        keys = cupy.empty(form.entries, dtype=np.uint16)
        values = cupy.empty(form.entries, dtype=np.uint32)
        scattered = (digits, *words, counts, keys, values, np.uint32(reversed_bits))
        launch(program, "sort_scatter", grid, 512, scattered, shared=4 * (64 + 2 * bins + 2 * TILE))
        starts = cupy.empty(segments + 1, dtype=np.uint32)
        first_tiles = cupy.empty(segments + 1, dtype=np.uint32)
        segmented = (counts, np.uint32(tiles), total, np.uint32(segments), starts, first_tiles)
        launch(program, "sort_segments", 1, 1024, segmented)
        most_tiles = form.entries // TILE + segments
        begin = cupy.zeros(form.buckets, dtype=np.uint32)
        common = (starts, first_tiles, np.uint32(segments), np.uint32(1 << low))
        launch(program, "bucket_count", most_tiles, 512, (keys, *common, begin), shared=4 << low)
        self._scan(begin)
        end = begin.copy()
        out = cupy.empty(form.entries, dtype=np.uint32)
        shared = 4 * (64 + (2 << low)) + 6 * TILE
        launch(program, "bucket_scatter", most_tiles, 512, (keys, values, *common, end, out), shared=shared)
        return out, begin, end

    def tasks(self, begin: Any, end: Any, form: Shape, sums: Any) -> tuple[Any, Any, Any, Any]:
        """Tasks, the counters (tasks, slots, long buckets, 0, groups of each level), the classes of equal length and
        the groups of each level, of the buckets of ``form``'s windows."""
        launch, program = self._kernels.launch, self._tasks
        counters = cupy.zeros(form.longest + 1 + 4 + LEVELS + 1, dtype=np.uint32)
        totals, histogram = counters[: 4 + LEVELS + 1], counters[4 + LEVELS + 1 :]
        classes = cupy.empty(2 * (form.longest + 1), dtype=np.uint32)
        most_long = form.entries // (form.longest + 1) + 1
        long_buckets = cupy.empty((most_long, 4 + LEVELS), dtype=np.uint32)
        allot = cupy.zeros if form.width > 1 else cupy.empty  # there are places without a task
        tasks = allot((form.task_groups * form.width, 3), dtype=np.uint32)
        pitch = form.slots // 2 + 1
        groups = cupy.empty((LEVELS, pitch, 4), dtype=np.uint32)
        buckets, longest = np.uint32(form.buckets), np.uint32(form.longest)
        launch(
            program,
            "task_count",
            min(-(-form.buckets // 256), 132 * 8),
            256,
            (begin, end, buckets, longest, histogram, totals, long_buckets, sums, np.uint32(self.coordinate_bytes)),
        )
        launch(program, "task_order", 1, 1, (histogram, longest, np.uint32(form.width), totals, classes))
        grid = min(-(-form.buckets // 4096), 132 * 8)
        launch(program, "task_place", grid, 256, (begin, end, buckets, longest, histogram, tasks))
        arguments = (long_buckets, totals, buckets, longest, histogram, tasks, groups, np.uint32(pitch))
        launch(program, "task_pieces", 132 * 8, 256, arguments)
        return tasks, totals, classes, groups

    def images(self, points: Any, form: Shape, images: Any) -> tuple[Any, ...]:
        """The kernels' table of points and images; fills ``images``, which may be None without halves."""
        if form.halves == 1:
            return points, points, np.uint32(0xFFFFFFFF)
        grid = min(-(-form.n * self._lanes // 256), 132 * 32)
        self._kernels.launch(self._images, "msm_images", grid, 256, (points, np.uint64(form.n), images))
        return points, images, np.uint32(form.n)

    def accumulate(
        self,
        tasks: Any,
        totals: Any,
        classes: Any,
        groups: Any,
        values: Any,
        table: tuple[Any, ...],
        form: Shape,
        sums: Any,
    ) -> None:
        if form.rounds:
            self._tree.accumulate(tasks, totals, classes, values, table, form, sums)
        else:
            grid = -(-form.most_tasks * self._lanes // 128)
            self._kernels.launch(self._accumulate, "msm_accumulate", grid, 128, (tasks, totals, values, *table, sums))
        pieces, level = -(-form.numbers // form.piece), 0
        while pieces > 1 and level < LEVELS:
            most = min(form.slots // 2 + 1, form.slots >> (_FAN_IN_LOG * level) | 1)
            grid = min(-(-most * self._lanes // 128), 132 * 16)
            self._kernels.launch(self._merge, "msm_merge", grid, 128, (groups[level], totals[4 + level :], sums))
            pieces = -(-pieces >> _FAN_IN_LOG)
            level += 1

    def _fold_all(self, sums: Any, form: Shape, row_log: int, column_log: int) -> tuple[Any, Any]:
        """Sums of the rows and of the columns of each window's buckets. Few additions a thread: the levels are short,
        and independent threads are many."""
        data, sizes, left = [sums, sums], [form.buckets] * 2, [column_log, row_log]
        while any(left):
            steps = fold_steps(left, sizes)
            words: list[Any] = []
            out = list(data)
            for k in range(2):
                sizes[k] >>= steps[k]
                if steps[k]:
                    out[k] = cupy.empty(sizes[k] * self.sum_bytes, dtype=np.uint8)
                words += [data[k], out[k], np.uint32(sizes[k] if steps[k] else 0), np.uint32(1 << steps[k])]
                left[k] -= steps[k]
            grid = (-(-max(sizes) * self._lanes // 128), 2)
            self._kernels.launch(self._fold, "msm_fold", grid, 128, (*words, np.uint32(1 << column_log)))
            data = out
        return data[0], data[1]

    def reduce(self, sums: Any, form: Shape) -> Any:
        """The sums of the windows, XYZZ."""
        column_log = form.buckets_log // 2
        row_log = form.buckets_log - column_log
        words: list[Any] = []
        for data, log in zip(self._fold_all(sums, form, row_log, column_log), (row_log, column_log), strict=True):
            out = cupy.empty((log + 1) * form.windows * self.sum_bytes, dtype=np.uint8)
            words += [data, out, np.uint32(log)]
        grid = (max(row_log, column_log) + 1, form.windows, 2)
        self._kernels.launch(self._bits, "msm_bits", grid, 64 * self._lanes, words)
        bits = [words[1], words[4]]
        out = cupy.empty(form.windows * self.sum_bytes, dtype=np.uint8)
        arguments = (*bits, np.uint32(row_log), np.uint32(column_log), out)
        self._kernels.launch(self._finish, "msm_window", form.windows, 128 * self._lanes, arguments)
        return out

    def total(self, windows: Any, form: Shape, fresh: bool, out: Any) -> None:
        """Raises ``out`` by the windows' sums: out * 2^(bits * windows) + their weighted sum."""
        arguments = (windows, np.uint32(form.windows), np.uint32(form.bits), np.int32(fresh), out)
        self._kernels.launch(self._finish, "msm_total", 1, 32, arguments)

    # ---- the whole ----

    def run(
        self,
        points: Any,
        scalars: Any,
        form: Shape | None = None,
        reversed_bits: int = 0,
        marks: list[tuple[str, Any]] | None = None,
        streams: Streams | None = None,
    ) -> Any:
        """Enqueues the MSM; returns the sum in XYZZ coordinates, Montgomery form, on the device.

        ``points``: affine, Montgomery form, infinity all zero; of order r where scalars are split into halves.
        ``scalars``: (n, 4) uint64, plain, below r. With ``reversed_bits`` = log n, scalar i belongs to the point whose
        index is i's bit reversal. ``marks`` receives the phases' names with events at their ends. ``streams``: None for
        its own.
        """
        streams = streams or self._streams
        n = scalars.shape[0]
        if n == 0:
            return cupy.zeros(self.sum_bytes, dtype=np.uint8)
        form = form or shape(self.curve, n, self.group)
        marks = [] if marks is None else marks
        caller = cupy.cuda.get_current_stream()
        out = cupy.empty(self.sum_bytes, dtype=np.uint8)
        images = cupy.empty(image_bytes(form, self.sum_bytes), dtype=np.uint8) if form.halves == 2 else None
        sets = [_WorkSet(part_bytes(form, self.sum_bytes)) for _ in range(form.work_sets)]
        called = caller.record(_event())
        streams.front.wait_event(called)
        streams.filling[0].wait_event(called)
        with streams.filling[0] as filling:  # beside the sort
            table = self.images(points, form, images)
            streams.filling[1].wait_event(filling.record(_event()))
        before = None
        for number, (first, count) in enumerate(form.groups()):
            work = sets[number % len(sets)]
            work.used = 0
            with cupy.cuda.using_allocator(work.allocate):
                part = form.part(count)
                with streams.front as front:
                    if work.over is not None:
                        front.wait_event(work.over)
                    digits = self.digits(scalars, part, form, first)
                    values, begin, end = self.sort(digits, part, reversed_bits)
                    sums = cupy.empty((part.buckets + part.slots) * self.sum_bytes, dtype=np.uint8)
                    tasks, totals, classes, groups = self.tasks(begin, end, part, sums)
                    marks.append(("sort", front.record()))
                with streams.filling[number % 2] as filling:
                    filling.wait_event(marks[-1][1])
                    self.accumulate(tasks, totals, classes, groups, values, table, part, sums)
                    marks.append(("accumulate", filling.record()))
                with streams.back as back:
                    back.wait_event(marks[-1][1])
                    windows = self.reduce(sums, part)
                    marks.append(("reduce", back.record()))
                    self.total(windows, part, number == 0, out)
                    before = work.over = back.record()
                    marks.append(("total", before))
        caller.wait_event(before)
        return out

    def to_affine(self, total: Any) -> tuple[int, ...]:
        """Plain affine coordinates of a sum: (x, y) in G1, (x0, x1, y0, y1) in G2; zeros for infinity. Waits for the
        device."""
        out = cupy.empty(self.point_bytes, dtype=np.uint8)
        self.write_affine(total, out)
        return self.plain(out)[0]

    def write_affine(self, total: Any, out: Any) -> None:
        """Enqueues the affine form of a sum, Montgomery form, into ``out`` (point_bytes)."""
        self._kernels.launch(self._affine, "sums_to_affine", 1, 128, (total, np.uint32(1), out))

    def plain(self, points: Any) -> list[tuple[int, ...]]:
        """Affine points on the device as plain integers."""
        q, size = self.curve.q, self.curve.n8q
        factor = pow(1 << (8 * size), -1, q)
        data = cupy.asnumpy(points).tobytes()
        numbers = [int.from_bytes(data[i : i + size], "little") * factor % q for i in range(0, len(data), size)]
        width = 2 * self.group
        return [tuple(numbers[i : i + width]) for i in range(0, len(numbers), width)]

    def fixed_base(self, base: bytes, scalars: Any) -> Any:
        """scalars[i] * base for every i, affine; ``base`` is an affine point in Montgomery form, ``scalars`` plain,
        (n, 4)."""
        n = scalars.shape[0]
        table = cupy.empty(32 * 256 * self.point_bytes, dtype=np.uint8)
        launch = self._kernels.launch
        point = cupy.asarray(np.frombuffer(base, dtype=np.uint8))
        launch(self._fixed, "fixed_table", 1, 32 * self._lanes, (point, table))
        out = cupy.empty(n * self.point_bytes, dtype=np.uint8)
        if n:
            grid = min(-(-n * self._lanes // 128), 132 * 64)
            launch(self._fixed, "fixed_multiply", grid, 128, (table, scalars, np.uint32(n), out))
        return out
