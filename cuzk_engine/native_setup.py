"""The parts of the native library that make keys: multiples of one point, and Fr at the secret point.

Elements of Fr are in Montgomery form unless said otherwise; ``SetupLibrary.element`` makes one from an integer.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Final

from cuzk_engine.curves import Curve
from cuzk_engine.native import Call, Data, Group, NativeCallError, NativeLibrary, Status, aligned

_MIN_WINDOW: Final = 4
_MAX_WINDOW: Final = 16


class FixedBase:
    """A table of multiples of one point, and the scratch for many products with it. Not for two threads at once."""

    def __init__(
        self,
        library: SetupLibrary,
        curve: Curve,
        group: Group,
        point: Data,
        n: int,
        threads: int = 0,
        window: int | None = None,
    ) -> None:
        """``point``: affine. ``n``: how many products are to come, which decides on the size of the table where
        ``window``, the bits of a digit from 2 to 16, does not."""
        self._library, self._curve, self._group, self._threads = library, curve, group, threads
        self._window = best_window(n) if window is None else window
        self._table = aligned(library.number("fixed_base_table_bytes", curve.id, group, self._window))
        self._scratch = aligned(library.number("fixed_base_scratch_bytes", curve.id, group, self._window, threads))
        library.invoke(
            "fixed_base_table",
            curve.id,
            group,
            point,
            self._window,
            self._table,
            self._scratch,
            self._scratch.nbytes,
            Call(threads),
        )

    def multiply(self, scalars: Data, n: int, out: Data, call: Call | None = None) -> None:
        """out[i] = scalars[i] * point, affine; scalars plain and below r (NativeCallError otherwise).

        ``call``: with the number of threads that the table was made with.
        """
        bad = c_uint64()
        arguments = (scalars, n, out, self._scratch, self._scratch.nbytes, ctypes.byref(bad))
        call = Call(self._threads) if call is None else call
        fine = self._library.invoke(
            "fixed_base_multiply", self._curve.id, self._group, self._table, self._window, *arguments, call
        )
        if not fine:
            raise NativeCallError("cuzk_fixed_base_multiply", Status.DATA)


class SetupLibrary:
    """Key generation of ``cuzk.h``, by its names without ``cuzk_``."""

    def __init__(self, library: NativeLibrary) -> None:
        self.library = library
        library.bind(_SIGNATURES)
        self.invoke, self.number = library.invoke, library.number

    @staticmethod
    def element(curve: Curve, value: int) -> bytes:
        """An integer as an element of Fr."""
        return ((value << 256) % curve.r).to_bytes(32, "little")

    def fr_powers(self, curve: Curve, x: int, first: int, n: int, out: Data, call: Call) -> None:
        """out[i] = first * x^i."""
        self.invoke("fr_powers", curve.id, self.element(curve, x), self.element(curve, first), n, out, call)

    def fr_chain(self, curve: Curve, x: int, k: int, n: int, out: Data, call: Call) -> None:
        """out[0] = x^2 + k, and so on, each from the one before."""
        self.invoke("fr_chain", curve.id, self.element(curve, x), self.element(curve, k), n, out, call)

    def fr_lagrange(self, curve: Curve, w: int, x: int, k: int, begin: int, n: int, out: Data, call: Call) -> bool:
        """out[i] = k w^j / (x - w^j), j = begin + i; False when x is one of these w^j."""
        root, point, factor = (self.element(curve, value) for value in (w, x, k))
        return self.invoke("fr_lagrange", curve.id, root, point, factor, begin, n, out, call)

    def fr_combine(
        self, curve: Curve, out: Data, vectors: tuple[Data, Data, Data], k: tuple[int, int, int], n: int, call: Call
    ) -> None:
        """out[i] = the sum of k[j] * vectors[j][i], in the vectors' form."""
        factors = b"".join(self.element(curve, value) for value in k)
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
        if not self.invoke("r1cs_columns", curve.id, *arguments):
            raise NativeCallError("cuzk_r1cs_columns", Status.DATA)

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
        if not self.invoke("r1cs_coefficients", curve.id, section, nbytes, constraints, *places):
            raise NativeCallError("cuzk_r1cs_coefficients", Status.DATA)
        return count.value, (offset.value, row.value)


def best_window(n: int) -> int:
    """Bits of a digit for n products: the fewest additions, those that fill the table included."""
    return min(range(_MIN_WINDOW, _MAX_WINDOW + 1), key=lambda window: (256 // window) * (n + (1 << (window - 1))))


_P = c_void_p
_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
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
