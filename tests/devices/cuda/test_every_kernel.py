"""Every kernel compiles, and spills no more than is allowed. Needs NVRTC, no GPU.

What was compiled stays in build/kernels: a program is compiled again only when its text, a header that it reaches or
the compiler changes. `tools/kernel_usage.py` prints the table.
"""

from __future__ import annotations

import sys

import pytest

from cuzk_engine.curves import BLS12_381, BN254
from cuzk_engine.devices.cuda import programs
from cuzk_engine.devices.cuda.compiler import Program, Usage, kernels_folder
from tests.support.nvrtc import needs_nvrtc
from tools import kernel_usage
from tools.kernel_usage import ALLOWED, ARCHITECTURES, Allowed, Row

EVERY = kernel_usage.all_programs()
OF_PROOFS = {*programs.for_proof(BN254), *programs.for_proof(BLS12_381)}
MAIN = "sm_90"


def check(program: Program, architecture: str) -> None:
    rows = kernel_usage.rows_of(program, architecture)
    assert rows
    assert list(kernel_usage.faults(rows)) == []


@needs_nvrtc
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [program for program in EVERY if program in OF_PROOFS], ids=kernel_usage.title)
def test_compiles(program: Program) -> None:
    check(program, MAIN)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [program for program in EVERY if program not in OF_PROOFS], ids=kernel_usage.title)
def test_what_only_tests_and_benchmarks_run_compiles(program: Program) -> None:
    check(program, MAIN)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != MAIN])
@pytest.mark.parametrize("program", EVERY, ids=kernel_usage.title)
def test_compiles_for_other_cards(program: Program, architecture: str) -> None:
    check(program, architecture)


def test_the_list_is_complete() -> None:
    """Every source is a program of some curve, and what a proof needs is part of the whole."""
    assert {program.source for program in EVERY} == {
        path.relative_to(kernels_folder()).as_posix() for path in kernels_folder().rglob("*.cu")
    }
    for curve in (BN254, BLS12_381):
        assert set(programs.for_proof(curve)) < set(programs.every(curve)) < set(EVERY)


def test_the_list_needs_no_cupy() -> None:
    for name in ("programs", "compiler", "compiling"):
        assert f"cuzk_engine.devices.cuda.{name}" in sys.modules
    assert "cupy" not in vars(programs)


def test_a_spill_that_is_not_allowed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program("msm/fold.cu", ("-DCUZK_CURVE=Bn254", "-DCUZK_GROUP=2"))
    rows = [Row("sm_90", program, name, Usage(255, 64, 30, 34, 0)) for name in ("a", "b")]
    allowed = [Allowed("a", ("GROUP=2",), 64, "a reason"), Allowed("b", ("sm_90", "CURVE=Bls12_381"), 99, "a reason")]
    monkeypatch.setattr(kernel_usage, "ALLOWED", tuple(allowed))
    (fault,) = kernel_usage.faults(rows)
    assert fault.startswith("sm_90 msm/fold.cu CURVE=Bn254 GROUP=2: b spills 30 + 34 bytes, 0 are allowed")
    assert "| sm_90 | msm/fold.cu CURVE=Bn254 GROUP=2 | b | 255 | 64 | 30 | 34 | 0 |" in kernel_usage.table(rows)


def test_allowances_have_reasons_and_kernels() -> None:
    texts = "".join(path.read_text() for path in kernels_folder().rglob("*.cu"))
    for allowed in ALLOWED:
        assert f" {allowed.kernel}(" in texts
        assert allowed.reason
