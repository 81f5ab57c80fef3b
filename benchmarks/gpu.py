"""Times of the GPU's operations: median of 7 runs after 2 warm-ups, by CUDA events. Usage: python benchmarks/gpu.py
[ff] [ntt [plans]] [msm [compare]]"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.cuda import fields, msm, ntt, programs
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.msm_script import Base, record_msm
from cuzk_engine.devices.cuda.script import Copy, Launch, Ref, Zero
from tests.gpu import curve_reference as reference


def timed(action: Callable[[], Any], prepare: Callable[[], Any] | None = None) -> float:
    """Median milliseconds of 7 runs after 2."""
    times = []
    for _ in range(9):
        if prepare:
            prepare()
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        action()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop))
    return statistics.median(times[2:])


def random_scalars(curve: Curve, n: int, seed: int) -> Any:
    """n uniform values below r, plain, on the device: shape (n, 4), uint64."""
    generator = cupy.random.default_rng(seed)
    bits = curve.r.bit_length()
    out = generator.integers(0, 2**64, size=(n, 4), dtype=cupy.uint64, endpoint=False)
    out[:, 3] &= np.uint64((1 << (bits - 192)) - 1)
    top = np.uint64(curve.r >> 192)
    # Where the top limb is not below r's, clear its highest bit: close enough to uniform, always below r.
    out[:, 3] = cupy.where(out[:, 3] >= top, out[:, 3] & np.uint64((1 << (bits - 193)) - 1), out[:, 3])
    return out


def bench_fields(kernels: Kernels) -> None:
    print("| operation | G/s |\n|---|---|")
    for curve, field, limbs in ((BLS12_381, "Fq", 6), (BLS12_381, "Fr", 4), (BN254, "Fq", 4)):
        for name, op, rounds in (("multiply", 2, 500), ("square", 3, 500), ("add", 0, 2000)):
            threads = 132 * 2048
            data = random_scalars(BN254, threads * limbs // 4, 1).reshape(threads, limbs)
            data[:, limbs - 1] &= np.uint64((1 << 56) - 1)
            program = programs.field(curve, field)
            arguments = (np.int32(op), data, np.int32(rounds))
            ms = timed(partial(kernels.launch, program, "field_throughput", threads // 256, 256, arguments))
            print(f"| {curve.name} {field} {name} | {threads * rounds * 2 / ms / 1e6:.1f} |", flush=True)


def bench_ntt(kernels: Kernels, sizes: tuple[int, ...] = (20, 22, 24, 26, 27), try_plans: bool = False) -> None:
    print("| NTT, ms |" + "".join(f" 2^{k} |" for k in sizes) + "\n|---|" + "---|" * len(sizes))
    for curve in (BLS12_381, BN254):
        transform = ntt.Ntt(kernels, curve, max(sizes))
        data = random_scalars(curve, 1 << max(sizes), 2)
        rows: dict[str, list[float]] = {}
        for k in sizes:
            part = data[: 1 << k]
            for name, action in (
                ("natural to reversed", partial(transform.run, part)),
                ("reversed to natural", partial(transform.run, part, in_reversed=True)),
                ("inverse, reversed to natural, scaled", partial(transform.run, part, inverse=True, in_reversed=True)),
                ("coset extension, reversed", partial(transform.coset_extend_reversed, part, scale=False)),
                ("coset extension, natural", partial(transform.coset_extend, part, scale=False)),
            ):
                rows.setdefault(name, []).append(timed(action))
        for name, times in rows.items():
            print(f"| {curve.name} {name} |" + "".join(f" {t:.3f} |" for t in times), flush=True)
        if try_plans:
            compare_plans(curve, data, transform)


def compare_plans(curve: Curve, data: Any, transform: ntt.Ntt) -> None:
    """Other splits into passes, for tuning."""
    for k, cases in (
        (20, ((8, 1), (8, 2), (8, 3), (5, 3), (5, 4), (10, 0), (6, 3))),
        (22, ((8, 2), (8, 1), (6, 3), (6, 2))),
        (24, ((7, 3), (7, 4), (7, 2), (9, 2))),
        (27, ((7, 3), (7, 2), (8, 2))),
    ):
        for most, columns in cases:
            steps = ntt.plan(k, most, columns)
            part = data[: 1 << k]
            ms = timed(partial(transform.run, part, passes=steps))
            back = timed(partial(transform.run, part, passes=steps, in_reversed=True))
            print(f"{curve.name} 2^{k} {[(s.bits, s.columns) for s in steps]}: {ms:.3f} {back:.3f}")


def dot(kernels: Kernels, curve: Curve, a: Any, b: Any) -> int:
    """Sum of a[i] * b[i] mod r, plain."""
    product = fields.field_op(kernels, curve, "Fr", fields.TO_MONT, a)
    product = fields.field_op(kernels, curve, "Fr", fields.MUL, product, b)
    words = product.view(cupy.uint32).reshape(-1, 8)
    return sum(int(words[:, i].sum(dtype=cupy.uint64)) << (32 * i) for i in range(8)) % curve.r


def skewed_scalars(curve: Curve, n: int, kind: str) -> Any:
    scalars = random_scalars(curve, n, 5)
    generator = cupy.random.default_rng(6)
    if kind == "80 % 0 or 1":
        few = generator.random(n) < 0.8
        bits = generator.integers(0, 2, size=n, dtype=cupy.uint64)
        scalars[:, 0] = cupy.where(few, bits, scalars[:, 0])
        for k in (1, 2, 3):
            scalars[:, k] = cupy.where(few, np.uint64(0), scalars[:, k])
    elif kind == "all equal":
        scalars[:] = scalars[0]
    elif kind == "powers of two":
        exponent = cupy.arange(n, dtype=cupy.uint64) % np.uint64(curve.r.bit_length() - 1)
        for k in range(4):
            inside = (exponent >> np.uint64(6)) == k
            scalars[:, k] = cupy.where(inside, np.uint64(1) << (exponent & np.uint64(63)), np.uint64(0))
    return scalars


def kernel_times(kernels: Kernels, summer: msm.Msm, points: Any, scalars: Any, form: msm.Shape) -> dict[str, float]:
    """Milliseconds by kernel of an MSM whose launches come one after another on one stream."""
    script = record_msm(summer.curve, summer.group, summer.names, msm.Variant(form, affine=False))
    out, block = (cupy.empty(n, np.uint8) for n in (summer.sum_bytes, script.scratch_bytes))
    bases = {Base.SCRATCH: block, Base.SUM: out, Base.POINTS: points, Base.SCALARS: scalars}

    def address(ref: Ref) -> Any:
        return np.uint64(bases[Base(ref.base)].data.ptr + ref.offset)

    stream, spans = cupy.cuda.get_current_stream().ptr, []
    for one in script.operations:
        if isinstance(one, Zero):
            cupy.cuda.runtime.memsetAsync(int(address(one.target)), 0, one.target.nbytes, stream)
        elif isinstance(one, Copy):
            target, source = int(address(one.target)), int(address(one.source))
            cupy.cuda.runtime.memcpyAsync(target, source, one.target.nbytes, 3, stream)
        elif isinstance(one, Launch):
            arguments = tuple(address(a) if isinstance(a, Ref) else a for a in one.arguments)
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            kernels.launch(one.program, one.name, one.grid, one.block, arguments, one.shared)
            stop.record()
            gathers = " (first)" if "-DCUZK_FIRST=1" in one.program.options else ""
            spans.append((one.name + gathers, start, stop))
    cupy.cuda.Device().synchronize()
    found: dict[str, float] = {}
    for name, start, stop in spans:
        found[name] = found.get(name, 0) + cupy.cuda.get_elapsed_time(start, stop)
    return found


Case = tuple[Curve, int, tuple[int, ...]]
KINDS = ("uniform", "80 % 0 or 1", "all equal", "powers of two")


def bench_msm(kernels: Kernels, cases: tuple[Case, ...], compare: bool = False, skewed: int = 22) -> None:
    """Milliseconds with points and scalars on the device, result (XYZZ) on the device; results checked. ``compare``:
    scalars as they are, their halves, the other method, other numbers of parts, and the kernels' times where nothing
    runs beside them."""
    for curve, group, sizes in cases:
        summer = msm.Msm(kernels, curve, group)
        base = reference.montgomery_bytes(curve, reference.generator(curve, group), group)
        factors = random_scalars(curve, 1 << max(sizes), 3)
        points = summer.fixed_base(base, factors)
        for k in sizes:
            n = 1 << k
            for kind in KINDS if k == skewed else KINDS[:1]:
                scalars = skewed_scalars(curve, n, kind)
                known = reference.multiply(
                    reference.generator(curve, group), dot(kernels, curve, scalars, factors[:n]), curve.q
                )
                label = f"{curve.name} G{group} 2^{k} {kind}"
                for form in _forms(curve, n, group, compare):
                    total = summer.run(points, scalars, form)
                    right = summer.to_affine(total) == reference.flat(known, group)
                    ms = timed(partial(summer.run, points, scalars, form))
                    gib = msm.scratch_bytes(form, summer.sum_bytes) / 2**30
                    shown = f"{form.method} halves={form.halves} c={form.bits} parts={form.parts} {gib:.2f} GiB"
                    print(f"| {label} | {shown} | {ms:.2f} | {right} |", flush=True)
                    if compare and kind == "uniform":
                        _print_phases(kernels, summer, points, scalars, form, ms)
        del points, factors
        print(f"peak memory of CuPy's pool: {cupy.get_default_memory_pool().total_bytes() / 2**30:.2f} GiB")
        cupy.get_default_memory_pool().free_all_blocks()


def _forms(curve: Curve, n: int, group: int, compare: bool) -> list[msm.Shape]:
    best = msm.shape(curve, n, group)
    if not compare:
        return [best]
    whole = msm.shape(curve, n, group, halves=1)
    other = msm.shape(curve, n, group, method="xyzz" if best.method == "affine" else "affine")
    return [whole, best, other]


def _print_phases(kernels: Kernels, summer: msm.Msm, points: Any, scalars: Any, form: msm.Shape, ms: float) -> None:
    other = [replace(form, parts=k) for k in (1, 2) if k != form.parts and k <= form.windows]
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    found = {form.parts: ms}
    for cut in other:
        if msm.scratch_bytes(cut, summer.sum_bytes) < 0.9 * free:
            found[cut.parts] = timed(partial(summer.run, points, scalars, cut))
    print("    parts: " + ", ".join(f"{k}: {found[k]:.2f}" for k in sorted(found)))
    whole = replace(form, parts=1)
    if msm.scratch_bytes(whole, summer.sum_bytes) < 0.9 * free:
        times = kernel_times(kernels, summer, points, scalars, whole)
        large = {name: t for name, t in times.items() if t >= 0.02 * ms}
        print("    " + ", ".join(f"{name} {t:.2f}" for name, t in large.items()), end="")
        print(f", others {sum(times.values()) - sum(large.values()):.2f}", flush=True)


def main() -> None:
    wanted = set(sys.argv[1:]) or {"ff", "ntt"}
    device = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{device['name'].decode()}, driver {cupy.cuda.runtime.driverGetVersion()}")
    kernels = Kernels(Path("/tmp/cuzk-kernels"))
    if "ff" in wanted:
        bench_fields(kernels)
    if "ntt" in wanted:
        bench_ntt(kernels, try_plans="plans" in wanted)
    if "msm" in wanted:
        cases = (
            (BLS12_381, 1, (16, 18, 20, 22, 24, 26)),
            (BN254, 1, (16, 18, 20, 22, 24, 26)),
            (BLS12_381, 2, (18, 20, 22)),
            (BN254, 2, (18, 20, 22)),
        )
        bench_msm(kernels, cases, "compare" in wanted)


if __name__ == "__main__":
    main()
