"""Starts that fail are tried again for a while, and jobs wait for that; unless waiting cures nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import JobState
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.restarts import PATIENCE, Restarts
from tests.support.daemons import Witnesses, finished, running


def test_the_pauses_grow_and_patience_ends() -> None:
    restarts, now, pauses = Restarts(), 1000.0, []
    while not restarts.is_hopeless:
        restarts.ended(now, now + 0.1, was_ready=False)
        pauses.append(restarts.pause)
        now += 0.1 + restarts.pause
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert PATIENCE <= sum(pauses[:-1]) < PATIENCE + 20
    restarts.ended(now, now + 1, was_ready=True)
    assert not restarts.is_hopeless


def test_starts_that_take_long_are_tried_more_than_once() -> None:
    restarts = Restarts()
    hopeless = []
    for number in range(3):
        restarts.ended(number * 300.0, number * 300.0 + 299, was_ready=False)
        hopeless.append(restarts.is_hopeless)
    assert hopeless == [False, False, True]


def test_what_waiting_does_not_cure_is_said_at_once() -> None:
    restarts = Restarts()
    restarts.ended(0.0, 0.1, was_ready=False, is_final=True)
    assert restarts.is_hopeless
    assert restarts.pause >= 5


def test_a_process_that_lived_begins_the_pauses_anew() -> None:
    restarts, pauses = Restarts(), []
    for lived in (1.0, 1.0, 1.0, 100.0):
        restarts.ended(0.0, lived, was_ready=True)
        pauses.append(restarts.pause)
    assert pauses[3] == pauses[0] < pauses[1] < pauses[2]


def test_jobs_wait_for_a_device_that_others_use(cuzk_home: Path, witnesses: Witnesses, tmp_path: Path) -> None:
    (busy := tmp_path / "busy").touch()
    with running(cuzk_home, environment={"CUZK_TEST_BUSY": str(busy)}) as daemon, daemon.client() as client:
        device = client.identify().devices[0]
        assert (device.state, device.reason) == ("restarting", "device cpu: all of it is in use")
        job = client.submit(key_path=witnesses.key, witness_path=witnesses())
        assert client.job(job.id).state is JobState.QUEUED
        busy.unlink()
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 1)
        assert "worker-died" not in daemon.log


def test_a_process_that_is_killed_as_it_starts_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    original, count = asyncio.create_subprocess_exec, 0

    async def instead(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        nonlocal count
        count += 1
        if count <= 4:
            return await original("/bin/sh", "-c", "kill -KILL $$", **options)
        return await original(*arguments, **options)

    class Listener:
        def __init__(self) -> None:
            self.died: list[str] = []
            self.failed: list[str] = []
            self.ready = asyncio.Event()

        def device_died(self, device: DeviceHandle, reason: str, *, lost: bool) -> None:
            self.died.append(reason)

        def device_failed(self, device: DeviceHandle, reason: str) -> None:
            self.failed.append(reason)

        def device_changed(self, device: DeviceHandle) -> None:
            if device.is_ready:
                self.ready.set()

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: None

    async def check() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
        options = {"arena": "auto", "threads": 1, "evaluation_threads": 1, "budget": "auto", "margin": "1GiB"}
        listener = Listener()
        handle = DeviceHandle("cpu", lambda: {**options, "min_idle": "5m", "processes": 1}, listener, dict, lambda _: 1)
        task = asyncio.create_task(handle.run())
        await asyncio.wait_for(listener.ready.wait(), 60)
        await handle.end()
        await asyncio.wait_for(task, 10)
        assert listener.failed == []
        assert listener.died == ["the process of device cpu was killed by signal SIGKILL"] * 4

    asyncio.run(check())
