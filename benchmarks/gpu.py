"""Times of the GPU's operations: median of 7 runs after 2 warm-ups, by CUDA events. Usage: python benchmarks/gpu.py [ff] [ntt] [msm]"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.cuda import fields, ntt
from cuzk_engine.devices.cuda.module import Kernels


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
            program = fields.field_program(curve, field)
            arguments = (np.int32(op), data, np.int32(rounds))
            ms = timed(lambda: kernels.launch(program, "field_throughput", threads // 256, 256, arguments))
            print(f"| {curve.name} {field} {name} | {threads * rounds * 2 / ms / 1e6:.1f} |", flush=True)


def bench_ntt(kernels: Kernels, sizes: tuple[int, ...] = (20, 22, 24, 26, 27), try_plans: bool = False) -> None:
    print("| NTT, ms |" + "".join(f" 2^{k} |" for k in sizes) + "\n|---|" + "---|" * len(sizes))
    for curve in (BLS12_381, BN254):
        transform = ntt.Ntt(kernels, curve, max(sizes))
        data = random_scalars(curve, 1 << max(sizes), 2)
        rows: dict[str, list[float]] = {}
        for k in sizes:
            part = data[: 1 << k]
            rows.setdefault("natural to reversed", []).append(timed(lambda: transform.run(part)))
            rows.setdefault("reversed to natural", []).append(timed(lambda: transform.run(part, in_reversed=True)))
            rows.setdefault("inverse, reversed to natural, scaled", []).append(
                timed(lambda: transform.run(part, inverse=True, in_reversed=True))
            )
            rows.setdefault("coset extension, reversed", []).append(
                timed(lambda: transform.coset_extend_reversed(part, scale=False))
            )
            rows.setdefault("coset extension, natural", []).append(
                timed(lambda: transform.coset_extend(part, scale=False))
            )
        for name, times in rows.items():
            print(f"| {curve.name} {name} |" + "".join(f" {t:.3f} |" for t in times), flush=True)
        if try_plans and curve is BLS12_381:
            for k, most, columns in (
                (20, 7, 2), (20, 7, 3), (20, 7, 4), (20, 10, 1), (20, 8, 3),
                (24, 8, 2), (24, 8, 3), (24, 6, 3), (24, 6, 4), (27, 9, 1), (27, 9, 2), (27, 7, 3), (27, 7, 4),
            ):
                steps = ntt.plan(k, most, columns)
                part = data[: 1 << k]
                ms = timed(lambda: transform.run(part, passes=steps))
                back = timed(lambda: transform.run(part, passes=steps, in_reversed=True))
                print(f"plan 2^{k} most {most} columns {columns}: {ms:.3f} {back:.3f}", [(s.bits, s.columns) for s in steps])


def main() -> None:
    wanted = set(sys.argv[1:]) or {"ff", "ntt"}
    device = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{device['name'].decode()}, driver {cupy.cuda.runtime.driverGetVersion()}")
    kernels = Kernels(Path("/tmp/cuzk-kernels"))
    if "ff" in wanted:
        bench_fields(kernels)
    if "ntt" in wanted:
        bench_ntt(kernels, try_plans="plans" in wanted)


if __name__ == "__main__":
    main()
