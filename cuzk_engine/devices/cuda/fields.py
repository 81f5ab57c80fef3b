"""Element-wise operations on arrays of field elements."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.module import Kernels

ADD, SUB, MUL, SQR, NEG, INV, TO_MONT, FROM_MONT = range(8)


def field_op(kernels: Kernels, curve: Curve, field: str, op: int, a: Any, b: Any | None = None) -> Any:
    """out[i] = a[i] op b[i]; arrays of uint64, shape (n, limbs), Montgomery form unless ``op`` converts."""
    out = cupy.empty_like(a)
    n = a.shape[0]
    if n:
        grid = min(-(-n // 128), 132 * 64)
        arguments = (np.int32(op), out, a, a if b is None else b, np.uint64(n))
        kernels.launch(programs.field(curve, field), "field_op", grid, 128, arguments)
    return out


def first_unreduced(kernels: Kernels, curve: Curve, field: str, a: Any) -> int | None:
    """Lowest index of an element that is not below the modulus."""
    bad = cupy.full(1, np.uint64(2**64 - 1), dtype=np.uint64)
    n = a.shape[0]
    if n:
        arguments = (a, np.uint64(n), bad)
        kernels.launch(programs.field(curve, field), "field_check", min(-(-n // 128), 132 * 64), 128, arguments)
    found = int(bad[0])
    return None if found == 2**64 - 1 else found
