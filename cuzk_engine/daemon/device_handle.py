"""The supervisor's side of one device process: starts it, speaks with it, starts it again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from cuzk_engine.client.types import DeviceDescription
from cuzk_engine.daemon.channel import AsyncChannel, Message
from cuzk_engine.daemon.gil import GilCounts
from cuzk_engine.daemon.queue import PartId
from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.restarts import Restarts
from cuzk_engine.daemon.runtime import HostUse, KeyState
from cuzk_engine.daemon.watchdog import STOPPING, Watchdog
from cuzk_engine.errors import DaemonError

log = logging.getLogger("cuzk")

_END_SECONDS: Final = 2.0
_RENEWED: Final = "its settings changed"


class DeviceAwayError(DaemonError):
    """No process of the device answers now: it starts, starts anew, or has just died."""


class Refusal(Enum):
    """Whether a process refused to start, and whether it would refuse again."""

    NONE = "none"
    FOR_NOW = "for now"
    FINAL = "final"


class DeviceListener(Protocol):
    """Who hears of a device process."""

    def device_changed(self, device: DeviceHandle) -> None: ...
    def device_renewed(self, device: DeviceHandle) -> None: ...
    def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None: ...
    def device_failed(self, device: DeviceHandle, reason: str) -> None: ...
    def partition_progress(self, device: DeviceHandle, message: Message) -> None: ...
    async def partition_done(self, device: DeviceHandle, message: Message, public: bytes) -> None: ...
    def events(self, device: DeviceHandle, columns: bytes) -> None: ...


class DeviceHandle:
    """One device. ``options`` are what its process is started with, ``settings`` gives the pipeline's settings as
    texts, ``count_workers`` the number of workers; both are asked each time they are needed."""

    def __init__(
        self,
        device: str,
        options: Callable[[], Mapping[str, Any]],
        listener: DeviceListener,
        settings: Callable[[], Mapping[str, str]],
        count_workers: Callable[[DeviceHandle], int],
    ) -> None:
        self.id = device
        self.state = "starting"
        self.reason = ""
        self.pid = 0
        self.info: dict[str, Any] = {}
        self.loaded: dict[str, KeyState] = {}  # by path, as its process last said
        self.host = HostUse()  # likewise
        self.gil = GilCounts()
        self.blamed: frozenset[PartId] | None = None  # for what its process was ended; None: it died of itself
        self._options = options
        self._listener = listener
        self._settings = settings
        self._count_workers = count_workers
        self._channel: AsyncChannel | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._ending = asyncio.Event()
        self._has_options = False  # a process has been given them, and has not ended yet
        self._renewing = False
        self._is_told_to_end = False
        self._is_lost = False
        self._was_ready = False
        self._sent_workers = 0
        self._is_told_stalled = False
        self._step = ""  # of opening the device, as its process last said
        self._watchdog = Watchdog()
        self._verdict = ""
        self._remains: asyncio.subprocess.Process | None = None

    @property
    def is_ready(self) -> bool:
        return self.state == "ready" and not self._renewing

    @property
    def has_failed(self) -> bool:
        """Whether nothing should wait for it."""
        return self.state == "failed"

    @property
    def is_awaited(self) -> bool:
        """Whether it is being opened for the first time, and is likely to be ready soon."""
        return self.state == "starting" and not self._watchdog.is_stalled

    @property
    def workers(self) -> int:
        return self._count_workers(self)

    @property
    def keys(self) -> Collection[str]:
        return self.loaded

    def description(self) -> DeviceDescription:
        info = self.info
        return DeviceDescription(
            id=self.id,
            name=info.get("name", ""),
            kind=info.get("kind", self.id.partition(":")[0]),
            capacity=info.get("capacity", 0),
            capacity_source=info.get("capacity_source", ""),
            uuid=info.get("uuid", ""),
            bus_id=info.get("bus_id", ""),
            isa=info.get("isa", ""),
            workers=self.workers,
            state=self.state,
            reason=self.reason,
            pid=self.pid,
            inert_settings=tuple(info.get("inert_settings", ())),
        )

    # ---- the process ----

    async def run(self) -> None:
        """Keeps the process alive until ``end``."""
        restarts, clock = Restarts(), asyncio.get_running_loop().time
        while not self._ending.is_set():
            started = clock()
            was_ready, refusal, reason = await self._run_once()
            if self._ending.is_set():
                break
            if self._renewing and self._is_told_to_end:
                self.state, self.reason, self.pid = "restarting", _RENEWED, 0
                self._listener.device_renewed(self)
                continue
            restarts.ended(started, clock(), was_ready=was_ready, is_final=refusal is Refusal.FINAL)
            is_known = self.has_failed and not was_ready  # one that never opens is told of once
            is_news = reason != self.reason or (restarts.is_hopeless and not self.has_failed)
            self.state, self.reason, self.pid = "failed" if restarts.is_hopeless else "restarting", reason, 0
            if refusal is Refusal.NONE and not is_known:
                self._listener.device_died(self, reason, lost=self._is_lost)
            elif is_news and not restarts.is_hopeless:
                log.warning("device %s does not start: %s; it is tried again", self.id, reason)
            if restarts.is_hopeless:
                if is_news:
                    log.error("device %s does not start: %s", self.id, reason)
                self._listener.device_failed(self, reason)
            self._listener.device_changed(self)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), restarts.pause)

    async def end(self) -> None:
        """Ends the process; what it does is lost."""
        self._ending.set()
        if self._channel is not None:
            self._channel.send({"type": "end"})

    def renew(self) -> None:
        """A setting that a process has for life changed: no new jobs for this one; ``renew_when_idle`` ends it. One
        that is still starting ends as soon as it has."""
        self._renewing = self._has_options

    def renew_when_idle(self, is_busy: bool) -> None:
        """Ends a process that is to be renewed once nothing runs in it."""
        if self._renewing and self.state == "ready" and not is_busy and self._channel is not None:
            self._is_told_to_end = True
            self._channel.send({"type": "end"})

    def kill(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def look(self, stopping: Collection[PartId], *, ending: bool) -> None:
        """Called once a second: ends a process that hangs. ``stopping``: what it was told to stop, and has not."""
        if self._channel is None or self._verdict:
            return
        dog = self._watchdog
        dog.look(stopping, ending=ending)
        if dog.is_hung:
            self._condemn(f"the process of device {self.id} said nothing for {dog.silent} s and was ended")
        elif dog.is_stalled_for_good:
            self._condemn(f"the process of device {self.id} was ended: {self._stalled()}")
        elif dog.stuck:
            self.blamed = dog.stuck
            why = f"a proof in it did not stop within {STOPPING} s of being told to"
            self._condemn(f"the process of device {self.id} was ended: {why}")
        elif dog.is_doubted and self._was_ready and not self._is_lost:
            is_news = self.state == "ready"
            self.state, self.reason = "restarting", f"its process has said nothing for {dog.silent} s"
            if is_news:
                log.warning("device %s: %s; it gets no new work until it does", self.id, self.reason)
            self._listener.device_changed(self)
        elif dog.is_stalled and self.state == "starting":
            if not self._is_told_stalled:
                log.warning("device %s is not ready yet: %s", self.id, self._stalled())
            self._is_told_stalled, self.reason = True, self._stalled()
            self._listener.device_changed(self)

    def _stalled(self) -> str:
        return (
            f"opening it has made no progress for {self._watchdog.opening} s ({self._step or 'nothing was said yet'})"
        )

    def _condemn(self, verdict: str) -> None:
        self._verdict = verdict
        # It takes no orders any more; one that nothing waits for is not waited for again.
        self.state, self.reason = "failed" if self.has_failed else "restarting", verdict
        self.kill()
        if self._channel is not None:  # one that waits inside the driver does not end yet, and is not waited for
            asyncio.get_running_loop().call_later(_END_SECONDS, self._channel.close)

    def _heard(self) -> None:
        was_doubted = self._watchdog.is_doubted
        self._watchdog.heard()
        if was_doubted and self._was_ready and not (self._verdict or self._is_lost):
            self.state, self.reason = "ready", ""
            self._listener.device_changed(self)

    async def _run_once(self) -> tuple[bool, Refusal, str]:
        """Whether it became ready, whether it refused to start, and why it ended."""
        self._has_options, self._renewing, self._is_told_to_end = True, False, False
        self.blamed = None
        try:
            await self._bury()
            process, channel = await self._launch()
        except (OSError, RuntimeError) as error:  # there are no more files, processes or threads
            self._has_options = False
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            return False, Refusal.NONE, f"the process of device {self.id} could not be started: {reason}"
        self.pid = process.pid
        self._sent_workers = 0
        self._is_lost = self._was_ready = False
        self._watchdog, self._verdict, self._step, self._is_told_stalled = Watchdog(), "", "", False
        self._channel = channel
        if self._ending.is_set():
            channel.send({"type": "end"})
        refusal, reason = await self._listen(channel)
        if self._was_ready:
            self.state = "restarting"  # it may take a while to end, and takes no orders any more
        self.loaded, self.host = {}, HostUse()
        self._channel = None
        channel.close()
        self._fail_calls()
        code = await self._wait_ended(process)
        self._has_options = False
        return self._was_ready, refusal, self._verdict or reason or _ended(self.id, code)

    async def _listen(self, channel: AsyncChannel) -> tuple[Refusal, str]:
        """Until its end: whether it refused to start, and why it ended, where that is known."""
        refusal, reason = Refusal.NONE, ""
        try:
            while (received := await channel.receive()) is not None:
                message, blob = received
                self._heard()
                if message["type"] == "refused":
                    refusal, reason = Refusal.FINAL if message["final"] else Refusal.FOR_NOW, message["reason"]
                elif message["type"] == "lost":
                    reason, self._is_lost = message["reason"], True
                    self.state, self.reason = "restarting", reason  # and takes no orders any more
                elif message["type"] == "done":  # the next message, or the process's end, is not heard of before
                    await self._listener.partition_done(self, message, blob)
                else:
                    self._handle(message, blob)
        except Exception as error:  # a message that is none
            log.exception("device %s sent what was not understood", self.id)
            reason = f"the process of device {self.id} sent what was not understood: {error}"
        return refusal, reason

    async def _bury(self) -> None:
        """Two processes are never on one device. Raises RuntimeError while the one before has not ended."""
        if self._remains is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._remains.wait(), _END_SECONDS)
            if self._remains.returncode is None:
                raise RuntimeError(f"the one before (pid {self._remains.pid}) waits inside the driver and does not end")
            self._remains = None

    async def _launch(self) -> tuple[asyncio.subprocess.Process, AsyncChannel]:
        """A new process, and the channel to it."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cuzk_engine.daemon.device",
                str(theirs.fileno()),
                self.id,
                str(os.getpid()),
                json.dumps(dict(self._options())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                # The variable is in the options already; beside them it would hide later changes of cpu.arena.
                env={name: value for name, value in os.environ.items() if name != "CUZK_CPU_ARENA"},
            )
            return process, await AsyncChannel.over(ours)
        except BaseException:
            ours.close()  # so a process that there is already ends too
            raise
        finally:
            theirs.close()

    async def _wait_ended(self, process: asyncio.subprocess.Process) -> int:
        """Its exit code; that of SIGKILL for one that is being killed and does not end."""
        for kill in (process.kill, lambda: None):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), _END_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                kill()
        self._remains = process
        return -signal.SIGKILL

    def _handle(self, message: Message, blob: bytes) -> None:
        match message["type"]:
            case "ready":
                self.info = message["info"]
                self._watchdog.opened()
                self.state, self.reason, self._was_ready = "ready", "", True
                self._listener.device_changed(self)
            case "opening":
                self._watchdog.progressed()
                self._step = message["step"]
                if self.state == "starting":
                    self.reason = self._step
                    self._listener.device_changed(self)
            case "progress":
                self._listener.partition_progress(self, message)
            case "gil":
                self.gil.add(message["samples"], message["held"])
            case "events":
                self._listener.events(self, blob)
            case "answer":
                future = self._calls.pop(message["call"], None)
                if future is not None and not future.done():
                    if "error" in message:
                        future.set_exception(DaemonError(message["error"]))
                    else:
                        future.set_result(message["value"])

    # ---- orders ----

    def start(self, job: JobRecord, part: Partition, worker: int) -> None:
        self._send(
            {
                "type": "prove",
                "job": job.id,
                "worker": worker,
                "key_path": job.key_path,
                "key_identity": job.key_identity,
                "witness_path": part.witness_path,
                "settings": dict(self._settings()),
                "partition": part.number,
                "partitions": job.partitions,
                "reduced": part.reduced,
            }
        )

    def cancel(self, job_id: str, number: int) -> None:
        self._send({"type": "cancel", "job": job_id, "partition": number})

    def workers_changed(self) -> None:
        """Tells the process to end threads that are not needed any more."""
        if self.is_ready and self.workers != self._sent_workers:
            self._sent_workers = self.workers
            self._send({"type": "workers", "count": self.workers})

    async def call(self, action: str, **arguments: Any) -> Any:
        """Asks the process and waits for the answer. Raises DaemonError; DeviceAwayError where nobody answers."""
        if self._renewing and self.state == "ready":
            raise DeviceAwayError(f"device {self.id} is restarting: {_RENEWED}")
        if not self.is_ready or self._channel is None:
            raise DeviceAwayError(f"device {self.id} is {self.state}: {self.reason or 'its process is not ready'}")
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"type": action, "call": number, **arguments})
            return await future
        finally:
            self._calls.pop(number, None)

    def _send(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _fail_calls(self) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(DeviceAwayError(f"the process of device {self.id} died"))
        self._calls.clear()


def _ended(device: str, code: int) -> str:
    if code < 0:
        try:
            how = f"was killed by signal {signal.Signals(-code).name}"
        except ValueError:
            how = f"was killed by signal {-code}"
    else:
        how = f"ended with code {code}"
    return f"the process of device {device} {how}"
