"""The phases of a multi-scalar multiplication as recorded launches: how an MSM runs, without a device.

digits → sort by window and bucket → tasks of equal length → bucket sums → row and column sums → result. The
algorithms are described in kernels/msm/: digits_cuda.hpp, sort.cu, tasks_cuda.hpp, tree_cuda.hpp, reduce_cuda.hpp.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.need import FR_BYTES
from cuzk_engine.devices.cuda.programs import MsmPrograms
from cuzk_engine.devices.cuda.script import Argument, Given, Recorder, Ref
from cuzk_engine.devices.cuda.shape import LEVELS, SCAN_TILE, TILE, Shape, fold_steps
from cuzk_engine.devices.cuda.tree import accumulate_by_tree

_FAN_IN_LOG: Final = 4  # as in tasks_cuda.hpp
_NULL: Final = np.uint64(0)

Table: TypeAlias = tuple[Ref, Ref, np.uint32]
"""The kernels' table of points and images."""


def launch_size(n: int) -> int:
    """Blocks of 256 threads for ``n`` elements, each thread several where they are many."""
    return max(1, min(-(-n // 256), 132 * 16))


class Phases:
    """Of one group of one curve, into ``recorder``."""

    def __init__(self, recorder: Recorder, curve: Curve, group: int, names: MsmPrograms) -> None:
        self._recorder, self._curve, self._lanes, self._names = recorder, curve, group, names
        self._coordinate_bytes = curve.n8q * group
        self._sum_bytes = 4 * self._coordinate_bytes

    def pick(self, scalars: Ref, index: Ref | None, first: Given, reversed_bits: int, there: Ref | None, n: int) -> Ref:
        """``n`` of the scalars from number ``first`` on, or those whose numbers from there ``index`` holds; zero for
        those of the points ``there`` that are at infinity."""
        out = self._recorder.empty(n * FR_BYTES)
        words = np.uint32(0 if there is None else there.nbytes // (8 * n))
        chosen, points = (_NULL if x is None else x for x in (index, there))
        arguments = (scalars, chosen, first, np.uint32(n), np.uint32(reversed_bits), points, words, out)
        program = programs.preparation(self._curve)
        self._recorder.launch(program, "gather_scalars", launch_size(n), 256, arguments)
        return out

    def images(self, points: Ref, form: Shape, images: Ref | None) -> Table:
        """Fills ``images``, which may be None without halves."""
        if images is None:
            return points, points, np.uint32(0xFFFFFFFF)
        grid = min(-(-form.n * self._lanes // 256), 132 * 32)
        self._recorder.launch(self._names.images, "msm_images", grid, 256, (points, np.uint64(form.n), images))
        return points, images, np.uint32(form.n)

    def digits(self, scalars: Ref, part: Shape, windows: int, first: int) -> Ref:
        """Digits of the windows of ``part``, which are those of all ``windows`` from ``first`` on, window after
        window."""
        out = self._recorder.empty(4 * part.entries)
        words = [np.uint32(x) for x in (part.n, part.bits, windows, first, part.windows)]
        name = "msm_digits_of_halves" if part.halves == 2 else "msm_digits"
        grid = min(-(-part.n // 256), 132 * 32)
        self._recorder.launch(self._names.digits, name, grid, 256, (scalars, *words, out))
        return out

    def _scan(self, data: Ref) -> Ref:
        """Exclusive prefix sums in place; returns the total, an array of one."""
        launch, program = self._recorder.launch, self._names.sort
        n = data.nbytes // 4
        blocks = -(-n // SCAN_TILE)
        sums = self._recorder.empty(4 * (blocks + 1))
        launch(program, "scan_tiles", blocks, 256, (data, np.uint64(n), sums))
        launch(program, "scan_sums", 1, 1024, (sums, np.uint32(blocks)))
        launch(program, "scan_add", blocks, 256, (data, np.uint64(n), sums))
        return sums[4 * blocks :]

    def sort(self, digits: Ref, form: Shape, reversed_bits: int = 0) -> tuple[Ref, Ref, Ref]:
        """Entries (point's number in the table, sign in bit 31) ordered by window and bucket, and where those of each
        bucket begin and end."""
        empty, launch, program = self._recorder.empty, self._recorder.launch, self._names.sort
        tiles = -(-form.numbers // TILE)
        low, segments = form.low_bits, form.segments
        bins = segments // form.windows
        counts = empty(4 * segments * tiles)
        words = (np.uint32(form.numbers), np.uint32(low), np.uint32(bins))
        grid = (tiles, form.windows)
        launch(program, "sort_count", grid, 512, (digits, *words, counts), shared=4 * bins)
        total = self._scan(counts)
        keys, values = empty(2 * form.entries), empty(4 * form.entries)
        scattered = (digits, *words, counts, keys, values, np.uint32(reversed_bits))
        launch(program, "sort_scatter", grid, 512, scattered, shared=4 * (64 + 2 * bins + 2 * TILE))
        starts, first_tiles = empty(4 * (segments + 1)), empty(4 * (segments + 1))
        segmented = (counts, np.uint32(tiles), total, np.uint32(segments), starts, first_tiles)
        launch(program, "sort_segments", 1, 1024, segmented)
        most_tiles = form.entries // TILE + segments
        begin = self._recorder.zeros(4 * form.buckets)
        common = (starts, first_tiles, np.uint32(segments), np.uint32(1 << low))
        launch(program, "bucket_count", most_tiles, 512, (keys, *common, begin), shared=4 << low)
        self._scan(begin)
        end = self._recorder.copy(begin)
        out = empty(4 * form.entries)
        shared = 4 * (64 + (2 << low)) + 6 * TILE
        launch(program, "bucket_scatter", most_tiles, 512, (keys, values, *common, end, out), shared=shared)
        return out, begin, end

    def tasks(self, begin: Ref, end: Ref, form: Shape, sums: Ref) -> tuple[Ref, Ref, Ref, Ref]:
        """Tasks, the counters (tasks, slots, long buckets, 0, groups of each level), the classes of equal length and
        the groups of each level, of the buckets of ``form``'s windows."""
        recorder, program = self._recorder, self._names.tasks
        before = 4 * (4 + LEVELS + 1)
        counters = recorder.zeros(before + 4 * (form.longest + 1))
        totals, histogram = counters[:before], counters[before:]
        classes = recorder.empty(8 * (form.longest + 1))
        most_long = form.entries // (form.longest + 1) + 1
        long_buckets = recorder.empty(4 * (4 + LEVELS) * most_long)
        allot = recorder.zeros if form.width > 1 else recorder.empty  # there are places without a task
        tasks = allot(12 * form.task_groups * form.width)
        pitch = form.slots // 2 + 1
        groups = recorder.empty(16 * LEVELS * pitch)
        buckets, longest = np.uint32(form.buckets), np.uint32(form.longest)
        size = np.uint32(self._coordinate_bytes)
        counted = (begin, end, buckets, longest, histogram, totals, long_buckets, sums, size)
        recorder.launch(program, "task_count", min(-(-form.buckets // 256), 132 * 8), 256, counted)
        recorder.launch(program, "task_order", 1, 1, (histogram, longest, np.uint32(form.width), totals, classes))
        grid = min(-(-form.buckets // 4096), 132 * 8)
        recorder.launch(program, "task_place", grid, 256, (begin, end, buckets, longest, histogram, tasks))
        arguments = (long_buckets, totals, buckets, longest, histogram, tasks, groups, np.uint32(pitch))
        recorder.launch(program, "task_pieces", 132 * 8, 256, arguments)
        return tasks, totals, classes, groups

    def accumulate(
        self,
        tasks: Ref,
        totals: Ref,
        classes: Ref,
        groups: Ref,
        values: Ref,
        table: Table,
        form: Shape,
        sums: Ref,
    ) -> None:
        launch, names = self._recorder.launch, self._names
        if form.rounds:
            given = (tasks, totals, classes, values, table, form, sums)
            accumulate_by_tree(self._recorder, names.tree, self._curve.n8q, *given)
        else:
            grid = -(-form.most_tasks * self._lanes // 128)
            launch(names.accumulate, "msm_accumulate", grid, 128, (tasks, totals, values, *table, sums))
        pieces, level, pitch = -(-form.numbers // form.piece), 0, groups.nbytes // LEVELS
        while pieces > 1 and level < LEVELS:
            most = min(form.slots // 2 + 1, form.slots >> (_FAN_IN_LOG * level) | 1)
            grid = min(-(-most * self._lanes // 128), 132 * 16)
            merged = (groups[level * pitch : (level + 1) * pitch], totals[4 * (4 + level) :], sums)
            launch(names.merge, "msm_merge", grid, 128, merged)
            pieces = -(-pieces >> _FAN_IN_LOG)
            level += 1

    def _fold_all(self, sums: Ref, form: Shape, row_log: int, column_log: int) -> list[Ref]:
        """Sums of the rows and of the columns of each window's buckets. Few additions a thread: the levels are short,
        and independent threads are many."""
        data, sizes, left = [sums, sums], [form.buckets] * 2, [column_log, row_log]
        while any(left):
            steps = fold_steps(left, sizes)
            words: list[Argument] = []
            out = list(data)
            for k in range(2):
                sizes[k] >>= steps[k]
                if steps[k]:
                    out[k] = self._recorder.empty(sizes[k] * self._sum_bytes)
                words += [data[k], out[k], np.uint32(sizes[k] if steps[k] else 0), np.uint32(1 << steps[k])]
                left[k] -= steps[k]
            grid = (-(-max(sizes) * self._lanes // 128), 2)
            self._recorder.launch(self._names.fold, "msm_fold", grid, 128, [*words, np.uint32(1 << column_log)])
            data = out
        return data

    def reduce(self, sums: Ref, form: Shape) -> Ref:
        """The sums of the windows, XYZZ."""
        column_log = form.buckets_log // 2
        row_log = form.buckets_log - column_log
        bits: list[Ref] = []
        words: list[Argument] = []
        for data, log in zip(self._fold_all(sums, form, row_log, column_log), (row_log, column_log), strict=True):
            bits.append(self._recorder.empty((log + 1) * form.windows * self._sum_bytes))
            words += [data, bits[-1], np.uint32(log)]
        grid = (max(row_log, column_log) + 1, form.windows, 2)
        self._recorder.launch(self._names.bits, "msm_bits", grid, 64 * self._lanes, words)
        out = self._recorder.empty(form.windows * self._sum_bytes)
        arguments: list[Argument] = [*bits, np.uint32(row_log), np.uint32(column_log), out]
        self._recorder.launch(self._names.finish, "msm_window", form.windows, 128 * self._lanes, arguments)
        return out

    def total(self, windows: Ref, form: Shape, fresh: bool, out: Ref) -> None:
        """Raises ``out`` by the windows' sums: out * 2^(bits * windows) + their weighted sum."""
        arguments = (windows, np.uint32(form.windows), np.uint32(form.bits), np.int32(fresh), out)
        self._recorder.launch(self._names.finish, "msm_total", 1, 32, arguments)

    def write_affine(self, total: Ref, out: Ref) -> None:
        """The affine form of a sum, Montgomery form."""
        self._recorder.launch(self._names.affine, "sums_to_affine", 1, 128, (total, np.uint32(1), out))
