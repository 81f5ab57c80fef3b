"""The native library on processors that this machine is not: x86-64 without AVX, and arm64, both emulated.

A driver without Python (native_selftest.cpp) checks known answers. The emulated runs belong to `make test-all`; without
the tools they are skipped: apt-get install qemu-user-static g++-aarch64-linux-gnu.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from cuzk_engine.native import NativeLibrary
from tests.support import selftest_vectors

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests/kernels/native_selftest.cpp"
ARM_COMPILER = "aarch64-linux-gnu-g++"
ARM_SYSTEM = "/usr/aarch64-linux-gnu"


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("selftest") / "vectors.bin"
    assert selftest_vectors.write(path) > 100
    return path


@pytest.fixture
def driver(default_native: NativeLibrary, tmp_path: Path) -> Path:
    return build_driver(tool("g++"), default_native.path, tmp_path)


def tool(*names: str) -> str:
    """The first of the programs that is there; skips the test where none is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs {' or '.join(names)}")
    return found


def build_driver(compiler: str, library: Path, folder: Path) -> Path:
    target = folder / "native_selftest"
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-rpath,{library.parent}"]
    subprocess.run([compiler, *options, str(DRIVER), str(library), "-o", str(target)], check=True)
    return target


def run(command: list[str], features: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "CUZK_CPU_FEATURES"}
    if features is not None:
        environment["CUZK_CPU_FEATURES"] = features
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assert_right(result: subprocess.CompletedProcess[str], path: str) -> None:
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert result.stdout.startswith(f"{path}: ")
    assert result.stdout.endswith(" checks, 0 wrong\n")


def test_known_answers_on_every_path(driver: Path, vectors: Path, default_native: NativeLibrary) -> None:
    for path in default_native.isa_available():
        features = path.replace("+", ",")
        assert_right(run([str(driver), str(vectors), path], features), path)


def test_the_driver_sees_a_wrong_answer(driver: Path, vectors: Path, tmp_path: Path) -> None:
    """Of every record one byte of the answer is changed: each must be reported."""
    data = bytearray(vectors.read_bytes())
    at, records = len(selftest_vectors.MAGIC), 0
    while at < len(data):
        *_, blobs = struct.unpack_from("<IIIIQI", data, at)
        at += struct.calcsize("<IIIIQI")
        for _ in range(blobs):
            (size,) = struct.unpack_from("<Q", data, at)
            at += 8 + size
        data[at - size] ^= 1
        records += 1
    broken = tmp_path / "broken.bin"
    broken.write_bytes(data)
    result = run([str(driver), str(broken)])
    assert result.returncode == 1
    assert result.stdout.endswith(f": {records} checks, {records} wrong\n")
    assert len(result.stderr.splitlines()) == records


def test_the_driver_refuses_another_path_and_a_broken_file(driver: Path, vectors: Path, tmp_path: Path) -> None:
    result = run([str(driver), str(vectors), "avx9000"], "portable")
    assert result.returncode == 1
    assert "the path in use is portable, expected avx9000" in result.stderr
    short = tmp_path / "short.bin"
    for data in (b"", b"cuzkself" + b"\1", vectors.read_bytes()[:-1]):
        short.write_bytes(data)
        assert run([str(driver), str(short)]).returncode != 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_x86_without_avx(driver: Path, vectors: Path) -> None:
    """Nehalem (2008) knows neither AVX nor BMI2: an instruction of theirs anywhere but in its own path ends the run."""
    if platform.machine() != "x86_64":
        pytest.skip("needs an x86-64 build of the library")
    emulator = tool("qemu-x86_64-static", "qemu-x86_64")
    assert_right(run([emulator, "-cpu", "Nehalem", str(driver), str(vectors), "portable"]), "portable")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_arm64(vectors: Path, tmp_path: Path) -> None:
    """Built by a cross compiler in build/arm64, where a second run finds most of it done."""
    compiler, emulator = tool(ARM_COMPILER), tool("qemu-aarch64-static", "qemu-aarch64")
    library = build_for_arm(compiler)
    driver = build_driver(compiler, library, tmp_path)
    assert_right(run([emulator, "-L", ARM_SYSTEM, str(driver), str(vectors), "portable"]), "portable")


def build_for_arm(compiler: str) -> Path:
    pytest.importorskip("cmake", reason="needs cmake")
    ninja = pytest.importorskip("ninja", reason="needs ninja")
    folder = ROOT / "build/arm64"
    cmake = [sys.executable, "-m", "cmake"]
    configure = [
        *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR) / 'ninja'}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DPython3_EXECUTABLE={sys.executable}",
    ]
    for command in ([*cmake, *configure], [*cmake, "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
    return folder / "libcuzk_native.so"
