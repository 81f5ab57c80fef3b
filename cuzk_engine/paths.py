"""Where cuzk keeps things: the platform's folders, or the sub-folders of ``$CUZK_HOME`` when that is set.

Functions only name folders; ``ensure_private`` makes one that other users cannot read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_APP: Final = "cuzk"


def _folder(kind: str) -> Path:
    home = os.environ.get("CUZK_HOME")
    if home:
        return Path(home).expanduser().absolute() / kind
    import platformdirs  # a tenth of a proof's start-up time on small circuits: only when needed

    dirs = platformdirs.PlatformDirs(_APP, appauthor=False)
    return {
        "config": dirs.user_config_path,
        "data": dirs.user_data_path,
        "cache": dirs.user_cache_path,
        "run": dirs.user_runtime_path,
        "log": dirs.user_log_path,
    }[kind]


def config_dir() -> Path:
    """Configuration: ``cuzk.toml``, the window's own settings."""
    return _folder("config")


def data_dir() -> Path:
    """Job store, registered circuits, recordings."""
    return _folder("data")


def cache_dir() -> Path:
    """Kernel cache, remembered checks of keys: may be deleted at any time."""
    return _folder("cache")


def runtime_dir() -> Path:
    """Lock, sockets, spooled witnesses; gone after a log-out."""
    return _folder("run")


def log_dir() -> Path:
    """``daemon.log`` and its rotated predecessors."""
    return _folder("log")


def ensure_private(folder: Path) -> Path:
    """Makes ``folder`` (mode 0700) and its parents; returns it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
