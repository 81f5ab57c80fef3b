"""NVIDIA's driver, NVML, CuPy, and other provers on the cards. None of it is needed for proofs on the CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

from cuzk_engine.doctor.check import Check, ok, problem, warning
from cuzk_engine.units import format_size

BELLMAN_LOCKS: Final = (Path("/tmp/bellman.gpu.lock"), Path("/tmp/bellman.priority.lock"))
_CUPY_PACKAGES: Final = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_CPU_ONLY: Final = "proofs run on the CPU"


@dataclass(frozen=True, slots=True)
class Cards:
    """What was found out about the driver. ``fault``: why NVML does not answer; ``kernel``: version of the kernel's
    module, "" where none is loaded; ``cuda``: the driver's CUDA version, 0 where not known."""

    kernel: str
    fault: str
    driver: str = ""
    cuda: int = 0
    names: tuple[str, ...] = ()

    @property
    def present(self) -> bool:
        return bool(self.kernel or self.names)


def look(root: Path = Path("/")) -> Cards:
    """Asks the kernel and NVML; starts no context on any card."""
    kernel = _kernel_module(root)
    try:
        import pynvml
    except ImportError:
        return Cards(kernel, "nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Cards(kernel, _worded(error, pynvml))
    try:
        count = pynvml.nvmlDeviceGetCount()
        names = tuple(_name(pynvml, number) for number in range(count))
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return Cards(kernel, "" if count else "no device was found", driver, _cuda_version(pynvml), names)
    except pynvml.NVMLError as error:
        return Cards(kernel, _worded(error, pynvml))
    finally:
        pynvml.nvmlShutdown()


def driver(cards: Cards) -> Check:
    name = "nvidia driver"
    if cards.names:
        version = f"{cards.driver}, CUDA {cards.cuda // 1000}.{cards.cuda % 1000 // 10}" if cards.cuda else cards.driver
        return ok(name, f"{version}; {', '.join(cards.names)}")
    if not cards.kernel:
        return ok(name, f"none ({cards.fault}): {_CPU_ONLY}")
    return warning(
        name,
        f"the kernel's module {cards.kernel} is loaded, but {cards.fault}: {_CPU_ONLY}",
        "install the library of the same version (libnvidia-compute), or start the container with the NVIDIA runtime",
    )


def cupy(cards: Cards) -> Check:
    extra = "cuda13" if cards.cuda >= 13000 else "cuda12"
    advice = f"pip install 'cuzk[{extra}]'"
    found = {name: version for name in _CUPY_PACKAGES if (version := _version(name))}
    if len(found) > 1:
        words = " and ".join(f"{name} {version}" for name, version in found.items())
        return problem("cupy", f"{words} are both installed, and overwrite each other", "uninstall all but one")
    if util.find_spec("cupy") is None:
        if cards.present:
            return warning("cupy", f"not installed: the cards cannot be used, {_CPU_ONLY}", advice)
        return ok("cupy", f"not installed; with a GPU it comes with {advice}")
    name, version = next(iter(found.items()), ("cupy", "of unknown version"))
    if name == "cupy-cuda13x" and 0 < cards.cuda < 13000:
        return problem("cupy", f"{name} {version}, but the driver knows CUDA {cards.cuda // 1000} only", advice)
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


def _worded(error: Any, pynvml: Any) -> str:
    kinds = {
        "NVMLError_LibraryNotFound": "NVML's library libnvidia-ml.so.1 was not found",
        "NVMLError_DriverNotLoaded": "NVML says that the driver is not loaded",
        "NVMLError_LibRmVersionMismatch": "NVML's library and the kernel's module are of different versions",
        "NVMLError_NoPermission": "NVML may not be used by this user",
        "NVMLError_NotFound": "no device was found",
    }
    return kinds.get(type(error).__name__, f"NVML fails: {error}")


def _name(pynvml: Any, number: int) -> str:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    return f"{_text(pynvml.nvmlDeviceGetName(handle))}, {format_size(pynvml.nvmlDeviceGetMemoryInfo(handle).total)}"


def _cuda_version(pynvml: Any) -> int:
    try:
        return int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return 0


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


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
