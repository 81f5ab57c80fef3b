"""The binding and the library as such: loading, code paths, refusals, cancellation, threads."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuzk_engine import native as binding
from cuzk_engine.curves import BLS12_381, BN254, CURVES, Curve
from cuzk_engine.errors import CancelledError, NativeLibraryError
from cuzk_engine.native import (
    Call,
    Field,
    FieldOp,
    Group,
    NativeCallError,
    NativeLibrary,
    NttFlags,
    PointOp,
    Status,
    aligned,
)
from tests.support.arithmetic import CurveMath, encode_scalars

ROOT = Path(__file__).resolve().parents[2]

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def refuses(status: Status, function: Any, *arguments: Any) -> None:
    with pytest.raises(NativeCallError) as caught:
        function(*arguments)
    assert caught.value.status is status


# ---- loading ----


def test_every_function_of_the_header_is_bound() -> None:
    header = (ROOT / "kernels/cuzk.h").read_text()
    declared = set(re.findall(r"^(?:int|int64_t|uint32_t|uint64_t|const char \*) ?cuzk_(\w+)\(", header, re.MULTILINE))
    assert declared == set(binding._SIGNATURES)
    assert all(hasattr(NativeLibrary, name) for name in declared)


def test_hash_is_that_of_the_tool(default_native: NativeLibrary) -> None:
    specification = importlib.util.spec_from_file_location("source_hash", ROOT / "tools/source_hash.py")
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    assert tool.source_hash(ROOT / "kernels") == binding.source_hash(ROOT / "kernels") == default_native.source_hash()


def test_hash_sees_names_and_contents(tmp_path: Path) -> None:
    seen = set()
    for name, text in (("a.hpp", "x"), ("b.hpp", "x"), ("a.hpp", "y"), ("a.hpp", ""), ("sub/a.hpp", "x")):
        folder = tmp_path / str(len(seen))
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
        seen.add(binding.source_hash(folder))
    assert len(seen) == 5


@pytest.fixture
def installed(tmp_path: Path, default_native: NativeLibrary, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder with library and sources, as a wheel lays them out, that the binding takes for its own."""
    package = tmp_path / "cuzk_engine"
    (package / "_native").mkdir(parents=True)
    shutil.copy(default_native.path, package / "_native" / binding.LIBRARY_NAME)
    shutil.copytree(ROOT / "kernels", package / "_kernels")
    monkeypatch.setattr(binding, "__file__", str(package / "native.py"))
    monkeypatch.setattr(binding.sysconfig, "get_path", lambda _name: str(tmp_path / "platlib"))
    return package


def test_installed_library_is_loaded(installed: Path) -> None:
    assert binding._load.__wrapped__().path == installed / "_native" / binding.LIBRARY_NAME


def test_library_of_an_editable_install_is_found(installed: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "platlib/cuzk_engine/_native"
    elsewhere.parent.mkdir(parents=True)
    (installed / "_native").rename(elsewhere)
    assert binding._load.__wrapped__().path == elsewhere / binding.LIBRARY_NAME


def test_library_of_other_sources_is_refused(installed: Path) -> None:
    with (installed / "_kernels/cuzk.h").open("a") as header:
        header.write("\n")
    with pytest.raises(NativeLibraryError, match=r"libcuzk_native\.so: built from kernels \w+, .* run make setup$"):
        binding._load.__wrapped__()


def test_missing_and_broken_libraries_are_refused(installed: Path) -> None:
    path = installed / "_native" / binding.LIBRARY_NAME
    path.write_bytes(b"not a library")
    with pytest.raises(NativeLibraryError, match=r"cannot be loaded .* run make setup$"):
        binding._load.__wrapped__()
    path.unlink()
    with pytest.raises(NativeLibraryError, match=r"not found; run make setup$"):
        binding._load.__wrapped__()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("portable", "portable"),
        ("portable,avx512ifma", "portable"),
        ("", "bmi2+adx"),
        ("bmi2,adx", "bmi2+adx"),
        ("avx512ifma", "bmi2+adx+avx512ifma"),
        ("bmi2,adx,avx512ifma", "bmi2+adx+avx512ifma"),
        (None, None),
    ],
)
def test_code_path_follows_the_processor_and_the_setting(
    default_native: NativeLibrary, features: str | None, expected: str | None
) -> None:
    available = default_native.isa_available()
    assert available[0] == "portable"
    if expected is None:
        expected = available[-1]
    elif expected not in available:
        expected = next(name for name in reversed(available) if expected.startswith(name) or name == "portable")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CUZK_")}
    if features is not None:
        environment["CUZK_CPU_FEATURES"] = features
    script = "import ctypes, sys; isa = ctypes.CDLL(sys.argv[1]).cuzk_isa; isa.restype = ctypes.c_char_p; print(isa())"
    command = [sys.executable, "-S", "-c", script, str(default_native.path)]
    used = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert used.stdout.strip() == repr(expected.encode())


def test_unknown_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_CPU_FEATURES", "avx512ifma,nonsense")
    with pytest.raises(NativeLibraryError) as error:
        binding._load.__wrapped__()
    assert str(error.value) == (
        "CUZK_CPU_FEATURES: nonsense is unknown; known are portable, bmi2, adx, avx512ifma, or nothing at all"
    )


def test_zero_threads_means_the_affinity_mask(default_native: NativeLibrary) -> None:
    assert default_native.threads() == min(len(os.sched_getaffinity(0)), 256)


# ---- refusals ----


@curves
def test_arguments_out_of_range_are_refused(native: NativeLibrary, curve: Curve) -> None:
    x = aligned(4096)
    no: Any = Curve.__new__(Curve)
    object.__setattr__(no, "id", 2)
    bad = Status.ARGUMENT
    refuses(bad, native.field_op, no, Field.FR, FieldOp.ADD, x, x, x, 1)
    refuses(bad, native.field_op, curve, 3, FieldOp.ADD, x, x, x, 1)
    refuses(bad, native.field_op, curve, Field.FR, 8, x, x, x, 1)
    refuses(bad, native.field_op, curve, Field.FR, -1, x, x, x, 1)
    refuses(bad, native.field_op, curve, Field.FR, FieldOp.ADD, x, x, None, 1)
    refuses(bad, native.field_op, curve, Field.FR, FieldOp.ADD, None, x, x, 1)
    refuses(bad, native.field_op, curve, Field.FR, FieldOp.ADD, x, x, x, 1 << 63)
    refuses(bad, native.field_check, curve, -1, x, 1)
    refuses(bad, native.fr_classify, curve, None, 1)
    refuses(bad, native.point_op, curve, 0, PointOp.ADD, x, x, x, 1)
    refuses(bad, native.point_op, curve, Group.G1, 4, x, x, x, 1)
    refuses(bad, native.point_op, curve, Group.G1, PointOp.MUL, x, x, None, 1)
    refuses(bad, native.points_check, curve, 3, x, 1, False)
    refuses(bad, native.ntt_table, curve, curve.two_adicity + 1, x)
    refuses(bad, native.ntt, curve, x, 1, 8, x)
    refuses(bad, native.ntt, curve, x[1:], 1, NttFlags.FORWARD, x)
    refuses(bad, native.coset_extend, curve, x, 1, None)
    refuses(bad, native.coefficients_check, curve, None, 1, 1, 1)
    refuses(bad, native.coefficients_order, None, 1, 1, x, x)
    refuses(bad, native.evaluate, curve, x, 1, None, None, 1, x, x, x)
    refuses(bad, native.evaluate, curve, None, 0, None, None, 1, None, x, x)
    refuses(bad, native.h_join, curve, x, None, x, 1)
    refuses(bad, native.msm, curve, 0, x, x, 1, x, x, 4096)
    refuses(bad, native.msm, curve, Group.G1, None, x, 1, x, x, 4096)
    refuses(bad, native.msm, curve, Group.G1, x, x, 1 << 62, x, x, 4096)
    refuses(bad, native.msm_reference, curve, 0, x, x, 1, x)
    assert native.ntt_table_bytes(curve, curve.two_adicity + 1) == 0
    assert native.ntt_table_bytes(no, 1) == 0
    assert native.msm_scratch_bytes(no, Group.G1, 1) == 0


def test_order_refuses_a_row_outside_the_domain(native: NativeLibrary) -> None:
    entries = np.zeros(88, np.uint8)
    entries[44 + 4] = 3
    refuses(Status.ARGUMENT, native.coefficients_order, entries, 2, 3, np.zeros(2, np.uint32), aligned(64))


def test_arrays_with_gaps_are_refused(native: NativeLibrary) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        native.fr_classify(BN254, np.zeros((4, 64), np.uint8)[:, ::2], 4)


# ---- cancellation and threads ----


@curves
def test_a_set_flag_cancels_every_kind_of_call(native: NativeLibrary, curve: Curve) -> None:
    flag = np.ones(1, np.int32)
    call = Call(2, flag.ctypes.data)
    x, table = aligned(1 << 20), aligned(native.ntt_table_bytes(curve, 4))
    native.ntt_table(curve, 4, table)
    x[:] = 0
    for function, arguments in (
        (native.field_op, (curve, Field.FR, FieldOp.ADD, x, x, x, 100)),
        (native.field_check, (curve, Field.FR, x, 100)),
        (native.fr_classify, (curve, x, 100)),
        (native.point_op, (curve, Group.G1, PointOp.DOUBLE, x, x, None, 100)),
        (native.points_check, (curve, Group.G2, x, 100, True)),
        (native.ntt_table, (curve, 4, table)),
        (native.bytes_copy, (table[:16], x, 16)),
        (native.bytes_zero, (x, 16)),
        (native.ntt, (curve, x, 4, NttFlags.FORWARD, table)),
        (native.coset_extend, (curve, x, 4, table)),
        (native.coefficients_check, (curve, x, 100, 1, 1)),
        (native.coefficients_order, (x, 100, 1, np.zeros(100, np.uint32), aligned(64))),
        (native.evaluate, (curve, x, 100, None, x, 8, *(aligned(256) for _ in range(3)))),
        (native.h_join, (curve, x, x, x, 100)),
    ):
        with pytest.raises(CancelledError):
            function(*arguments, call)


def test_a_running_call_can_be_cancelled(native: NativeLibrary) -> None:
    """Subgroup checks of many points take long: the flag is set once the call has begun, and it must come back."""
    math = CurveMath(BLS12_381, Group.G2)
    n = 20_000
    points = np.tile(math.encode([math.generator]), n)
    flag = np.zeros(1, np.int32)
    timer = threading.Timer(0.05, flag.fill, (1,))
    timer.start()
    with pytest.raises(CancelledError):
        native.points_check(BLS12_381, Group.G2, points, n, True, Call(0, flag.ctypes.data))
    assert flag[0] == 1
    timer.join()


@pytest.mark.parametrize("n", [0, 1, (1 << 20) - 1, 1 << 20, (5 << 20) + 7])
@pytest.mark.parametrize("threads", [1, 3])
def test_bytes_are_copied_and_zeroed_and_none_beside_them(native: NativeLibrary, n: int, threads: int) -> None:
    source = np.random.default_rng(n).integers(0, 256, n, np.uint8)
    target = np.full(n + 2, 7, np.uint8)
    native.bytes_copy(target[1:], source, n, Call(threads))
    assert np.array_equal(target[1:-1], source)
    assert target[0] == target[-1] == 7
    native.bytes_zero(target[1:], n, Call(threads))
    assert not target[1:-1].any()
    assert target[0] == target[-1] == 7


def test_no_bytes_can_be_had_from_nowhere(native: NativeLibrary) -> None:
    x = np.zeros(16, np.uint8)
    refuses(Status.ARGUMENT, native.bytes_copy, None, x, 16)
    refuses(Status.ARGUMENT, native.bytes_copy, x, None, 16)
    refuses(Status.ARGUMENT, native.bytes_zero, None, 16)
    refuses(Status.ARGUMENT, native.bytes_zero, x, 1 << 50)


def test_calls_from_many_threads_share_the_pool(native: NativeLibrary) -> None:
    math = CurveMath(BN254, Group.G1)
    points = math.encode(math.multiples(300))
    scalars = encode_scalars([3**i % BN254.r for i in range(300)])
    size = native.msm_scratch_bytes(BN254, Group.G1, 300, 4)
    expected = np.empty(64, np.uint8)
    native.msm_reference(BN254, Group.G1, points, scalars, 300, expected)

    def compute(_number: int) -> bool:
        out = np.empty(64, np.uint8)
        native.msm(BN254, Group.G1, points, scalars, 300, out, aligned(size), size, Call(4))
        return np.array_equal(out, expected)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(compute, range(40)))


def test_the_library_works_after_fork_and_lets_the_process_end(default_native: NativeLibrary) -> None:
    """In a process of its own: workers exist, then a child is forked and computes with workers of its own."""
    script = f"""
import ctypes, os, sys
dll = ctypes.CDLL({str(default_native.path)!r})
data = ctypes.create_string_buffer(32 * 100_000)
counts = (ctypes.c_uint64 * 3)()
def zeros():
    dll.cuzk_fr_classify(0, data, ctypes.c_uint64(100_000), counts, ctypes.byref(call))
    return counts[0]
class Call(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("cancel", ctypes.c_void_p),
                ("spans", ctypes.c_void_p), ("span_capacity", ctypes.c_uint32), ("span_count", ctypes.c_uint32)]
call = Call(4, 0, None, None, 0, 0)
assert zeros() == 100_000
child = os.fork()
if child == 0:
    os._exit(0 if zeros() == 100_000 and len(os.listdir("/proc/self/task")) == 4 else 1)
assert os.waitpid(child, 0)[1] == 0
assert len(os.listdir("/proc/self/task")) == 4
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_signals_reach_python_not_the_workers(native: NativeLibrary) -> None:
    """A worker that took one of the process's signals would run Python's handler on its own stack."""
    native.fr_classify(BN254, np.zeros(32 * 100_000, np.uint8), 100_000, Call(4))
    blocking = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            status = (task / "status").read_text()
        except FileNotFoundError:  # a thread of something else that has just ended
            continue
        blocked = re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)
        blocking += int(blocked[0], 16) >> (signal.SIGINT - 1) & 1
    assert blocking >= 3
