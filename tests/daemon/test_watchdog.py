"""Device processes that hang: they are noticed and ended, and no job waits for them for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import EngineClient, JobState
from cuzk_engine.daemon import device_handle
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.watchdog import DOUBTED, FIRST_WORD, SILENT, SILENT_AT_THE_END, STOPPING, Watchdog
from tests.conftest import ExpectedLogs
from tests.support.daemons import Daemon, Witnesses, finished, running, until, wait_for

HASTY = "tests.support.hasty_daemon"


def test_silence_is_noticed() -> None:
    dog = Watchdog()
    dog.heard()
    seen = []
    for _ in range(SILENT):
        seen.append((dog.is_doubted, dog.is_hung))
        dog.look((), ending=False)
    assert seen == [(False, False)] * DOUBTED + [(True, False)] * (SILENT - DOUBTED)
    assert (dog.is_hung, dog.silent) == (True, SILENT)
    dog.heard()
    assert (dog.is_doubted, dog.is_hung) == (False, False)


def test_the_first_word_may_take_longer_and_the_last_one_less() -> None:
    dog = Watchdog()
    for _ in range(FIRST_WORD - 1):
        dog.look((), ending=False)
    assert (dog.is_doubted, dog.is_hung) == (False, False)
    dog.look((), ending=False)
    assert dog.is_hung
    dog.heard()
    for _ in range(SILENT_AT_THE_END):
        dog.look((), ending=True)
    assert dog.is_hung


def test_what_should_stop_and_does_not_is_named() -> None:
    dog = Watchdog()
    for look in range(STOPPING):
        assert not dog.stuck
        dog.heard()
        dog.look([("a", 0), ("b", look % 2)], ending=False)
    assert dog.stuck == {("a", 0)}


def test_a_process_that_stands_still_costs_no_job(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home, module=HASTY) as daemon, daemon.client() as client:
        job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)), "running")
        os.kill(before := daemon.device_pid(), signal.SIGSTOP)
        wait_for(lambda: "its process has said nothing for" in client.identify().devices[0].reason)
        assert client.identify().devices[0].state == "restarting"
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)
        assert daemon.device_pid() != before
        assert _incidents(client) == ["the process of device cpu said nothing for 6 s and was ended"]


def test_one_that_goes_on_keeps_its_work(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home, module=HASTY) as daemon, daemon.client() as client:
        job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)), "running")
        os.kill(before := daemon.device_pid(), signal.SIGSTOP)
        wait_for(lambda: client.identify().devices[0].state == "restarting")
        behind = client.submit(key_path=witnesses.key, witness_path=witnesses())
        assert client.job(behind.id).state is JobState.QUEUED
        os.kill(before, signal.SIGCONT)
        assert [finished(client, one).attempts for one in (job, behind)] == [1, 1]
        assert daemon.device_pid() == before


def test_a_job_that_hangs_its_process_fails_and_says_why(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home, module=HASTY) as daemon, daemon.client() as client:
        job = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses(stop="always")))
        assert job.state is JobState.FAILED
        assert "said nothing for 6 s and was ended while it ran partition 1 of 1, phase msm, twice" in job.error


def test_a_cancelled_proof_that_does_not_stop_is_ended_alone(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home, module=HASTY) as daemon, daemon.client() as client:
        stuck = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600, block=True))
        beside = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=4))
        for job in (stuck, beside):
            until(client, job, "running")
        assert client.cancel(stuck.id)
        assert finished(client, stuck).state is JobState.CANCELLED
        last = finished(client, beside)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 1)
        assert _incidents(client) == [
            f"the process of device cpu was ended: a proof in it did not stop within {STOPPING} s of being told to"
        ]


def test_the_engine_ends_though_a_process_stands_still(cuzk_home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(cuzk_home, module=HASTY)
    try:
        daemon.start()
        with daemon.client() as client:
            until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600)), "running")
        os.kill(daemon.device_pid(), signal.SIGSTOP)
        daemon.stop()
        database = sqlite3.connect(cuzk_home / "data" / "jobs.sqlite")
        assert database.execute("SELECT state FROM jobs").fetchall() == [("queued",)]
        database.close()
    finally:
        daemon.close()


def test_one_that_cannot_be_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectedLogs
) -> None:
    """As while a call into the driver does not return: not even SIGKILL ends the process then."""
    expected_logs("device cuda:0 is not ready yet: opening it has made no progress for 30 s")
    monkeypatch.setattr(device_handle, "_END_SECONDS", 0.05)
    original = asyncio.create_subprocess_exec
    processes: list[asyncio.subprocess.Process] = []

    async def instead(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        processes.append(await original(sys.executable, "-c", "import time; time.sleep(600)", **options))
        monkeypatch.setattr(processes[-1], "kill", lambda: None)
        return processes[-1]

    class Listener:
        def __init__(self) -> None:
            self.reasons: list[str] = []
            self.heard = asyncio.Event()

        def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
            self.reasons.append(reason)
            self.heard.set()

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: None

    async def check() -> None:
        listener = Listener()
        handle = DeviceHandle("cuda:0", dict, listener, dict, lambda _: 1)
        monkeypatch.setattr(handle, "kill", lambda: None)
        task = asyncio.create_task(handle.run())
        while not handle.pid:
            await asyncio.sleep(0.01)
        for _ in range(FIRST_WORD):
            handle.look((), ending=False)
        while len(listener.reasons) < 2:
            listener.heard.clear()
            await asyncio.wait_for(listener.heard.wait(), 10)
        assert len(processes) == 1
        assert listener.reasons[0] == f"the process of device cuda:0 said nothing for {FIRST_WORD} s and was ended"
        assert listener.reasons[1] == (
            "the process of device cuda:0 could not be started: "
            f"the one before (pid {processes[0].pid}) waits inside the driver and does not end"
        )
        os.kill(processes[0].pid, signal.SIGKILL)
        while len(processes) < 2:
            await asyncio.sleep(0.01)
        await handle.end()
        os.kill(processes[1].pid, signal.SIGKILL)
        await asyncio.wait_for(task, 10)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
    asyncio.run(check())


def _incidents(client: EngineClient) -> list[str]:
    with client.telemetry(history_ns=3600 * 10**9) as stream:
        incidents = next(update.events.incidents for update in stream if update.events.incidents)
    return [incident.message for incident in incidents if incident.kind == "worker-died"]
