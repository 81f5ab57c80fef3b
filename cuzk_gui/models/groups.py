"""Groups of span kinds: what gets one colour, one legend entry and one share of a coarse bar."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Group(IntEnum):
    """The order is that of drawing, from bottom to top of a coarse bar."""

    LOCK_EVEN = 0
    LOCK_ODD = 1
    NTT = 2
    MSM = 3
    MATRICES = 4
    ABC = 5
    UP_PINNED = 6
    UP_PAGEABLE = 7
    DOWN = 8
    SRS = 9
    WITNESS = 10
    HOST = 11
    CHECK = 12
    OTHER = 13
    WAIT = 14


_EXACT: Final = {
    "pointwise": Group.ABC,
    "spmv": Group.MATRICES,
    "check": Group.CHECK,
    "lock.wait": Group.WAIT,
    "memory.wait": Group.WAIT,
    "host.load_key": Group.SRS,
    "host.read_witness": Group.WITNESS,
    "host.evaluate": Group.WITNESS,
}
_PREFIX: Final = {"ntt": Group.NTT, "msm": Group.MSM, "download": Group.DOWN, "host": Group.HOST}

LEGEND: Final = (
    (Group.NTT, "ntt"),
    (Group.MSM, "msm"),
    (Group.MATRICES, "spmv"),
    (Group.ABC, "a, b, c"),
    (Group.WITNESS, "evaluate"),
    (Group.SRS, "load key"),
    (Group.HOST, "host"),
    (Group.WAIT, "wait"),
)


def group_of(kind: str, lane: str, worker: int, pinned: bool | None) -> Group:
    """The group of a span; unknown kinds get one of their own."""
    if kind == "lock.held":
        return Group.LOCK_ODD if worker % 2 else Group.LOCK_EVEN
    exact = _EXACT.get(kind)
    if exact is not None:
        return exact
    prefix = kind.partition(".")[0]
    if prefix == "upload" or (lane == "h2d" and prefix not in _PREFIX):
        return Group.UP_PINNED if pinned else Group.UP_PAGEABLE
    return _PREFIX.get(prefix, Group.DOWN if lane == "d2h" else Group.OTHER)
