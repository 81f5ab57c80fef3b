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
from cuzk_engine.native import Group

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
        curve, (r, s), delta = key.curve, (blinding.r, blinding.s), key.delta1
        a, b1, c = _sums(
            curve, Group.G1, [(key.alpha1, 1), (delta, r)], [(key.beta1, 1), (delta, s)], [(delta, -r * s % curve.r)]
        )
        (b2,) = _sums(curve, Group.G2, [(key.beta2, 1), (key.delta2, s)])
        return cls(blinding, a, b1, b2, c)


@dataclass(frozen=True)
class Begun:
    """A, and s A + r B' − r s δ: what can be computed as soon as two of the sums are there."""

    a: bytes = field(repr=False)
    c: bytes = field(repr=False)

    @classmethod
    def of(cls, curve: Curve, blinded: BlindedKey, sum_a: bytes, sum_b1: bytes) -> Begun:
        a, b1 = _sums(curve, Group.G1, [(blinded.a, 1), (sum_a, 1)], [(blinded.b1, 1), (sum_b1, 1)])
        (c,) = _sums(curve, Group.G1, [(a, blinded.blinding.s), (b1, blinded.blinding.r), (blinded.c, 1)])
        return cls(a, c)


def assemble(curve: Curve, blinded: BlindedKey, sums: Mapping[Query, bytes], begun: Begun | None = None) -> Proof:
    """The proof from the MSMs' results, one point a query."""
    begun = begun or Begun.of(curve, blinded, sums[Query.A], sums[Query.B1])
    b2 = add_points(curve, Group.G2, blinded.b2, sums[Query.B2])
    c = add_points(curve, Group.G1, sums[Query.L], sums[Query.H], begun.c)
    return Proof(curve, decode_g1(curve, begun.a), decode_g2(curve, b2), decode_g1(curve, c))


def add_points(curve: Curve, group: Group, *points: bytes) -> bytes:
    """The sum of at least one point."""
    (total,) = _sums(curve, group, [(point, 1) for point in points])
    return total


def _sums(curve: Curve, group: Group, *sums: Sequence[tuple[bytes, int]]) -> list[bytes]:
    """Of points times scalars below r."""
    return native.library().point_sums(curve, group, sums, native.Call(1))
