"""What the operations take on a GPU: plain arithmetic without CuPy, by which plans are made and memory is allocated."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import Need
from cuzk_engine.devices.cuda.shape import SCAN_TILE, Shape, aligned_size, scratch_bytes, shape, table_rows

FR_BYTES: Final = 32
ENTRY_BYTES: Final = 44  # of section 4 of a zkey
LONGEST_ROW: Final = 64  # entries of a row that one thread sums
_PART_BYTES: Final = 32 << 20  # of that section on the device at a time


def point_bytes(curve: Curve, group: int) -> int:
    return curve.g2_bytes if group == 2 else curve.g1_bytes


def table_bytes(log_n: int) -> int:
    return table_rows(log_n) * FR_BYTES


# ---- sums ----


def msm_budget(capacity: int, parallel: int) -> int:
    """What the arrays of one MSM may take on a device of ``capacity`` bytes where so many are under way: together a
    quarter of it, since a proof's vectors and the key's points need the rest."""
    return capacity // (4 * parallel)


@lru_cache(maxsize=256)
def msm_form(curve: Curve, group: int, n: int, budget: int) -> Shape:
    """How ``n`` points are summed in arrays of about ``budget`` bytes."""
    return shape(curve, n, group, budget=budget)


@lru_cache(maxsize=1024)
def msm_arena_bytes(curve: Curve, group: int, n: int, budget: int, *, picked: bool = False) -> int:
    """What the arrays of an MSM take, without the points; ``picked``: its scalars are picked from more first."""
    scalars = aligned_size(n * FR_BYTES) if picked else 0
    return scalars + scratch_bytes(msm_form(curve, group, n, budget), 2 * point_bytes(curve, group))


def is_picked(n: int, present: int) -> bool:
    """Whether leaving the points at infinity out saves time and memory: from a quarter on."""
    return 4 * present <= 3 * n


def msm_need(curve: Curve, group: int, n: int, present: int, budget: int, *, resident: bool) -> Need:
    size = point_bytes(curve, group)
    if not resident:
        return Need(msm_arena_bytes(curve, group, n, budget, picked=True) if n else 0, transit=n * size)
    if not is_picked(n, present):
        return Need(msm_arena_bytes(curve, group, n, budget), stay=n * size)
    scratch = msm_arena_bytes(curve, group, present, budget, picked=True) if present else 0
    return Need(scratch, stay=present * (size + 4))


# ---- rows ----


def part_entries() -> int:
    """Entries of section 4 that travel together."""
    return _PART_BYTES // ENTRY_BYTES


def matrix_sizes(n: int, domain: int, generals: int, long_rows: int) -> list[int]:
    """Bytes of the arrays of ``Matrices``, in their order."""
    return [aligned_size(x) for x in (4 * (2 * domain + 1), 4 * n, 4 * n, 32 * generals, 4 * long_rows)]


def matrices_bytes(n: int, domain: int, general: int | None = None) -> int:
    """What ``n`` entries take on the device at most, of which so many are ``general`` (None: all), that is neither one
    nor minus one."""
    return sum(matrix_sizes(n, domain, n if general is None else general, min(domain, n // (LONGEST_ROW + 1))))


def evaluation_bytes(n_vars: int) -> int:
    """Scratch of ``Vectors.evaluate``: the witness in Montgomery form."""
    return aligned_size(FR_BYTES * n_vars)


def preparation_bytes(n: int, domain: int) -> int:
    """Scratch of ``Vectors.prepare``: two parts, counts and their sums."""
    rows = 2 * domain + 1
    counts = (4 * rows, 32, 4 * (-(-rows // SCAN_TILE) + 1))
    return 2 * min(n, part_entries()) * ENTRY_BYTES + sum(aligned_size(x) for x in counts)


def evaluate_need(
    coefficients: int, n_vars: int, domain: int, *, prepared: bool = False, general: int | None = None
) -> Need:
    """``prepared``: the matrices are resident already."""
    evaluation = evaluation_bytes(n_vars)
    if prepared:
        return Need(evaluation)
    scratch = max(evaluation, preparation_bytes(coefficients, domain))
    return Need(scratch, stay=matrices_bytes(coefficients, domain, general))
