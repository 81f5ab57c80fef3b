"""Points of G1 and G2 in Python's integers, affine, for checking: slow and plain."""

from __future__ import annotations

from cuzk_engine.curves import Curve

Element = tuple[int, int]
Point = tuple[Element, Element] | None


def _mul(a: Element, b: Element, q: int) -> Element:
    return (a[0] * b[0] - a[1] * b[1]) % q, (a[0] * b[1] + a[1] * b[0]) % q


def _inverse(a: Element, q: int) -> Element:
    d = pow(a[0] * a[0] + a[1] * a[1], -1, q)
    return a[0] * d % q, -a[1] * d % q


def _sub(a: Element, b: Element, q: int) -> Element:
    return (a[0] - b[0]) % q, (a[1] - b[1]) % q


def add(a: Point, b: Point, q: int) -> Point:
    if a is None or b is None:
        return a if b is None else b
    if a[0] == b[0]:
        if a[1] != b[1] or a[1] == (0, 0):
            return None
        square = _mul(a[0], a[0], q)
        slope = _mul((3 * square[0] % q, 3 * square[1] % q), _inverse((2 * a[1][0] % q, 2 * a[1][1] % q), q), q)
    else:
        slope = _mul(_sub(b[1], a[1], q), _inverse(_sub(b[0], a[0], q), q), q)
    x = _sub(_sub(_mul(slope, slope, q), a[0], q), b[0], q)
    return x, _sub(_mul(slope, _sub(a[0], x, q), q), a[1], q)


def multiply(point: Point, k: int, q: int) -> Point:
    total: Point = None
    while k:
        if k & 1:
            total = add(total, point, q)
        point = add(point, point, q)
        k >>= 1
    return total


def generator(curve: Curve, group: int) -> Point:
    if group == 1:
        return (curve.g1[0], 0), (curve.g1[1], 0)
    return curve.g2


def flat(point: Point, group: int) -> tuple[int, ...]:
    """As `Msm.plain` gives it."""
    if point is None:
        return (0,) * (2 * group)
    (x0, x1), (y0, y1) = point
    return (x0, y0) if group == 1 else (x0, x1, y0, y1)


def montgomery_bytes(curve: Curve, point: Point, group: int) -> bytes:
    radix = 1 << (8 * curve.n8q)
    return b"".join((v * radix % curve.q).to_bytes(curve.n8q, "little") for v in flat(point, group))
