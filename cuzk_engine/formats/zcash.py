"""BLS12-381 points as zcash, bellman and bellperson write them.

Big-endian plain coordinates, of Fq2 elements c1 before c0; 48 bytes an Fq element. The top three bits of the first byte
are flags: compressed, infinity, and (compressed only) the lexicographically larger y. Uncompressed points are x and y,
compressed ones x alone. Source: "Serialization" in the README of https://github.com/zkcrypto/pairing, bls12_381.

A conversion of the form only, as in `points`: whether an uncompressed point lies on its curve is not looked at, nor
whether any point has order r. Infinity is refused, since no key or proof may hold it.
"""

from __future__ import annotations

from typing import Final

from cuzk_engine.curves import BLS12_381, Fq2Value, G1Point, G2Point

G1_BYTES: Final = 96
G2_BYTES: Final = 192
G1_COMPRESSED_BYTES: Final = 48
G2_COMPRESSED_BYTES: Final = 96

_COMPRESSED, _INFINITE, _LARGER = 0x80, 0x40, 0x20
_N: Final = 48
_Q: Final = BLS12_381.q


class EncodingFaultError(Exception):
    """The bytes encode no point that is allowed; the text completes "point X …"."""


def read_g1(raw: bytes) -> G1Point:
    """96 bytes to plain (x, y); raises EncodingFaultError."""
    x, y = _elements(_uncompressed(raw, G1_BYTES))
    return x, y


def read_g2(raw: bytes) -> G2Point:
    """192 bytes to plain ((x0, x1), (y0, y1)); raises EncodingFaultError."""
    x1, x0, y1, y0 = _elements(_uncompressed(raw, G2_BYTES))
    return (x0, x1), (y0, y1)


def write_g1(point: G1Point) -> bytes:
    """Plain coordinates below q, not infinity, to 96 bytes."""
    return b"".join(value.to_bytes(_N, "big") for value in point)


def write_g2(point: G2Point) -> bytes:
    """Plain coordinates below q, not infinity, to 192 bytes."""
    return b"".join(value.to_bytes(_N, "big") for c0, c1 in point for value in (c1, c0))


def compress_g1(point: G1Point) -> bytes:
    """Plain coordinates of a point, not infinity, to 48 bytes."""
    x, y = point
    return _flagged(x.to_bytes(_N, "big"), y > _Q - y)


def compress_g2(point: G2Point) -> bytes:
    """Plain coordinates of a point, not infinity, to 96 bytes."""
    (x0, x1), y = point
    return _flagged(x1.to_bytes(_N, "big") + x0.to_bytes(_N, "big"), _is_larger(y))


def decompress_g1(raw: bytes) -> G1Point:
    """48 bytes to plain (x, y) on the curve; raises EncodingFaultError."""
    data, larger = _compressed(raw, G1_COMPRESSED_BYTES)
    (x,) = _elements(data)
    y = _sqrt((x * x * x + BLS12_381.b) % _Q)
    if y is None:
        raise EncodingFaultError("is not on the curve: no y belongs to its x")
    return x, y if (y > _Q - y) == larger else _Q - y


def decompress_g2(raw: bytes) -> G2Point:
    """96 bytes to plain ((x0, x1), (y0, y1)) on the curve; raises EncodingFaultError."""
    data, larger = _compressed(raw, G2_COMPRESSED_BYTES)
    x1, x0 = _elements(data)
    x = x0, x1
    b0, b1 = BLS12_381.b2
    c0, c1 = _mul(_mul(x, x), x)
    y = _sqrt2(((c0 + b0) % _Q, (c1 + b1) % _Q))
    if y is None:
        raise EncodingFaultError("is not on the curve: no y belongs to its x")
    return x, y if _is_larger(y) == larger else (-y[0] % _Q, -y[1] % _Q)


def _uncompressed(raw: bytes, size: int) -> bytes:
    _check_length(raw, size)
    if raw[0] & _COMPRESSED:
        raise EncodingFaultError("has the flag of a compressed point, expected an uncompressed one")
    if raw[0] & _INFINITE:
        raise EncodingFaultError("is infinity" if _is_infinity(raw) else "has the flag of infinity, but is not zero")
    if raw[0] & _LARGER:
        raise EncodingFaultError("has a flag that only compressed points have")
    return raw


def _compressed(raw: bytes, size: int) -> tuple[bytes, bool]:
    _check_length(raw, size)
    if not raw[0] & _COMPRESSED:
        raise EncodingFaultError("lacks the flag of a compressed point")
    if raw[0] & _INFINITE:
        raise EncodingFaultError("is infinity" if _is_infinity(raw) else "has the flag of infinity, but is not zero")
    return bytes([raw[0] & 0x1F]) + raw[1:], bool(raw[0] & _LARGER)


def _check_length(raw: bytes, size: int) -> None:
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes, expected {size}")


def _is_infinity(raw: bytes) -> bool:
    return raw[0] & 0x3F == 0 and not any(raw[1:])


def _elements(data: bytes) -> list[int]:
    values = [int.from_bytes(data[start : start + _N], "big") for start in range(0, len(data), _N)]
    if any(value >= _Q for value in values):
        raise EncodingFaultError("has a coordinate that is not below the prime of the base field")
    return values


def _flagged(data: bytes, larger: bool) -> bytes:
    return bytes([data[0] | _COMPRESSED | (_LARGER if larger else 0)]) + data[1:]


def _is_larger(y: Fq2Value) -> bool:
    """Whether y is larger than -y, c1 compared before c0."""
    c0, c1 = y
    return (c1, c0) > (-c1 % _Q, -c0 % _Q)


def _sqrt(value: int) -> int | None:
    root = pow(value, (_Q + 1) // 4, _Q)  # q is 3 mod 4
    return root if root * root % _Q == value else None


def _sqrt2(value: Fq2Value) -> Fq2Value | None:
    """By the norm: with n a root of c0^2 + c1^2, a = sqrt((c0 ± n) / 2) is the root's c0 and c1 / 2a its c1."""
    c0, c1 = value
    if c1 == 0:
        root = _sqrt(c0)
        if root is not None:
            return root, 0
        root = _sqrt(-c0 % _Q)  # -1 is no square
        return None if root is None else (0, root)
    norm = _sqrt((c0 * c0 + c1 * c1) % _Q)
    if norm is None:
        return None
    half = pow(2, -1, _Q)
    a = _sqrt((c0 + norm) * half % _Q)
    if a is None:
        a = _sqrt((c0 - norm) * half % _Q)
    if a is None or a == 0:
        return None
    return a, c1 * pow(2 * a, -1, _Q) % _Q


def _mul(a: Fq2Value, b: Fq2Value) -> Fq2Value:
    return (a[0] * b[0] - a[1] * b[1]) % _Q, (a[0] * b[1] + a[1] * b[0]) % _Q
