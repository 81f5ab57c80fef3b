"""The native library's functions for a Groth16 proof: its points from the five sums, and its verification.

Methods of ``native.NativeLibrary``; what is known of a key is joined once, as ``cuzk.h`` wants it.
"""

from __future__ import annotations

from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Final, NamedTuple

from cuzk_engine.curves import Curve
from cuzk_engine.native_call import Call, Data, NativeCallError, NativeCalls, PointFault, Signatures, Status, reference

BLIND: Final = 1
BEGIN: Final = 2
FINISH: Final = 4
"""Steps of ``proof_assemble``."""


class ProofItem(IntEnum):
    A = 0
    B = 1
    C = 2
    EQUATION = 3


class ProofProblem(NamedTuple):
    """What is wrong with a proof: a point, and how; or the equation (``fault`` None)."""

    item: ProofItem
    fault: PointFault | None


class ProofFunctions(NativeCalls):
    """The part of ``native.NativeLibrary`` that this module describes. Data are bytes, addresses, or None where a step
    does not need them."""

    def proof_assemble(
        self,
        curve: Curve,
        steps: int,
        key: Data,
        blinding: Data,
        a: Data,
        b1: Data,
        b2: Data,
        l: Data,  # noqa: E741 - the query's name
        h: Data,
        proof: Data,
        coordinates: Data,
    ) -> None:
        """Does steps of a proof in place. ``blinding``: r and s, plain; ``a`` to ``h``: the sums; ``proof``: A, B, C;
        ``coordinates`` become their plain ones."""
        self._run("proof_assemble", curve.id, steps, key, blinding, a, b1, b2, l, h, proof, coordinates)

    def proof_input(
        self, curve: Curve, ic: Data, signals: Data, n: int, x: Data, scratch: Data, scratch_bytes: int, call: Call
    ) -> None:
        """x = IC_0 + Σ signals_i IC_(i+1) for n plain signals below r; scratch as for the ``msm`` of n points."""
        if not self._run("proof_input", curve.id, ic, signals, n, x, scratch, scratch_bytes, reference(call)):
            raise NativeCallError("cuzk_proof_input", Status.DATA)

    def proof_check(self, curve: Curve, key: Data, x: Data, proof: Data) -> ProofProblem | None:
        """None for a valid proof; ``key`` and ``x`` must be sound."""
        item, fault = c_int(), c_int()
        if self._run("proof_check", curve.id, key, x, proof, byref(item), byref(fault)):
            return None
        return ProofProblem(ProofItem(item.value), PointFault(fault.value) if fault.value else None)


_P = c_void_p
PROOF_SIGNATURES: Final[Signatures] = {
    "proof_assemble": (c_int, (c_int, c_uint32, *[_P] * 9)),
    "proof_input": (c_int, (c_int, _P, _P, c_uint64, _P, _P, c_uint64, _P)),
    "proof_check": (c_int, (c_int, _P, _P, _P, _P, _P)),
}
