"""Which programs there are: every source of kernels/ with the macros it is compiled with. Knows no CuPy, so that tests,
`cuzk doctor` and progress can ask without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cuzk_engine.curves import Curve
from cuzk_engine.devices.cuda.compiler import Program

_CPP_CURVE: Final = {"bn254": "Bn254", "bls12_381": "Bls12_381"}
# Blocks a multiprocessor that leave enough registers, by limbs of the base field and group: measured on an H200.
_RESIDENT: Final = {(6, 1): 3, (6, 2): 2, (4, 1): 4, (4, 2): 3}
_TREE_RESIDENT: Final = {(6, 1): (4, 4), (6, 2): (4, 4), (4, 1): (7, 6), (4, 2): (6, 5)}


def _cpp_curve(curve: Curve) -> str:
    return _CPP_CURVE[curve.name]


def field(curve: Curve, name: str) -> Program:
    """``name``: "Fr" or "Fq"."""
    return Program("ff/field.cu", (f"-DCUZK_FIELD={_cpp_curve(curve)}{name}",))


def ntt(curve: Curve, threads: int = 512, blocks: int = 2, each: int = 2) -> Program:
    """``each``: the logarithm of how many elements a thread holds."""
    options = (
        f"-DCUZK_FIELD={_cpp_curve(curve)}Fr",
        f"-DCUZK_NTT_THREADS={threads}",
        f"-DCUZK_NTT_BLOCKS={blocks}",
        f"-DCUZK_NTT_EACH={each}",
    )
    return Program("ntt/ntt.cu", options)


def vectors(curve: Curve) -> Program:
    return Program("groth16/vectors.cu", (f"-DCUZK_FIELD={_cpp_curve(curve)}Fr",))


def preparation(curve: Curve) -> Program:
    """Of matrices and of scalars that are picked."""
    return Program("groth16/prepare.cu", (f"-DCUZK_FIELD={_cpp_curve(curve)}Fr",))


def sort() -> Program:
    return Program("msm/sort.cu")


@dataclass(frozen=True, slots=True)
class TreePrograms:
    """``products`` and ``sums``: of the first round and of the later ones."""

    products: tuple[Program, Program]
    sums: tuple[Program, Program]
    invert: Program
    finish: Program

    @property
    def all(self) -> tuple[Program, ...]:
        return (*self.sums, *self.products, self.invert, self.finish)


@dataclass(frozen=True, slots=True)
class MsmPrograms:
    """Of one group of one curve."""

    digits: Program
    sort: Program
    tasks: Program
    accumulate: Program
    merge: Program
    fold: Program
    bits: Program
    finish: Program
    affine: Program
    fixed: Program
    images: Program
    tree: TreePrograms

    @property
    def of_a_sum(self) -> tuple[Program, ...]:
        """All but the fixed-base multiplication; those that take longest to compile first."""
        sums = (self.accumulate, self.merge, self.fold, self.bits, self.finish, self.affine)
        return (*sums, *self.tree.all, self.digits, self.images, self.sort, self.tasks)


def tree(curve: Curve, group: int, blocks: tuple[int, int] | None = None) -> TreePrograms:
    """``blocks``: resident blocks a multiprocessor of the two passes of a round, None for what was best on an H200."""
    options = (f"-DCUZK_CURVE={_cpp_curve(curve)}", f"-DCUZK_GROUP={group}")
    products, sums = (f"-DCUZK_BLOCKS={k}" for k in blocks or _TREE_RESIDENT[curve.limbs, group])
    first, later = ((*options, f"-DCUZK_FIRST={k}") for k in (1, 0))

    def rounds(name: str, resident: str) -> tuple[Program, Program]:
        return Program(name, (*first, resident)), Program(name, (*later, resident))

    return TreePrograms(
        products=rounds("msm/tree_products.cu", products),
        sums=rounds("msm/tree_sums.cu", sums),
        invert=Program("msm/tree_invert.cu", options),
        finish=Program("msm/tree_finish.cu", options),
    )


def msm(
    curve: Curve,
    group: int,
    blocks: int | None = None,
    tree_blocks: tuple[int, int] | None = None,
    fold_blocks: int | None = None,
    *,
    short_latency: bool = True,
) -> MsmPrograms:
    """Resident blocks a multiprocessor of the accumulation (``blocks``), as in `tree`, and of the row and column sums
    (``fold_blocks``), None for what was best on an H200. ``short_latency``: multiplications of ff/columns_cuda.hpp at
    the end."""
    name = _cpp_curve(curve)
    options = (f"-DCUZK_CURVE={name}", f"-DCUZK_GROUP={group}")
    summing = (*options, f"-DCUZK_BLOCKS={fold_blocks or (2 if curve.limbs == 6 else 3)}")
    few_warps = (*options, "-DCUZK_SHORT_LATENCY=1") if short_latency else options
    return MsmPrograms(
        digits=Program("msm/digits.cu", (f"-DCUZK_FIELD={name}Fr",)),
        sort=sort(),
        tasks=Program("msm/tasks.cu"),
        accumulate=Program("msm/accumulate.cu", (*options, f"-DCUZK_BLOCKS={blocks or _RESIDENT[curve.limbs, group]}")),
        merge=Program("msm/merge.cu", summing),
        fold=Program("msm/fold.cu", summing),
        bits=Program("msm/bits.cu", few_warps),
        finish=Program("msm/finish.cu", few_warps),
        affine=Program("msm/affine.cu", options),
        fixed=Program("msm/fixed.cu", options),
        images=Program("msm/images.cu", options),
        tree=tree(curve, group, tree_blocks),
    )


def for_proof(curve: Curve) -> tuple[Program, ...]:
    """What a proof on ``curve`` needs, each once."""
    wanted = [program for group in (2, 1) for program in msm(curve, group).of_a_sum]
    return tuple(dict.fromkeys([*wanted, vectors(curve), preparation(curve), field(curve, "Fr"), ntt(curve)]))


def every(curve: Curve) -> tuple[Program, ...]:
    """What a proof needs, then the rest: the fixed-base multiplications of `setup` and the base field."""
    rest = [*(msm(curve, group).fixed for group in (1, 2)), field(curve, "Fq")]
    return tuple(dict.fromkeys([*for_proof(curve), *rest]))
