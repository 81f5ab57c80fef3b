"""Configuration, folders, and the engine's background process."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cuzk_engine import config as configuration
from cuzk_engine import paths
from cuzk_engine.client import daemon_status
from cuzk_engine.client.address import parse_address
from cuzk_engine.client.instance import holder, is_taken, taken_message
from cuzk_engine.client.types import DaemonStatus, ProcessState
from cuzk_engine.config import Settings
from cuzk_engine.doctor.check import Check, ok, problem, warning
from cuzk_engine.errors import CuzkError
from cuzk_engine.units import format_size

LEAST_FREE: Final = 256 << 20

_FOLDERS: Final[tuple[tuple[str, Callable[[], Path]], ...]] = (
    ("configuration", paths.config_dir),
    ("data", paths.data_dir),
    ("cache", paths.cache_dir),
    ("runtime", paths.runtime_dir),
    ("log", paths.log_dir),
)


def load(config: str) -> tuple[Settings, Check]:
    """The settings in force (the defaults, where they cannot be read), and what is to be said of them."""
    name = "configuration"
    try:
        settings = configuration.load(config or None)
    except CuzkError as error:
        return Settings(), problem(name, str(error), "correct it: the engine does not start with it")
    where = str(settings.path) if settings.path else "no file, all defaults"
    if settings.notes:
        return settings, warning(name, f"{where}: {'; '.join(settings.notes)}", "remove what has no effect")
    return settings, ok(name, where)


def daemon(config: str) -> Check:
    """The engine's process: its port, who holds it, and whether it runs the installed build."""
    status = daemon_status(config=config or None)
    return judge(status)


def judge(status: DaemonStatus) -> Check:
    name = "engine"
    broken = [device for device in status.devices if device.state == "failed"]
    waiting = [device for device in status.devices if device.state in ("starting", "restarting")]
    match status.state:
        case ProcessState.READY if broken:
            return problem(name, status.message, "cuzk daemon restart, and see its log")
        case ProcessState.READY if waiting:
            return warning(name, status.message, "see its log; a card that stays so may need a reset, or a reboot")
        case ProcessState.READY if status.stale:
            return warning(name, status.message, "cuzk daemon restart --if-stale")
        case ProcessState.FOREIGN:
            return problem(name, status.message, "end that program, or choose another daemon.listen")
        case ProcessState.CRASHED if status.pid is not None and _lives(status.pid):
            return problem(name, status.message, "cuzk daemon stop")
        case ProcessState.CRASHED:
            return warning(name, status.message, "cuzk daemon start; its log says what happened")
        case ProcessState.STOPPED:
            return ok(name, f"{status.message}, the address is free")
        case _:
            return ok(name, status.message)


def status_port(settings: Settings, engine: Check) -> Check:
    """The address of the HTTP page, which another program may hold although the engine's own is free."""
    name = "status page"
    text = settings.text("daemon.status_listen")
    if not text:
        return ok(name, "switched off")
    address = parse_address(text)
    taken, advice = is_taken(address), "end that program, or choose another daemon.status_listen"
    if taken and "the address is free" in engine.found:
        return problem(name, taken_message(address, "daemon.status_listen"), advice)
    who = holder(address) if taken else None
    if who is not None and f"(pid {who[0]}" not in engine.found:
        return warning(name, f"{address} is in use by pid {who[0]} ({who[1]}), which is not the engine", advice)
    return ok(name, f"{address} is {'in use' if taken else 'free'}")


def folders(least_free: int = LEAST_FREE) -> Check:
    """Whether the folders are there, or can be made, and can be written."""
    name = "folders"
    found = {title: folder() for title, folder in _FOLDERS}
    faults = [fault for title, path in found.items() if (fault := _fault(title, path))]
    if faults:
        return problem(name, "; ".join(faults), "make them writable, or set CUZK_HOME to a folder that is")
    tight = [
        f"{title} folder {path} has {format_size(free)} left"
        for title, path in found.items()
        if (free := shutil.disk_usage(_existing(path)).free) < least_free
    ]
    if tight:
        return warning(name, "; ".join(tight), "free some space, or set CUZK_HOME to a folder with more")
    return ok(name, ", ".join(f"{title} {path}" for title, path in found.items()))


def _fault(title: str, folder: Path) -> str:
    present = _existing(folder)
    status = os.stat(present)
    if not stat.S_ISDIR(status.st_mode):
        return f"{title} folder {folder}: {present} is no folder"
    if present == folder and status.st_uid != os.geteuid():
        return f"{title} folder {folder} belongs to another user (uid {status.st_uid})"
    if not os.access(present, os.W_OK | os.X_OK):
        what = "written" if present == folder else "made"
        return f"{title} folder {folder} cannot be {what}: {paths.why_not_writable(present)}"
    return ""


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest of those above it that exists."""
    for path in (folder, *folder.parents):
        if path.exists():
            return path
    return Path("/")


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
