"""Vectors of Fr for witnesses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.native import Call, Field, FieldOp
from cuzk_engine.workload.rows import Values

_TOP_LIMB: Final = (1 << 60) - 1  # below that of r on both curves


def constants(values: Iterable[int]) -> Values:
    """Integers of 256 bits as a vector."""
    return np.frombuffer(b"".join(value.to_bytes(32, "little") for value in values), np.uint64).reshape(-1, 4)


def small(numbers: Any) -> Values:
    """Integers of 64 bits as a vector."""
    out = np.zeros((len(numbers), 4), np.uint64)
    out[:, 0] = numbers
    return out


def random_elements(generator: np.random.Generator, n: int) -> Values:
    """n elements below 2^252, in whatever form they are taken to be."""
    out = generator.integers(0, 2**64, (n, 4), dtype=np.uint64)
    out[:, 3] &= np.uint64(_TOP_LIMB)
    return out


class Vectors:
    """Element-wise arithmetic in Montgomery form; each result is a new vector."""

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self._library = native.library()

    def multiply(self, a: Values, b: Values) -> Values:
        return self._apply(FieldOp.MUL, a, b)

    def add(self, a: Values, b: Values) -> Values:
        return self._apply(FieldOp.ADD, a, b)

    def subtract(self, a: Values, b: Values) -> Values:
        return self._apply(FieldOp.SUB, a, b)

    def to_plain(self, a: Values) -> Values:
        return self._apply(FieldOp.FROM_MONT, a, None)

    def from_plain(self, a: Values) -> Values:
        return self._apply(FieldOp.TO_MONT, a, None)

    def sum(self, a: Values) -> Values:
        """One element."""
        while len(a) > 1:
            half = len(a) // 2
            rest = a[2 * half :]
            a = np.concatenate(
                (self.add(np.ascontiguousarray(a[:half]), np.ascontiguousarray(a[half : 2 * half])), rest)
            )
        return a

    def _apply(self, op: FieldOp, a: Values, b: Values | None) -> Values:
        out = np.empty_like(a)
        self._library.field_op(self._curve, Field.FR, op, out, a, b, len(a), Call(0, span_capacity=1))
        return out
