"""The device protocol's operations as launches on CuPy's current stream.

What the caller has set up: the device is the current one, the stream and its allocator are CuPy's current ones, and
nobody else launches. Nothing here waits for the device, except for the checks when matrices are prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import CosetExtend, HJoin, Msm, NttTable, Owner, Quotient
from cuzk_engine.devices.cuda import fields, programs
from cuzk_engine.devices.cuda.memory import CudaBuffer
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.msm import Msm as MsmKernels
from cuzk_engine.devices.cuda.msm import Streams
from cuzk_engine.devices.cuda.msm_script import Base, Variant
from cuzk_engine.devices.cuda.need import FR_BYTES, point_bytes
from cuzk_engine.devices.cuda.ntt import Ntt, coset_shift, inverse_size, to_limbs
from cuzk_engine.devices.cuda.replay import Frame
from cuzk_engine.devices.cuda.shape import Shape, aligned_size, table_rows
from cuzk_engine.devices.cuda.vectors import Matrices, Sections, Vectors

_FACTORS: Final = 64  # pairs that are kept
FACTOR_BYTES: Final = _FACTORS * 2 * FR_BYTES


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """Affine points on the device in ``block``; with ``index`` only those of a query that are not at infinity, and the
    numbers of their scalars (uint32). ``travel``: they came for one launch, part of a query and infinity among them."""

    block: CudaBuffer
    count: int
    array: Any
    index: Any | None = None
    travel: bool = False

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

    def coset_extend(self, operation: CosetExtend, data: CudaBuffer, table: CudaBuffer) -> None:
        """The order stays as it is; 1/n is left to whoever reads the vector."""
        curve, log_n = operation.curve, operation.log_n
        vector = data.array((1 << log_n, 4), np.uint64)
        transform = _transform(table)
        if data.is_reversed:
            transform.coset_extend_reversed(vector, scale=False)
        else:
            transform.coset_extend(vector, scale=False)
        data.pending = data.pending * inverse_size(curve, log_n) % curve.r

    def join(self, operation: HJoin, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer) -> None:
        self._join(operation.curve, operation.n, a, b, c, 1)

    def quotient(self, operation: Quotient, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, table: CudaBuffer) -> None:
        """X^n − 1 is the same everywhere on the coset; its inverse and the inverse transform's 1/n go into the same
        factors."""
        curve, n = operation.curve, 1 << operation.log_n
        self._join(curve, n, a, b, c, _quotient_factor(curve, operation.log_n))
        transform = _transform(table)
        vector = a.array((n, 4), np.uint64)
        if not a.is_reversed:
            transform.reverse(vector)
        transform.coset_interpolate(vector, scale=False)
        a.is_reversed = False

    def _join(self, curve: Curve, n: int, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, factor: int) -> None:
        if not a.is_reversed == b.is_reversed == c.is_reversed:
            raise ValueError("vectors in different orders")
        r = curve.r
        factors = self._pair(a.pending * b.pending * factor % r, c.pending * factor % r)
        vectors = [x.array((n, 4), np.uint64) for x in (a, b, c)]
        self.vectors(curve).join(vectors[0], vectors[1], vectors[2], factors)
        a.pending = 1

    def _pair(self, first: int, second: int) -> Any:
        """Two constants on the device, where they stay: copying them from pageable memory may wait for the stream."""
        place = self._known.get((first, second), len(self._known))
        is_new = place == len(self._known)
        if place == _FACTORS:
            self._known.clear()  # what is enqueued reads them before the copies that come
            place = 0
        pair = self._factors.array((2, 4), np.uint64, place * 2 * FR_BYTES)
        if is_new:
            self._known[first, second] = place
            pair.set(to_limbs([first, second]), stream=cupy.cuda.get_current_stream())
        return pair

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

    def msm(
        self,
        operation: Msm,
        points: Points | None,
        scalars: CudaBuffer,
        result: CudaBuffer,
        scratch: CudaBuffer,
        form: Shape,
        streams: Streams,
        events: Callable[[int], list[Any]],
        stream: Any,
        frame: Frame,
    ) -> list[tuple[str, Any]]:
        """``scratch``: as much as the plan says; ``events`` gives so many that can be timed; ``stream``: what it starts
        on, within ``frame``. Returns the phases' names with events at their ends."""
        curve, group = operation.curve, operation.group
        if points is None or points.count == 0:
            frame.open(stream)
            runtime.memsetAsync(result.address, 0, point_bytes(curve, group), stream.ptr)
            frame.close(stream)
            return []
        kernels = self.msm_kernels(curve, group)
        tape = kernels.tape(_variant(operation, points, scalars, form))
        total = tape.scratch_bytes
        if total + aligned_size(kernels.sum_bytes) > scratch.nbytes:
            raise MemoryError(f"an MSM takes more than {total} bytes, its plan is {scratch.nbytes}")
        first = 0 if points.pick else operation.offset * FR_BYTES
        bases = {
            Base.SCRATCH: scratch.address,
            Base.SUM: scratch.address + total,
            Base.POINTS: points.block.address,
            Base.SCALARS: scalars.address + first,
            Base.RESULT: result.address,
            Base.INDEX: points.block.address + points.count * point_bytes(curve, group),
            Base.FIRST: operation.offset,
        }
        return kernels.play(tape, stream, streams, events(len(tape.marks)), bases, frame)

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
        self, curve: Curve, matrices: Matrices, witness: CudaBuffer, out: tuple[CudaBuffer, CudaBuffer, CudaBuffer]
    ) -> None:
        """Rows go to the bit reversals of their numbers: the transforms want them there."""
        values = witness.array((witness.nbytes // FR_BYTES, 4), np.uint64)
        arrays = tuple(x.array((matrices.rows, 4), np.uint64) for x in out)
        self.vectors(curve).evaluate(matrices, values, reversed_order=True, out=arrays)
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
    if scalars.pending != 1:
        raise ValueError("scalars that lack a factor")
    if points.pick:
        return Variant(form, reversed_bits, length, points.index is not None, points.travel)
    if reversed_bits and n != length:
        raise ValueError("part of a vector in bit-reversed order")
    return Variant(form, reversed_bits)
