"""The device protocol's operations as launches.

What the caller has set up: the device is the current one, and nobody else launches. What has no ``frame`` goes to
CuPy's current stream, with CuPy's allocator. Nothing here waits for the device, except for the checks when matrices
are prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import CosetExtend, HJoin, Msm, NttTable, Owner, Quotient
from cuzk_engine.devices.cuda import fields, need, programs
from cuzk_engine.devices.cuda.memory import CudaBuffer
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.moments import Marks
from cuzk_engine.devices.cuda.msm import Msm as MsmKernels
from cuzk_engine.devices.cuda.msm_script import Variant
from cuzk_engine.devices.cuda.need import FR_BYTES, point_bytes
from cuzk_engine.devices.cuda.ntt import Ntt, coset_shift, inverse_size, to_limbs
from cuzk_engine.devices.cuda.replay import Frame, Tape
from cuzk_engine.devices.cuda.shape import Shape, aligned_size, table_rows
from cuzk_engine.devices.cuda.slots import Place
from cuzk_engine.devices.cuda.vectors import Matrices, Sections, Vectors

_FACTORS: Final = 64  # pairs that are kept
FACTOR_BYTES: Final = _FACTORS * 2 * FR_BYTES


@dataclass(frozen=True, eq=False, slots=True)
class Sum:
    """How points are summed. ``nbytes``: of scratch; ``result_bytes``: of the sum; ``phases``: at whose ends there are
    marks; ``offsets``: of the sum in the scratch, of the scalars in their vector, of the points' numbers behind the
    points; the rest is `Operations`' own."""

    nbytes: int
    result_bytes: int
    phases: tuple[str, ...]
    offsets: tuple[int, int, int]
    first: int
    tape: Tape
    play: Callable[..., None]


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """Affine points on the device in ``block``; with ``index`` only those of a query that are not at infinity, and the
    numbers of their scalars (uint32). ``travel``: they came for one launch, part of a query and infinity among them.
    ``known``: how they were summed before."""

    block: CudaBuffer
    count: int
    array: Any
    index: Any | None = None
    travel: bool = False
    known: dict[tuple[int, ...], Sum] = field(default_factory=dict)

    @property
    def pick(self) -> bool:
        """Whether their scalars are picked from the vector, which takes memory."""
        return self.travel or self.index is not None


def points_in(block: CudaBuffer, size: int, count: int, *, picked: bool) -> Points:
    """``count`` points of ``size`` bytes, and behind them their numbers where they are ``picked``."""
    array = block.array((count * size,), np.uint8)
    return Points(block, count, array, block.array((count,), np.uint32, count * size) if picked else None)


class Operations:
    """``factors``: FACTOR_BYTES of device memory, for the constants of ``HJoin``."""

    def __init__(self, kernels: Kernels, factors: CudaBuffer) -> None:
        self._kernels = kernels
        self._factors = factors
        self._known: dict[tuple[int, int], int] = {}  # pairs of factors to their places
        self._msms: dict[tuple[str, int], MsmKernels] = {}
        self._vectors: dict[str, Vectors] = {}
        self._prepared: set[str] = set()

    def prepare(self, curve: Curve, owner: Owner, check: Callable[[], None]) -> None:
        """Compiles what a proof on ``curve`` needs, several programs at a time, the first time it is asked to;
        ``check`` raises when ``owner`` does not want it any more."""
        if curve.name in self._prepared:
            return
        self._kernels.prepare(programs.for_proof(curve), owner, check)
        self._prepared.add(curve.name)

    def msm_kernels(self, curve: Curve, group: int) -> MsmKernels:
        key = (curve.name, group)
        if key not in self._msms:
            self._msms[key] = MsmKernels(self._kernels, curve, group)
        return self._msms[key]

    def vectors(self, curve: Curve) -> Vectors:
        if curve.name not in self._vectors:
            self._vectors[curve.name] = Vectors(self._kernels, curve)
        return self._vectors[curve.name]

    # ---- transforms ----

    def fill_table(self, operation: NttTable, table: CudaBuffer) -> None:
        rows = table.array((table_rows(operation.log_n), 4), np.uint64)
        table.table = Ntt(self._kernels, operation.curve, operation.log_n, table=rows)

    def coset_extend(
        self, operation: CosetExtend, data: CudaBuffer, table: CudaBuffer, stream: Any, frame: Frame
    ) -> None:
        """The order stays as it is; 1/n is left to whoever reads the vector."""
        curve, log_n = operation.curve, operation.log_n
        _transform(table).extend(data.checked(FR_BYTES << log_n), 1 << log_n, data.is_reversed, stream, frame)
        data.pending = data.pending * inverse_size(curve, log_n) % curve.r

    def join(self, operation: HJoin, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, stream: Any, frame: Frame) -> None:
        self._join(operation.curve, operation.n, a, b, c, 1, stream, frame)

    def quotient(self, operation: Quotient, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, table: CudaBuffer) -> None:
        """X^n − 1 is the same everywhere on the coset; its inverse and the inverse transform's 1/n go into the same
        factors."""
        curve, n = operation.curve, 1 << operation.log_n
        factor = _quotient_factor(curve, operation.log_n)
        self._join(curve, n, a, b, c, factor, cupy.cuda.get_current_stream())
        transform = _transform(table)
        vector = a.array((n, 4), np.uint64)
        if not a.is_reversed:
            transform.reverse(vector)
        transform.coset_interpolate(vector, scale=False)
        a.is_reversed = False

    def _join(
        self,
        curve: Curve,
        n: int,
        a: CudaBuffer,
        b: CudaBuffer,
        c: CudaBuffer,
        factor: int,
        stream: Any,
        frame: Frame | None = None,
    ) -> None:
        if not a.is_reversed == b.is_reversed == c.is_reversed:
            raise ValueError("vectors in different orders")
        r = curve.r
        factors = self._pair(a.pending * b.pending * factor % r, c.pending * factor % r, stream)
        addresses = [x.checked(n * FR_BYTES) for x in (a, b, c)]
        self.vectors(curve).enqueue_join((*addresses, factors), n, stream, frame)
        a.pending = 1

    def _pair(self, first: int, second: int, stream: Any) -> int:
        """The address of two constants on the device, where they stay: copying them from pageable memory may wait for
        the stream."""
        place = self._known.get((first, second), len(self._known))
        is_new = place == len(self._known)
        if place == _FACTORS:
            self._known.clear()  # what is enqueued reads them before the copies that come
            place = 0
        offset = place * 2 * FR_BYTES
        if is_new:
            self._known[first, second] = place
            self._factors.array((2, 4), np.uint64, offset).set(to_limbs([first, second]), stream=stream)
        return self._factors.address + offset

    def restore(self, curve: Curve, data: CudaBuffer, n: int, transform: Ntt | None) -> None:
        """Natural order and no pending factor: what the protocol promises to whoever reads the vector. ``transform``
        is needed where the order is reversed."""
        vector = data.array((n, 4), np.uint64)
        if data.is_reversed:
            assert transform is not None
            transform.reverse(vector)
            data.is_reversed = False
        if data.pending != 1:
            factor = to_limbs([data.pending * (1 << 256) % curve.r])
            factors = cupy.empty((n, 4), dtype=np.uint64)
            factors[...] = cupy.asarray(factor)
            vector[...] = fields.field_op(self._kernels, curve, "Fr", fields.MUL, vector, factors)
            data.pending = 1

    # ---- sums ----

    def sum_of(self, operation: Msm, points: Points, scalars: CudaBuffer, budget: int) -> Sum:
        """How ``points``, at least one, are summed in scratch of about ``budget`` bytes. Raises ValueError for scalars
        that are not as the kernels take them."""
        if scalars.pending != 1:
            raise ValueError("scalars that lack a factor")
        key = operation.offset, operation.n, scalars.nbytes, scalars.is_reversed, budget
        found = points.known.get(key)
        if found is None:
            found = points.known[key] = self._sum_of(operation, points, scalars, budget)
        return found

    def _sum_of(self, operation: Msm, points: Points, scalars: CudaBuffer, budget: int) -> Sum:
        curve, group, count = operation.curve, operation.group, points.count
        kernels = self.msm_kernels(curve, group)
        form = need.msm_form(curve, group, count, budget)
        tape = kernels.tape(_variant(operation, points, scalars, form))
        nbytes = need.msm_arena_bytes(curve, group, count, budget, picked=points.pick)
        if tape.scratch_bytes + aligned_size(kernels.sum_bytes) > nbytes:
            raise MemoryError(f"an MSM takes more than {tape.scratch_bytes} bytes, its plan is {nbytes}")
        first = 0 if points.pick else operation.offset * FR_BYTES
        size = point_bytes(curve, group)
        offsets = tape.scratch_bytes, first, count * size
        return Sum(nbytes, size, tape.marks, offsets, operation.offset, tape, kernels.player.play)

    def msm(
        self,
        how: Sum,
        points: Points,
        scalars: CudaBuffer,
        result: CudaBuffer,
        scratch: CudaBuffer,
        place: Place,
        marks: Marks,
        frame: Frame,
    ) -> None:
        """``how``: from `sum_of`. ``scratch``: so many bytes; ``marks``: an event for each phase, behind the one that
        begins. It starts on the place's stream, within ``frame``."""
        (total, first, numbers), block, start = how.offsets, points.block.address, scratch.address
        # For each `Base`.
        bases = start, start + total, block, scalars.address + first, result.address, block + numbers, how.first
        events = (*marks.handles[1:], *place.streams.inner(how.tape.inner))
        how.play(how.tape, place.handles, events, bases, frame)

    def no_points(self, operation: Msm, result: CudaBuffer, stream: Any, frame: Frame) -> None:
        """The sum of none, infinity."""
        frame.open(stream)
        runtime.memsetAsync(result.address, 0, point_bytes(operation.curve, operation.group), stream.ptr)
        frame.close(stream)

    # ---- rows ----

    def prepare_matrices(
        self,
        curve: Curve,
        parts: Sections,
        n: int,
        domain: int,
        n_vars: int,
        allocate: Callable[[int], CudaBuffer],
    ) -> tuple[CudaBuffer, Matrices]:
        return self.vectors(curve).prepare(parts, n, domain, n_vars, allocate)

    def evaluate(
        self,
        curve: Curve,
        matrices: Matrices,
        witness: CudaBuffer,
        scratch: CudaBuffer,
        out: tuple[CudaBuffer, CudaBuffer, CudaBuffer],
        stream: Any,
        frame: Frame,
    ) -> None:
        """Rows go to the bit reversals of their numbers: the transforms want them there. ``scratch``: for the witness
        in Montgomery form."""
        rows, signals = matrices.rows, witness.nbytes // FR_BYTES
        vectors = (witness.address, scratch.checked(signals * FR_BYTES), *[x.checked(rows * FR_BYTES) for x in out])
        self.vectors(curve).enqueue_evaluation(matrices, signals, vectors, stream, frame, reversed_order=True)
        for vector in out:
            vector.is_reversed, vector.pending = True, 1


@lru_cache
def _quotient_factor(curve: Curve, log_n: int) -> int:
    n = 1 << log_n
    return pow((pow(coset_shift(curve, log_n), n, curve.r) - 1) * n, -1, curve.r)


def _transform(table: CudaBuffer) -> Ntt:
    if not isinstance(table.table, Ntt):
        raise ValueError("a table that was never filled")
    return table.table


def _variant(operation: Msm, points: Points, scalars: CudaBuffer, form: Shape) -> Variant:
    """Raises ValueError for scalars that are not as the kernels take them."""
    n, length = operation.n, scalars.nbytes // FR_BYTES
    if operation.offset + n > length:
        raise ValueError(f"{n} scalars from number {operation.offset} on in a buffer of {length}")
    reversed_bits = length.bit_length() - 1 if scalars.is_reversed else 0
    if scalars.is_reversed and length != 1 << reversed_bits:
        raise ValueError(f"{length} scalars in bit-reversed order")
    if points.pick:
        return Variant(form, reversed_bits, length, points.index is not None, points.travel)
    if reversed_bits and n != length:
        raise ValueError("part of a vector in bit-reversed order")
    return Variant(form, reversed_bits)
