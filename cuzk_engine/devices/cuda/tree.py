"""Sums of tasks by trees of affine additions with shared inversions; the algorithm is in kernels/msm/tree_cuda.hpp."""

from __future__ import annotations

import numpy as np

from cuzk_engine.devices.cuda.programs import TreePrograms
from cuzk_engine.devices.cuda.script import Recorder, Ref
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


def accumulate_by_tree(
    recorder: Recorder,
    programs: TreePrograms,
    component_bytes: int,
    tasks: Ref,
    totals: Ref,
    classes: Ref,
    values: Ref,
    table: tuple[Ref, Ref, np.uint32],
    form: Shape,
    sums: Ref,
) -> None:
    """sums[task.out] of all tasks of a part, XYZZ. ``table``: the kernels' PointTable."""
    empty, launch, row = recorder.empty, recorder.launch, WARP * component_bytes
    rows = empty(form.rows * 2 * row)
    products = empty((form.rows + 1) // 2 * row)
    warps = tree_warps(form.task_groups, form.share(0, TREE_PAIRS), TREE_LEAST)
    products_of_all, inverses = (empty(warps * row) for _ in range(2))
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
    launch(programs.finish, "tree_finish", grid, 128, (tasks, totals, classes, longest, rows, sums))
