"""Number-theoretic transforms over Fr on a GPU; the algorithm is described in kernels/ntt/passes_cuda.hpp."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.need import FR_BYTES
from cuzk_engine.devices.cuda.replay import Frame, Player, Tape
from cuzk_engine.devices.cuda.script import Argument, Recorder, Ref
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


_DATA, _TABLE = 0, 1  # bases of the scripts


class _Steps:
    """Records transforms of ``batch`` vectors of ``n`` elements, with a table for sizes up to 2^``most``; see `Ntt`."""

    def __init__(
        self, recorder: Recorder, curve: Curve, program: Program, most: int, each: int, n: int, batch: int
    ) -> None:
        self._recorder, self._curve, self._program, self._each = recorder, curve, program, each
        self._n, self._batch, self._log_n = n, batch, n.bit_length() - 1
        if n != 1 << self._log_n or self._log_n > most:
            raise ValueError(f"vector of {n} elements: a power of two up to 2^{most} is needed")
        rows = table_rows(most)
        self._data = Ref(_DATA, 0, batch * n * FR_BYTES)
        whole = Ref(_TABLE, 0, rows * FR_BYTES)
        self._table, constants = whole[: FR_BYTES << most], whole[FR_BYTES << most :]
        sizes = constants[FR_BYTES * _ROOTS :]
        self._inverse_size = sizes[FR_BYTES * self._log_n :]
        powers = sizes[FR_BYTES * (MAX_LOG + 1) :]
        self._shifts = powers, powers[FR_BYTES * _POWERS :]

    @property
    def is_odd(self) -> bool:
        """Whether the vector's coset is the odd one."""
        return self._log_n < self._curve.two_adicity

    def run(
        self,
        *,
        inverse: bool = False,
        in_reversed: bool = False,
        coset: bool = False,
        scale: bool | None = None,
        passes: tuple[Pass, ...] | None = None,
    ) -> None:
        if coset and inverse and not in_reversed:
            raise ValueError("the inverse coset transform takes its input in reversed order")
        if coset and not self.is_odd:
            raise ValueError(f"no root of unity of order 2^{self._log_n + 1}: use a shift of its own")
        flags = INVERSE if inverse else 0
        final = SCALE_CONSTANT if (inverse if scale is None else scale) else 0
        first = 0
        if coset and (inverse or not in_reversed):
            flags |= COSET
        elif coset:
            first = SCALE_TABLE
        if self._log_n == 0:
            return
        if self._log_n < 3:
            common = (self._data, np.uint64(self._n), self._table, np.uint32(self._log_n))
            tiny = (*common, np.uint32(flags | first | final), self._inverse_size, np.int32(in_reversed))
            self._recorder.launch(self._program, "ntt_tiny", self._batch, 32, tiny)
            return
        steps = passes or plan(self._log_n)
        ordered = steps[::-1] if in_reversed else steps
        uses = [flags] * len(ordered)
        uses[0] |= first
        uses[-1] |= final
        for step, use in zip(ordered, uses, strict=True):
            self._pass("ntt_merge" if in_reversed else "ntt_split", step, use)

    def _pass(self, name: str, step: Pass, use: int) -> None:
        log_tile = step.bits + step.columns
        words = [np.uint32(x) for x in (self._log_n, step.first, step.bits, step.columns, use)]
        arguments: list[Argument] = [self._data, np.uint64(self._n), self._table, *words, self._inverse_size]
        grid = (1 << (self._log_n - log_tile), self._batch)
        self._recorder.launch(self._program, name, grid, 1 << (log_tile - self._each), arguments, 32 << log_tile)

    def reverse(self) -> None:
        self._launch_flat("ntt_reverse", (self._data, np.uint64(self._n), np.uint32(self._log_n)))

    def scale_by_shift(self, *, inverse: bool = False, is_reversed: bool = False) -> None:
        n, bits = np.uint64(self._n), np.uint32(self._log_n if is_reversed else 0)
        self._launch_flat("ntt_scale_powers", (self._data, n, self._shifts[int(inverse)], n, bits))

    def _launch_flat(self, name: str, arguments: tuple[Argument, ...]) -> None:
        grid = (flat_grid(self._n), self._batch)
        self._recorder.launch(self._program, name, grid, 256, arguments)


def flat_grid(n: int) -> int:
    return min(-(-n // 256), 132 * 16)


class Ntt:
    """Transforms of sizes up to 2^log_n of one curve's Fr. The table takes `table_rows(log_n)` rows of 32 bytes: in
    ``table`` where that is given, else from CuPy's allocator.

    Vectors are contiguous uint64 arrays of shape (n, 4) or (batch, n, 4), Montgomery or plain form (the transform is
    linear; the twiddles are in Montgomery form), changed in place. What a call launches is recorded the first time.
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
        self._curve, self.log_n, self._each = curve, log_n, each
        self.program = programs.ntt(curve, threads, blocks, each)
        whole = cupy.empty((table_rows(log_n), 4), dtype=np.uint64) if table is None else table
        self.table, constants = whole[: 1 << log_n], whole[1 << log_n :]
        values = _constants(curve, log_n)
        constants[: len(values)].set(values, stream=cupy.cuda.get_current_stream())
        self._player = Player(kernels)
        self._tapes: dict[Hashable, Tape] = {}
        self._extensions: dict[tuple[int, bool], Tape] = {}
        self._address = int(self.table.data.ptr)
        grid = flat_grid(1 << log_n)
        kernels.launch(self.program, "ntt_table", grid, 256, (self.table, constants, np.uint64(1 << log_n)))

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

        def steps(to: _Steps) -> None:
            to.run(inverse=inverse, in_reversed=in_reversed, coset=coset, scale=scale, passes=passes)

        self._play(data, ("run", inverse, in_reversed, coset, scale, passes), steps)

    def reverse(self, data: Any) -> None:
        """Exchanges the elements at i and at the bit reversal of i."""
        self._play(data, ("reverse",), lambda to: to.reverse())

    def coset_extend(self, data: Any, scale: bool = True) -> None:
        """Values on the domain to values on the coset of ``coset_shift``, natural order on both sides and no bit
        reversal in between."""
        self._play(data, ("coset_extend", scale), lambda to: _extend(to, scale, is_reversed=False))

    def coset_extend_reversed(self, data: Any, scale: bool = True) -> None:
        """The same with reversed order on both sides, which on the odd coset saves the scaling."""
        self._play(data, ("coset_extend_reversed", scale), lambda to: _extend(to, scale, is_reversed=True))

    def extend(self, address: int, n: int, is_reversed: bool, stream: Any, frame: Frame) -> None:
        """The one or the other without the factor 1/n, of ``n`` elements by their address, within ``frame``."""
        tape = self._extensions.get((n, is_reversed))
        if tape is None:
            tape = self._tape(n, 1, lambda to: _extend(to, False, is_reversed=is_reversed))
            self._extensions[n, is_reversed] = tape
        self._player.play(tape, (stream.ptr,), (), (address, self._address), frame)

    def coset_interpolate(self, data: Any, scale: bool = True) -> None:
        """Values on that coset, reversed order, to coefficients, natural order."""

        def steps(to: _Steps) -> None:
            to.run(inverse=True, in_reversed=True, coset=to.is_odd, scale=scale)
            if not to.is_odd:
                to.scale_by_shift(inverse=True)

        self._play(data, ("coset_interpolate", scale), steps)

    def scale_by_shift(self, data: Any, *, inverse: bool = False, is_reversed: bool = False) -> None:
        """Multiplies the element of index i by the i-th power of the table's coset shift, or of its inverse."""
        key = ("scale_by_shift", inverse, is_reversed)
        self._play(data, key, lambda to: to.scale_by_shift(inverse=inverse, is_reversed=is_reversed))

    def _play(self, data: Any, name: tuple[Hashable, ...], steps: Callable[[_Steps], None]) -> None:
        """``name``: of what ``steps`` does, with all that it depends on."""
        n = data.shape[-2]
        key = (name, n, data.size)
        tape = self._tapes.get(key)
        if tape is None:
            tape = self._tapes[key] = self._tape(n, data.size // (4 * n), steps)
        stream = cupy.cuda.get_current_stream().ptr
        self._player.play(tape, (stream,), (), (int(data.data.ptr), self._address))

    def _tape(self, n: int, batch: int, steps: Callable[[_Steps], None]) -> Tape:
        recorder = Recorder(_DATA)
        with recorder.on(0):
            steps(_Steps(recorder, self._curve, self.program, self.log_n, self._each, n, batch))
        return self._player.tape(recorder.script())


def _extend(to: _Steps, scale: bool, *, is_reversed: bool) -> None:
    to.run(inverse=True, in_reversed=is_reversed, scale=scale)
    if not to.is_odd:
        to.scale_by_shift(is_reversed=not is_reversed)
    to.run(coset=to.is_odd, in_reversed=not is_reversed)
