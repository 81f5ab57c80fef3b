"""Compiles every GPU kernel, without a GPU, and lists what each takes: registers, stack, spills, shared memory.

    .venv/bin/python tools/kernel_usage.py [--arch sm_90 …] [--curve bn254|bls12_381 …]

Needs NVRTC. Results are kept in build/kernels, so that an unchanged tree is not compiled again. Ends with 1 when a
kernel spills more than ALLOWED says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cuzk_engine.curves import BLS12_381, BN254, Curve  # noqa: E402
from cuzk_engine.devices.cuda import programs  # noqa: E402
from cuzk_engine.devices.cuda.compiler import Program, Usage, build, usage  # noqa: E402
from cuzk_engine.devices.cuda.compiling import compile_all, missing  # noqa: E402

CACHE: Final = ROOT / "build" / "kernels"
ARCHITECTURES: Final = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
COLUMNS: Final = ("registers", "stack", "spill stores", "spill loads", "shared")


@dataclass(frozen=True, slots=True)
class Allowed:
    """A kernel that may spill up to ``most`` bytes (stores and loads together), and why that is right. ``options``:
    words of the program's title or its architecture that must be there."""

    kernel: str
    options: tuple[str, ...]
    most: int
    reason: str


_CALLS: Final = "the addition is a function of its own, compiled once, before which the caller saves what it holds"
_FEW: Final = f"few sums, each waited for: {_CALLS}"
_BLOCKS: Final = "64 registers, so that two blocks of 512 threads share a multiprocessor: worth more than this costs"
_ONE_WARP: Final = f"one warp a window, or in all: {_CALLS}"
_UNMEASURED: Final = "as many blocks as on an H200, where they need no spill; not measured on such a card"

ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed(
        "msm_accumulate",
        ("GROUP=2", "CURVE=Bls12_381"),
        640,
        "the sum, the point and the products of an addition over Fq2 are more than the 255 registers that there are",
    ),
    Allowed(
        "msm_accumulate",
        ("GROUP=2", "CURVE=Bn254"),
        192,
        "168 registers, so that three blocks share a multiprocessor, which measured faster than two",
    ),
    Allowed("msm_accumulate", ("sm_100", "GROUP=1", "CURVE=Bls12_381"), 160, _UNMEASURED),
    Allowed("msm_merge", (), 640, _FEW),
    Allowed("msm_fold", (), 576, _CALLS),
    Allowed("msm_bits", (), 96, _FEW),
    Allowed("sums_to_affine", (), 64, f"a few threads, once a sum: {_CALLS}"),
    Allowed("tree_invert", ("GROUP=2", "CURVE=Bn254"), 8, "a word, in the few warps that invert for all others"),
    Allowed("msm_total", (), 384, _ONE_WARP),
    Allowed("msm_window", (), 96, _ONE_WARP),
    *(Allowed("msm_total", (card,), 832, _ONE_WARP) for card in ("sm_100", "sm_120")),
    *(Allowed("msm_window", (card,), 640, _ONE_WARP) for card in ("sm_100", "sm_120")),
    Allowed("sort_scatter", (), 160, _BLOCKS),
    Allowed("bucket_scatter", (), 144, _BLOCKS),
    Allowed("ntt_merge", (), 32, _BLOCKS),
    Allowed("ntt_split", (), 32, _BLOCKS),
    Allowed("fixed_table", (), 32, "one block, once a setup"),
    Allowed("fixed_multiply", (), 48, "for setup alone"),
)


@dataclass(frozen=True, slots=True)
class Row:
    architecture: str
    program: Program
    kernel: str
    usage: Usage

    @property
    def spilled(self) -> int:
        return self.usage.spill_stores + self.usage.spill_loads


def all_programs(curves: Iterable[Curve] = (BLS12_381, BN254)) -> list[Program]:
    return list(dict.fromkeys(program for curve in curves for program in programs.every(curve)))


def title(program: Program) -> str:
    """ "msm/fold.cu CURVE=Bn254 GROUP=2 BLOCKS=3" """
    return " ".join([program.source, *(option.removeprefix("-DCUZK_") for option in program.options)])


def rows_of(program: Program, architecture: str, cache: Path | None = CACHE) -> list[Row]:
    _, report = build(program, architecture, cache)
    return [Row(architecture, program, kernel, taken) for kernel, taken in sorted(usage(report).items())]


def faults(rows: Iterable[Row]) -> Iterator[str]:
    """One line for each kernel that spills more than is allowed."""
    for row in rows:
        most = max((a.most for a in ALLOWED if _fits(a, row)), default=0)
        if row.spilled > most:
            yield (
                f"{row.architecture} {title(row.program)}: {row.kernel} spills {row.usage.spill_stores} + "
                f"{row.usage.spill_loads} bytes, {most} are allowed (tools/kernel_usage.py)"
            )


def _fits(allowed: Allowed, row: Row) -> bool:
    where = f"{row.architecture} {title(row.program)}".split()
    return allowed.kernel == row.kernel and all(option in where for option in allowed.options)


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = ["| | program | kernel | " + " | ".join(COLUMNS) + " |", "|---" * (3 + len(COLUMNS)) + "|"]
    for row in rows:
        u = row.usage
        numbers = (u.registers, u.stack, u.spill_stores, u.spill_loads, u.shared)
        cells = (row.architecture, title(row.program), row.kernel, *map(str, numbers))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", metavar="sm_NN", help=f"default: {' '.join(ARCHITECTURES)}")
    parser.add_argument("--curve", action="append", choices=("bn254", "bls12_381"), help="default: both")
    options = parser.parse_args(arguments)
    wanted = all_programs([c for c in (BLS12_381, BN254) if c.name in (options.curve or (c.name,))])
    rows: list[Row] = []
    for architecture in options.arch or ARCHITECTURES:
        compile_all(missing(wanted, architecture, CACHE), architecture, CACHE, _progress)
        rows += [row for program in wanted for row in rows_of(program, architecture)]
    print(table(rows))
    found = list(faults(rows))
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


def _progress(architecture: str, done: int, total: int) -> None:
    if total:
        print(f"{architecture}: {done} of {total} compiled", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
