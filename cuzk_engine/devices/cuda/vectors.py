"""The vectors of a Groth16 proof on a GPU: a = A·w, b = B·w, c = a∘b, and the scalars of the H query."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import cupy
import numpy as np
from cupy.cuda import runtime

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.need import LONGEST_ROW, matrix_sizes
from cuzk_engine.devices.cuda.ntt import Ntt, to_limbs
from cuzk_engine.devices.cuda.replay import Frame, Player, Tape
from cuzk_engine.devices.cuda.shape import SCAN_TILE
from cuzk_engine.devices.cuda.vector_script import record_join, record_rows

_MOST_SIGNALS: Final = 1 << 30
_ON_DEVICE: Final = 3  # cudaMemcpyDeviceToDevice


def _grid(n: int) -> int:
    return max(1, min(-(-n // 256), 132 * 16))


@dataclass(frozen=True)
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
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the arrays."""
        return tuple(int(array.nbytes) for array in self._arrays)

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        return tuple(int(array.data.ptr) for array in self._arrays)

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self.starts, self.entries, self.places, self.coefficients, self.long_rows


class Block(Protocol):
    """Device memory that arrays are put in."""

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> Any: ...
    def free(self) -> None: ...


B = TypeVar("B", bound=Block)
Sections = Callable[[], Iterable[tuple[int, Any]]]
"""Gives section 4 of a zkey in parts, from the start: the number of the first entry, and entries (n, 44) uint8 on the
device until the next part is asked for."""


class Vectors:
    def __init__(self, kernels: Kernels, curve: Curve) -> None:
        self._kernels, self._curve = kernels, curve
        self.program, self.preparation = programs.vectors(curve), programs.preparation(curve)
        self._sort = programs.sort()  # for its prefix sums
        self._player = Player(kernels)
        self._joins: dict[int, Tape] = {}
        self._rows: dict[Hashable, Tape] = {}

    def prepare(
        self, parts: Sections, n: int, domain: int, n_vars: int, allocate: Callable[[int], B]
    ) -> tuple[B, Matrices]:
        """Section 4 of a zkey, ``n`` entries in any order, to rows, in a block of ``allocate``'s of at most
        ``matrices_bytes``. The parts are asked for twice: to count, and to fill. Waits for the device. Raises
        ValueError for an entry out of range, naming the first such entry."""
        if n_vars > _MOST_SIGNALS:
            raise ValueError(f"{n_vars} signals: at most {_MOST_SIGNALS} are supported")
        launch, program = self._kernels.launch, self.preparation
        starts = cupy.zeros(2 * domain + 1, dtype=np.uint32)
        counters = cupy.zeros(4, dtype=np.uint64)  # general ones, long rows, the lowest bad one, general ones again
        generals, longs, bad, filled = (counters[k : k + 1] for k in range(4))
        runtime.memsetAsync(bad.data.ptr, 0xFF, 8, cupy.cuda.get_current_stream().ptr)
        rows, signals = np.uint32(domain), np.uint32(n_vars)
        for first, part in parts():
            count = np.uint64(len(part))
            words = (part, count, np.uint64(first), rows, signals, starts, generals, bad)
            launch(program, "matrix_count", _grid(len(part)), 256, words)
        self._add_up(starts)
        longest = np.uint32(LONGEST_ROW)
        launch(program, "matrix_long", _grid(domain), 256, (starts, rows, longest, np.uint64(0), longs))
        found = [int(x) for x in counters.get()]
        if found[2] < 1 << 63:
            raise ValueError(f"coefficient {found[2]}: matrix, constraint, signal or value out of range")
        sizes = matrix_sizes(n, domain, found[0], found[1])
        block = allocate(sum(sizes))
        try:
            shapes = ((2 * domain + 1,), (n,), (n,), (found[0], 4), (found[1],))
            offsets = [sum(sizes[:k]) for k in range(len(sizes))]
            arrays = [
                block.array(shape, np.uint64 if len(shape) == 2 else np.uint32, offset)
                for shape, offset in zip(shapes, offsets, strict=True)
            ]
            runtime.memcpyAsync(
                arrays[0].data.ptr, starts.data.ptr, starts.nbytes, _ON_DEVICE, cupy.cuda.get_current_stream().ptr
            )
            runtime.memsetAsync(counters.data.ptr, 0, counters.nbytes, cupy.cuda.get_current_stream().ptr)
            for _, part in parts():
                words = (part, np.uint64(len(part)), rows, starts, filled, *arrays[1:4])
                launch(program, "matrix_fill", _grid(len(part)), 256, words)
            if found[1]:
                launch(program, "matrix_long", _grid(domain), 256, (arrays[0], rows, longest, arrays[4], longs))
        except BaseException:
            block.free()
            raise
        return block, Matrices(domain, *arrays)

    def _add_up(self, data: Any) -> None:
        """Exclusive prefix sums in place; the last element becomes the total."""
        blocks = -(-data.size // SCAN_TILE)
        sums = cupy.empty(blocks + 1, dtype=np.uint32)
        launch, size = self._kernels.launch, np.uint64(data.size)
        launch(self._sort, "scan_tiles", blocks, 256, (data, size, sums))
        launch(self._sort, "scan_sums", 1, 1024, (sums, np.uint32(blocks)))
        launch(self._sort, "scan_add", blocks, 256, (data, size, sums))

    def evaluate(self, matrices: Matrices, witness: Any, reversed_order: bool = False, out: Any | None = None) -> Any:
        """(3, rows, 4): a, b, c in Montgomery form, in bit-reversed order on request. ``witness``: (n_vars, 4),
        plain. ``out``: three arrays (rows, 4) to write to instead."""
        out = cupy.empty((3, matrices.rows, 4), dtype=np.uint64) if out is None else out
        montgomery = cupy.empty_like(witness)
        vectors = [int(array.data.ptr) for array in (witness, montgomery, *out)]
        stream = cupy.cuda.get_current_stream()
        self.enqueue_evaluation(matrices, witness.shape[0], vectors, stream, None, reversed_order=reversed_order)
        return out

    def enqueue_evaluation(
        self,
        matrices: Matrices,
        signals: int,
        vectors: Sequence[int],
        stream: Any,
        frame: Frame | None,
        *,
        reversed_order: bool,
    ) -> None:
        """The same by addresses: of the witness of so many ``signals``, of room for it in Montgomery form, of a, b,
        c."""
        bits = matrices.rows.bit_length() - 1 if reversed_order else 0
        key = signals, matrices.rows, matrices.sizes, bits
        tape = self._rows.get(key)
        if tape is None:
            longs = int(matrices.long_rows.size)
            script = record_rows(self._curve, signals, matrices.rows, matrices.sizes, longs, bits)
            tape = self._rows[key] = self._player.tape(script)
        self._player.play(tape, (stream.ptr,), (), (*vectors, *matrices.addresses), frame)

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
        addresses = tuple(int(array.data.ptr) for array in (a, b, c, factors))
        self.enqueue_join(addresses, a.shape[0], cupy.cuda.get_current_stream())

    def enqueue_join(self, addresses: Sequence[int], n: int, stream: Any, frame: Frame | None = None) -> None:
        """The same for vectors of ``n`` by the addresses of a, b, c and the factors."""
        tape = self._joins.get(n)
        if tape is None:
            tape = self._joins[n] = self._player.tape(record_join(self._curve, n))
        self._player.play(tape, (stream.ptr,), (), addresses, frame)
