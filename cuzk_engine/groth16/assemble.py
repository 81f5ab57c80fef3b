"""From the five sums of a proof to the proof, with fresh blinding factors r and s.

With the key's elements written in G1 and G2 (Groth16, section 3.2; snarkjs computes the same):

    A = α + Σ w_i A_i + r δ                    G1
    B = β + Σ w_i B_i + s δ                    G2, and B' the same in G1
    C = Σ w_i L_i + Σ h_i H_i + s A + r B' − r s δ

All points here are affine in Montgomery form, as the key's. The native library computes, in two calls: what needs no
sums, or only the two that are there first, can be done while the others are not over.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Mapping
from typing import Final

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.formats.proof import EncodedProof
from cuzk_engine.groth16.plan import FR_BYTES, QUERIES, Query
from cuzk_engine.groth16.proving_key import KeyElements
from cuzk_engine.native import Group
from cuzk_engine.native_proof import BEGIN, BLIND, FINISH

Randomness = Callable[[int], int]
"""A value in [0, bound), uniform and unpredictable."""

_H, _A, _B1, _B2, _L = QUERIES
_ALL: Final = BLIND | BEGIN | FINISH


def fresh_blinding(curve: Curve, below: Randomness = secrets.randbelow) -> bytes:
    """r, then s, plain: the factors that make two proofs of one witness look unrelated. Secret, and never used twice.

    From the operating system's randomness, by rejection, so that every value below the order is equally likely.
    """
    return below(curve.r).to_bytes(FR_BYTES, "little") + below(curve.r).to_bytes(FR_BYTES, "little")


def joined(key: KeyElements) -> bytes:
    """What an `Assembly` needs of a key: the same for all proofs with it."""
    return b"".join((key.alpha1, key.delta1, key.beta1, key.beta2, key.delta2))


class Assembly:
    """The last step of one proof; what does not need all sums is done when it is told of some. r and s are drawn when
    the first step is taken, and forgotten with the last one that needs them."""

    def __init__(self, curve: Curve, elements: bytes, randomness: Randomness = secrets.randbelow) -> None:
        """``elements``: see `joined`."""
        self._curve, self._elements, self._randomness = curve, elements, randomness
        self._library = native.library()
        self._blinding: bytes | None = None
        self._left = _ALL
        self._data = array("B", bytes(2 * 8 * curve.n8q))  # eight coordinates, and the same plain

    def begin(self, sums: Mapping[Query, bytes]) -> None:
        """With the sums that are there."""
        self._do(BLIND | BEGIN if _A in sums and _B1 in sums else BLIND, sums)

    def finish(self, sums: Mapping[Query, bytes]) -> EncodedProof:
        """With all of them, one point a query."""
        self._do(_ALL, sums)
        return EncodedProof(self._curve, self._data.tobytes())

    def _do(self, wanted: int, sums: Mapping[Query, bytes]) -> None:
        """Those steps that were not done yet."""
        steps, curve, get = wanted & self._left, self._curve, sums.get
        if not steps:
            return
        if steps & BLIND:
            self._blinding = fresh_blinding(curve, self._randomness)
        at, nbytes = self._data.buffer_info()
        self._library.proof_assemble(
            curve, steps, self._elements, self._blinding, get(_A), get(_B1), get(_B2), get(_L), get(_H),
            at, at + nbytes // 2,
        )  # fmt: skip
        self._left &= ~steps
        if not self._left & BEGIN:
            self._blinding = None


def add_points(curve: Curve, group: Group, *points: bytes) -> bytes:
    """The sum of at least one point."""
    (total,) = native.library().point_sums(curve, group, [[(point, 1) for point in points]], native.Call(1))
    return total
