"""The secret scalars of a trusted setup, made by one party: good for development only."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from cuzk_engine.curves import Curve

_NAMES: Final = ("tau", "alpha", "beta", "gamma", "delta")


@dataclass(frozen=True, repr=False)
class ToxicWaste:
    """Five scalars of Fr, none of them 0. Whoever knows tau, alpha, beta and delta can forge proofs."""

    tau: int
    alpha: int
    beta: int
    gamma: int
    delta: int

    @classmethod
    def random(cls, curve: Curve) -> ToxicWaste:
        """From the system's randomness."""
        return cls(*(1 + secrets.randbelow(curve.r - 1) for _ in _NAMES))

    @classmethod
    def from_seed(cls, curve: Curve, seed: str) -> ToxicWaste:
        """The same scalars for the same seed, on one curve."""
        return cls(*(seeded_scalar(curve, f"setup {name}", seed) for name in _NAMES))


def seeded_scalar(curve: Curve, purpose: str, seed: str) -> int:
    """An element of Fr from 1 to r - 1 that follows from curve, purpose and seed: 64 bytes of SHAKE-256, reduced."""
    text = "\0".join(("cuzk", curve.name, purpose, seed))
    digest = hashlib.shake_256(text.encode("utf-8", "surrogateescape")).digest(64)
    return 1 + int.from_bytes(digest, "little") % (curve.r - 1)
