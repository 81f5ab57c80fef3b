"""How many points of a key's queries are not at infinity: what a device holds and sums of them."""

from __future__ import annotations

from cuzk_engine import native
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import Query


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
