"""Multi-scalar multiplication on a GPU, by buckets (Pippenger): scripts (`msm_script.py`), recorded once for a form and
played for each sum."""

from __future__ import annotations

from typing import Any, Final

import cupy
import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.msm_script import Base, Variant, record_msm
from cuzk_engine.devices.cuda.programs import MsmPrograms
from cuzk_engine.devices.cuda.replay import Frame, Player, Tape
from cuzk_engine.devices.cuda.shape import Shape, scratch_bytes, shape

_BASES: Final = tuple(Base)
_TAPES: Final = 64  # that are kept; each some 50 KB

__all__ = ["Msm", "Shape", "Streams", "Variant", "scratch_bytes", "shape"]


class Streams:
    """Of an MSM: ``front`` sorts, ``filling`` fill buckets, ``back`` reduces. CUDA takes a priority out of its range as
    the nearest one in it."""

    def __init__(self, priority: int = -5, filling: int = -4) -> None:
        self.front, self.back = (cupy.cuda.Stream(non_blocking=True, priority=min(priority, 0)) for _ in range(2))
        self.filling = [cupy.cuda.Stream(non_blocking=True, priority=min(filling, 0)) for _ in range(2)]
        self._inner: list[Any] = []
        self._inner_handles: tuple[int, ...] = ()
        self._handles = tuple(s.ptr for s in (self.front, *self.filling, self.back))

    def handles(self, caller: Any) -> tuple[int, ...]:
        """As `msm_script.On` numbers them."""
        return (caller.ptr, *self._handles)

    def inner(self, count: int) -> tuple[int, ...]:
        """Events that order these streams and that nobody else looks at, so that each MSM records them anew: a stream
        that was told to wait waits for what was recorded until then."""
        while len(self._inner) < count:
            self._inner.append(cupy.cuda.Event(disable_timing=True))
            self._inner_handles += (self._inner[-1].ptr,)
        return self._inner_handles[:count]


class Msm:
    """Sums of scalars times points of one group of one curve. Keeps no arrays between calls.

    ``names``: its programs, None for those that were best on an H200.
    """

    def __init__(
        self,
        kernels: Kernels,
        curve: Curve,
        group: int,
        names: MsmPrograms | None = None,
    ) -> None:
        self._kernels, self.curve, self.group = kernels, curve, group
        self.coordinate_bytes = curve.n8q * group
        self.point_bytes, self.sum_bytes = 2 * self.coordinate_bytes, 4 * self.coordinate_bytes
        self.names = names or programs.msm(curve, group)
        self._streams = Streams()
        self.player = Player(kernels)
        self._tapes: dict[Variant, Tape] = {}

    def tape(self, variant: Variant) -> Tape:
        """Recorded the first time."""
        found = self._tapes.get(variant)
        if found is None:
            if len(self._tapes) == _TAPES:
                del self._tapes[next(iter(self._tapes))]
            script = record_msm(self.curve, self.group, self.names, variant)
            found = self._tapes[variant] = self.player.tape(script)
        return found

    def play(
        self,
        tape: Tape,
        caller: Any,
        streams: Streams,
        marks: list[Any],
        bases: dict[Base, int],
        frame: Frame | None = None,
    ) -> list[tuple[str, Any]]:
        """Enqueues a sum, behind what ``caller`` does, which is joined at the end. ``marks``: as many events as the
        tape has, which can be timed; returns them with the names of the phases at whose ends they are."""
        events = (*[event.ptr for event in marks], *streams.inner(tape.inner))
        addresses = [bases.get(base, 0) for base in _BASES]
        self.player.play(tape, streams.handles(caller), events, addresses, frame)
        return list(zip(tape.marks, marks, strict=True))

    def run(
        self,
        points: Any,
        scalars: Any,
        form: Shape | None = None,
        reversed_bits: int = 0,
        marks: list[tuple[str, Any]] | None = None,
        streams: Streams | None = None,
    ) -> Any:
        """Enqueues the MSM in memory of CuPy's allocator; returns the sum in XYZZ coordinates, Montgomery form, on the
        device.

        ``points``: affine, Montgomery form, infinity all zero; of order r where scalars are split into halves.
        ``scalars``: (n, 4) uint64, plain, below r. With ``reversed_bits`` = log n, scalar i belongs to the point whose
        index is i's bit reversal. ``marks`` receives the phases' names with events at their ends. ``streams``: None for
        its own.
        """
        n = scalars.shape[0]
        if n == 0:
            return cupy.zeros(self.sum_bytes, dtype=np.uint8)
        tape = self.tape(Variant(form or shape(self.curve, n, self.group), reversed_bits, affine=False))
        out = cupy.empty(self.sum_bytes, dtype=np.uint8)
        block = cupy.empty(tape.scratch_bytes, dtype=np.uint8)
        arrays = {Base.SCRATCH: block, Base.SUM: out, Base.POINTS: points, Base.SCALARS: scalars}
        bases = {base: int(array.data.ptr) for base, array in arrays.items()}
        events = [cupy.cuda.Event() for _ in tape.marks]
        found = self.play(tape, cupy.cuda.get_current_stream(), streams or self._streams, events, bases)
        if marks is not None:
            marks += found
        return out

    def to_affine(self, total: Any) -> tuple[int, ...]:
        """Plain affine coordinates of a sum: (x, y) in G1, (x0, x1, y0, y1) in G2; zeros for infinity. Waits for the
        device."""
        out = cupy.empty(self.point_bytes, dtype=np.uint8)
        self._kernels.launch(self.names.affine, "sums_to_affine", 1, 128, (total, np.uint32(1), out))
        return self.plain(out)[0]

    def plain(self, points: Any) -> list[tuple[int, ...]]:
        """Affine points on the device as plain integers."""
        q, size = self.curve.q, self.curve.n8q
        factor = pow(1 << (8 * size), -1, q)
        data = cupy.asnumpy(points).tobytes()
        numbers = [int.from_bytes(data[i : i + size], "little") * factor % q for i in range(0, len(data), size)]
        width = 2 * self.group
        return [tuple(numbers[i : i + width]) for i in range(0, len(numbers), width)]

    def fixed_base(self, base: bytes, scalars: Any) -> Any:
        """scalars[i] * base for every i, affine; ``base`` is an affine point in Montgomery form, ``scalars`` plain,
        (n, 4)."""
        n, lanes = scalars.shape[0], self.group
        table = cupy.empty(32 * 256 * self.point_bytes, dtype=np.uint8)
        launch = self._kernels.launch
        point = cupy.asarray(np.frombuffer(base, dtype=np.uint8))
        launch(self.names.fixed, "fixed_table", 1, 32 * lanes, (point, table))
        out = cupy.empty(n * self.point_bytes, dtype=np.uint8)
        if n:
            grid = min(-(-n * lanes // 128), 132 * 64)
            launch(self.names.fixed, "fixed_multiply", grid, 128, (table, scalars, np.uint32(n), out))
        return out
