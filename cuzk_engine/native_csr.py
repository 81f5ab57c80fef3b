"""The native library's functions for keys in the zcash encoding and for constraint systems in compressed rows.

Methods of ``native.NativeLibrary``: data as arrays, buffers or addresses, for whose size the caller answers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.native_call import (
    Call,
    Data,
    Group,
    NativeCalls,
    PointFault,
    PointProblem,
    Signatures,
    pointer,
    reference,
)


class CsrFault(IntEnum):
    ROWS = 1
    COLUMN = 2
    VALUE = 3


@dataclass(frozen=True, slots=True)
class CsrProblem:
    """The first row pointer (ROWS) or term that is not what it must be."""

    fault: CsrFault
    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Csr:
    """A matrix of Fr in compressed rows: ``row_ptr`` u32 (rows + 1), ``columns`` u32 (terms), ``values`` (terms × 32
    bytes), in Montgomery form."""

    row_ptr: Data
    columns: Data
    values: Data
    terms: int


class _Csr(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("columns", c_void_p), ("values", c_void_p), ("terms", c_uint64))


class CsrFunctions(NativeCalls):
    """The part of ``native.NativeLibrary`` that this module describes."""

    def points_decode(
        self,
        curve: Curve,
        group: Group,
        encoded: Data,
        n: int,
        present: Data,
        n_out: int,
        out: Data,
        check_subgroup: bool,
        call: Call | None = None,
    ) -> PointProblem | None:
        """n encoded points to n_out affine ones in ``out`` (None: checked only); the first bad one, None when all are
        good. ``present``: bits, least significant first, of the places that have a point; None: all."""
        bad, fault = c_uint64(), c_int()
        arguments = (pointer(encoded), n, pointer(present), n_out, pointer(out), int(check_subgroup))
        fine = self._run(
            "points_decode", curve.id, group, *arguments, ctypes.byref(bad), ctypes.byref(fault), reference(call)
        )
        return None if fine else PointProblem(bad.value, PointFault(fault.value))

    def subgroup_check_scratch_bytes(self, curve: Curve, group: Group, n: int, threads: int = 0) -> int:
        return self.number("subgroup_check_scratch_bytes", curve.id, group, n, threads)

    def subgroup_check(
        self,
        curve: Curve,
        group: Group,
        points: Data,
        n: int,
        seed: bytes,
        scratch: Data,
        scratch_bytes: int,
        call: Call | None = None,
    ) -> bool:
        """Whether n affine points all have order r; a point that has not is missed with a probability of 2^-64.
        ``seed``: 32 bytes that nobody can foresee."""
        if len(seed) != 32:
            raise ValueError(f"a seed of {len(seed)} bytes, expected 32")
        found = c_int()
        arguments = (pointer(points), n, pointer(seed), ctypes.byref(found), pointer(scratch), scratch_bytes)
        self._run("subgroup_check", curve.id, group, *arguments, reference(call))
        return bool(found.value)

    def csr_check(
        self, curve: Curve, matrix: Csr, rows: int, n_vars: int, present: Data, call: Call | None = None
    ) -> CsrProblem | None:
        """The matrix's first fault; ``present``: (n_vars + 7) // 8 bytes or None, gets a bit for each column in use."""
        fault, bad = c_int(), c_uint64()
        structure = _structure(matrix)
        fine = self._run(
            "csr_check",
            curve.id,
            ctypes.byref(structure),
            rows,
            n_vars,
            pointer(present),
            ctypes.byref(fault),
            ctypes.byref(bad),
            reference(call),
        )
        return None if fine else CsrProblem(CsrFault(fault.value), bad.value)

    def csr_evaluate(
        self,
        curve: Curve,
        matrices: Sequence[Csr],
        rows: int,
        inputs: int,
        w: Data,
        domain: int,
        stride: int,
        a: Data,
        b: Data,
        c: Data,
        call: Call | None = None,
    ) -> int | None:
        """a = A w, b = B w, c = C w; the number of the first row with a b ≠ c, None when the witness satisfies all."""
        bad = c_uint64()
        structures = (_Csr * 3)(*(_structure(matrix) for matrix in matrices))
        fine = self._run(
            "csr_evaluate",
            curve.id,
            structures,
            rows,
            inputs,
            pointer(w),
            domain,
            stride,
            pointer(a),
            pointer(b),
            pointer(c),
            ctypes.byref(bad),
            reference(call),
        )
        return None if fine else bad.value

    def quotient(
        self, curve: Curve, a: Data, b: Data, c: Data, log_n: int, table: Data, call: Call | None = None
    ) -> None:
        """a = the plain coefficients of (a b - c) / (X^n - 1), from values on the odd coset."""
        self._run("quotient", curve.id, pointer(a), pointer(b), pointer(c), log_n, pointer(table), reference(call))


_P = c_void_p
CSR_SIGNATURES: Final[Signatures] = {
    "points_decode": (c_int, (c_int, c_int, _P, c_uint64, _P, c_uint64, _P, c_int, _P, _P, _P)),
    "subgroup_check_scratch_bytes": (c_uint64, (c_int, c_int, c_uint64, c_uint32)),
    "subgroup_check": (c_int, (c_int, c_int, _P, c_uint64, _P, _P, _P, c_uint64, _P)),
    "csr_check": (c_int, (c_int, _P, c_uint64, c_uint64, _P, _P, _P, _P)),
    "csr_evaluate": (c_int, (c_int, _P, c_uint64, c_uint64, _P, c_uint64, c_uint64, _P, _P, _P, _P, _P)),
    "quotient": (c_int, (c_int, _P, _P, _P, c_uint32, _P, _P)),
}


def _structure(matrix: Csr) -> _Csr:
    return _Csr(pointer(matrix.row_ptr), pointer(matrix.columns), pointer(matrix.values), matrix.terms)
