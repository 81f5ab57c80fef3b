"""Number-theoretic transforms over Fr on a GPU; the algorithm is described in kernels/ntt/passes_cuda.hpp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.shape import table_rows

INVERSE, COSET, SCALE_TABLE, SCALE_CONSTANT = 1, 2, 4, 8
MAX_LOG = 28
_ROOTS = 31
_POWERS = 32  # at most, of a shift
_NON_RESIDUE = 5  # the smallest of both fields, counted from 2


@dataclass(frozen=True, slots=True)
class Pass:
    """Stages ``first`` to ``first + bits - 1`` on tiles of 2^bits rows and 2^columns columns."""

    first: int
    bits: int
    columns: int


def plan(log_n: int, most: int = 7, columns: int = 2, tile: int = 10) -> tuple[Pass, ...]:
    """Splits the stages of a transform of size 2^log_n, log_n >= 3, into passes of at most ``most`` bits, as even as
    can be, on tiles of at most 2^tile elements. The defaults were measured on an H200."""
    if log_n <= 10:
        return (Pass(0, log_n, 0),)
    count = -(-log_n // most)
    passes: list[Pass] = []
    first = 0
    for k in range(count):
        bits = (log_n - first + count - k - 1) // (count - k)
        low = log_n - first - bits
        passes.append(Pass(first, bits, min(columns, tile - bits, low if low else first)))
        first += bits
    return tuple(passes)


@lru_cache(maxsize=256)
def root_of_unity(curve: Curve, log_n: int) -> int:
    """snarkjs's root of order 2^log_n, plain: a power of the smallest non-residue."""
    return pow(_NON_RESIDUE, (curve.r - 1) >> log_n, curve.r)


def coset_shift(curve: Curve, log_n: int) -> int:
    """The generator of the coset that a domain of 2^log_n is extended to, plain: the root of unity of twice the order,
    or where there is none the square of the smallest non-residue."""
    if log_n < curve.two_adicity:
        return root_of_unity(curve, log_n + 1)
    return _NON_RESIDUE**2


@lru_cache(maxsize=256)
def inverse_size(curve: Curve, log_n: int) -> int:
    """1/2^log_n in Fr, plain."""
    return pow(1 << log_n, -1, curve.r)


def to_limbs(values: list[int], limbs: int = 4) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Little-endian 64-bit limbs, shape (n, limbs)."""
    data = b"".join(v.to_bytes(8 * limbs, "little") for v in values)
    return np.frombuffer(data, dtype=np.uint64).reshape(-1, limbs)


@lru_cache(maxsize=64)
def _constants(curve: Curve, log_n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Behind a table of twiddles, Montgomery form: roots, inverse sizes, powers of the shift and of its inverse."""
    r, radix = curve.r, 1 << 256
    roots = [root_of_unity(curve, min(j + 2, curve.two_adicity)) for j in range(_ROOTS)]
    inverses = [inverse_size(curve, k) for k in range(MAX_LOG + 1)]
    shift = coset_shift(curve, log_n)
    shifts = [pow(g, 1 << j, r) for g in (shift, pow(shift, -1, r)) for j in range(_POWERS)]
    return to_limbs([v * radix % r for v in roots + inverses + shifts])


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel and all its arguments but the first, the vector: made once, since a short transform would wait for
    Python to make them again."""

    function: Any
    grid: tuple[int, int]
    block: tuple[int]
    rest: tuple[Any, ...]
    shared: int


class Ntt:
    """Transforms of sizes up to 2^log_n of one curve's Fr. The table takes `table_rows(log_n)` rows of 32 bytes: in
    ``table`` where that is given, else from CuPy's allocator.

    Vectors are contiguous uint64 arrays of shape (n, 4) or (batch, n, 4), Montgomery or plain form (the transform is
    linear; the twiddles are in Montgomery form), changed in place.
    """

    def __init__(
        self,
        kernels: Kernels,
        curve: Curve,
        log_n: int,
        threads: int = 512,
        blocks: int = 2,
        each: int = 2,
        table: Any | None = None,
    ) -> None:
        if not 0 <= log_n <= MAX_LOG:
            raise ValueError(f"transform of size 2^{log_n}: 2^0 to 2^{MAX_LOG} are supported")
        self._kernels, self._curve, self.log_n, self._each = kernels, curve, log_n, each
        self.program = programs.ntt(curve, threads, blocks, each)
        whole = cupy.empty((table_rows(log_n), 4), dtype=np.uint64) if table is None else table
        self.table, constants = whole[: 1 << log_n], whole[1 << log_n :]
        values = _constants(curve, log_n)
        constants[: len(values)].set(values, stream=cupy.cuda.get_current_stream())
        self._inverse_sizes = constants[_ROOTS:]
        powers = constants[_ROOTS + MAX_LOG + 1 :]
        self._shifts = powers, powers[_POWERS:]
        self._launches: dict[tuple[Any, ...], list[_Launch]] = {}
        self._launch_flat("ntt_table", (self.table, constants, np.uint64(1 << log_n)), 1 << log_n)

    def _launch_flat(self, name: str, arguments: tuple[Any, ...], n: int, batch: int = 1) -> None:
        self._kernels.launch(self.program, name, (min(-(-n // 256), 132 * 16), batch), 256, arguments)

    def run(
        self,
        data: Any,
        *,
        inverse: bool = False,
        in_reversed: bool = False,
        coset: bool = False,
        scale: bool | None = None,
        passes: tuple[Pass, ...] | None = None,
    ) -> None:
        """One order in, the other out: natural to reversed, or reversed to natural with ``in_reversed``.

        ``coset`` evaluates on (or, inverse, interpolates from) the odd coset w_2n * w_n^i. ``scale`` multiplies by
        1/n, by default when ``inverse``; whoever folds that factor in elsewhere passes False. The coset transforms
        forward to reversed order and inverse from reversed order cost nothing beyond the plain ones; forward from
        reversed order takes n multiplications.
        """
        n = data.shape[-2]
        log_n = n.bit_length() - 1
        if n != 1 << log_n or log_n > self.log_n:
            raise ValueError(f"vector of {n} elements: a power of two up to 2^{self.log_n} is needed")
        if coset and inverse and not in_reversed:
            raise ValueError("the inverse coset transform takes its input in reversed order")
        if coset and log_n == self._curve.two_adicity:
            raise ValueError(f"no root of unity of order 2^{log_n + 1}: use a shift of its own")
        batch = data.size // (4 * n)
        flags = INVERSE if inverse else 0
        final = SCALE_CONSTANT if (inverse if scale is None else scale) else 0
        first = 0
        if coset and (inverse or not in_reversed):
            flags |= COSET
        elif coset:
            first = SCALE_TABLE
        if log_n == 0:
            return
        if log_n < 3:
            words = (np.uint32(log_n), np.uint32(flags | first | final), self._inverse_sizes[log_n])
            arguments = (data, np.uint64(n), self.table, *words, np.int32(in_reversed))
            self._kernels.launch(self.program, "ntt_tiny", batch, 32, arguments)
            return
        key = (log_n, batch, in_reversed, flags, first, final, passes)
        launches = self._launches.get(key)
        if launches is None:
            steps = passes or plan(log_n)
            ordered = steps[::-1] if in_reversed else steps
            uses = [flags] * len(ordered)
            uses[0] |= first
            uses[-1] |= final
            name = "ntt_merge" if in_reversed else "ntt_split"
            launches = [self._launch_of(name, log_n, batch, step, use) for step, use in zip(ordered, uses, strict=True)]
            self._launches[key] = launches
        for launch in launches:
            launch.function(launch.grid, launch.block, (data, *launch.rest), shared_mem=launch.shared)

    def _launch_of(self, name: str, log_n: int, batch: int, step: Pass, use: int) -> _Launch:
        log_tile = step.bits + step.columns
        shared = 32 << log_tile
        words = [np.uint32(x) for x in (log_n, step.first, step.bits, step.columns, use)]
        return _Launch(
            self._kernels.function(self.program, name, shared),
            (1 << (log_n - log_tile), batch),
            (1 << (log_tile - self._each),),
            (np.uint64(1 << log_n), self.table, *words, self._inverse_sizes[log_n]),
            shared,
        )

    def reverse(self, data: Any) -> None:
        """Exchanges the elements at i and at the bit reversal of i."""
        n = data.shape[-2]
        log_n = n.bit_length() - 1
        self._launch_flat("ntt_reverse", (data, np.uint64(n), np.uint32(log_n)), n, data.size // (4 * n))

    def coset_extend(self, data: Any, scale: bool = True) -> None:
        """Values on the domain to values on the coset of ``coset_shift``, natural order on both sides and no bit
        reversal in between."""
        self.run(data, inverse=True, scale=scale)
        if self._is_odd(data):
            self.run(data, coset=True, in_reversed=True)
        else:
            self.scale_by_shift(data, is_reversed=True)
            self.run(data, in_reversed=True)

    def coset_extend_reversed(self, data: Any, scale: bool = True) -> None:
        """The same with reversed order on both sides, which on the odd coset saves the scaling."""
        self.run(data, inverse=True, in_reversed=True, scale=scale)
        if self._is_odd(data):
            self.run(data, coset=True)
        else:
            self.scale_by_shift(data)
            self.run(data)

    def coset_interpolate(self, data: Any, scale: bool = True) -> None:
        """Values on that coset, reversed order, to coefficients, natural order."""
        odd = self._is_odd(data)
        self.run(data, inverse=True, in_reversed=True, coset=odd, scale=scale)
        if not odd:
            self.scale_by_shift(data, inverse=True)

    def scale_by_shift(self, data: Any, *, inverse: bool = False, is_reversed: bool = False) -> None:
        """Multiplies the element of index i by the i-th power of the table's coset shift, or of its inverse."""
        n = data.shape[-2]
        bits = np.uint32(n.bit_length() - 1 if is_reversed else 0)
        words = (data, np.uint64(n), self._shifts[int(inverse)], np.uint64(n), bits)
        self._launch_flat("ntt_scale_powers", words, n, data.size // (4 * n))

    def _is_odd(self, data: Any) -> bool:
        """Whether the vector's coset is the odd one."""
        return bool(data.shape[-2].bit_length() - 1 < self._curve.two_adicity)
