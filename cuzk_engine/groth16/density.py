"""How many points of a key's queries are not at infinity, and how many coefficients of its matrices are general: what
a device holds of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import Query

_PART: Final = 1 << 18  # coefficients that a thread looks at together
_THREADS: Final = 8  # more do not read faster


@dataclass(frozen=True, slots=True)
class Densities:
    """As `CircuitSizes` has them."""

    present: tuple[int, ...]
    general: int


def count_densities(zkey: ZKey, threads: int = 0, cancel_address: int = 0) -> Densities:
    """Reads points and coefficients once. Raises CancelledError."""
    return Densities(count_present(zkey, threads, cancel_address), count_general(zkey, threads))


def count_present(zkey: ZKey, threads: int = 0, cancel_address: int = 0) -> tuple[int, ...]:
    """For each query in the order of `Query`. Reads the points once, as fast as the file or memory can be read. Raises
    CancelledError."""
    queries = {Query.H: zkey.h, Query.A: zkey.a, Query.B1: zkey.b1, Query.B2: zkey.b2, Query.L: zkey.l}
    library = native.library()
    return tuple(
        library.points_present(
            zkey.curve,
            native.Group(query.group),
            queries[query],
            len(queries[query]),
            native.Call(threads, cancel_address),
        )
        for query in Query
    )


def count_general(zkey: ZKey, threads: int = 0) -> int:
    """Coefficients of A and B that are neither one nor minus one."""
    one = (1 << 512) % zkey.curve.r  # the file's coefficients carry the square of the Montgomery factor
    units = [np.frombuffer(value.to_bytes(32, "little"), np.uint64) for value in (one, zkey.curve.r - one)]
    entries = zkey.coefficients

    def count(first: int) -> int:
        values = entries[first : first + _PART, 12:].view(np.uint64)
        # One word tells nearly all that are general; the others are looked at in full.
        maybe = np.flatnonzero((values[:, 0] == units[0][0]) | (values[:, 0] == units[1][0]))
        rows = values[maybe]
        return len(values) - sum(int((rows == unit).all(axis=1).sum()) for unit in units)

    starts = range(0, len(entries), _PART)
    workers = min(threads or len(os.sched_getaffinity(0)), _THREADS, len(starts))
    if workers < 2:
        return sum(map(count, starts))
    with ThreadPoolExecutor(workers, "coefficients") as pool:
        return sum(pool.map(count, starts))
