"""Why a device stood still, in words, and how a gap of each cause is drawn."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from cuzk_engine.events import Cause
from cuzk_gui.models import words

CAUSES: Final = tuple(cause.value for cause in Cause)
"""Numbers of causes in columns; those that this version does not know count as unknown."""
_NUMBERS: Final = {name: number for number, name in enumerate(CAUSES)}
_UNKNOWN: Final = _NUMBERS[Cause.UNKNOWN.value]


class Blame(IntEnum):
    """Who can do something about a gap: what its tint says."""

    NOBODY = 0  # there was nothing to do
    SETTINGS = 1  # another setting would shorten it
    OUTSIDE = 2  # the engine is not the reason
    UNEXPLAINED = 3


_WORDS: Final = {
    Cause.QUEUE_EMPTY: ("no work queued", "Nothing waited to be proved.", Blame.NOBODY),
    Cause.HOST_STARVED: (
        "host not ready",
        "The next partition was not evaluated yet: more workers, or evaluation on the device, keep the kernels fed.",
        Blame.SETTINGS,
    ),
    Cause.SRS_COLD: ("key not loaded", "The proving key was still being read or uploaded.", Blame.SETTINGS),
    Cause.LOCK_HANDOVER: (
        "lock hand-over",
        "A worker had given the device back and the next one had not begun.",
        Blame.SETTINGS,
    ),
    Cause.PAGEABLE_UPLOAD: (
        "pageable upload",
        "Data was copied from memory that is not page-locked while the device was held: pre-staging avoids it.",
        Blame.SETTINGS,
    ),
    Cause.RESULT_SYNC: (
        "result sync",
        "The host waited for a result before it handed in more: double buffering avoids it.",
        Blame.SETTINGS,
    ),
    Cause.MEMORY_WAIT: (
        "waiting for memory",
        "The next partition waited until another one gave its memory back.",
        Blame.SETTINGS,
    ),
    Cause.POOL_TRIM: ("pool trimmed", "The memory pool gave memory back to the driver.", Blame.SETTINGS),
    Cause.KERNEL_COMPILE: ("kernels compiled", "Kernels were compiled: once for each build and card.", Blame.NOBODY),
    Cause.OTHER_PROCESS: ("other program", "Another program used the device.", Blame.OUTSIDE),
    Cause.THROTTLED: ("throttled", "The device had lowered its clock.", Blame.OUTSIDE),
    Cause.UNKNOWN: ("cause unknown", "The engine found no cause.", Blame.UNEXPLAINED),
}


def number(cause: str) -> int:
    return _NUMBERS.get(cause, _UNKNOWN)


def name(cause: str) -> str:
    """A cause in two or three words; an unknown one as it is."""
    known = _WORDS.get(cause)  # type: ignore[call-overload]
    return known[0] if known else words.plain(cause, 24) or _WORDS[Cause.UNKNOWN][0]


def explanation(cause: str) -> str:
    known = _WORDS.get(cause)  # type: ignore[call-overload]
    return known[1] if known else ""


def blame(cause: str) -> Blame:
    known = _WORDS.get(cause)  # type: ignore[call-overload]
    return known[2] if known else Blame.UNEXPLAINED
