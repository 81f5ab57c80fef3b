"""The daemon's process from its first line to its last: arguments, lock, log, server, signals, clean end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.daemon import footprint
from cuzk_engine.errors import CuzkError, DaemonError

if TYPE_CHECKING:
    from cuzk_engine.client.instance import Instance, InstanceLock
    from cuzk_engine.config import Settings
    from cuzk_engine.daemon.log import DaemonLog
    from cuzk_engine.daemon.server import Server
    from cuzk_engine.daemon.status_page import StatusPage
    from cuzk_engine.daemon.supervisor import Supervisor

log = logging.getLogger("cuzk")

_OPEN_FILES: Final = 1 << 16
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Options:
    """``config``, ``listen``, ``log_level``: "" where not given. ``ready_fd``: where the first words go, -1 for
    nowhere.
    """

    config: str = ""
    listen: str = ""
    log_level: str = ""
    started_by: str = "command line"
    detached: bool = False
    ready_fd: int = -1


class AlreadyRunningError(DaemonError):
    """Another process has the lock."""


def run_daemon(options: Options) -> int:
    """Runs until it is told to end. Raises CuzkError when it cannot start; an exit code otherwise."""
    from cuzk_engine.client.instance import open_standard_streams

    open_standard_streams()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no witness in a core file
    _allow_many_clients()
    from cuzk_engine import config, paths
    from cuzk_engine.client.address import parse_address
    from cuzk_engine.client.instance import InstanceLock, read_lock
    from cuzk_engine.daemon.access import access_for
    from cuzk_engine.daemon.log import DaemonLog

    footprint.configure_malloc(footprint.SUPERVISOR)
    overrides = {"daemon.listen": options.listen, "logging.level": options.log_level}
    settings = config.load(options.config or None, overrides={key: value for key, value in overrides.items() if value})
    address = parse_address(settings.text("daemon.listen"))
    access_for(address, settings)
    lock = InstanceLock.take()
    if lock is None:
        known = read_lock().instance
        raise AlreadyRunningError(
            f"the engine is already running at {known.address} (pid {known.pid})"
            if known
            else "the engine is already starting"
        )
    _end_cleanly_on(signal.SIGTERM, signal.SIGHUP)
    try:
        from cuzk_engine.daemon.server import check_free

        check_free(address)  # before anything that takes long
        # Whoever wants to stop a daemon that is just starting finds it by this.
        lock.write(_instance(options, str(address), "", time.time_ns()))
        daemon_log = DaemonLog(
            paths.log_dir(),
            level=settings.text("logging.level"),
            form=settings.text("logging.format"),
            foreground=not options.detached,
        )
        footprint.keep_no_freed_arrays()
        try:
            return asyncio.run(_serve(options, settings, lock, daemon_log))
        except Exception as error:
            if not isinstance(error, CuzkError):
                log.exception("the daemon ends for a fault of its own")
            raise
        finally:
            daemon_log.close()
    finally:
        lock.release()


async def _serve(options: Options, settings: Settings, lock: InstanceLock, daemon_log: DaemonLog) -> int:
    from cuzk_engine import paths
    from cuzk_engine.build import build_id
    from cuzk_engine.client.address import parse_address
    from cuzk_engine.daemon.access import access_for
    from cuzk_engine.daemon.server import Server
    from cuzk_engine.daemon.store import Store
    from cuzk_engine.daemon.supervisor import Birth, Supervisor

    birth = Birth(build_id(), time.time_ns(), options.started_by, time.monotonic_ns())
    address = parse_address(settings.text("daemon.listen"))
    instance = _instance(options, str(address), birth.build, birth.started_unix_ns)
    lock.write(instance)
    _log_start(settings, instance)
    server = Server(access_for(address, settings))
    store: Store | None = None
    try:
        with _signals_held():  # one that came while it is opened would leave nobody to close it
            store = Store(paths.data_dir() / "jobs.sqlite")
        address = server.bind(address)
        instance = replace(instance, address=str(address))
        lock.write(instance)
        if not address.is_local:
            log.warning("listening on %s, which other machines can reach, with TLS and a token", address)
        supervisor = Supervisor(settings, store, daemon_log, birth, str(address))
        with _Signals(supervisor.request_stop):
            await _run_parts(supervisor, server, lock, instance, options.ready_fd)
    finally:
        await server.stop()
        if store is not None:
            store.close()
    log.info("ended")
    return 0


def _instance(options: Options, address: str, build: str, started_unix_ns: int) -> Instance:
    from cuzk_engine.client.instance import Instance

    return Instance(
        pid=os.getpid(),
        address=address,
        started_unix_ns=started_unix_ns,
        build=build,
        config=os.path.abspath(options.config) if options.config else "",
        listen=options.listen,
        started_by=options.started_by,
    )


async def _run_parts(
    supervisor: Supervisor, server: Server, lock: InstanceLock, instance: Instance, ready: int
) -> None:
    """From the first call that is answered to the last."""
    await server.start(supervisor)
    status_page = await _status_page(supervisor.settings, supervisor)
    supervisor.start()
    followed = asyncio.create_task(_follow_state(supervisor, server, lock, instance, ready))
    try:
        await _until_stopped(supervisor)
    finally:
        await supervisor.stop()
        if status_page is not None:
            await status_page.stop()
        followed.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await followed


async def _status_page(settings: Settings, supervisor: Supervisor) -> StatusPage | None:
    from cuzk_engine.client.address import parse_address
    from cuzk_engine.config import FROM_DEFAULT
    from cuzk_engine.daemon.status_page import StatusPage

    listen = settings.text("daemon.status_listen")
    if not listen:
        return None
    page = StatusPage(supervisor)
    try:
        await page.start(parse_address(listen))
    except DaemonError as error:
        if settings.source("daemon.status_listen") != FROM_DEFAULT:
            raise
        log.warning("no status page: %s", error)  # nobody asked for it at that address
        return None
    return page


async def _until_stopped(supervisor: Supervisor) -> None:
    """Until a stop was asked for and nothing runs any more, or its time is over, or a second request came."""
    await supervisor.stop_requested.wait()
    drained = asyncio.create_task(supervisor.dispatcher.drained())
    hurried = asyncio.create_task(supervisor.stop_now.wait())
    await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
    for task in (drained, hurried):
        task.cancel()


async def _follow_state(
    supervisor: Supervisor, server: Server, lock: InstanceLock, instance: Instance, ready_fd: int
) -> None:
    """Writes each state to the lock's file and to the health service; the first "ready" to whoever started the
    daemon.
    """
    while True:
        changed = supervisor.state_changed
        state = supervisor.state
        with contextlib.suppress(DaemonError):  # a full disk: the file is information only
            lock.write(replace(instance, state=state))
        await server.set_serving(state == "ready")
        if state == "ready":
            log.info("ready at %s", instance.address)
            say_first(ready_fd, {"ready": True, "pid": os.getpid(), "address": instance.address})
            ready_fd = -1
        await changed.wait()


class _Signals:
    """SIGTERM, SIGINT, SIGHUP: the first asks to drain and end, the second to end at once."""

    def __init__(self, request_stop: Callable[..., None]) -> None:
        self._request_stop = request_stop
        self._count = 0

    def __enter__(self) -> None:
        for number in _ENDING_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._heard, number)

    def __exit__(self, *exc: object) -> None:
        for number in _ENDING_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _heard(self, number: int) -> None:
        self._count += 1
        log.info(
            "%s: %s", signal.Signals(number).name, "ending at once" if self._count > 1 else "ending after what runs"
        )
        self._request_stop(drain=self._count == 1)


def _allow_many_clients() -> None:
    """Each connection is an open file, and the usual limit is meant for programs without any."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(most, _OPEN_FILES)
    if now != resource.RLIM_INFINITY and wanted > now:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _log_start(settings: Settings, instance: Instance) -> None:
    log.info("started: pid %d, build %s, by the %s", instance.pid, instance.build, instance.started_by)
    log.info("configuration: %s", settings.path or "none, all defaults")
    for note in settings.notes:
        log.log(logging.INFO if ": used" in note else logging.WARNING, "%s", note)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that end the process wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_cleanly_on(*signals: signal.Signals) -> None:
    """Until the event loop listens for signals, one ends the process as an exit that still gives the lock back."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in signals:
        signal.signal(number, leave)


def say_first(descriptor: int, message: dict[str, Any]) -> None:
    """One JSON line to whoever waits for the daemon's start, then the pipe's end."""
    if descriptor >= 0:
        with contextlib.suppress(OSError):
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        with contextlib.suppress(OSError):
            os.close(descriptor)


def detach() -> None:
    """Goes on in a process that belongs to no session of its starter's and has no parent to collect it."""
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m cuzk_engine.daemon``, as start_daemon and the systemd unit call it."""
    parser = argparse.ArgumentParser(prog="cuzk-daemon", allow_abbrev=False)
    parser.add_argument("--config", default="")
    parser.add_argument("--listen", default="")
    parser.add_argument("--log-level", default="")
    parser.add_argument("--started-by", default="service")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--ready-fd", type=int, default=-1)
    args = parser.parse_args(arguments)
    if args.detach:
        detach()
    options = Options(args.config, args.listen, args.log_level, args.started_by, args.detach, args.ready_fd)
    try:
        return run_daemon(options)
    except CuzkError as error:
        say_first(options.ready_fd, {"error": str(error), "already": isinstance(error, AlreadyRunningError)})
        print(f"cuzk: error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        say_first(options.ready_fd, {"error": f"internal fault: {type(error).__name__}: {error}"})
        raise
