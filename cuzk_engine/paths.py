"""Where cuzk keeps things: the platform's folders, or the sub-folders of ``$CUZK_HOME`` when that is set.

Functions only name folders; ``ensure_private`` makes one that other users cannot read.
"""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import Final

from cuzk_engine.errors import CuzkError

_APP: Final = "cuzk"
_ATTRIBUTES: Final = {
    "config": "user_config_path",
    "data": "user_data_path",
    "cache": "user_cache_path",
    "run": "user_runtime_path",
    "log": "user_log_path",
}


def _folder(kind: str) -> Path:
    """Raises CuzkError for a user without a home folder, as in some containers."""
    home = os.environ.get("CUZK_HOME")
    if home and not is_utf8(home):
        raise CuzkError(f"CUZK_HOME is {home!r}: expected a name in UTF-8")
    if home:
        return Path(os.path.expanduser(home)).absolute() / kind
    import platformdirs  # a tenth of a proof's start-up time on small circuits: only when needed

    dirs = platformdirs.PlatformDirs(_APP, appauthor=False)
    with (
        warnings.catch_warnings()
    ):  # that there is no XDG_RUNTIME_DIR: the folder taken instead is checked by ensure_private
        warnings.simplefilter("ignore")
        try:
            folder: Path = getattr(dirs, _ATTRIBUTES[kind])
        except RuntimeError:  # says that there is no home
            folder = Path("~")
    if not folder.is_absolute():
        raise CuzkError("this user has no home folder: set HOME, or CUZK_HOME to a folder for what cuzk keeps")
    return folder


def why_not_writable(path: Path | str) -> str:
    """What keeps this process from writing to a file or folder that exists, in words."""
    return "the file system is read-only" if os.statvfs(path).f_flag & os.ST_RDONLY else "permission denied"


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


def is_utf8(path: str) -> bool:
    """Whether a path can be sent in a message: the system allows any bytes in a name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def ensure_private(folder: Path) -> Path:
    """Makes ``folder`` (mode 0700) and its parents; returns it. Raises CuzkError when it cannot, or when it is
    another user's.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        raise CuzkError(f"{folder}: cannot be made: {(error.strerror or str(error)).lower()}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise CuzkError(
            f"{folder}: belongs to another user (uid {status.st_uid}), expected a folder of uid {os.geteuid()}"
        )
    return folder
