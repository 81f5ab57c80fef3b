"""NVIDIA's driver, NVML, CuPy, and other provers on the cards. None of it is needed for proofs on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

from cuzk_engine import nvml
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Driver
from cuzk_engine.doctor.check import Check, ok, problem, warning
from cuzk_engine.nvml import Nvml, NvmlError
from cuzk_engine.units import format_count, format_size

BELLMAN_LOCKS: Final = (Path("/tmp/bellman.gpu.lock"), Path("/tmp/bellman.priority.lock"))
_CUPY_PACKAGES: Final = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_CPU_ONLY: Final = "proofs run on the CPU"
_DRIVER_SECONDS: Final = 20.0  # a card that has died keeps the driver busy
_NOT_STARTED: Final = 802  # CUDA_ERROR_SYSTEM_NOT_READY
_STUB: Final = 34  # CUDA_ERROR_STUB_LIBRARY


@dataclass(frozen=True, slots=True)
class Cards:
    """What was found out about the cards. ``kernel``: version of the kernel's module, "" where none is loaded;
    ``driver``: what CUDA's driver says, ``fault``: why it does not answer; ``listed``: NVML's cards, ``nvml_fault``:
    why it does not answer; ``release``: the driver's version by NVML."""

    kernel: str = ""
    driver: Driver | None = None
    fault: str = ""
    listed: tuple[nvml.Card, ...] = ()
    nvml_fault: str = ""
    release: str = ""

    @property
    def present(self) -> bool:
        return bool(self.kernel or self.listed or (self.driver is not None and self.driver.cards))

    @property
    def cuda(self) -> int:
        """The newest major version of CUDA that the driver serves, 0 where not known."""
        return self.driver.version[0] if self.driver is not None else 0


def look(
    root: Path = Path("/"), read_driver: Callable[[], Driver | None] = probe.read_driver, library: Any = None
) -> Cards:
    """Asks the kernel, the driver and NVML; starts no context on any card."""
    driver, fault = None, ""
    try:
        driver = nvml.within(_DRIVER_SECONDS, read_driver)
    except NvmlError:
        fault = f"the driver does not answer ({_DRIVER_SECONDS:g} s)"
    try:
        listed, release = nvml.within(nvml.ANSWER_SECONDS, lambda: _listed(library))
        nvml_fault = "" if listed else "no device was found"
    except NvmlError as error:
        listed, release, nvml_fault = (), "", str(error)
    return Cards(_kernel_module(root), driver, fault, listed, nvml_fault, release)


def _listed(library: Any) -> tuple[tuple[nvml.Card, ...], str]:
    opened = Nvml.open(library)
    try:
        return opened.cards(), opened.driver_version()
    finally:
        opened.close()


def driver(cards: Cards) -> Check:
    name, found = "nvidia driver", cards.driver
    if cards.fault:
        return problem(name, cards.fault, "see nvidia-smi and the kernel's log; the machine may need a restart")
    if found is None:
        if not cards.kernel:
            return ok(name, f"none ({probe.LIBRARY} was not found): {_CPU_ONLY}")
        return warning(
            name,
            f"the kernel's module {cards.kernel} is loaded, but {probe.LIBRARY} was not found: {_CPU_ONLY}",
            "install the library of that version (libnvidia-compute), or start the container with the NVIDIA runtime",
        )
    words = f"{cards.release or cards.kernel or 'of unknown version'}, CUDA {'.'.join(map(str, found.version))}"
    if found.fault:
        return warning(
            name, f"{words}: it does not start (code {found.fault}): {_CPU_ONLY}", _fault_advice(found.fault)
        )
    count = format_count(len(found.cards), "card")
    if found.cards:
        return ok(name, f"{words}; {count}")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and cards.listed:
        return warning(
            name, f'{words}; CUDA_VISIBLE_DEVICES="{hidden}" hides all cards: {_CPU_ONLY}', "unset it, or name a card"
        )
    return ok(name, f"{words}; it sees no card: {_CPU_ONLY}")


def _fault_advice(code: int) -> str:
    special = {
        35: "update the driver",
        _STUB: "the library is the stub of the CUDA toolkit: take its folder out of LD_LIBRARY_PATH",
        _NOT_STARTED: "start nvidia-fabricmanager",
        803: "the library and the kernel's module are of different versions: restart the machine",
    }
    return special.get(code, "see nvidia-smi")


def monitoring(cards: Cards) -> Check:
    """NVML: what charts of memory, transfers, power and clocks are drawn from."""
    name = "nvml"
    if not cards.nvml_fault:
        return ok(name, f"answers, {format_count(len(cards.listed), 'card')}")
    if not cards.present and cards.driver is None:
        return ok(name, f"none ({cards.nvml_fault}); matters with a GPU only")
    return warning(
        name,
        f"{cards.nvml_fault}: proofs run, but other programs' memory, transfers, power and clocks are not shown",
        "see nvidia-smi; in a container: start it with the NVIDIA runtime and its utility capability",
    )


def cupy(cards: Cards) -> Check:
    extra = "cuda13" if cards.cuda >= 13 else "cuda12"
    advice = probe.install(extra)
    found = {name: version for name in _CUPY_PACKAGES if (version := _version(name))}
    if len(found) > 1:
        words = " and ".join(f"{name} {version}" for name, version in found.items())
        return problem("cupy", f"{words} are both installed, and overwrite each other", "uninstall all but one")
    if util.find_spec("cupy") is None:
        if cards.present:
            return warning("cupy", f"not installed: the cards cannot be used, {_CPU_ONLY}", advice)
        return ok("cupy", f"not installed; with a GPU: {probe.install('cuda13')} (driver 580 or newer; 525: cuda12)")
    name, version = next(iter(found.items()), ("cupy", "of unknown version"))
    if name == "cupy-cuda13x" and 0 < cards.cuda < 13:
        return problem("cupy", f"{name} {version}, but the driver knows CUDA {cards.cuda} only", advice)
    return ok("cupy", f"{name} {version}")


def bellman_lock(cards: Cards, paths: tuple[Path, ...] = BELLMAN_LOCKS, proc: Path = Path("/proc")) -> Check:
    """Whether another prover, of the bellperson family, holds the cards."""
    name = "bellman locks"
    held = [f"{path} is held by {who}" for path in paths if (who := lock_holder(path, proc))]
    if not held:
        return ok(name, "not held")
    found = "; ".join(held)
    if not cards.present:
        return ok(name, f"{found}; matters with a GPU only")
    return warning(name, f"{found}: another prover uses the cards", "end it, or expect less memory and slower proofs")


def lock_holder(path: Path, proc: Path = Path("/proc")) -> str:
    """ "pid 7 (name)" of who has a lock on the file, "" when nobody has. The lock itself is left alone."""
    try:
        inode = os.stat(path).st_ino
        lines = (proc / "locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:  # "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; "1: -> FLOCK …" waits
        fields = line.split()
        if len(fields) < 6 or fields[1] == "->" or fields[5].rpartition(":")[2] != str(inode):
            continue
        return _process(fields[4], proc)
    return ""


def kernel_cache(folder: Path) -> Check:
    """``folder``: where compiled kernels are kept."""
    name = "kernel cache"
    try:
        if not folder.exists():
            return ok(name, f"{folder}: empty")
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        return warning(name, f"{folder}: cannot be read: {words}", "remove it; kernels are compiled again")
    if not os.access(folder, os.W_OK | os.X_OK):
        return warning(name, f"{folder}: cannot be written: kernels are compiled at every start", "make it writable")
    return ok(name, f"{folder}: {len(sizes)} files, {format_size(sum(sizes))}")


def _kernel_module(root: Path) -> str:
    try:
        first = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return ""
    words = first.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "of unknown version")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _process(pid: str, proc: Path) -> str:
    try:
        return f"pid {pid} ({(proc / pid / 'comm').read_text(errors='replace').strip()})"
    except OSError:  # of another container, or another user's
        return f"pid {pid}"
