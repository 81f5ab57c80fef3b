"""The profiles ``chain`` and ``dense``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.native import Call, Field, FieldOp
from cuzk_engine.workload.field import Vectors, constants, random_elements
from cuzk_engine.workload.rows import Circuit, Piece, RowBuilder, Values, local

_CHUNK: Final = 1 << 16
_CHAIN_START, _CHAIN_STEP = 3, 5
_SEED: Final = 2026  # of the values; the witnesses are no secrets


def chain(log_domain: int, curve: Curve) -> Circuit:
    """x → x² + k, from a private x to a public one: each x stands in A, B and C."""
    steps = (1 << log_domain) - 3  # outputs and public inputs: 2
    last, k, first = 1, 2, 3  # wires; the x between follow the first one
    rows, end = RowBuilder(curve), RowBuilder(curve)
    rows.row({local(0): 1}, {local(0): 1}, {local(1): 1, k: -1})
    end.row({local(0): 1}, {local(0): 1}, {last: 1, k: -1})
    pieces = (Piece(rows.template(), first, 1, steps - 1), Piece(end.template(), first + steps - 1))

    def walk() -> Iterator[Values]:
        library = native.library()
        x = _CHAIN_START
        for begin in range(0, steps, _CHUNK):
            out = np.empty((min(_CHUNK, steps - begin), 4), np.uint64)
            library.fr_chain(curve, x, _CHAIN_STEP, len(out), out, Call(1))
            library.field_op(curve, Field.FR, FieldOp.FROM_MONT, out, out, None, len(out), Call())
            x = int.from_bytes(out[-1].tobytes(), "little")
            yield out

    def values() -> Iterator[Values]:
        result = _CHAIN_START
        for out in walk():  # the last x comes first in the file
            result = int.from_bytes(out[-1].tobytes(), "little")
        yield constants((1, result, _CHAIN_STEP, _CHAIN_START))
        left = steps - 1
        for out in walk():
            yield out[:left]
            left -= len(out)

    return Circuit(f"chain:2^{log_domain}", curve, 1, 1, 1, steps + 3, pieces, values)


def dense(log_domain: int, curve: Curve) -> Circuit:
    """Products of random values: v[lag + i] = v[i] · v[i rounded down to even].

    Every v stands in A, every second one in B. The last row sums up the last ``lag`` of them, which no other row uses,
    so that A has them all.
    """
    n_rows = (1 << log_domain) - 2  # one output
    lag = max(2, min(_CHUNK, n_rows // 256) & ~1)
    n_products = n_rows - 1
    first = 2  # the wire of v[0]
    pair, single, end = RowBuilder(curve), RowBuilder(curve), RowBuilder(curve)
    pair.row({local(0): 1}, {local(0): 1}, {local(lag): 1})
    pair.row({local(1): 1}, {local(0): 1}, {local(lag + 1): 1})
    single.row({local(0): 1}, {local(0): 1}, {local(lag): 1})
    end.row({first + n_products + i: 1 for i in range(lag)}, {first: 1}, {1: 1})
    pieces = (
        Piece(pair.template(), first, 2, n_products // 2),
        Piece(single.template(), first + n_products - 1, 0, n_products % 2),
        Piece(end.template()),
    )
    field = Vectors(curve)
    n_values = lag + n_products

    def walk() -> Iterator[Values]:
        """All v in Montgomery form, ``lag`` of them at a time."""
        part = random_elements(np.random.default_rng(_SEED), lag)
        left = n_values
        while left > 0:
            yield part[:left]
            left -= len(part)
            part = field.multiply(part, np.repeat(part[::2], 2, axis=0))

    def result() -> Values:
        """The sum of the last ``lag`` values, times the first."""
        head, before, part = None, None, None
        for step in walk():
            head = step[:1] if head is None else head
            before, part = part, step
        assert head is not None
        assert part is not None
        tail = part if before is None else np.concatenate((before, part))
        return field.multiply(field.sum(tail[-lag:]), head)

    def values() -> Iterator[Values]:
        yield constants((1,))
        yield field.to_plain(result())
        for part in walk():
            yield field.to_plain(part)

    return Circuit(f"dense:2^{log_domain}", curve, 1, 0, lag, first + n_values, pieces, values)
