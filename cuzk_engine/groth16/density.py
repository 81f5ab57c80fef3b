"""How many points of a key's queries are not at infinity, and how many coefficients are neither one nor minus one: what
a device holds of them."""

from __future__ import annotations

from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import Query

COUNTS: Final = len(Query) + 1
_ROWS: Final = 1 << 18


def count_present(zkey: ZKey, threads: int = 0, cancel_address: int = 0) -> tuple[int, ...]:
    """For each query in the order of `Query`, then `count_general`. Reads the key once, as fast as the file or memory
    can be read. Raises CancelledError."""
    queries = {Query.H: zkey.h, Query.A: zkey.a, Query.B1: zkey.b1, Query.B2: zkey.b2, Query.L: zkey.l}
    library = native.library()
    points = tuple(
        library.points_present(
            zkey.curve,
            native.Group(query.group),
            queries[query],
            len(queries[query]),
            native.Call(threads, cancel_address),
        )
        for query in Query
    )
    return *points, count_general(zkey.curve, zkey.coefficients)


def count_general(curve: Curve, section: Bytes) -> int:
    """How many of the entries of section 4 of a zkey, (n, 44), have a coefficient that is neither one nor minus one."""
    one = (1 << 256) % curve.r
    values = [np.frombuffer(x.to_bytes(32, "little"), "<u8") for x in (one, curve.r - one)]
    found = 0
    for first in range(0, len(section), _ROWS):
        words = np.ascontiguousarray(section[first : first + _ROWS, 12:44]).view("<u8")
        found += len(words) - sum(int((words == value).all(axis=1).sum()) for value in values)
    return found
