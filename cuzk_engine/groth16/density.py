"""How many points of a key's queries are not at infinity: what a device holds and sums of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import Query

_AT_ONCE: Final = 1 << 20  # points between two calls of ``check``


def count_present(zkey: ZKey, check: Callable[[], None] = lambda: None) -> tuple[int, ...]:
    """For each query in the order of `Query`. B in G2 has its points where B in G1 has them, and H has them all.
    ``check`` is called now and then: it may raise."""
    counts = {Query.H: zkey.domain_size}
    for query, points in ((Query.A, zkey.a), (Query.B1, zkey.b1), (Query.L, zkey.l)):
        counts[query] = sum(_present(part, check) for part in _parts(points))
    counts[Query.B2] = counts[Query.B1]
    return tuple(counts[query] for query in Query)


def _parts(points: Bytes) -> list[Bytes]:
    return [points[start : start + _AT_ONCE] for start in range(0, len(points), _AT_ONCE)]


def _present(points: Bytes, check: Callable[[], None]) -> int:
    """Infinity is all zeros; that another point begins with 64 zero bits happens once in 2^64, and costs nothing."""
    check()
    # Sections begin anywhere: a view of 64-bit words may be unaligned, which numpy copes with.
    first = np.ndarray((len(points),), dtype="<u8", buffer=points, strides=(points.strides[0],))
    return int(np.count_nonzero(first))
