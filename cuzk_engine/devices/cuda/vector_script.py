"""The launches of a∘b − c and of the rows as scripts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.need import FR_BYTES, LONGEST_ROW
from cuzk_engine.devices.cuda.script import Argument, Recorder, Ref, Script

_TO_MONT = 6  # as in fields.py


class Joined(IntEnum):
    """What the addresses of `record_join` count from. ``FACTORS``: two constants."""

    A = 0
    B = 1
    C = 2
    FACTORS = 3


class Rows(IntEnum):
    """The same for `record_rows`. ``W``: the witness, plain; ``MONTGOMERY``: room for it in that form; ``STARTS`` to
    ``LONG_ROWS``: the matrices."""

    W = 0
    MONTGOMERY = 1
    A = 2
    B = 3
    C = 4
    STARTS = 5
    ENTRIES = 6
    PLACES = 7
    COEFFICIENTS = 8
    LONG_ROWS = 9


def record_join(curve: Curve, n: int) -> Script:
    """a = a∘b·f − c·g, leaving Montgomery form."""
    recorder = Recorder(len(Joined))
    vectors = [Ref(base, 0, n * FR_BYTES) for base in (Joined.A, Joined.B, Joined.C)]
    arguments: list[Argument] = [*vectors, Ref(Joined.FACTORS, 0, 2 * FR_BYTES), np.uint64(n)]
    with recorder.on(0):
        recorder.launch(programs.vectors(curve), "h_join", min(-(-n // 128), 132 * 32), 128, arguments)
    return recorder.script()


def record_rows(curve: Curve, signals: int, rows: int, sizes: Sequence[int], long_rows: int, bits: int) -> Script:
    """a = A·w, b = B·w, c = a∘b. ``sizes``: bytes of the matrices' arrays; ``bits``: of the rows' numbers, whose
    reversals say where they go; 0: in order."""
    recorder, nbytes = Recorder(len(Rows)), signals * FR_BYTES
    w, montgomery = Ref(Rows.W, 0, nbytes), Ref(Rows.MONTGOMERY, 0, nbytes)
    out = [Ref(base, 0, rows * FR_BYTES) for base in (Rows.A, Rows.B, Rows.C)]
    starts, entries, places, coefficients, long_ones = (
        Ref(base, 0, size) for base, size in zip(list(Rows)[Rows.STARTS :], sizes, strict=True)
    )
    common: list[Argument] = [starts, entries, places, coefficients, montgomery, np.uint32(rows)]
    with recorder.on(0):
        convert: list[Argument] = [np.int32(_TO_MONT), montgomery, w, w, np.uint64(signals)]
        recorder.launch(programs.field(curve, "Fr"), "field_op", min(-(-signals // 128), 132 * 64), 128, convert)
        each: list[Argument] = [*common, np.uint32(LONGEST_ROW), np.uint32(bits), *out]
        recorder.launch(programs.vectors(curve), "evaluate_rows", min(-(-rows // 128), 132 * 32), 128, each)
        if long_rows:
            whole: list[Argument] = [*common, long_ones, np.uint32(bits), *out]
            recorder.launch(programs.vectors(curve), "evaluate_long", long_rows, 128, whole)
    return recorder.script()
