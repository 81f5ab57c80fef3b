"""Names of the fields in the kernels, and element-wise operations on arrays of field elements."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.module import Kernels

ADD, SUB, MUL, SQR, NEG, INV, TO_MONT, FROM_MONT = range(8)

CPP_CURVE = {"bn254": "Bn254", "bls12_381": "Bls12_381", "bls12-381": "Bls12_381"}


def cpp_curve(curve: Curve) -> str:
    return CPP_CURVE[curve.name]


def field_program(curve: Curve, field: str) -> Program:
    """``field``: "Fr" or "Fq"."""
    return Program("ff/field.cu", (f"-DCUZK_FIELD={cpp_curve(curve)}{field}",))


def field_op(kernels: Kernels, curve: Curve, field: str, op: int, a: Any, b: Any | None = None) -> Any:
    """out[i] = a[i] op b[i]; arrays of uint64, shape (n, limbs), Montgomery form unless ``op`` converts."""
    out = cupy.empty_like(a)
    n = a.shape[0]
    if n:
        grid = min(-(-n // 128), 132 * 64)
        arguments = (np.int32(op), out, a, a if b is None else b, np.uint64(n))
        kernels.launch(field_program(curve, field), "field_op", grid, 128, arguments)
    return out


def first_unreduced(kernels: Kernels, curve: Curve, field: str, a: Any) -> int | None:
    """Lowest index of an element that is not below the modulus."""
    bad = cupy.full(1, np.uint64(2**64 - 1), dtype=np.uint64)
    n = a.shape[0]
    if n:
        arguments = (a, np.uint64(n), bad)
        kernels.launch(field_program(curve, field), "field_check", min(-(-n // 128), 132 * 64), 128, arguments)
    found = int(bad[0])
    return None if found == 2**64 - 1 else found
