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
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, G1_INFINITY, Curve, G1Point, G2Point
from cuzk_engine.errors import FormatError, ProofInvalidError
from cuzk_engine.formats.points import encode_g1, encode_g2, integers
from cuzk_engine.formats.proof import EncodedProof, Proof, VerificationKey
from cuzk_engine.native import Group, PointFault
from cuzk_engine.native_proof import ProofItem, ProofProblem
from cuzk_engine.units import format_count

_MOST_SCRATCH: Final = 16 << 20  # kept from one proof to the next: enough for thousands of public signals

Handle = Any
"""A point as a backend holds it."""

_THREADS: Final = 4
_POINTS_A_THREAD: Final = 64  # of a sum: fewer are not worth a thread
_EQUATION: Final = "the pairing equation does not hold for these public signals"


class _BadPointError(Exception):
    """A point that is off its curve or not of order r; the text says which."""


class _Backend(Protocol):
    """A verification key whose points have been checked. Public signals are plain, 32 bytes each, little-endian; as
    many as the key's, and below r."""

    def verify(self, public: bytes, proof: Proof) -> None:
        """Raises ProofInvalidError that names what is wrong; coordinates are below q."""
        ...

    def verify_encoded(self, public: bytes, proof: EncodedProof) -> None: ...


class PreparedKey:
    """A verification key whose points have been checked; verifies any number of proofs, from any thread."""

    def __init__(self, vkey: VerificationKey, *, independent: bool = False) -> None:
        """``independent``: by code that shares nothing with the prover, where there is some. Raises ProofInvalidError
        that names the key's first bad point."""
        self.vkey = vkey
        self.curve: Curve = vkey.curve
        other = independent and vkey.curve is BLS12_381
        self._backend: _Backend = _ArkworksBackend(vkey) if other else _NativeBackend(vkey)

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
        self._check_count(len(public), proof.curve)
        for index, value in enumerate(public):
            if not 0 <= value < curve.r:
                raise ProofInvalidError(f"public signal {index} is not below the prime of {curve.title}'s scalar field")
        self._check_coordinates(proof)
        self._backend.verify(b"".join(value.to_bytes(curve.n8r, "little") for value in public), proof)

    def verify_encoded(self, public: bytes, proof: EncodedProof) -> None:
        """The same for public signals that are known to be below r: plain, 32 bytes each, little-endian."""
        self._check_count(len(public) // self.curve.n8r, proof.curve)
        self._backend.verify_encoded(public, proof)

    def _check_count(self, count: int, found: Curve) -> None:
        curve, expected = self.curve, self.vkey.n_public
        if found is not curve:
            raise ProofInvalidError(f"proof is for {found.title}, the verification key for {curve.title}")
        if count != expected:
            found_signals = format_count(count, "public signal")
            raise ProofInvalidError(f"{found_signals}, the verification key expects {expected:,}")

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


def _checked_key(vkey: VerificationKey, g1: Any, g2: Any) -> tuple[list[Handle], list[Handle]]:
    """The key's points by these conversions: alpha, beta, gamma, delta, and IC."""
    points = [
        _checked("the verification key's alpha1", g1, vkey.alpha1),
        _checked("the verification key's beta2", g2, vkey.beta2),
        _checked("the verification key's gamma2", g2, vkey.gamma2),
        _checked("the verification key's delta2", g2, vkey.delta2),
    ]
    return points, [_checked(f"the verification key's IC[{index}]", g1, point) for index, point in enumerate(vkey.ic)]


class _NativeBackend:
    """Points as bytes in Montgomery form, two calls a proof."""

    _FAULTS = {  # noqa: RUF012 - a constant
        PointFault.COORDINATE: "has a coordinate that is out of range",
        PointFault.OFF_CURVE: "is not on its curve",
        PointFault.SUBGROUP: "is not of the group's order",
    }
    _ITEMS = {ProofItem.A: "pi_a", ProofItem.B: "pi_b", ProofItem.C: "pi_c"}  # noqa: RUF012 - a constant

    def __init__(self, vkey: VerificationKey) -> None:
        self._curve = curve = vkey.curve
        self._library = native.library()
        points, ic = _checked_key(vkey, self._g1, self._g2)
        self._key, self._ic, self._n = b"".join(points), b"".join(ic), vkey.n_public
        threads = max(1, min(_THREADS, -(-self._n // _POINTS_A_THREAD)))
        self._nbytes = self._library.msm_scratch_bytes(curve, Group.G1, self._n, threads)
        self._lock = threading.Lock()  # of what follows
        self._call = native.Call(threads)
        self._scratch: tuple[Any, int] | None = None  # and its address

    def verify(self, public: bytes, proof: Proof) -> None:
        curve = self._curve
        self._verify(public, encode_g1(curve, proof.a) + encode_g2(curve, proof.b) + encode_g1(curve, proof.c))

    def verify_encoded(self, public: bytes, proof: EncodedProof) -> None:
        self._verify(public, proof.data)

    def _verify(self, public: bytes, points: bytes) -> None:
        problem = self.problem(public, points)
        if problem is None:
            return
        item, fault = problem
        raise ProofInvalidError(_EQUATION if fault is None else f"{self._ITEMS[item]} {self._FAULTS[fault]}")

    def problem(self, public: bytes, points: bytes) -> ProofProblem | None:
        """``points``: begins with A, B and C."""
        x = array("B", bytes(self._curve.g1_bytes))
        at = x.buffer_info()[0]
        with self._lock:  # else each worker's thread leaves scratch in a heap of its own
            scratch = self._scratch or self._fresh_scratch()
            self._library.proof_input(self._curve, self._ic, public, self._n, at, scratch[1], self._nbytes, self._call)
            if self._nbytes <= _MOST_SCRATCH:
                self._scratch = scratch
        return self._library.proof_check(self._curve, self._key, at, points)

    def _fresh_scratch(self) -> tuple[Any, int]:
        scratch = native.aligned(self._nbytes)
        return scratch, scratch.ctypes.data

    def _g1(self, point: G1Point) -> bytes:
        return self._check(Group.G1, encode_g1(self._curve, point))

    def _g2(self, point: G2Point) -> bytes:
        return self._check(Group.G2, encode_g2(self._curve, point))

    def _check(self, group: Group, point: bytes) -> bytes:
        problem = self._library.points_check(self._curve, group, point, 1, True, native.Call(1))
        if problem is not None:
            raise _BadPointError(self._FAULTS[problem.fault])
        return point


class _ArkworksBackend:
    """Points as objects of py-arkworks-bls12381."""

    def __init__(self, vkey: VerificationKey) -> None:
        import py_arkworks_bls12381 as arkworks

        self._arkworks = arkworks
        self._key, self._ic = _checked_key(vkey, self._g1, self._g2)

    def verify(self, public: bytes, proof: Proof) -> None:
        minus_a = _checked("pi_a", self._g1, _negated(BLS12_381, proof.a))
        b = _checked("pi_b", self._g2, proof.b)
        c = _checked("pi_c", self._g1, proof.c)
        alpha, *others = self._key
        x = self._combine(self._ic, (1).to_bytes(BLS12_381.n8r, "little") + public)
        if not self._arkworks.GT.pairing_check([minus_a, alpha, x, c], [b, *others]):
            raise ProofInvalidError(_EQUATION)

    def verify_encoded(self, public: bytes, proof: EncodedProof) -> None:
        self.verify(public, proof.decoded())

    def _g1(self, point: G1Point) -> Handle:
        return self._point(self._arkworks.G1Point, point)

    def _g2(self, point: G2Point) -> Handle:
        return self._point(self._arkworks.G2Point, (*point[0], *point[1]))

    def _combine(self, points: Sequence[Handle], scalars: bytes) -> Handle:
        """Σ scalars[i] · points[i], in G1; the scalars plain, little-endian, one after another."""
        values = [self._arkworks.Scalar(value) for value in integers(scalars, BLS12_381.n8r)]
        return self._arkworks.G1Point.multiexp_unchecked(list(points), values)

    def _point(self, kind: Any, coordinates: Sequence[int]) -> Handle:
        raw = b"".join(value.to_bytes(BLS12_381.n8q, "little") for value in coordinates)
        try:
            point = kind.from_xy_bytes_unchecked_le(raw)  # looks at the curve only
        except ValueError as error:
            raise _BadPointError("is not on its curve") from error
        if not point.is_in_subgroup():
            raise _BadPointError("is not of the group's order")
        return point


def _negated(curve: Curve, point: G1Point) -> G1Point:
    return point if point == G1_INFINITY else (point[0], -point[1] % curve.q)
