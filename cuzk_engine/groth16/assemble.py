"""From the five sums of a proof to the proof, with fresh blinding factors r and s.

With the key's elements written in G1 and G2 (Groth16, section 3.2; snarkjs computes the same):

    A = α + Σ w_i A_i + r δ                    G1
    B = β + Σ w_i B_i + s δ                    G2, and B' the same in G1
    C = Σ w_i L_i + Σ h_i H_i + s A + r B' − r s δ

All points here are affine in Montgomery form, as the key's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.formats.points import decode_g1, decode_g2
from cuzk_engine.formats.proof import Proof
from cuzk_engine.groth16.plan import Query
from cuzk_engine.groth16.proving_key import KeyElements
from cuzk_engine.native import Group, PointOp

Randomness = Callable[[int], int]
"""A value in [0, bound), uniform and unpredictable."""


@dataclass(frozen=True)
class Blinding:
    """The factors that make two proofs of one witness look unrelated. Secret, and never used twice."""

    r: int = field(repr=False)
    s: int = field(repr=False)

    @classmethod
    def fresh(cls, curve: Curve, below: Randomness = secrets.randbelow) -> Blinding:
        """From the operating system's randomness, by rejection, so that every value below the order is equally
        likely."""
        return cls(below(curve.r), below(curve.r))


@dataclass(frozen=True)
class BlindedKey:
    """α + r δ, β + s δ and − r s δ: what can be computed before the sums are there. As secret as r and s."""

    blinding: Blinding
    a: bytes = field(repr=False)
    b1: bytes = field(repr=False)
    b2: bytes = field(repr=False)
    c: bytes = field(repr=False)

    @classmethod
    def of(cls, key: KeyElements, blinding: Blinding) -> BlindedKey:
        curve, (r, s) = key.curve, (blinding.r, blinding.s)
        r_delta, s_delta, rs_delta = _multiples(curve, Group.G1, [key.delta1] * 3, [r, s, -r * s])
        (s_delta2,) = _multiples(curve, Group.G2, [key.delta2], [s])
        return cls(
            blinding,
            add_points(curve, Group.G1, key.alpha1, r_delta),
            add_points(curve, Group.G1, key.beta1, s_delta),
            add_points(curve, Group.G2, key.beta2, s_delta2),
            rs_delta,
        )


@dataclass(frozen=True)
class Begun:
    """A, and s A + r B' − r s δ: what can be computed as soon as two of the sums are there."""

    a: bytes = field(repr=False)
    c: bytes = field(repr=False)

    @classmethod
    def of(cls, curve: Curve, blinded: BlindedKey, sum_a: bytes, sum_b1: bytes) -> Begun:
        a = add_points(curve, Group.G1, blinded.a, sum_a)
        b1 = add_points(curve, Group.G1, blinded.b1, sum_b1)
        s_a, r_b = _multiples(curve, Group.G1, [a, b1], [blinded.blinding.s, blinded.blinding.r])
        return cls(a, add_points(curve, Group.G1, s_a, r_b, blinded.c))


def assemble(curve: Curve, blinded: BlindedKey, sums: Mapping[Query, bytes], begun: Begun | None = None) -> Proof:
    """The proof from the MSMs' results, one point a query."""
    begun = begun or Begun.of(curve, blinded, sums[Query.A], sums[Query.B1])
    b2 = add_points(curve, Group.G2, blinded.b2, sums[Query.B2])
    c = add_points(curve, Group.G1, sums[Query.L], sums[Query.H], begun.c)
    return Proof(curve, decode_g1(curve, begun.a), decode_g2(curve, b2), decode_g1(curve, c))


def _multiples(curve: Curve, group: Group, points: Sequence[bytes], scalars: Sequence[int]) -> list[bytes]:
    plain = b"".join((scalar % curve.r).to_bytes(curve.n8r, "little") for scalar in scalars)
    out = native.aligned(sum(map(len, points)))
    native.library().point_op(curve, group, PointOp.MUL, out, b"".join(points), plain, len(points), native.Call(1))
    return [row.tobytes() for row in out.reshape(len(points), -1)]


def add_points(curve: Curve, group: Group, *points: bytes) -> bytes:
    """The sum of at least one point."""
    total = points[0]
    for point in points[1:]:
        out = native.aligned(len(total))
        native.library().point_op(curve, group, PointOp.ADD, out, total, point, 1, native.Call(1))
        total = out.tobytes()
    return total
