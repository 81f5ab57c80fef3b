"""Sums of tasks by trees of affine additions with shared inversions; the algorithm is in kernels/msm/tree_cuda.hpp."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.programs import TreePrograms
from cuzk_engine.devices.cuda.shape import (
    TREE_INVERTERS,
    TREE_LEAST,
    TREE_PAIRS,
    TREE_SHARE,
    WARP,
    Shape,
    tree_warps,
)

_WARPS = 4  # of a block


class Tree:
    def __init__(self, kernels: Kernels, programs: TreePrograms, component_bytes: int) -> None:
        self._kernels, self._programs = kernels, programs
        self._row = WARP * component_bytes

    def accumulate(
        self, tasks: Any, totals: Any, classes: Any, values: Any, table: tuple[Any, ...], form: Shape, sums: Any
    ) -> None:
        """sums[task.out] of all tasks of a part, XYZZ. ``table``: the kernels' PointTable."""
        launch, programs = self._kernels.launch, self._programs
        rows = cupy.empty(form.rows * 2 * self._row, dtype=np.uint8)
        products = cupy.empty((form.rows + 1) // 2 * self._row, dtype=np.uint8)
        warps = tree_warps(form.task_groups, form.share(0, TREE_PAIRS), TREE_LEAST)
        products_of_all, inverses = (cupy.empty(warps * self._row, dtype=np.uint8) for _ in range(2))
        longest = np.uint32(form.longest)
        inverting = (np.uint32(TREE_SHARE), np.uint32(TREE_INVERTERS))
        for number in range(form.rounds):
            each = form.share(number, TREE_PAIRS)
            sharing = (np.uint32(each), np.uint32(TREE_LEAST))
            warps = tree_warps(form.task_groups, each, TREE_LEAST)
            grid = -(-warps // _WARPS)
            common = (tasks, totals, classes, longest, values, *table, rows, products)
            last = (np.uint32(number), *sharing)
            kind = 0 if number == 0 else 1
            launch(programs.products[kind], "tree_products", grid, 128, (*common, products_of_all, *last))
            inverters = -(-tree_warps(warps, TREE_SHARE, TREE_INVERTERS) // _WARPS)
            arguments = (totals, *sharing, *inverting, products_of_all, inverses)
            launch(programs.invert, "tree_invert", inverters, 128, arguments)
            launch(programs.sums[kind], "tree_sums", grid, 128, (*common, inverses, *last))
        grid = -(-form.task_groups // _WARPS)
        finishing = (tasks, totals, classes, longest, rows, sums)
        launch(programs.finish, "tree_finish", grid, 128, finishing)
