"""Rows times witness, and the scalars of the H query, against Python's integers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda import ntt, programs, vectors
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.msm_script import Base
from cuzk_engine.devices.cuda.need import matrices_bytes
from cuzk_engine.devices.cuda.phases import Phases
from cuzk_engine.devices.cuda.replay import Player
from cuzk_engine.devices.cuda.script import Given, Recorder, Ref
from tests.gpu.test_fields import from_limbs
from tests.gpu.test_ntt import evaluate, reordered


def section_of(entries: list[tuple[int, int, int, int]], r: int) -> np.ndarray:
    data = b"".join(
        m.to_bytes(4, "little")
        + row.to_bytes(4, "little")
        + s.to_bytes(4, "little")
        + (v * (1 << 512) % r).to_bytes(32, "little")
        for m, row, s, v in entries
    )
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 44)


class Block:
    """Memory of CuPy's own pool."""

    def __init__(self, nbytes: int) -> None:
        self.memory = cupy.empty(nbytes, np.uint8)
        self.nbytes = nbytes

    def array(self, shape: tuple[int, ...], dtype: type, offset: int = 0) -> cupy.ndarray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return self.memory[offset : offset + size].view(dtype).reshape(shape)

    def free(self) -> None:
        self.memory = None


def prepared(work: vectors.Vectors, section: np.ndarray, rows: int, n_vars: int, step: int = 64) -> vectors.Matrices:
    """The matrices of a section that comes in parts of ``step`` entries."""
    on_device = cupy.asarray(section)

    def parts() -> Iterator[tuple[int, cupy.ndarray]]:
        for first in range(0, len(section), step):
            yield first, on_device[first : first + step].copy()

    block, matrices = work.prepare(parts, len(section), rows, n_vars, Block)
    assert block.nbytes <= matrices_bytes(len(section), rows)
    return matrices


@pytest.mark.parametrize("reversed_order", [False, True])
def test_evaluate(kernels: Kernels, curve: Curve, reversed_order: bool) -> None:
    source = random.Random(4)
    r, rows, n_vars = curve.r, 64, 50
    entries = [
        (k % 2, source.randrange(rows - 3), source.randrange(n_vars), (1, r - 1, source.randrange(r))[k % 3])
        for k in range(300)
    ]
    entries += [(k, 7, source.randrange(n_vars), source.randrange(r)) for k in (0, 1) for _ in range(200 * k + 500)]
    source.shuffle(entries)
    witness = [0, 1, r - 1] + [source.randrange(r) for _ in range(n_vars - 3)]
    sums = [[0] * rows, [0] * rows]
    for m, row, s, v in entries:
        sums[m][row] = (sums[m][row] + v * witness[s]) % r
    work = vectors.Vectors(kernels, curve)
    matrices = prepared(work, section_of(entries, r), rows, n_vars)
    out = work.evaluate(matrices, cupy.asarray(ntt.to_limbs(witness)), reversed_order)
    radix = 1 << 256
    expected = [*sums, [x * y % r for x, y in zip(*sums, strict=True)]]
    for got, values in zip(out, expected, strict=True):
        values = [v * radix % r for v in values]
        assert from_limbs(got) == (reordered(values) if reversed_order else values)


@pytest.mark.parametrize("bad", [(2, 0, 0, 1), (0, 64, 0, 1), (0, 0, 50, 1)])
def test_out_of_range(kernels: Kernels, curve: Curve, bad: tuple[int, int, int, int]) -> None:
    work = vectors.Vectors(kernels, curve)
    with pytest.raises(ValueError, match="coefficient 1:"):
        prepared(work, section_of([(0, 0, 0, 1), bad], curve.r), 64, 50, step=1)


@pytest.mark.parametrize("reversed_order", [False, True])
@pytest.mark.parametrize("log_n", [0, 1, 2, 3, 6, 8])
def test_quotient_scalars(kernels: Kernels, curve: Curve, log_n: int, reversed_order: bool) -> None:
    source = random.Random(log_n)
    n, r = 1 << log_n, curve.r
    radix = 1 << 256
    values = [[source.randrange(r) for _ in range(n)] for _ in range(3)]
    w, shift = ntt.root_of_unity(curve, log_n), ntt.root_of_unity(curve, log_n + 1)
    inverse_domain = [pow(w, -i, r) for i in range(n)]
    coset = [shift * pow(w, i, r) % r for i in range(n)]
    on_coset = []
    for v in values:
        coefficients = [x * pow(n, -1, r) % r for x in evaluate(v, inverse_domain, r)]
        on_coset.append(evaluate(coefficients, coset, r))
    expected = [(x * y - z) % r for x, y, z in zip(*on_coset, strict=True)]
    turn = reordered if reversed_order else list
    host = np.stack([ntt.to_limbs(turn([x * radix % r for x in v])) for v in values])
    transform = ntt.Ntt(kernels, curve, log_n)
    got = from_limbs(vectors.Vectors(kernels, curve).quotient_scalars(transform, cupy.asarray(host), reversed_order))
    assert got == turn(expected)


def picked(
    kernels: Kernels,
    curve: Curve,
    scalars: Any,
    count: int,
    first: int,
    bits: int,
    index: Any = None,
    there: Any = None,
) -> Any:
    """What an MSM of ``count`` points sums."""
    recorder = Recorder(Base.SCRATCH)
    phases = Phases(recorder, curve, 1, programs.msm(curve, 1))
    arrays = {Base.SCALARS: scalars, Base.INDEX: index, Base.POINTS: there}
    refs = {base: None if x is None else Ref(base, 0, x.nbytes) for base, x in arrays.items()}
    whole = Ref(Base.SCALARS, 0, scalars.nbytes)
    with recorder.on(0), recorder.using(recorder.region(count * 32)):
        phases.pick(whole, refs[Base.INDEX], Given(Base.FIRST), bits, refs[Base.POINTS], count)
    player, out = Player(kernels), cupy.empty((count, 4), np.uint64)
    addresses = {base: 0 if x is None else x.data.ptr for base, x in arrays.items()}
    bases = {**addresses, Base.SCRATCH: out.data.ptr, Base.FIRST: first}
    stream = cupy.cuda.get_current_stream().ptr
    player.play(player.tape(recorder.script()), [stream], [], [bases.get(base, 0) for base in Base])
    return out


@pytest.mark.parametrize("bits", [0, 10])
def test_scalars_are_picked(kernels: Kernels, curve: Curve, bits: int) -> None:
    source = np.random.default_rng(3)
    scalars, index = source.integers(0, 1 << 60, (1024, 4), np.uint64), np.flatnonzero(source.integers(0, 2, 1024))
    places = [int(format(i, f"0{bits}b")[::-1], 2) for i in index] if bits else index
    on_device = cupy.asarray(scalars)
    found = picked(kernels, curve, on_device, index.size, 0, bits, index=cupy.asarray(index.astype(np.uint32)))
    assert (cupy.asnumpy(found) == scalars[places]).all()
    # A part of them, without those whose points are at infinity.
    first, count = 100, 300
    points = np.zeros((count, 64), np.uint8)
    points[::3, 63] = 1
    found = picked(kernels, curve, on_device, count, first, bits, there=cupy.asarray(points.reshape(-1)))
    numbers = range(first, first + count)
    places = [int(format(i, f"0{bits}b")[::-1], 2) for i in numbers] if bits else list(numbers)
    expected = scalars[places]
    expected[~points.any(axis=1)] = 0
    assert (cupy.asnumpy(found) == expected).all()


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("log_n", [3, 8, 11])
def test_a_shift_of_its_own(kernels: Kernels, curve: Curve, log_n: int, is_reversed: bool) -> None:
    """What is done where the field has no root of unity of twice the order: times the powers of the shift, and back."""
    source = random.Random(log_n)
    n, r = 1 << log_n, curve.r
    values = [source.randrange(r) for _ in range(n)]
    turn = reordered if is_reversed else list
    transform = ntt.Ntt(kernels, curve, log_n)
    shift = ntt.coset_shift(curve, log_n)
    data = cupy.asarray(ntt.to_limbs(turn(values)))
    transform.scale_by_shift(data, is_reversed=is_reversed)
    assert from_limbs(data) == turn([v * pow(shift, i, r) % r for i, v in enumerate(values)])
    transform.scale_by_shift(data, inverse=True, is_reversed=is_reversed)
    assert from_limbs(data) == turn(values)
