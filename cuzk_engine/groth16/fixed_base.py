"""Many multiples of one point."""

from __future__ import annotations

from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.native import Call, Data, Group, NativeCallError, NativeLibrary, Status, aligned

_MIN_WINDOW: Final = 4
_MAX_WINDOW: Final = 16


class FixedBase:
    """A table of multiples of one point, and the scratch for many products with it. Not for two threads at once."""

    def __init__(
        self,
        library: NativeLibrary,
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
        self._table = aligned(library.fixed_base_table_bytes(curve, group, self._window))
        self._scratch = aligned(library.fixed_base_scratch_bytes(curve, group, self._window, threads))
        library.fixed_base_table(curve, group, point, self._window, self._table, self._scratch, Call(threads))

    def multiply(self, scalars: Data, n: int, out: Data, call: Call | None = None) -> None:
        """out[i] = scalars[i] * point, affine; scalars plain and below r (NativeCallError otherwise).

        ``call``: with the number of threads that the table was made with.
        """
        call = Call(self._threads) if call is None else call
        place = (self._table, self._window, scalars, n, out, self._scratch)
        if self._library.fixed_base_multiply(self._curve, self._group, *place, call) is not None:
            raise NativeCallError("cuzk_fixed_base_multiply", Status.DATA)


def best_window(n: int) -> int:
    """Bits of a digit for n products: the fewest additions, those that fill the table included."""
    return min(range(_MIN_WINDOW, _MAX_WINDOW + 1), key=lambda window: (256 // window) * (n + (1 << (window - 1))))
