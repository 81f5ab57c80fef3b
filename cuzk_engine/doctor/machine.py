"""Python, the native library, processor and memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Final

from cuzk_engine.doctor.check import Check, ok, problem, warning
from cuzk_engine.errors import NativeLibraryError, SettingError
from cuzk_engine.units import format_size, parse_size

LEAST_MEMORY: Final = 1 << 30
LEAST_LOCKED: Final = 1 << 30


def python() -> Check:
    from cuzk_engine import __version__
    from cuzk_engine.build import build_id

    found = f"{platform.python_version()} ({sys.executable}), cuzk {__version__}, build {build_id()}"
    return ok("python", found)


def native_library() -> Check:
    from cuzk_engine import native

    name = "native library"
    try:
        library = native.library()
    except NativeLibraryError as error:
        return problem(name, str(error), "run make setup, or install the package again")
    used, available = library.isa(), library.isa_available()
    found = f"{library.path}, uses {used}, available: {', '.join(available)}"
    if used != available[-1]:
        limit = os.environ.get(native.FEATURES_VARIABLE, "")
        return warning(
            name,
            found,
            f'{native.FEATURES_VARIABLE}="{limit}" keeps it from {available[-1]}, which is faster: unset it',
        )
    return ok(name, found)


def processor(root: Path = Path("/")) -> Check:
    from cuzk_engine.devices.cpu import processor_name

    cores = len(os.sched_getaffinity(0))
    total = os.cpu_count() or cores
    found = f"{processor_name()} ({platform.machine()}), {cores} of {total} cores usable"
    quota = cpu_quota(root)
    if quota is not None and quota < cores:
        advice = "proofs use as many threads as cores, which a quota then halts: raise it, or set gpus.gpu_threads"
        return warning("processor", f"{found}, but the container's quota is {quota:g}", advice)
    return ok("processor", found)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the control group allows; None without a limit."""
    try:
        allowed, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def memory(arena: str = "auto", root: Path = Path("/"), budget: str = "auto") -> Check:
    """``arena``: the setting ``cpu.arena``; ``budget``: ``memory.total_budget``."""
    from cuzk_engine.devices.arena import machine_limit, resolve

    name = "memory"
    limit = machine_limit(root)
    try:
        capacity = resolve(arena, root=root)
    except SettingError as error:
        return problem(name, str(error), "correct the setting")
    found = (
        f"limit {format_size(limit.nbytes)} ({limit.source}), "
        f"proofs on the CPU may use {format_size(capacity.nbytes)} ({capacity.source})"
    )
    if capacity.nbytes > limit.nbytes:
        return warning(name, found, f"{capacity.source} promises more than there is: proofs may be killed; lower it")
    wanted = limit.nbytes if budget == "auto" else parse_size(budget)
    if wanted > limit.nbytes:
        return warning(name, found, f"memory.total_budget {budget} is more than there is, and has no effect: lower it")
    if wanted < min(LEAST_MEMORY, limit.nbytes):
        found += f", memory.total_budget {budget}"
        return warning(name, found, "only small circuits fit; `cuzk plan KEY.zkey` says what a proof needs")
    if capacity.nbytes < LEAST_MEMORY:
        return warning(name, found, "only small circuits fit; `cuzk info KEY.zkey` says what a proof needs")
    return ok(name, found)


def surroundings(root: Path = Path("/")) -> Check:
    """Whether this is a machine of its own, a container or Windows' Linux: each has limits of its own with a GPU."""
    name = "surroundings"
    found = []
    if "microsoft" in _read(root / "proc/version").lower():
        found.append("WSL: page-locked memory is limited, and the cards do not tell which program holds their memory")
    kind = _container(root)
    if kind:
        found.append(
            f"{kind}: a GPU needs the NVIDIA runtime (--gpus all), page-locked memory --ulimit memlock=-1, and process "
            "numbers on a card are the machine's"
        )
    return ok(name, "; ".join(found) or "neither a container nor WSL")


def _container(root: Path) -> str:
    """What kind of container this is, "" for none."""
    if (root / ".dockerenv").exists():
        return "Docker container"
    if (root / "run/.containerenv").exists():
        return "Podman container"
    groups = _read(root / "proc/1/cgroup")
    for word, kind in (("kubepods", "Kubernetes pod"), ("docker", "Docker container"), ("lxc", "LXC container")):
        if word in groups:
            return kind
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def locked_memory(has_gpu: bool) -> Check:
    """The limit on page-locked memory, which uploads to a GPU use."""
    name = "memory lock limit"
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    words = "unlimited" if soft == resource.RLIM_INFINITY else format_size(soft)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_LOCKED:
        return ok(name, words)
    if not has_gpu:
        return ok(name, f"{words}; matters with a GPU only")
    up_to = "" if hard == resource.RLIM_INFINITY else f" (hard limit {format_size(hard)})"
    return warning(
        name,
        f"{words}{up_to}: page-locking may be refused, and uploads would then be pageable and slower",
        "ulimit -l unlimited before the start, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for docker",
    )
