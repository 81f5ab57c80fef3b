"""The logic of the GPU's kernels, built for the host under sanitizers: limbs, digits, tasks, transforms."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_device_logic(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "device_logic"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-DCUZK_TARGET_CUDA=1", f"-I{ROOT / 'kernels'}"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = ROOT / "tests" / "kernels" / "device_logic.cpp"
    built = subprocess.run(
        [compiler, *flags, *sanitizers, str(source), "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
