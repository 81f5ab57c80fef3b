"""The two ends of a device process: what the supervisor hears when it cannot be told, or when nobody answers."""

import asyncio
import errno
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from cuzk_engine.daemon import channel as channels
from cuzk_engine.daemon.channel import BlockingChannel
from cuzk_engine.daemon.device import EventBuffer, Workers
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.gil import GilWatch
from cuzk_engine.daemon.reports import Reports
from cuzk_engine.daemon.runtime import Order, Outcome

# Says that it is ready, goes deaf, and takes its time to end.
GOES_DEAF = """
import json, socket, struct, sys, time
connection = socket.socket(fileno=int(sys.argv[1]))
body = json.dumps({"type": "ready", "info": {}}).encode()
connection.sendall(struct.pack("<II", len(body), 0) + body)
time.sleep(0.3)
connection.close()
time.sleep(1.5)
"""


class Listener:
    def __init__(self) -> None:
        self.died = asyncio.Event()

    def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
        self.died.set()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def test_a_process_that_is_ending_gets_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    original = asyncio.create_subprocess_exec

    async def instead(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        return await original(sys.executable, "-c", GOES_DEAF, arguments[3], **options)

    async def check() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
        listener = Listener()
        handle = DeviceHandle("cpu", dict, listener, dict, lambda _: 1)
        running = asyncio.create_task(handle.run())
        states = []
        while not listener.died.is_set():
            alive = handle.pid and psutil.pid_exists(handle.pid)
            states.append(
                (handle.is_ready, bool(alive) and psutil.Process(handle.pid).status() != psutil.STATUS_ZOMBIE)
            )
            await asyncio.sleep(0.01)
        await handle.end()
        handle.kill()
        await asyncio.wait_for(running, 10)
        after = states[states.index((True, True)) :]
        assert (False, True) in after  # it lives, and takes no orders

    asyncio.run(check())


class HugeRuntime:
    def prove(self, order: Order, progress: Any, cancel: Any) -> Outcome:
        return Outcome("{}", bytes(2016), [])


def test_a_result_too_large_for_a_message_ends_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(channels, "MAX_BLOB", 1000)
    ours, theirs = socket.socketpair()
    here, there = BlockingChannel(ours), BlockingChannel(theirs)
    ours.settimeout(10)
    try:
        runtime: Any = HugeRuntime()
        workers = Workers(runtime, there, EventBuffer(there), Reports(there), lambda reason: None, GilWatch())
        for job in ("a", "b"):
            workers.start(Order(job, 0, "k", (), "w", {}))
            message = here.receive()
            assert message is not None
            assert (message["type"], message["job"], message["outcome"]) == ("done", job, "failed")
            assert "too large to be delivered" in message["error"]
        workers.limit(0)
        for thread in threading.enumerate():
            if thread.name.startswith("worker "):
                thread.join(10)
    finally:
        here.close()
        there.close()


def test_a_process_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of open files may be reached at that moment, by many clients."""
    refusals = [OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")]

    def no_pair() -> Any:
        raise refusals.pop(0)

    class Heard(Listener):
        def __init__(self) -> None:
            super().__init__()
            self.reasons: list[str] = []
            self.ready = asyncio.Event()

        def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
            self.reasons.append(reason)
            if not refusals:
                monkeypatch.undo()

        def device_changed(self, device: DeviceHandle) -> None:
            if device.is_ready:
                self.ready.set()

    async def check() -> None:
        listener = Heard()
        options = {"arena": "auto", "threads": 1, "evaluation_threads": 1, "budget": "auto", "margin": "1GiB"}
        handle = DeviceHandle("cpu", lambda: {**options, "min_idle": "5m", "processes": 1}, listener, dict, lambda _: 1)
        monkeypatch.setattr(socket, "socketpair", no_pair)
        running = asyncio.create_task(handle.run())
        await asyncio.wait_for(listener.ready.wait(), 60)
        await handle.end()
        await asyncio.wait_for(running, 10)
        assert listener.reasons == [
            "the process of device cpu could not be started: too many open files",
            "the process of device cpu could not be started: can't start new thread",
        ]

    asyncio.run(check())
