"""The vectors of a Groth16 proof on a GPU: a = A·w, b = B·w, c = a∘b, and the scalars of the H query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import fields, programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.ntt import Ntt, to_limbs

_LONGEST_ROW = 64  # entries that one thread sums
_MINUS_ONE, _GENERAL = np.uint32(1 << 30), np.uint32(2 << 30)
_MOST_SIGNALS = 1 << 30


@dataclass(frozen=True, slots=True)
class Matrices:
    """A and B of a circuit, by rows, on the device."""

    rows: int
    starts: Any
    entries: Any
    places: Any
    coefficients: Any
    long_rows: Any

    @property
    def nbytes(self) -> int:
        arrays = (self.starts, self.entries, self.places, self.coefficients, self.long_rows)
        return sum(int(a.nbytes) for a in arrays)


class Vectors:
    def __init__(self, kernels: Kernels, curve: Curve) -> None:
        self._kernels, self._curve = kernels, curve
        self.program = programs.vectors(curve)

    def prepare(self, section: Any, domain: int, n_vars: int) -> Matrices:
        """Section 4 of a zkey, shape (n, 44) uint8, in any order, to rows. Raises ValueError for an entry out of
        range, naming the first such entry."""
        r = self._curve.r
        if n_vars > _MOST_SIGNALS:
            raise ValueError(f"{n_vars} signals: at most {_MOST_SIGNALS} are supported")
        on_device = section if isinstance(section, cupy.ndarray) else cupy.asarray(np.ascontiguousarray(section))
        words = on_device.view(np.uint32).reshape(-1, 11)
        matrix, row, signal = words[:, 0], words[:, 1], words[:, 2]
        values = cupy.ascontiguousarray(words[:, 3:]).view(np.uint64)
        bad = (matrix > 1) | (row >= domain) | (signal >= n_vars)
        found = int(bad.argmax()) if bad.size and bool(bad.any()) else None
        unreduced = fields.first_unreduced(self._kernels, self._curve, "Fr", values)
        first = min((k for k in (found, unreduced) if k is not None), default=None)
        if first is not None:
            raise ValueError(f"coefficient {first}: matrix, constraint, signal or value out of range")
        radix = 1 << 512  # R^2: the file's coefficients carry it
        one, minus_one = (cupy.asarray(to_limbs([v * radix % r])) for v in (1, r - 1))
        place = matrix.astype(np.int64) * domain + row
        order = cupy.argsort(place)
        starts = cupy.zeros(2 * domain + 1, dtype=np.uint32)
        if place.size:
            starts[1:] = cupy.cumsum(cupy.bincount(place, minlength=2 * domain)).astype(np.uint32)
        values, signal = values[order], signal[order]
        is_one, is_minus = (values == one).all(axis=1), (values == minus_one).all(axis=1)
        general = ~(is_one | is_minus)
        kinds = cupy.where(general, _GENERAL, cupy.where(is_minus, _MINUS_ONE, np.uint32(0)))
        places = (cupy.cumsum(general) - general).astype(np.uint32)
        coefficients = fields.field_op(self._kernels, self._curve, "Fr", fields.FROM_MONT, values[general])
        lengths = starts[1:] - starts[:-1]
        longest = cupy.maximum(lengths[:domain], lengths[domain:])
        return Matrices(
            domain,
            starts,
            cupy.ascontiguousarray(signal | kinds),
            places,
            coefficients,
            cupy.flatnonzero(longest > _LONGEST_ROW).astype(np.uint32),
        )

    def evaluate(self, matrices: Matrices, witness: Any, reversed_order: bool = False, out: Any | None = None) -> Any:
        """(3, rows, 4): a, b, c in Montgomery form, in bit-reversed order on request. ``witness``: (n_vars, 4),
        plain. ``out``: three arrays (rows, 4) to write to instead."""
        out = cupy.empty((3, matrices.rows, 4), dtype=np.uint64) if out is None else out
        w = fields.field_op(self._kernels, self._curve, "Fr", fields.TO_MONT, witness)
        bits = np.uint32(matrices.rows.bit_length() - 1 if reversed_order else 0)
        m = matrices
        common = (m.starts, m.entries, m.places, m.coefficients, w, np.uint32(m.rows))
        grid = min(-(-m.rows // 128), 132 * 32)
        launch = self._kernels.launch
        launch(self.program, "evaluate_rows", grid, 128, (*common, np.uint32(_LONGEST_ROW), bits, *out))
        if m.long_rows.size:
            launch(self.program, "evaluate_long", m.long_rows.size, 128, (*common, m.long_rows, bits, *out))
        return out

    def quotient_scalars(self, transform: Ntt, abc: Any, reversed_order: bool = False) -> Any:
        """a∘b − c on the odd coset, plain: (n, 4). ``abc``, (3, n, 4) in Montgomery form, is overwritten. With
        ``reversed_order`` values come and go in bit-reversed order, which saves a scaling."""
        n = abc.shape[1]
        r = self._curve.r
        if reversed_order:
            transform.coset_extend_reversed(abc, scale=False)
        else:
            transform.coset_extend(abc, scale=False)
        single = pow(n, -1, r)
        factors = cupy.asarray(to_limbs([single * single % r, single]))
        self.join(abc[0], abc[1], abc[2], factors)
        return abc[0]

    def join(self, a: Any, b: Any, c: Any, factors: Any) -> None:
        """a = a∘b·f − c·g, leaving Montgomery form; ``factors``: f and g, plain, (2, 4)."""
        n = a.shape[0]
        grid = min(-(-n // 128), 132 * 32)
        self._kernels.launch(self.program, "h_join", grid, 128, (a, b, c, factors, np.uint64(n)))
