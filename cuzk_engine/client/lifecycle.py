"""Starting, stopping and looking at the daemon from outside.

Every function blocks (call it from a thread where that matters), returns a DaemonStatus whose ``message`` is one
sentence, and raises DaemonError.
A started daemon is detached: it outlives its starter.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from cuzk_engine import config as configuration
from cuzk_engine import paths
from cuzk_engine.build import build_id
from cuzk_engine.client.address import Address, parse_address
from cuzk_engine.client.connecting import own_client, settings_at
from cuzk_engine.client.instance import (
    Instance,
    has_lock_open,
    holder,
    is_taken,
    lock_path,
    open_standard_streams,
    read_lock,
    remove_stale_lock,
    taken_message,
)
from cuzk_engine.client.types import DaemonStatus, EngineIdentity, ProcessState
from cuzk_engine.errors import CuzkError, DaemonError

_STATES: Final = {
    "starting": ProcessState.STARTING,
    "ready": ProcessState.READY,
    "draining": ProcessState.DRAINING,
    "stopping": ProcessState.STOPPING,
}
_WORDS: Final = {
    ProcessState.STARTING: "starting",
    ProcessState.READY: "ready",
    ProcessState.DRAINING: "finishing what runs, taking nothing new",
    ProcessState.STOPPING: "stopping",
}
_DEVICE_WORDS: Final = {"failed": "out of order"}
_ANSWER_TIME: Final = 3.0  # seconds a living engine may take to say who it is, on a busy machine
_START_TIME: Final = 60.0
_DRAIN_TIME: Final = 60.0
_END_TIME: Final = 20.0  # from the end of the drain to the end of the process
_STARTUP_GRACE_NS: Final = 120 * 10**9
_OUTPUT_NAME: Final = "daemon.out"


def daemon_status(address: str = "", *, config: str | Path | None = None) -> DaemonStatus:
    """The daemon of this user, or the one at ``address``.

    Looks at the lock, then at the port; ready means that the engine itself said so.
    """
    lock = read_lock()
    known = lock.instance if lock.held else None
    where = address or (known.address if known else "") or _configured(config)
    target = parse_address(where)
    identity, fault = _identify(target, config)
    if identity is not None:
        return _described(identity, target)
    if lock.held and (not address or (known is not None and known.address == str(target))):
        return _silent(known, target, fault)
    if fault is not None or is_taken(target):
        who = holder(target)
        return _status(ProcessState.FOREIGN, target, taken_message(target), pid=who[0] if who else None)
    if lock.exists and not lock.held:
        return _status(
            ProcessState.CRASHED,
            target,
            "the engine ended without being asked to; starting it again clears up",
            lock.instance,
        )
    return _status(ProcessState.STOPPED, target, f"the engine is stopped: nothing listens at {target}")


def start_daemon(
    *,
    started_by: str = "command line",
    config: str | Path | None = None,
    listen: str = "",
    log_level: str = "",
    timeout: float = _START_TIME,
) -> DaemonStatus:
    """Starts a detached daemon and returns when it is ready; a running one is left alone and said to run already."""
    deadline = time.monotonic() + timeout
    status = daemon_status(listen, config=config)
    if status.state in (ProcessState.DRAINING, ProcessState.STOPPING) and status.pid is not None:
        if not _wait_gone(status.pid, timeout):
            raise DaemonError(
                f"the engine (pid {status.pid}) is still {_WORDS[status.state]}: start it when it has ended"
            )
        status = daemon_status(listen, config=config)
    if status.state is ProcessState.READY:
        running = f"the engine is already running at {status.address} (pid {status.pid})"
        return _with_message(status, running + _unread(config))
    if status.state is ProcessState.STARTING:
        return _await_ready(status.address, config, deadline)
    if status.state is ProcessState.FOREIGN:
        raise DaemonError(status.message)
    if status.state is ProcessState.CRASHED and status.pid is not None and read_lock().held:
        raise DaemonError(
            f"the engine (pid {status.pid}) lives but does not answer: stop it first (`cuzk daemon stop`)"
        )
    address = _spawn(started_by, config, listen, log_level, deadline)
    return _await_ready(address or listen, config, deadline)


def stop_daemon(
    *, config: str | Path | None = None, address: str = "", drain_timeout: float = _DRAIN_TIME
) -> DaemonStatus:
    """Drains (at most ``drain_timeout`` seconds; what still runs then is queued for the next start), ends, and
    checks that process, port and lock are gone. Stopping a stopped daemon is done at once and says so."""
    status = daemon_status(address, config=config)
    deadline = time.monotonic() + _ANSWER_TIME
    while status.state is ProcessState.STARTING and status.pid is None and time.monotonic() < deadline:
        time.sleep(0.02)  # it has the lock and has not yet written who it is
        status = daemon_status(address, config=config)
    target = parse_address(status.address)
    if status.state is ProcessState.STOPPED:
        return _with_message(status, "the engine is not running")
    if status.state is ProcessState.FOREIGN:
        raise DaemonError(f"nothing of ours to stop: {status.message}")
    if status.state is ProcessState.CRASHED and not read_lock().held:
        remove_stale_lock()
        return _status(ProcessState.STOPPED, target, "the engine was not running; what a crash had left was removed")
    if status.pid is None:
        raise DaemonError(f"the engine at {target} does not say its process id, so it cannot be stopped from here")
    waited = _END_TIME
    try:
        with own_client(target, settings_at(target, config)) as client:
            client.shutdown(drain=True, timeout=drain_timeout)
            waited += drain_timeout
    except CuzkError:
        # It does not answer: the plain signal also drains and ends. A file says anything, so it is not trusted alone.
        if read_lock().held and not has_lock_open(status.pid):
            raise DaemonError(
                f"{lock_path()} names pid {status.pid}, which does not have it open: nothing was ended; "
                "see who holds it (fuser), and end that"
            ) from None
        _signal(status.pid, "terminate")
    if not _wait_gone(status.pid, waited):
        _signal(status.pid, "kill")
        if not _wait_gone(status.pid, 5.0):
            raise DaemonError(f"the engine (pid {status.pid}) could not be ended; its memory and {target} stay in use")
    remove_stale_lock()  # of one that could not clean up any more
    if is_taken(target):
        raise DaemonError(f"the engine has ended, but {taken_message(target)}")
    queued = status.jobs_queued or 0
    kept = f"; {queued} queued job{'s' if queued > 1 else ''} will run when it is started again" if queued else ""
    return _status(ProcessState.STOPPED, target, f"the engine has stopped{kept}")


def restart_daemon(
    *,
    if_stale: bool = False,
    started_by: str = "command line",
    config: str | Path | None = None,
    listen: str = "",
    drain_timeout: float = _DRAIN_TIME,
    timeout: float = _START_TIME,
) -> DaemonStatus:
    """Stops and starts, with the arguments of the running one where none are given. ``if_stale``: only when its
    build is not the installed one.
    """
    status = daemon_status(listen, config=config)
    lock = read_lock()
    if if_stale and status.state in (ProcessState.STOPPED, ProcessState.READY) and not status.stale:
        words = (
            "the engine is not running"
            if status.state is ProcessState.STOPPED
            else "the running build is the installed one"
        )
        return _with_message(status, words)
    running = listen
    if lock.held and lock.instance is not None:
        config = config or lock.instance.config or None
        listen = listen or lock.instance.listen
        running = lock.instance.address
    configuration.load(config)  # one that cannot start again is not stopped
    stop_daemon(config=config, address=running, drain_timeout=drain_timeout)
    return start_daemon(started_by=started_by, config=config, listen=listen, timeout=timeout)


def _configured(config: str | Path | None) -> str:
    return configuration.load(config).text("daemon.listen")


def _identify(target: Address, config: str | Path | None) -> tuple[EngineIdentity | None, DaemonError | None]:
    """Who answers, or the fault of something that answers but is no engine, or one that this caller may not ask."""
    if not target.path and not is_taken(target) and target.is_local:
        return None, None  # saves a connection attempt and its wait
    with own_client(target, settings_at(target, config)) as client:
        try:
            return client.identify(_ANSWER_TIME), None
        except DaemonError as error:
            return None, error if "not a proving engine" in str(error) or _is_refusal(error) else None
        except CuzkError as error:
            return None, DaemonError(str(error))


def _is_refusal(fault: DaemonError) -> bool:
    """It answers, and asks for another certificate or token than it was given."""
    return any(words in str(fault) for words in ("asks for TLS", "TLS handshake", "token is missing or wrong"))


def _described(identity: EngineIdentity, target: Address) -> DaemonStatus:
    installed = build_id()
    stale = identity.build != installed
    state = _STATES.get(identity.state, ProcessState.STARTING)
    message = f"the engine is {_WORDS[state]} at {target} (pid {identity.pid}, started by the {identity.started_by})"
    for device in identity.devices:
        if device.state != "ready" and device.reason:
            message += f"; device {device.id} is {_DEVICE_WORDS.get(device.state, device.state)}: {device.reason}"
    if stale:
        message += f"; it runs build {identity.build}, installed is {installed}: restart it"
    return DaemonStatus(
        state=state,
        address=str(target),
        message=message,
        pid=identity.pid,
        build=identity.build,
        installed_build=installed,
        stale=stale,
        version=identity.version,
        started_unix_ns=identity.started_unix_ns,
        started_by=identity.started_by,
        devices=identity.devices,
        jobs_running=identity.jobs_running,
        jobs_queued=identity.jobs_queued,
        log_path=identity.log_path,
    )


def _silent(known: Instance | None, target: Address, fault: DaemonError | None) -> DaemonStatus:
    """A living process has the lock but does not say who it is."""
    if known is not None and fault is not None and _is_refusal(fault):
        return _status(
            _STATES.get(known.state, ProcessState.STARTING),
            target,
            f"the engine (pid {known.pid}) lives at {target} but refuses the certificate and token of this "
            "configuration: name the one that it was started with (--config, or CUZK_CONFIG)",
            known,
        )
    if known is None or fault is not None:
        return _status(ProcessState.STARTING, target, "the engine is starting" if known is None else str(fault), known)
    if known.state in ("stopping", "draining"):
        return _status(ProcessState.STOPPING, target, f"the engine (pid {known.pid}) is stopping", known)
    if known.state == "starting" and time.time_ns() - known.started_unix_ns < _STARTUP_GRACE_NS:
        return _status(ProcessState.STARTING, target, f"the engine (pid {known.pid}) is starting", known)
    return _status(
        ProcessState.CRASHED,
        target,
        f"the engine (pid {known.pid}) lives but does not answer at {target}: stop it",
        known,
    )


def _status(
    state: ProcessState, target: Address, message: str, known: Instance | None = None, pid: int | None = None
) -> DaemonStatus:
    return DaemonStatus(
        state=state,
        address=str(target),
        message=message,
        pid=known.pid if known else pid,
        build=known.build or None if known else None,
        installed_build=build_id(),
        started_unix_ns=known.started_unix_ns if known else None,
        started_by=known.started_by or None if known else None,
        log_path=str(paths.log_dir() / "daemon.log"),
    )


def _with_message(status: DaemonStatus, message: str) -> DaemonStatus:
    from dataclasses import replace

    return replace(status, message=message)


def _spawn(started_by: str, config: str | Path | None, listen: str, log_level: str, deadline: float) -> str:
    """Starts the daemon and reads its first words from a pipe: one JSON line, ``{"ready": true}`` or ``{"error":
    "…"}``. Returns its address, which has the port that it was given for 0; "" where somebody else started it.
    """
    open_standard_streams()
    folder = paths.ensure_private(paths.log_dir())
    command = [sys.executable, "-m", "cuzk_engine.daemon", "--detach", "--started-by", started_by]
    environment = dict(os.environ)
    if config:
        command += ["--config", str(Path(config).absolute())]
    elif environment.get("CUZK_CONFIG"):  # the daemon works in another folder
        environment["CUZK_CONFIG"] = str(configuration.find_file(None, environment))
    if listen:
        command += ["--listen", listen]
    if log_level:
        command += ["--log-level", log_level]
    reader, writer = os.pipe()
    try:
        command += ["--ready-fd", str(writer)]
        with open(folder / _OUTPUT_NAME, "wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
                close_fds=True,
            )
        os.close(writer)
        writer = -1
        process.wait()  # the first process only makes the daemon's own and ends
        first = _read_line(reader, deadline)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        where = f"{error.filename}: " if error.filename else ""
        raise DaemonError(f"{where}the engine could not be started: {reason}") from error
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if first is None:
        raise DaemonError(f"the engine did not become ready in time; its log is {folder / 'daemon.log'}")
    if first.get("already") and _same_address(listen):
        return ""  # somebody else started it at the same moment
    if not first.get("ready"):
        raise DaemonError(first.get("error") or f"the engine ended while starting: {_last_line(folder / _OUTPUT_NAME)}")
    return str(first.get("address", ""))


def _unread(config: str | Path | None) -> str:
    """What is to be said of a configuration file that a running engine was not started with."""
    lock = read_lock()
    if not config or not lock.held or lock.instance is None:
        return ""
    file, started = Path(config).absolute(), lock.instance.config
    if started and os.path.realpath(started) == os.path.realpath(file):
        return ""
    origin = f"with --config {started}" if started else "without --config"
    return f", started {origin}; {file} was not read: `cuzk daemon restart --config {file}`"


def _same_address(listen: str) -> bool:
    """Whether the daemon that has the lock is the one that was asked for."""
    known = read_lock().instance
    return not listen or known is None or known.address == str(parse_address(listen))


def _read_line(descriptor: int, deadline: float) -> dict[str, Any] | None:
    """The daemon's line; {} when it ended without one, None when the time is over."""
    data = b""
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, 65536)
        if not part:
            return {}
        data += part
    try:
        line: dict[str, Any] = json.loads(data.split(b"\n", 1)[0])
    except ValueError:
        return {}
    return line


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in path.read_bytes()[-4096:].decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1]
    return f"no reason was given; see {path}"


def _await_ready(address: str, config: str | Path | None, deadline: float) -> DaemonStatus:
    """Follows the state of a process that is known to live until it is ready or gone."""
    while True:
        status = daemon_status(address, config=config)
        if status.state is ProcessState.READY:
            return status
        if status.state not in (ProcessState.STARTING, ProcessState.STOPPED):
            raise DaemonError(status.message)
        if status.state is ProcessState.STOPPED:
            raise DaemonError(f"the engine ended while starting; its log is {paths.log_dir() / 'daemon.log'}")
        if time.monotonic() > deadline:
            raise DaemonError(f"the engine did not become ready in time; its log is {paths.log_dir() / 'daemon.log'}")
        time.sleep(0.05)  # between two looks; nothing tells a foreign process's readiness


def _wait_gone(pid: int, timeout: float) -> bool:
    """Waits for a process to end; one that nobody has collected yet counts as gone."""
    import psutil

    deadline = time.monotonic() + timeout
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(min(left, 0.2))
                return True
    except psutil.NoSuchProcess:
        pass
    return True


def _signal(pid: int, name: str) -> None:
    import psutil

    try:
        getattr(psutil.Process(pid), name)()
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise DaemonError(f"the engine (pid {pid}) belongs to another user and cannot be ended from here") from error
