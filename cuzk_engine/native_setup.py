"""The native library's functions that make keys: multiples of one point, and Fr at the secret point.

Methods of ``native.NativeLibrary``: data as arrays, buffers or addresses, for whose size the caller answers. Elements
of Fr are in Montgomery form unless said otherwise.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint32, c_uint64, c_void_p
from typing import Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.native_call import Call, Data, Group, NativeCalls, Signatures

Bytes = npt.NDArray[np.uint8]


def fr_element(curve: Curve, value: int) -> bytes:
    """An integer as an element of Fr."""
    return ((value << 256) % curve.r).to_bytes(32, "little")


class SetupFunctions(NativeCalls):
    """The part of ``native.NativeLibrary`` that this module describes."""

    def fixed_base_table_bytes(self, curve: Curve, group: Group, window: int) -> int:
        return self.number("fixed_base_table_bytes", curve.id, group, window)

    def fixed_base_scratch_bytes(self, curve: Curve, group: Group, window: int, threads: int = 0) -> int:
        return self.number("fixed_base_scratch_bytes", curve.id, group, window, threads)

    def fixed_base_table(
        self, curve: Curve, group: Group, point: Data, window: int, table: Data, scratch: Bytes, call: Call
    ) -> None:
        """Fills the table of multiples of an affine point."""
        self.invoke("fixed_base_table", curve.id, group, point, window, table, scratch, scratch.nbytes, call)

    def fixed_base_multiply(
        self,
        curve: Curve,
        group: Group,
        table: Data,
        window: int,
        scalars: Data,
        n: int,
        out: Data,
        scratch: Bytes,
        call: Call,
    ) -> int | None:
        """out[i] = scalars[i] * point; the number of the first scalar that is not below r."""
        bad = c_uint64()
        arguments = (table, window, scalars, n, out, scratch, scratch.nbytes, ctypes.byref(bad), call)
        return None if self.invoke("fixed_base_multiply", curve.id, group, *arguments) else bad.value

    def fr_powers(self, curve: Curve, x: int, first: int, n: int, out: Data, call: Call) -> None:
        """out[i] = first * x^i."""
        self.invoke("fr_powers", curve.id, fr_element(curve, x), fr_element(curve, first), n, out, call)

    def fr_chain(self, curve: Curve, x: int, k: int, n: int, out: Data, call: Call) -> None:
        """out[0] = x^2 + k, and so on, each from the one before."""
        self.invoke("fr_chain", curve.id, fr_element(curve, x), fr_element(curve, k), n, out, call)

    def fr_lagrange(self, curve: Curve, w: int, x: int, k: int, begin: int, n: int, out: Data, call: Call) -> bool:
        """out[i] = k w^j / (x - w^j), j = begin + i; False when x is one of these w^j."""
        root, point, factor = (fr_element(curve, value) for value in (w, x, k))
        return self.invoke("fr_lagrange", curve.id, root, point, factor, begin, n, out, call)

    def fr_combine(
        self, curve: Curve, out: Data, vectors: tuple[Data, Data, Data], k: tuple[int, int, int], n: int, call: Call
    ) -> None:
        """out[i] = the sum of k[j] * vectors[j][i], in the vectors' form."""
        factors = b"".join(fr_element(curve, value) for value in k)
        self.invoke("fr_combine", curve.id, out, *vectors, factors, n, call)

    def r1cs_check(
        self, curve: Curve, section: Data, nbytes: int, constraints: int, wires: int, call: Call
    ) -> tuple[int, int, int] | None:
        """Terms of A, B and C, or None when section 2 is damaged."""
        terms, bad = (c_uint64 * 3)(), c_uint64()
        arguments = (section, nbytes, constraints, wires, terms, ctypes.byref(bad), call)
        return (terms[0], terms[1], terms[2]) if self.invoke("r1cs_check", curve.id, *arguments) else None

    def r1cs_columns(
        self,
        curve: Curve,
        section: Data,
        nbytes: int,
        constraints: int,
        wires: int,
        basis: Data,
        columns: tuple[Data, Data, Data],
        call: Call,
    ) -> None:
        """columns[m][s] = the sum over all rows i of matrix m's coefficient at (i, s) times basis[i], plain."""
        arguments = (section, nbytes, constraints, wires, basis, *columns, call)
        self.invoke_sound("r1cs_columns", curve.id, *arguments)

    def r1cs_coefficients(
        self,
        curve: Curve,
        section: Data,
        nbytes: int,
        constraints: int,
        at: tuple[int, int],
        entries: Data,
        capacity: int,
        call: Call,
    ) -> tuple[int, tuple[int, int]]:
        """Fills ``entries`` with whole rows from ``at`` = (offset, row); how many entries, and where to go on."""
        offset, row, count = c_uint64(at[0]), c_uint64(at[1]), c_uint64()
        places = (ctypes.byref(offset), ctypes.byref(row), entries, capacity, ctypes.byref(count), call)
        self.invoke_sound("r1cs_coefficients", curve.id, section, nbytes, constraints, *places)
        return count.value, (offset.value, row.value)


_P = c_void_p
SETUP_SIGNATURES: Final[Signatures] = {
    "fixed_base_table_bytes": (c_uint64, (c_int, c_int, c_uint32)),
    "fixed_base_scratch_bytes": (c_uint64, (c_int, c_int, c_uint32, c_uint32)),
    "fixed_base_table": (c_int, (c_int, c_int, _P, c_uint32, _P, _P, c_uint64, _P)),
    "fixed_base_multiply": (c_int, (c_int, c_int, _P, c_uint32, _P, c_uint64, _P, _P, c_uint64, _P, _P)),
    "fr_powers": (c_int, (c_int, _P, _P, c_uint64, _P, _P)),
    "fr_chain": (c_int, (c_int, _P, _P, c_uint64, _P, _P)),
    "fr_lagrange": (c_int, (c_int, _P, _P, _P, c_uint64, c_uint64, _P, _P)),
    "fr_combine": (c_int, (c_int, _P, _P, _P, _P, _P, c_uint64, _P)),
    "r1cs_check": (c_int, (c_int, _P, c_uint64, c_uint64, c_uint64, _P, _P, _P)),
    "r1cs_columns": (c_int, (c_int, _P, c_uint64, c_uint64, c_uint64, _P, _P, _P, _P, _P)),
    "r1cs_coefficients": (c_int, (c_int, _P, c_uint64, c_uint64, _P, _P, _P, c_uint64, _P, _P)),
}
