"""Verification of Groth16 proofs, in a few milliseconds on both curves.

A proof is valid when e(A, B) = e(α, β) · e(X, γ) · e(C, δ), with X = IC_0 + Σ public_i · IC_(i+1); checked here as one
product of four pairings that must be 1, with −A. Before that every value is checked: public signals below r (x and x +
r would pass for the same otherwise), coordinates below q, points on their curves and of order r.

The arithmetic is the native library's, whose field and curve formulas the prover on the CPU uses too and whose pairing
it does not. On BLS12-381 there is a second opinion, ``independent``: that of arkworks (py-arkworks-bls12381), which
shares nothing with the code that proves. A prover does not ask it for each proof, since its binding keeps the
interpreter lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, G1_INFINITY, Curve, G1Point, G2Point
from cuzk_engine.errors import FormatError, ProofInvalidError
from cuzk_engine.formats.points import encode_g1, encode_g2, integers
from cuzk_engine.formats.proof import Proof, VerificationKey
from cuzk_engine.native import Group, PointFault

_MOST_SCRATCH: Final = 8 << 20  # kept from one proof to the next

Handle = Any
"""A point as a backend holds it."""

_THREADS: Final = 4
_POINTS_A_THREAD: Final = 64  # of a sum: fewer are not worth a thread


class _BadPointError(Exception):
    """A point that is off its curve or not of order r; the text says which."""


class _Backend(Protocol):
    """Checked points of one curve, and the two operations that verification needs."""

    def g1(self, point: G1Point) -> Handle: ...
    def g2(self, point: G2Point) -> Handle: ...
    def combine(self, points: Sequence[Handle], scalars: bytes) -> Handle:
        """Σ scalars[i] · points[i], in G1; the scalars plain, little-endian, one after another."""
        ...

    def product_is_one(self, g1: Sequence[Handle], g2: Sequence[Handle]) -> bool: ...


class PreparedKey:
    """A verification key whose points have been checked; verifies any number of proofs, from any thread."""

    def __init__(self, vkey: VerificationKey, *, independent: bool = False) -> None:
        """``independent``: by code that shares nothing with the prover, where there is some. Raises ProofInvalidError
        that names the key's first bad point."""
        self.vkey = vkey
        self.curve: Curve = vkey.curve
        other = independent and vkey.curve is BLS12_381
        backend: _Backend = _ArkworksBackend() if other else _NativeBackend(vkey.curve)
        self._backend = backend
        self._alpha = _checked("the verification key's alpha1", backend.g1, vkey.alpha1)
        self._beta = _checked("the verification key's beta2", backend.g2, vkey.beta2)
        self._gamma = _checked("the verification key's gamma2", backend.g2, vkey.gamma2)
        self._delta = _checked("the verification key's delta2", backend.g2, vkey.delta2)
        self._ic = [
            _checked(f"the verification key's IC[{index}]", backend.g1, point) for index, point in enumerate(vkey.ic)
        ]

    @classmethod
    def checked(cls, vkey: VerificationKey, path: Path | str, *, independent: bool = False) -> PreparedKey:
        """Like the constructor; a bad point is a FormatError of the file at ``path``."""
        try:
            return cls(vkey, independent=independent)
        except ProofInvalidError as error:
            raise FormatError(path, str(error)) from error

    def verify(self, public: Sequence[int], proof: Proof) -> None:
        """Returns when the proof is valid for these public signals; raises ProofInvalidError that names what is
        wrong."""
        curve = self.curve
        self._check_count(len(public), proof)
        for index, value in enumerate(public):
            if not 0 <= value < curve.r:
                raise ProofInvalidError(f"public signal {index} is not below the prime of {curve.title}'s scalar field")
        self._check(b"".join(value.to_bytes(curve.n8r, "little") for value in public), proof)

    def verify_values(self, public: bytes, proof: Proof) -> None:
        """The same for public signals that are known to be below r: plain, 32 bytes each, little-endian."""
        self._check_count(len(public) // self.curve.n8r, proof)
        self._check(public, proof)

    def _check(self, public: bytes, proof: Proof) -> None:
        self._check_coordinates(proof)
        backend = self._backend
        minus_a = _checked("pi_a", backend.g1, _negated(self.curve, proof.a))
        b = _checked("pi_b", backend.g2, proof.b)
        c = _checked("pi_c", backend.g1, proof.c)
        x = backend.combine(self._ic, (1).to_bytes(self.curve.n8r, "little") + public)
        if not backend.product_is_one([minus_a, self._alpha, x, c], [b, self._beta, self._gamma, self._delta]):
            raise ProofInvalidError("the pairing equation does not hold for these public signals")

    def _check_count(self, count: int, proof: Proof) -> None:
        curve, expected = self.curve, len(self._ic) - 1
        if proof.curve is not curve:
            raise ProofInvalidError(f"proof is for {proof.curve.title}, the verification key for {curve.title}")
        if count != expected:
            raise ProofInvalidError(f"{count:,} public signals, the verification key expects {expected:,}")

    def _check_coordinates(self, proof: Proof) -> None:
        curve = self.curve
        coordinates = {"pi_a": proof.a, "pi_b": (*proof.b[0], *proof.b[1]), "pi_c": proof.c}
        for item, values in coordinates.items():
            if not all(0 <= value < curve.q for value in values):
                raise ProofInvalidError(f"{item} has a coordinate not below the prime of {curve.title}'s base field")


def verify(vkey: VerificationKey, public: Sequence[int], proof: Proof) -> None:
    """One verification, the key's points included, independent of the prover's code where that can be had; see
    ``PreparedKey.verify``."""
    PreparedKey(vkey, independent=True).verify(public, proof)


def _checked(item: str, convert: Any, point: Any) -> Handle:
    try:
        return convert(point)
    except _BadPointError as error:
        raise ProofInvalidError(f"{item} {error}") from error


def _negated(curve: Curve, point: G1Point) -> G1Point:
    return point if point == G1_INFINITY else (point[0], -point[1] % curve.q)


class _NativeBackend:
    """Points as bytes in Montgomery form."""

    _FAULTS = {  # noqa: RUF012 - a constant
        PointFault.COORDINATE: "has a coordinate that is out of range",
        PointFault.OFF_CURVE: "is not on its curve",
        PointFault.SUBGROUP: "is not of the group's order",
    }

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self._library = native.library()
        self._lock = threading.Lock()
        self._scratch = native.aligned(0)

    def g1(self, point: G1Point) -> bytes:
        return self._check(Group.G1, encode_g1(self._curve, point))

    def g2(self, point: G2Point) -> bytes:
        return self._check(Group.G2, encode_g2(self._curve, point))

    def combine(self, points: Sequence[bytes], scalars: bytes) -> bytes:
        curve, n = self._curve, len(points)
        threads = min(_THREADS, -(-n // _POINTS_A_THREAD))
        nbytes = self._library.msm_scratch_bytes(curve, Group.G1, n, threads)
        out = native.aligned(curve.g1_bytes)
        call = native.Call(threads)
        with self._lock:  # else each worker's thread leaves scratch in a heap of its own
            scratch = self._scratch if self._scratch.size >= nbytes else native.aligned(nbytes)
            self._library.msm(curve, Group.G1, b"".join(points), scalars, n, out, scratch, nbytes, call)
            if nbytes <= _MOST_SCRATCH:
                self._scratch = scratch
        return out.tobytes()

    def product_is_one(self, g1: Sequence[bytes], g2: Sequence[bytes]) -> bool:
        return self._library.pairing_check(self._curve, b"".join(g1), b"".join(g2), len(g1), native.Call(1))

    def _check(self, group: Group, point: bytes) -> bytes:
        problem = self._library.points_check(self._curve, group, point, 1, True, native.Call(1))
        if problem is not None:
            raise _BadPointError(self._FAULTS[problem.fault])
        return point


class _ArkworksBackend:
    """Points as objects of py-arkworks-bls12381."""

    def __init__(self) -> None:
        import py_arkworks_bls12381 as arkworks

        self._arkworks = arkworks

    def g1(self, point: G1Point) -> Handle:
        return self._point(self._arkworks.G1Point, point)

    def g2(self, point: G2Point) -> Handle:
        return self._point(self._arkworks.G2Point, (*point[0], *point[1]))

    def combine(self, points: Sequence[Handle], scalars: bytes) -> Handle:
        values = [self._arkworks.Scalar(value) for value in integers(scalars, BLS12_381.n8r)]
        return self._arkworks.G1Point.multiexp_unchecked(list(points), values)

    def product_is_one(self, g1: Sequence[Handle], g2: Sequence[Handle]) -> bool:
        return self._arkworks.GT.pairing_check(list(g1), list(g2))

    def _point(self, kind: Any, coordinates: Sequence[int]) -> Handle:
        raw = b"".join(value.to_bytes(BLS12_381.n8q, "little") for value in coordinates)
        try:
            point = kind.from_xy_bytes_unchecked_le(raw)  # looks at the curve only
        except ValueError as error:
            raise _BadPointError("is not on its curve") from error
        if not point.is_in_subgroup():
            raise _BadPointError("is not of the group's order")
        return point
