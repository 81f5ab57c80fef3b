"""Plain Python arithmetic of both curves, and numbers as the native library lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.native import Field, Group, aligned

Array = npt.NDArray[np.uint8]
Value = Any
"""An int of Fr or Fq, or a pair of ints of Fq2."""
Point = Any
"""A pair of values; None is infinity."""


class FieldMath:
    """Fr, Fq or Fq2 = Fq[u] / (u^2 + 1) of a curve."""

    def __init__(self, curve: Curve, field: Field) -> None:
        self.curve, self.field = curve, field
        self.p = curve.r if field is Field.FR else curve.q
        self.limbs = 4 if field is Field.FR else curve.limbs
        self.degree = 2 if field is Field.FQ2 else 1
        self.nbytes = 8 * self.limbs * self.degree
        self.radix = (1 << (64 * self.limbs)) % self.p
        self.zero: Value = (0, 0) if self.degree == 2 else 0
        self.one: Value = (1, 0) if self.degree == 2 else 1

    def add(self, a: Value, b: Value) -> Value:
        return self._map(lambda x, y: (x + y) % self.p, a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self._map(lambda x, y: (x - y) % self.p, a, b)

    def neg(self, a: Value) -> Value:
        return self.sub(self.zero, a)

    def mul(self, a: Value, b: Value) -> Value:
        if self.degree == 1:
            return a * b % self.p
        return (a[0] * b[0] - a[1] * b[1]) % self.p, (a[0] * b[1] + a[1] * b[0]) % self.p

    def inv(self, a: Value) -> Value:
        if a == self.zero:
            return self.zero
        if self.degree == 1:
            return pow(a, -1, self.p)
        d = pow(a[0] * a[0] + a[1] * a[1], -1, self.p)
        return a[0] * d % self.p, -a[1] * d % self.p

    def scale(self, a: Value, k: int) -> Value:
        return a * k % self.p if self.degree == 1 else (a[0] * k % self.p, a[1] * k % self.p)

    def to_mont(self, a: Value) -> Value:
        return self.scale(a, self.radix)

    def from_mont(self, a: Value) -> Value:
        return self.scale(a, pow(self.radix, -1, self.p))

    def encode(self, values: Iterable[Value]) -> Array:
        """Limbs of the values as they are."""
        parts = [x for value in values for x in (value if self.degree == 2 else (value,))]
        data = b"".join(x.to_bytes(8 * self.limbs, "little") for x in parts)
        array = aligned(len(data))
        array[:] = np.frombuffer(data, np.uint8)
        return array

    def decode(self, array: Array) -> list[Value]:
        data, width = array.tobytes(), 8 * self.limbs
        parts = [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
        return list(zip(parts[::2], parts[1::2], strict=True)) if self.degree == 2 else parts

    def encode_mont(self, values: Iterable[Value]) -> Array:
        return self.encode([self.to_mont(value) for value in values])

    def decode_mont(self, array: Array) -> list[Value]:
        return [self.from_mont(value) for value in self.decode(array)]

    def _map(self, function: Any, a: Value, b: Value) -> Value:
        return function(a, b) if self.degree == 1 else (function(a[0], b[0]), function(a[1], b[1]))


class CurveMath:
    """G1 or G2 of a curve with the affine formulas of a textbook."""

    def __init__(self, curve: Curve, group: Group) -> None:
        self.curve, self.group = curve, group
        self.field = FieldMath(curve, Field.FQ if group is Group.G1 else Field.FQ2)
        self.b: Value = curve.b if group is Group.G1 else curve.b2
        self.generator: Point = curve.g1 if group is Group.G1 else curve.g2
        self.nbytes = 2 * self.field.nbytes

    def neg(self, a: Point) -> Point:
        return None if a is None else (a[0], self.field.neg(a[1]))

    def add(self, a: Point, b: Point) -> Point:
        f = self.field
        if a is None or b is None:
            return b if a is None else a
        if a[0] == b[0]:
            if a[1] != b[1] or a[1] == f.zero:
                return None
            slope = f.mul(f.scale(f.mul(a[0], a[0]), 3), f.inv(f.scale(a[1], 2)))
        else:
            slope = f.mul(f.sub(b[1], a[1]), f.inv(f.sub(b[0], a[0])))
        x = f.sub(f.sub(f.mul(slope, slope), a[0]), b[0])
        return x, f.sub(f.mul(slope, f.sub(a[0], x)), a[1])

    def mul(self, a: Point, k: int) -> Point:
        result = None
        for bit in bin(k)[2:]:
            result = self.add(result, result)
            if bit == "1":
                result = self.add(result, a)
        return result

    def multiples(self, count: int, start: int = 1) -> list[Point]:
        """start G, (start + 1) G, ..."""
        point, points = self.mul(self.generator, start), []
        for _ in range(count):
            points.append(point)
            point = self.add(point, self.generator)
        return points

    def encode(self, points: Sequence[Point]) -> Array:
        f = self.field
        return f.encode_mont([x for point in points for x in (point or (f.zero, f.zero))])

    def decode(self, array: Array) -> list[Point]:
        values = self.field.decode_mont(array)
        zero = (self.field.zero, self.field.zero)
        return [None if point == zero else point for point in zip(values[::2], values[1::2], strict=True)]


def encode_scalars(values: Iterable[int]) -> Array:
    """Plain Fr elements."""
    data = b"".join(value.to_bytes(32, "little") for value in values)
    array = aligned(len(data))
    array[:] = np.frombuffer(data, np.uint8)
    return array
