"""Each check of the doctor: what it finds on machines of every kind, and what it advises."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuzk_engine import native
from cuzk_engine.client.types import DaemonStatus, DeviceDescription, ProcessState
from cuzk_engine.config import Settings
from cuzk_engine.doctor import engine, machine
from cuzk_engine.doctor.check import Check, Verdict, ok, run_all
from cuzk_engine.errors import CuzkError, NativeLibraryError
from tests.client.test_foreign_servers import web_server


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
    beyond = machine.memory("auto", tmp_path, "900GiB")
    assert beyond.verdict is Verdict.WARNING
    assert "memory.total_budget 900GiB is more than there is" in beyond.advice
    tiny = machine.memory("auto", tmp_path, "4MiB")
    assert tiny.verdict is Verdict.WARNING
    assert tiny.found.endswith("memory.total_budget 4MiB")
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


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "neither a container nor WSL"),
        ({"proc/version": "Linux version 6.1 (gcc)"}, "neither a container nor WSL"),
        ({"proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2"}, "WSL: page-locked memory is limited"),
        ({".dockerenv": ""}, "Docker container: a GPU needs the NVIDIA runtime (--gpus all)"),
        ({"run/.containerenv": ""}, "Podman container"),
        ({"proc/1/cgroup": "11:devices:/kubepods/burstable/pod1"}, "Kubernetes pod"),
    ],
)
def test_surroundings(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)
    found = machine.surroundings(tmp_path)
    assert found.verdict is Verdict.OK
    assert found.found.startswith(words)


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
        (status(ProcessState.READY, devices=(device("starting"),)), Verdict.WARNING),
        (status(ProcessState.READY, devices=(device("restarting"),)), Verdict.WARNING),
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
        assert taken.found.endswith("or choose another daemon.status_listen")
        own = ok("engine", f"the engine is ready at 127.0.0.1:9820 (pid {os.getpid()}, started by the user)")
        assert engine.status_port(settings, own).verdict is Verdict.OK
        other = engine.status_port(settings, ok("engine", "the engine is ready at 127.0.0.1:9820 (pid 1, started by)"))
        assert other.verdict is Verdict.WARNING
        assert other.found.endswith("which is not the engine")
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


def test_folders_on_a_read_only_file_system(cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(cuzk_home)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=real.f_flag | os.ST_RDONLY))
    found = engine.folders(0).found
    assert "cannot be made: the file system is read-only" in found
    assert "permission denied" not in found


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
