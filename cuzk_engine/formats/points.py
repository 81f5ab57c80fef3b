"""Points between snarkjs's bytes (affine, little-endian, Montgomery form, infinity all zero) and plain integers.

A conversion of the form only: whether a point lies on its curve is not looked at here.
"""

from __future__ import annotations

from cuzk_engine.curves import Curve, G1Point, G2Point


def decode_g1(curve: Curve, raw: bytes) -> G1Point:
    """`curve.g1_bytes` bytes, coordinates below q, to plain (x, y)."""
    x, y = _decode(curve, raw, 2)
    return x, y


def decode_g2(curve: Curve, raw: bytes) -> G2Point:
    """`curve.g2_bytes` bytes, coordinates below q, to plain ((x0, x1), (y0, y1))."""
    x0, x1, y0, y1 = _decode(curve, raw, 4)
    return (x0, x1), (y0, y1)


def encode_g1(curve: Curve, point: G1Point) -> bytes:
    """Plain coordinates below q to `curve.g1_bytes` bytes."""
    return _encode(curve, point)


def encode_g2(curve: Curve, point: G2Point) -> bytes:
    """Plain coordinates below q to `curve.g2_bytes` bytes."""
    return _encode(curve, (*point[0], *point[1]))


def integers(data: bytes, size: int) -> list[int]:
    """Little-endian numbers of ``size`` bytes each, one after another."""
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]


def _decode(curve: Curve, raw: bytes, count: int) -> list[int]:
    size, factor, q = curve.n8q, curve.fq_montgomery_inverse, curve.q
    if len(raw) != count * size:
        raise ValueError(f"{len(raw)} bytes, expected {count * size}")
    return [value * factor % q for value in integers(raw, size)]


def _encode(curve: Curve, coordinates: tuple[int, ...]) -> bytes:
    size, factor, q = curve.n8q, curve.fq_montgomery, curve.q
    return b"".join([(value * factor % q).to_bytes(size, "little") for value in coordinates])
