"""Devices whose opening hangs: an engine does not wait for one for ever, and says what it waits for meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuzk_engine.client import CuzkError, JobState
from cuzk_engine.client.lifecycle import daemon_status
from cuzk_engine.daemon.watchdog import FIRST_WORD, OPENING, STALLED, Watchdog
from tests.support.daemons import Daemon, Witnesses, finished, running, wait_for

HASTY = "tests.support.hasty_daemon"
CARDS = [[f"GPU-{k}0000000-1111-2222-3333-444444444444", f"0000:0{k}:00.0"] for k in range(2)]


def environment(opening: dict[str, dict[str, object]], cards: int) -> dict[str, str]:
    return {"CUZK_TEST_CARDS": json.dumps(CARDS[:cards]), "CUZK_TEST_OPENING": json.dumps(opening)}


def test_opening_without_progress_is_noticed() -> None:
    dog, seen = Watchdog(), []
    for _ in range(OPENING):
        dog.heard()  # its process lives
        seen.append((dog.is_stalled, dog.is_stalled_for_good))
        dog.look((), ending=False)
    assert seen == [(False, False)] * STALLED + [(True, False)] * (OPENING - STALLED)
    assert (dog.is_stalled_for_good, dog.opening, dog.is_hung) == (True, OPENING, False)


def test_progress_counts_and_so_does_the_first_word() -> None:
    dog = Watchdog()
    for _ in range(FIRST_WORD - 1):
        dog.look((), ending=False)
    assert (dog.is_stalled, dog.is_stalled_for_good) == (True, False)  # its libraries may come from a slow disk
    dog.heard()
    for _ in range(3):
        for _ in range(OPENING - 1):
            dog.heard()
            dog.look((), ending=False)
        assert not dog.is_stalled_for_good
        dog.progressed()
        assert not dog.is_stalled
    dog.opened()
    for _ in range(OPENING):
        dog.heard()
        dog.look((), ending=False)
    assert (dog.is_stalled, dog.is_stalled_for_good, dog.opening) == (False, False, 0)


def test_one_card_that_hangs_holds_up_neither_the_engine_nor_its_jobs(cuzk_home: Path, witnesses: Witnesses) -> None:
    stalled = "opening it has made no progress for"
    with (
        running(cuzk_home, module=HASTY, environment=environment({"cuda:0": {"hang": "always"}}, 2)) as daemon,
        daemon.client() as client,
    ):
        wait_for(lambda: stalled in client.identify().devices[0].reason)
        pinned = client.submit(key_path=witnesses.key, witness_path=witnesses(), device="cuda:0")
        assert client.identify().devices[0].state in ("starting", "restarting")
        free = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses()))
        assert (free.state, free.device) == (JobState.COMPLETED, "cuda:1")
        assert client.job(pinned.id).state is JobState.QUEUED  # it may still come
        last = finished(client, pinned, 60)
        assert last.state is JobState.FAILED
        reason = f"the process of device cuda:0 was ended: {stalled} 3 s (asking what does not answer)"
        assert last.error == f"device cuda:0 does not start: {reason}"
        first = client.identify().devices[0]
        assert (first.state, first.reason) == ("failed", reason)
        with pytest.raises(CuzkError, match="does not start: the process of device cuda:0 was ended"):
            client.submit(key_path=witnesses.key, witness_path=witnesses(), device="cuda:0")
        died = daemon.log.count(reason)
        pid = first.pid
        wait_for(lambda: client.identify().devices[0].pid not in (0, pid), 30)  # it is tried again, and
        wait_for(lambda: client.identify().devices[0].pid == 0, 30)  # fails again,
        assert client.identify().devices[0].state == "failed"
        assert daemon.log.count(reason) == died  # which is no news


def test_a_card_that_hung_once_is_used(cuzk_home: Path, witnesses: Witnesses, tmp_path: Path) -> None:
    opening: dict[str, dict[str, object]] = {"cuda:0": {"hang": str(tmp_path / "hung")}}
    with (
        running(cuzk_home, module=HASTY, environment=environment(opening, 1)) as daemon,
        daemon.client() as client,
    ):
        job = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses()))
        assert (job.state, job.attempts, job.device) == (JobState.COMPLETED, 1, "cuda:0")
        assert client.identify().devices[0].reason == ""


def test_opening_may_take_long_while_it_gets_on(
    cuzk_home: Path, witnesses: Witnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where kernels are compiled: 5 s, though 3 s without progress are a hang here."""
    daemon = Daemon(cuzk_home, module=HASTY, environment=environment({"cuda:0": {"steps": 20}}, 1))
    monkeypatch.setenv("CUZK_HOME", str(cuzk_home))
    try:
        daemon.start(wait=False)
        wait_for(lambda: "device cuda:0 is starting: step " in daemon_status(daemon.address).message, 60)
        wait_for(lambda: daemon_status(daemon.address).state == "ready", 60)
        with daemon.client() as client:
            wait_for(lambda: client.identify().devices[0].state == "ready", 60)
        assert "was ended" not in daemon.log
        daemon.stop()
    finally:
        daemon.close()
