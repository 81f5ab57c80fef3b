"""Ways to cut a transform into passes, measured on a GPU: `python benchmarks/ntt_plans.py [LOG_N …]`.

Every way is checked against the one in use, bit for bit. Two times: "alone", one transform on an idle device, with what
Python takes to launch it; "in a row", one of twenty that are queued behind each other, as in a proof. Medians of 30,
after the clocks are up.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cupy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu import random_scalars
from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.module import Kernels
from cuzk_engine.devices.cuda.ntt import Ntt, Pass, plan

ROUNDS, IN_A_ROW = 30, 20
# threads, blocks a multiprocessor, log of elements a thread, multiplications by 1 left out
FORMS = ((512, 2, 2, 1), (512, 2, 2, 0), (256, 4, 2, 1), (512, 1, 2, 1), (256, 2, 3, 1), (128, 4, 3, 1), (256, 3, 3, 1))
# most bits, columns, tile: as `plan` takes them
CUTS = (
    *((7, 2, 10), (7, 3, 10), (7, 1, 10), (6, 2, 10), (6, 3, 10), (6, 4, 10), (5, 4, 10), (5, 5, 10)),
    *((8, 1, 10), (8, 2, 10), (9, 1, 10), (9, 2, 11), (10, 0, 10), (10, 1, 11), (11, 0, 11)),
)


class Form(Ntt):
    """A transform of another form of the kernels."""

    def __init__(self, kernels: Kernels, curve: Curve, log_n: int, form: tuple[int, int, int, int]) -> None:
        threads, blocks, each, unit = form
        super().__init__(kernels, curve, log_n, threads, blocks, each)
        self.program = Program(self.program.source, (*self.program.options, f"-DCUZK_NTT_UNIT={unit}"))
        self.form = form

    def takes(self, steps: tuple[Pass, ...]) -> bool:
        threads, _, each, _ = self.form
        return all(each <= s.bits and 1 << (s.bits + s.columns - each) <= threads for s in steps)


def elapsed(action: Callable[[], Any], count: int) -> float:
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(count):
        action()
    stop.record()
    stop.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, stop)) / count


def measured(action: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds alone and in a row."""
    for _ in range(5):
        action()
    alone = statistics.median(elapsed(action, 1) for _ in range(ROUNDS))
    return alone, statistics.median(elapsed(action, IN_A_ROW) for _ in range(ROUNDS))


def warm_up(action: Callable[[], Any], seconds: float = 1.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        elapsed(action, IN_A_ROW)


def compare(curve: Curve, log_n: int, forms: list[Form], standard: Ntt) -> None:
    start = random_scalars(curve, 1 << log_n, log_n)
    cuts = dict.fromkeys([plan(log_n), *(plan(log_n, *cut) for cut in CUTS)])
    for backwards in (False, True):
        expected, work = start.copy(), start.copy()
        standard.run(expected, in_reversed=backwards)
        warm_up(partial(standard.run, work, in_reversed=backwards))
        found = []
        for form in forms:
            for steps in filter(form.takes, cuts):
                work[...] = start
                form.run(work, in_reversed=backwards, passes=steps)
                if not bool((work == expected).all()):
                    sys.exit(f"WRONG: {curve.name} 2^{log_n} {form.form} {steps} backwards={backwards}")
                action = partial(form.run, work, in_reversed=backwards, passes=steps)
                found.append((*measured(action), form.form, steps))
        direction = "reversed to natural" if backwards else "natural to reversed"
        print(f"\n{curve.name} 2^{log_n}, {direction}: {len(found)} ways, all equal; ms alone / in a row")
        found.sort(key=lambda entry: entry[1])
        in_use = [entry for entry in found if entry[3] == plan(log_n) and entry[2][:3] == (512, 2, 2)]
        for title, entries in (("in use (1) and before (0)", in_use), ("best in a row", found[:6])):
            for alone, row, form_used, steps in entries:
                cut = " ".join(f"{s.bits}+{s.columns}" for s in steps)
                print(f"  {alone:.4f} / {row:.4f}  threads,blocks,each,unit {form_used}  bits+columns {cut}  {title}")
        alone, row, form_used, steps = min(found, key=lambda entry: entry[0])
        print(f"  {alone:.4f} / {row:.4f}  {form_used} {[(s.bits, s.columns) for s in steps]}  best alone", flush=True)


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [18, 19, 20, 21, 22]
    device = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{device['name'].decode()}, driver {cupy.cuda.runtime.driverGetVersion()}")
    kernels = Kernels(Path("/tmp/cuzk-kernels"))
    for curve in (BLS12_381, BN254):
        standard = Ntt(kernels, curve, max(sizes))
        forms = [Form(kernels, curve, max(sizes), form) for form in FORMS]
        for log_n in sizes:
            compare(curve, log_n, forms, standard)


if __name__ == "__main__":
    main()
