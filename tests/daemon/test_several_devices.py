"""Several devices of different sizes, all of them fakes: who takes what, and what happens when one fails."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobInfo, JobState, SettingChange
from cuzk_engine.events import Incident
from tests.support.daemons import Witnesses, finished, running, until, wait_for

CARDS = [[f"GPU-{k}0000000-1111-2222-3333-444444444444", f"0000:0{k}:00.0"] for k in range(4)]
CAPACITIES = [1 << 20, 1 << 21, 1 << 22, 1 << 30]


@pytest.fixture
def home(cuzk_home: Path) -> Path:
    return cuzk_home


def environment(count: int) -> dict[str, str]:
    return {"CUZK_TEST_CARDS": json.dumps(CARDS[:count]), "CUZK_TEST_CAPACITIES": json.dumps(CAPACITIES[-count:])}


def submit(client: EngineClient, witnesses: Witnesses, todos: list[dict[str, Any]], **more: Any) -> JobInfo:
    first, *others = [witnesses(**todo) for todo in todos]
    return client.submit(key_path=witnesses.key, witness_path=first, more_witnesses=others, **more)


def devices_of(client: EngineClient, job: JobInfo) -> list[str]:
    result = client.fetch(job.id)
    texts = [proof for proof, _ in result.partitions] or [result.proof_json]
    return [json.loads(text)["device"] for text in texts]


def test_partitions_spread_over_all_devices(home: Path, witnesses: Witnesses) -> None:
    with running(home, environment=environment(4)) as daemon, daemon.client() as client:
        assert [device.id for device in client.identify().devices] == [f"cuda:{k}" for k in range(4)]
        job = finished(client, submit(client, witnesses, [{"seconds": 0.3}] * 16))
        assert job.state is JobState.COMPLETED
        found = Counter(devices_of(client, job))
        assert found.keys() == {f"cuda:{k}" for k in range(4)}
        assert job.device == "cuda:0, cuda:1, cuda:2, cuda:3"


def test_what_is_too_large_for_one_goes_to_another(home: Path, witnesses: Witnesses) -> None:
    with running(home, environment=environment(2)) as daemon, daemon.client() as client:
        small, large = client.identify().devices
        assert small.capacity < large.capacity
        todo = {"needs": small.capacity + 1, "seconds": 0.05}
        job = finished(client, submit(client, witnesses, [todo] * 6))
        assert job.state is JobState.COMPLETED
        assert set(devices_of(client, job)) == {large.id}
        again = finished(client, submit(client, witnesses, [todo] * 4))
        assert (again.state, again.attempts) == (JobState.COMPLETED, 1)  # the small one is not asked again
        too_large = finished(client, submit(client, witnesses, [{"needs": large.capacity + 1}]))
        assert too_large.state is JobState.FAILED
        for device in (small, large):
            assert f"device {device.id}: not enough memory: the proof needs " in too_large.error
        wanted = finished(client, submit(client, witnesses, [todo], device=small.id))
        assert wanted.state is JobState.FAILED
        assert large.id not in wanted.error


def test_a_lost_device_costs_its_process_and_no_job(home: Path, witnesses: Witnesses, tmp_path: Path) -> None:
    with running(home, environment=environment(2)) as daemon, daemon.client() as client:
        before = {device.id: device.pid for device in client.identify().devices}
        todo = {"lost": str(tmp_path / "lost"), "seconds": 0.1}
        job = finished(client, submit(client, witnesses, [todo], device="cuda:0"))
        assert (job.state, job.attempts) == (JobState.COMPLETED, 2)
        wait_for(lambda: {device.state for device in client.identify().devices} == {"ready"})
        after = {device.id: device.pid for device in client.identify().devices}
        assert after["cuda:0"] != before["cuda:0"]
        assert after["cuda:1"] == before["cuda:1"]
        (incident,) = _incidents(client)
        assert (incident.kind, incident.device, incident.job) == ("device-lost", "cuda:0", job.id)
        assert "a kernel read where nothing is" in incident.message
        hopeless = finished(client, submit(client, witnesses, [{"lost": "always"}]))
        assert hopeless.state is JobState.FAILED
        assert "a kernel read where nothing is while it ran partition 1 of 1, phase msm, twice" in hopeless.error


def test_after_a_death_the_other_device_takes_over(home: Path, witnesses: Witnesses) -> None:
    with running(home, environment=environment(2)) as daemon, daemon.client() as client:
        job = until(client, submit(client, witnesses, [{"seconds": 1.0}]), "running")
        pid = next(device.pid for device in client.identify().devices if device.id == job.device)
        os.kill(pid, signal.SIGKILL)
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)
        assert devices_of(client, last) != [job.device]


def test_a_proof_that_does_not_verify_is_tried_once_more_and_counted(
    home: Path, witnesses: Witnesses, tmp_path: Path
) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    path = home / "run" / "status.sock"
    with (
        running(home, environment=environment(2), status_listen=f"unix://{path}") as daemon,
        daemon.client() as client,
    ):
        job = finished(client, submit(client, witnesses, [{"unverified": str(tmp_path / "once")}]))
        assert (job.state, job.attempts) == (JobState.COMPLETED, 2)
        never = finished(client, submit(client, witnesses, [{"unverified": "always"}]))
        assert (never.state, never.attempts) == (JobState.FAILED, 2)
        assert never.error == "proof did not verify: the test said so"
        from tests.daemon.test_status_page import get

        families = text_string_to_metric_families(get(str(path), "/metrics")[2].decode())
        values = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
        assert values["cuzk_partitions_retried_total", "unverified"] == 2


def test_a_budget_too_small_for_all_is_refused(home: Path) -> None:
    with running(home, environment=environment(4)) as daemon, daemon.client() as client:
        with pytest.raises(CuzkError, match="524,288 bytes for each of 4 device processes, expected at least 1MiB"):
            client.apply_settings([SettingChange("memory.total_budget", "2MiB")])
        client.apply_settings([SettingChange("memory.total_budget", "4MiB")])


@pytest.mark.parametrize("name", ["1", "cuda:1", "GPU-10000000", CARDS[1][0].upper(), "00000000:01:00.0", "0000:01:00"])
def test_one_card_has_many_names(home: Path, witnesses: Witnesses, name: str) -> None:
    config = f'[gpus]\ndevices = ["{name}"]\n[devices."{name}"]\nworkers = 5\n'
    with running(home, environment=environment(3), config=config) as daemon, daemon.client() as client:
        (device,) = client.identify().devices
        assert (device.id, device.workers) == ("cuda:1", 5)
        job = finished(client, submit(client, witnesses, [{}], device=name))
        assert devices_of(client, job) == ["cuda:1"]
        client.apply_settings([SettingChange("gpus.gpu_workers_per_device", "3", name)])
        assert client.identify().devices[0].workers == 3
        assert [setting.device for setting in client.settings() if setting.device] == ["cuda:1"]
        with pytest.raises(CuzkError, match="not in use by this engine"):
            submit(client, witnesses, [{}], device="cuda:0")


def _incidents(client: EngineClient) -> list[Incident]:
    with client.telemetry(history_ns=3600 * 10**9) as stream:
        return [*next(stream).events.incidents] or next(u.events.incidents for u in stream if u.events.incidents)
