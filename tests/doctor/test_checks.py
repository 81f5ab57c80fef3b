"""Each check of the doctor: what it finds on machines of every kind, and what it advises."""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuzk_engine import native
from cuzk_engine.client.types import DaemonStatus, DeviceDescription, ProcessState
from cuzk_engine.config import Settings
from cuzk_engine.doctor import engine, gpu, machine
from cuzk_engine.doctor.check import Check, Verdict, ok, run_all
from cuzk_engine.doctor.gpu import Cards
from cuzk_engine.errors import CuzkError, NativeLibraryError
from tests.client.test_foreign_servers import web_server

NONE = Cards("", "NVML's library libnvidia-ml.so.1 was not found")
CARD = Cards("550.54", "", "550.54", 12040, ("NVIDIA L40S, 48 GiB",))


def test_a_check_that_fails_is_a_problem_and_keeps_no_other_from_running() -> None:
    def refused() -> Check:
        raise CuzkError("cuzk.toml: is not TOML")

    def broken() -> Check:
        raise ZeroDivisionError("division\nby zero")

    def unreadable() -> Check:
        raise PermissionError(13, "Permission denied", "/proc/1/x")

    checks = [("a", refused), ("b", broken), ("d", unreadable), ("c", lambda: ok("c", "fine"))]
    first, second, denied, third = run_all(checks)
    assert denied.found == "could not be looked at: /proc/1/x: permission denied"
    assert (first.verdict, first.found) == (Verdict.PROBLEM, "cuzk.toml: is not TOML")
    assert second.verdict is Verdict.PROBLEM
    assert second.found == "could not be looked at: ZeroDivisionError: division by zero"
    assert third == Check("c", Verdict.OK, "fine")


def test_the_native_library_and_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        path=Path("lib.so"), isa=lambda: "portable", isa_available=lambda: ("portable", "bmi2+adx")
    )
    monkeypatch.setattr(native, "library", lambda: library)
    monkeypatch.setenv("CUZK_CPU_FEATURES", "portable")
    limited = machine.native_library()
    assert limited.verdict is Verdict.WARNING
    assert limited.found == "lib.so, uses portable, available: portable, bmi2+adx"
    assert 'CUZK_CPU_FEATURES="portable" keeps it from bmi2+adx' in limited.advice
    library.isa = lambda: "bmi2+adx"
    assert machine.native_library().verdict is Verdict.OK

    def missing() -> None:
        raise NativeLibraryError("lib.so: not found; run make setup")

    monkeypatch.setattr(native, "library", missing)
    assert machine.native_library().verdict is Verdict.PROBLEM


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_processor_quota_below_the_cores(tmp_path: Path) -> None:
    assert machine.processor(tmp_path).verdict is Verdict.OK
    write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert machine.processor(tmp_path).verdict is Verdict.OK
    write(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    found = machine.processor(tmp_path)
    assert (found.verdict, machine.cpu_quota(tmp_path)) == (Verdict.WARNING, 0.5)
    assert "the container's quota is 0.5" in found.found
    for broken in ("", "x y", "1 0", "1 2 3"):
        write(tmp_path, "sys/fs/cgroup/cpu.max", broken)
        assert machine.cpu_quota(tmp_path) is None


def test_memory_and_where_its_limit_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "proc/meminfo", f"MemTotal: {16 << 20} kB\n")
    found = machine.memory(root=tmp_path)
    assert found.verdict is Verdict.OK
    assert found.found == (
        "limit 16 GiB (memory of the machine), proofs on the CPU may use 14.4 GiB (memory of the machine)"
    )
    too_much = machine.memory("64GiB", tmp_path)
    assert too_much.verdict is Verdict.WARNING
    assert "cpu.arena promises more than there is" in too_much.advice
    assert machine.memory("100MiB", tmp_path).verdict is Verdict.WARNING
    monkeypatch.setenv("CUZK_CPU_ARENA", "lots")
    wrong = machine.memory(root=tmp_path)
    assert wrong.verdict is Verdict.PROBLEM
    assert 'CUZK_CPU_ARENA is "lots"' in wrong.found


def test_the_memory_lock_limit_matters_with_a_card_only(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (8 << 20, 8 << 20)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits["now"])
    assert machine.locked_memory(has_gpu=False) == ok("memory lock limit", "8 MiB; matters with a GPU only")
    low = machine.locked_memory(has_gpu=True)
    assert low.verdict is Verdict.WARNING
    assert low.found.startswith("8 MiB (hard limit 8 MiB): page-locking may be refused")
    limits["now"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert machine.locked_memory(has_gpu=True) == ok("memory lock limit", "unlimited")


# ---- cards ----


class NVMLError(Exception):
    pass


def fault(kind: str) -> NVMLError:
    """An error of the class that nvidia-ml-py makes for a kind of fault."""
    made: NVMLError = type(f"NVMLError_{kind}", (NVMLError,), {})()
    return made


class FakeNvml(SimpleNamespace):
    """As much of nvidia-ml-py as is asked for; ``fault`` is what starting it raises."""

    def __init__(self, names: tuple[str | bytes, ...] = (), fault: NVMLError | None = None, cuda: int = 12040) -> None:
        super().__init__(NVMLError=NVMLError, names=names, fault=fault, cuda=cuda, is_open=False)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fault:
            raise self.fault
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        assert self.is_open
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=48 << 30)

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"550.54"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        if not self.cuda:
            raise NVMLError("not supported")
        return self.cuda


@pytest.mark.parametrize(
    ("nvml_fault", "words"),
    [
        (fault("LibraryNotFound"), "none (NVML's library libnvidia-ml.so.1 was not found): proofs run on the CPU"),
        (fault("DriverNotLoaded"), "none (NVML says that the driver is not loaded): proofs run on the CPU"),
        (None, "none (no device was found): proofs run on the CPU"),
    ],
)
def test_no_card_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nvml_fault: NVMLError | None, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fault=nvml_fault))
    assert gpu.driver(gpu.look(tmp_path)) == ok("nvidia driver", words)


def test_nvml_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.look(tmp_path) == Cards("", "nvidia-ml-py is not installed")


def test_a_driver_whose_library_does_not_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(
        tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n"
    )
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fault=fault("LibRmVersionMismatch")))
    found = gpu.driver(gpu.look(tmp_path))
    assert found.verdict is Verdict.WARNING
    assert "the kernel's module 550.54.15 is loaded, but NVML's library and the kernel's module are of" in found.found


def test_cards_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvml = FakeNvml(("NVIDIA L40S", b"NVIDIA A2"))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = gpu.driver(gpu.look(tmp_path))
    assert found == ok("nvidia driver", "550.54, CUDA 12.4; NVIDIA L40S, 48 GiB, NVIDIA A2, 48 GiB")
    assert not nvml.is_open
    nvml.cuda = 0
    assert gpu.driver(gpu.look(tmp_path)).found.startswith("550.54; NVIDIA L40S")


@pytest.mark.parametrize(
    ("cards", "packages", "verdict", "words"),
    [
        (NONE, {}, Verdict.OK, "not installed; with a GPU it comes with pip install 'cuzk[cuda12]'"),
        (CARD, {}, Verdict.WARNING, "not installed: the cards cannot be used, proofs run on the CPU"),
        (CARD, {"cupy-cuda12x": "14.0"}, Verdict.OK, "cupy-cuda12x 14.0"),
        (CARD, {"cupy-cuda13x": "14.0"}, Verdict.PROBLEM, "cupy-cuda13x 14.0, but the driver knows CUDA 12 only"),
        (NONE, {"cupy-cuda13x": "14.0"}, Verdict.OK, "cupy-cuda13x 14.0"),
        (
            *(CARD, {"cupy-cuda12x": "14.0", "cupy": "13.0"}, Verdict.PROBLEM),
            "cupy-cuda12x 14.0 and cupy 13.0 are both installed, and overwrite each other",
        ),
    ],
)
def test_cupy(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, packages: dict[str, str], verdict: Verdict, words: str
) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(gpu.metadata, "version", version)
    monkeypatch.setattr(gpu.util, "find_spec", lambda name: object() if packages else None)
    found = gpu.cupy(cards)
    assert (found.verdict, found.found) == (verdict, words)


def test_a_newer_driver_gets_the_newer_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.util, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu, "_version", lambda name: "")
    assert gpu.cupy(Cards("580.1", "", "580.1", 13000, ("card",))).advice == "pip install 'cuzk[cuda13]'"


def test_a_held_lock_and_who_holds_it(tmp_path: Path) -> None:
    lock, other = tmp_path / "bellman.gpu.lock", tmp_path / "bellman.priority.lock"
    lock.touch()
    paths = (lock, other)
    assert gpu.bellman_lock(CARD, paths) == ok("bellman locks", "not held")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = gpu.bellman_lock(CARD, paths)
        if "pid" not in found.found:
            pytest.skip("this kernel shows no locks in /proc/locks")
        assert found.verdict is Verdict.WARNING
        assert f"{lock} is held by pid {os.getpid()} (" in found.found
        assert gpu.bellman_lock(NONE, paths).verdict is Verdict.OK
    assert gpu.bellman_lock(CARD, paths) == ok("bellman locks", "not held")


def test_the_kernels_list_of_locks_is_read_as_it_is(tmp_path: Path) -> None:
    lock = tmp_path / "bellman.gpu.lock"
    lock.touch()
    inode = lock.stat().st_ino
    write(tmp_path, "77/comm", "lotus-worker\n")
    lines = [
        "1: POSIX  ADVISORY  WRITE 5 08:01:1 0 EOF",
        f"2: -> FLOCK  ADVISORY  WRITE 6 08:01:{inode} 0 EOF",
        "garbage",
        f"3: FLOCK  ADVISORY  WRITE 77 08:01:{inode} 0 EOF",
    ]
    write(tmp_path, "locks", "\n".join(lines[:3]))
    assert gpu.lock_holder(lock, tmp_path) == ""
    write(tmp_path, "locks", "\n".join(lines))
    assert gpu.lock_holder(lock, tmp_path) == "pid 77 (lotus-worker)"
    (tmp_path / "77/comm").unlink()
    assert gpu.lock_holder(lock, tmp_path) == "pid 77"


def test_the_kernel_cache(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    assert gpu.kernel_cache(folder) == ok("kernel cache", f"{folder}: empty")
    write(folder, "a/one.cubin", "x" * 1024)
    write(folder, "two.cubin", "x" * 1024)
    assert gpu.kernel_cache(folder) == ok("kernel cache", f"{folder}: 2 files, 2 KiB")


# ---- configuration, folders, engine ----


def status(state: ProcessState, **more: Any) -> DaemonStatus:
    return DaemonStatus(state, "127.0.0.1:9820", f"the engine is {state}", **more)


def device(state: str) -> DeviceDescription:
    return DeviceDescription("cpu", "CPU", "cpu", 1, "test", "", "", "portable", 2, state, "it died", 7, ())


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (status(ProcessState.READY), Verdict.OK),
        (status(ProcessState.READY, devices=(device("ready"),)), Verdict.OK),
        (status(ProcessState.READY, stale=True), Verdict.WARNING),
        (status(ProcessState.READY, devices=(device("failed"),)), Verdict.PROBLEM),
        (status(ProcessState.FOREIGN), Verdict.PROBLEM),
        (status(ProcessState.CRASHED), Verdict.WARNING),
        (status(ProcessState.CRASHED, pid=os.getpid()), Verdict.PROBLEM),
        (status(ProcessState.STARTING), Verdict.OK),
        (status(ProcessState.DRAINING), Verdict.OK),
        (status(ProcessState.STOPPED), Verdict.OK),
    ],
    ids=lambda value: str(value.state) if isinstance(value, DaemonStatus) else str(value),
)
def test_states_of_the_engine(found: DaemonStatus, verdict: Verdict) -> None:
    check = engine.judge(found)
    assert check.verdict is verdict
    assert found.message in check.found
    assert bool(check.advice) == (verdict is not Verdict.OK)


def test_the_status_page_s_port() -> None:
    settings = Settings()
    stopped = ok("engine", "the engine is stopped, the address is free")
    with web_server() as port:
        settings.values["daemon.status_listen"] = f"127.0.0.1:{port}"
        taken = engine.status_port(settings, stopped)
        assert taken.verdict is Verdict.PROBLEM
        assert f"127.0.0.1:{port} is in use by pid {os.getpid()}" in taken.found
        assert engine.status_port(settings, ok("engine", "the engine is ready")).verdict is Verdict.OK
    assert engine.status_port(settings, stopped) == ok("status page", f"127.0.0.1:{port} is free")
    settings.values["daemon.status_listen"] = ""
    assert engine.status_port(settings, stopped) == ok("status page", "switched off")


def test_folders_that_cannot_be_used(cuzk_home: Path) -> None:
    assert engine.folders(0).verdict is Verdict.OK
    assert engine.folders(1 << 62).verdict is Verdict.WARNING
    (cuzk_home / "cache").write_text("in the way")
    found = engine.folders(0)
    assert found.verdict is Verdict.PROBLEM
    assert found.found == f"cache folder {cuzk_home}/cache: {cuzk_home}/cache is no folder"
    assert {path.name for path in cuzk_home.iterdir()} == {"cache", "user"}  # nothing was made


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_folders_without_permission(cuzk_home: Path) -> None:
    (cuzk_home / "data").mkdir(mode=0o500)
    assert f"data folder {cuzk_home}/data cannot be written" in engine.folders(0).found


def test_the_configuration_s_faults_and_notes(tmp_path: Path) -> None:
    path = tmp_path / "cuzk.toml"
    assert engine.load("")[1] == ok("configuration", "no file, all defaults")
    path.write_text('[cpu]\narena = "2GiB"\n')
    settings, check = engine.load(str(path))
    assert (settings.text("cpu.arena"), check) == ("2GiB", ok("configuration", str(path)))
    path.write_text("[pipeline]\nslot_size = 3\n")
    assert engine.load(str(path))[1].verdict is Verdict.WARNING
    path.write_text("[pipelin]\n")
    settings, check = engine.load(str(path))
    assert check.verdict is Verdict.PROBLEM
    assert str(path) in check.found
    assert settings.text("cpu.arena") == "auto"
