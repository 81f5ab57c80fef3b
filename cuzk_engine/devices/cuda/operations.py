"""The device protocol's operations as launches on the stream of kernels.

What the caller has set up: the device is the current one, the stream of kernels is CuPy's current stream, and nobody
else launches. Nothing here waits for the device, except for the checks when matrices are prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import CosetExtend, HJoin, Msm, NttTable, Quotient
from cuzk_engine.devices.cuda import fields
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.memory import CudaBuffer
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.msm import Msm as MsmKernels
from cuzk_engine.devices.cuda.ntt import Ntt, to_limbs
from cuzk_engine.devices.cuda.shape import aligned_size, scratch_bytes, shape, table_rows
from cuzk_engine.devices.cuda.vectors import Matrices, Vectors
from cuzk_engine.errors import CuzkError

log = logging.getLogger(__name__)

FR_BYTES: Final = 32
FACTOR_BYTES: Final = 2 * FR_BYTES
# Temporary arrays of Vectors.prepare for a coefficient, and its result: the entry and its value twice over, its place
# and the order of places as 64-bit numbers, and what the sort of those takes.
_PREPARE_BYTES: Final = 320
_PREPARE_FIXED: Final = 1 << 22


def point_bytes(curve: Curve, group: int) -> int:
    return curve.g2_bytes if group == 2 else curve.g1_bytes


def msm_arena_bytes(curve: Curve, group: int, n: int, *, picked: bool = False) -> int:
    """What the arrays of an MSM take, without the points; ``picked``: its scalars are picked from more first."""
    scalars = aligned_size(n * FR_BYTES) if picked else 0
    return scalars + scratch_bytes(shape(curve, max(n, 1), group), 2 * point_bytes(curve, group))


def table_bytes(log_n: int) -> int:
    return table_rows(log_n) * FR_BYTES


def evaluate_bytes(n: int) -> int:
    """What ``Evaluate`` may take besides its buffers; ``n`` counts coefficients, signals and rows."""
    return _PREPARE_FIXED + _PREPARE_BYTES * n


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """Affine points on the device in ``block``; with ``index`` only those of a query that are not at infinity, and the
    numbers of their scalars (uint32)."""

    block: CudaBuffer
    count: int
    array: Any
    index: Any | None = None


def present_points(block: CudaBuffer, n: int, size: int) -> Any | None:
    """The numbers of the points that are not at infinity, where leaving the others out saves time and memory: from a
    quarter on. Waits for the device."""
    words = block.array((n, size // 8), np.uint64)
    index = cupy.flatnonzero(words.any(axis=1)).astype(np.uint32)
    return index if 4 * index.size <= 3 * n else None


def compact_points(full: CudaBuffer, n: int, size: int, index: Any, allocate: Callable[[int], CudaBuffer]) -> Points:
    """The points of ``index`` in a block of their own."""
    count = int(index.size)
    block = allocate(count * size + 4 * count)
    with _freed_on_failure(block):
        points, numbers = block.array((count, size // 8), np.uint64), block.array((count,), np.uint32, count * size)
        points[...] = full.array((n, size // 8), np.uint64)[index]
        numbers[...] = index
    return Points(block, count, points, numbers)


def reversed_numbers(index: Any, bits: int) -> Any:
    """Bit reversals of numbers below 2^bits (uint32)."""
    result = cupy.zeros_like(index)
    for _ in range(bits):
        result = result << np.uint32(1) | index & np.uint32(1)
        index = index >> np.uint32(1)
    return result


class Operations:
    """``factors``: FACTOR_BYTES of device memory, for the constants of ``HJoin``."""

    def __init__(self, kernels: Kernels, factors: CudaBuffer) -> None:
        self._kernels = kernels
        self._factors = factors
        self._msms: dict[tuple[str, int], MsmKernels] = {}
        self._vectors: dict[str, Vectors] = {}
        self._prepared: set[str] = set()

    def prepare(self, curve: Curve) -> None:
        """Compiles what a proof on ``curve`` needs, several programs at a time, the first time it is asked to."""
        if curve.name in self._prepared:
            return
        log.info("preparing the GPU's kernels for %s; what is not in the cache is compiled", curve.title)
        self._kernels.prepare(self._programs(curve))
        self._prepared.add(curve.name)

    def _programs(self, curve: Curve) -> Iterable[Program]:
        for group in (1, 2):
            yield from self.msm_kernels(curve, group).programs
        yield self.vectors(curve).program
        yield fields.field_program(curve, "Fr")
        yield Ntt.program_for(curve)

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
        if log_n >= curve.two_adicity:
            raise CuzkError(
                f"a domain of 2^{log_n} has no odd coset of roots of unity on {curve.title}, which a GPU needs; "
                "prove on the CPU"
            )
        vector = data.array((1 << log_n, 4), np.uint64)
        transform = _transform(table)
        if data.is_reversed:
            transform.coset_extend_reversed(vector, scale=False)
        else:
            transform.coset_extend(vector, scale=False)
        data.pending = data.pending * pow(1 << log_n, -1, curve.r) % curve.r

    def join(self, operation: HJoin, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer) -> None:
        self._join(operation.curve, operation.n, a, b, c, 1)

    def quotient(self, operation: Quotient, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, table: CudaBuffer) -> None:
        """On the odd coset X^n − 1 is −2; the inverse transform's 1/n goes into the same factors."""
        curve, n = operation.curve, 1 << operation.log_n
        self._join(curve, n, a, b, c, pow(-2 * n, -1, curve.r))
        transform = _transform(table)
        vector = a.array((n, 4), np.uint64)
        if not a.is_reversed:
            transform.reverse(vector)
        transform.run(vector, inverse=True, in_reversed=True, coset=True, scale=False)
        a.is_reversed = False

    def _join(self, curve: Curve, n: int, a: CudaBuffer, b: CudaBuffer, c: CudaBuffer, factor: int) -> None:
        if not a.is_reversed == b.is_reversed == c.is_reversed:
            raise ValueError("vectors in different orders")
        r = curve.r
        values = [a.pending * b.pending * factor % r, c.pending * factor % r]
        factors = self._factors.array((2, 4), np.uint64)
        factors.set(to_limbs(values), stream=cupy.cuda.get_current_stream())
        vectors = [x.array((n, 4), np.uint64) for x in (a, b, c)]
        self.vectors(curve).join(vectors[0], vectors[1], vectors[2], factors)
        a.pending = 1

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
        marks: list[tuple[str, Any]],
    ) -> None:
        curve, n = operation.curve, operation.n
        if points is None or points.count == 0:
            runtime.memsetAsync(result.address, 0, point_bytes(curve, operation.group), _stream())
            return
        reversed_bits = 0
        if scalars.is_reversed:
            reversed_bits = n.bit_length() - 1
            if operation.offset or scalars.nbytes != n * FR_BYTES or n != 1 << reversed_bits:
                raise ValueError("part of a vector in bit-reversed order")
        if scalars.pending != 1:
            raise ValueError("scalars that lack a factor")
        kernels = self.msm_kernels(curve, operation.group)
        view = scalars.array((n, 4), np.uint64, operation.offset * FR_BYTES)
        if points.index is not None:
            view = view[reversed_numbers(points.index, reversed_bits) if reversed_bits else points.index]
            reversed_bits = 0
        total = kernels.run(points.array, view, reversed_bits=reversed_bits, marks=marks)
        kernels.write_affine(total, result.array((point_bytes(curve, operation.group),), np.uint8))

    # ---- rows ----

    def prepare_matrices(self, curve: Curve, section: Any, domain: int, n_vars: int) -> Matrices:
        return self.vectors(curve).prepare(section, domain, n_vars)

    def evaluate(
        self, curve: Curve, matrices: Matrices, witness: CudaBuffer, out: tuple[CudaBuffer, CudaBuffer, CudaBuffer]
    ) -> None:
        """Rows go to the bit reversals of their numbers: the transforms want them there."""
        values = witness.array((witness.nbytes // FR_BYTES, 4), np.uint64)
        arrays = tuple(x.array((matrices.rows, 4), np.uint64) for x in out)
        self.vectors(curve).evaluate(matrices, values, reversed_order=True, out=arrays)
        for vector in out:
            vector.is_reversed, vector.pending = True, 1


def copy_matrices(matrices: Matrices, allocate: Callable[[int], CudaBuffer]) -> tuple[CudaBuffer, Matrices]:
    """The same in one block of exactly its size."""
    arrays = (matrices.starts, matrices.entries, matrices.places, matrices.coefficients, matrices.long_rows)
    sizes = [-(-int(array.nbytes) // 256) * 256 for array in arrays]
    block = allocate(sum(sizes))
    offset, copies = 0, []
    with _freed_on_failure(block):
        for array, size in zip(arrays, sizes, strict=True):
            copy = block.array(array.shape, array.dtype, offset)
            copy[...] = array
            copies.append(copy)
            offset += size
    return block, Matrices(matrices.rows, *copies)


@contextmanager
def _freed_on_failure(block: CudaBuffer) -> Iterator[None]:
    try:
        yield
    except BaseException:
        block.free()
        raise


def _transform(table: CudaBuffer) -> Ntt:
    if not isinstance(table.table, Ntt):
        raise ValueError("a table that was never filled")
    return table.table


def _stream() -> int:
    return int(cupy.cuda.get_current_stream().ptr)
