"""The trace a daemon leaves in the runtime folder, and who holds a port.

The lock is an advisory one on an open file, so it ends with its process however that ends; what the file says is
only information.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cuzk_engine import paths
from cuzk_engine.client.address import Address
from cuzk_engine.errors import DaemonError

_LOCK_NAME: Final = "daemon.lock"
_MAX_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Instance:
    """What a daemon writes about itself. ``config`` and ``listen`` are the arguments it was started with, "" for
    none.
    """

    pid: int
    address: str
    started_unix_ns: int
    build: str
    state: str = "starting"  # "starting" | "ready" | "draining" | "stopping"
    config: str = ""
    listen: str = ""
    started_by: str = ""


@dataclass(frozen=True, slots=True)
class LockState:
    """``held``: a living process has the lock. ``instance``: what the file says, None without a file or with an
    unreadable one.
    """

    exists: bool
    held: bool
    instance: Instance | None


def lock_path() -> Path:
    return paths.runtime_dir() / _LOCK_NAME


def read_lock() -> LockState:
    """Looks without waiting. A shared lock is taken for a moment to see whether somebody holds the exclusive one."""
    try:
        descriptor = os.open(lock_path(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _look(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return LockState(False, False, None)
    except OSError as error:
        raise DaemonError(f"{lock_path()}: cannot be read: {(error.strerror or str(error)).lower()}") from error


def _look(descriptor: int) -> LockState:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        held = False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        held = True
    return LockState(True, held, _parse(os.pread(descriptor, _MAX_BYTES, 0)))


class InstanceLock:
    """The daemon's own side: taken before anything else, written, removed at the end."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @classmethod
    def take(cls) -> InstanceLock | None:
        """None when another process has it. A leftover file of a dead process is no obstacle."""
        path = lock_path()
        paths.ensure_private(path.parent)
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise DaemonError(f"{path}: cannot be made: {(error.strerror or str(error)).lower()}") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            try:  # the former owner may have removed the file between open and flock
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    os.ftruncate(descriptor, 0)  # names a process that is dead, and whose number may be another's now
                    return cls(descriptor, path)
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def write(self, instance: Instance) -> None:
        """Raises DaemonError, as for a full disk."""
        data = json.dumps(asdict(instance)).encode()
        try:
            os.pwrite(self._descriptor, data, 0)  # one call, and no moment in which the file is empty
            os.ftruncate(self._descriptor, len(data))
        except OSError as error:
            raise DaemonError(f"{self._path}: cannot be written: {(error.strerror or str(error)).lower()}") from error

    def release(self) -> None:
        """Removes the file, then gives the lock back; may be called twice."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def open_standard_streams() -> None:
    """Where a process was started with a closed standard stream, a database or a pipe would get its number, and a stray
    message would go into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(number, True)


def has_lock_open(pid: int) -> bool:
    """Whether a process has the lock's file open, as the one that holds the lock must; True where this user may not
    see it."""
    import psutil

    try:
        return any(
            os.path.realpath(file.path) == os.path.realpath(lock_path()) for file in psutil.Process(pid).open_files()
        )
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def remove_stale_lock() -> None:
    """Removes the file of a dead daemon; does nothing when a living one has it."""
    lock = InstanceLock.take()
    if lock is not None:
        lock.release()


def is_taken(address: Address) -> bool:
    """Whether something listens there. A port in TIME_WAIT counts as free, as it does for a server."""
    if address.path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(address.path)
            except OSError:
                return False
            return True
    for family, kind, protocol, _, where in _resolve(address):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(where)
                probe.listen(1)  # binding alone is allowed beside a listener in some states
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False


def holder(address: Address) -> tuple[int, str] | None:
    """Process id and name of who listens at ``address``, where this user may see it."""
    import psutil

    try:
        connections = psutil.net_connections(kind="unix" if address.path else "tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.pid is None:
            continue
        if address.path:
            match = str(connection.laddr) == address.path
        else:
            match = connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == address.port
        if match:
            try:
                return connection.pid, psutil.Process(connection.pid).name()
            except psutil.Error:
                return connection.pid, "unknown"
    return None


def taken_message(address: Address, setting: str = "daemon.listen") -> str:
    """``127.0.0.1:9820 is in use by pid 7 (python3)``; ``setting``: the one that names the address."""
    who = holder(address)
    if who is None:
        return f"{address} is in use by another program that this user cannot see; choose another {setting}"
    return f"{address} is in use by pid {who[0]} ({who[1]}); end it, or choose another {setting}"


def _resolve(address: Address) -> list[tuple[Any, ...]]:
    try:
        return list(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except OSError as error:
        raise DaemonError(f"{address}: the host is not known: {error.strerror or error}") from error


def _parse(data: bytes) -> Instance | None:
    try:
        fields, _ = json.JSONDecoder().raw_decode(data.decode())  # behind it may be the end of a longer, older text
        return Instance(**fields)
    except (ValueError, TypeError):
        return None
