"""Settings, telemetry and the engine's identity."""

import os
import time
from pathlib import Path

import pytest

from cuzk_engine.build import build_id
from cuzk_engine.client import CuzkError, EngineClient, SettingChange
from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from tests.support.daemons import Daemon, Witnesses, finished, running


def value_of(client: EngineClient, key: str, device: str = "") -> tuple[str, str]:
    return next((s.value, s.source) for s in client.settings() if (s.key, s.device) == (key, device))


def test_identity(client: EngineClient, shared_daemon: Daemon) -> None:
    identity = client.identify()
    assert identity.pid == shared_daemon.pid
    assert identity.build == build_id()
    assert identity.state == "ready"
    assert identity.started_by == "test"
    assert identity.address == shared_daemon.address
    assert 0 < time.time_ns() - identity.started_unix_ns < 600 * 10**9
    (device,) = identity.devices
    assert (device.id, device.kind, device.state, device.capacity) == ("cpu", "cpu", "ready", 1 << 30)
    assert os.path.exists(identity.log_path)
    assert client.is_healthy()


def test_a_change_takes_effect_and_is_marked(client: EngineClient, witnesses: Witnesses) -> None:
    before = client.identify().configuration_hash
    with client.telemetry() as stream:
        next(stream)
        client.apply_settings(
            [SettingChange("pipeline.prestage", "off"), SettingChange("pipeline.double_buffer", "false")]
        )
        marks, settings = [], None
        for update in stream:
            marks += [mark.text for mark in update.events.marks]
            settings = update.settings or settings
            if len(marks) >= 2 and settings:
                break
    assert marks == ["pre-staging → off", "double buffering → false"]
    assert {s.key: s.value for s in settings}["pipeline.prestage"] == "off"
    assert value_of(client, "pipeline.prestage") == ("off", "changed while running")
    assert client.identify().configuration_hash != before
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses()))
    assert '"pipeline.double_buffer": "false"' in client.fetch(job.id).proof_json
    client.apply_settings(
        [SettingChange("pipeline.prestage", "ahead"), SettingChange("pipeline.double_buffer", "true")]
    )
    assert client.identify().configuration_hash == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (SettingChange("pipeline.prestage", "sideways"), 'expected one of "off", "locked", "ahead"'),
        (SettingChange("gpus.gpu_workers_per_device", "9"), "expected a whole number from 1 to 8"),
        (SettingChange("gpus.gpu_workers_per_device", "-1"), "expected a whole number from 1 to 8"),
        (SettingChange("gpus.gpu_workers_per_device", "2", "cuda:7"), "unknown device 'cuda:7'; known: cpu"),
        (SettingChange("pipeline.prestage", "off", "cpu"), "has no value of its own for one device"),
        (SettingChange("daemon.listen", "1.2.3.4:5"), "cannot change while the daemon runs"),
        (SettingChange("pipeline.prestige", "off"), "did you mean 'pipeline.prestage'?"),
        (SettingChange("jobs.retention", "a week"), "expected a duration"),
        (SettingChange("memory.total_budget", "900TiB"), 'expected "auto" or at most "'),
        (SettingChange("memory.total_budget", "much"), 'expected "auto" or a size'),
    ],
)
def test_all_or_nothing(client: EngineClient, change: SettingChange, message: str) -> None:
    before = client.settings()
    with pytest.raises(CuzkError) as refusal:
        client.apply_settings([SettingChange("srs.residency", "device"), change])
    assert message in str(refusal.value)
    assert change.key in str(refusal.value)
    assert client.settings() == before


def test_a_budget_of_another_machine_is_obeyed_as_far_as_it_goes(cuzk_home: Path) -> None:
    """The file may come from a larger one, which is no reason not to start."""
    with running(cuzk_home, config='[memory]\ntotal_budget = "900TiB"\n') as daemon, daemon.client() as client:
        assert value_of(client, "memory.total_budget") == ("900TiB", "file")
        (warning,) = [line for line in daemon.log.splitlines() if "memory.total_budget" in line]
        assert "WARNING" in warning.upper()
        assert 'memory.total_budget is "900TiB": there are ' in warning
        client.apply_settings([SettingChange("memory.total_budget", "900TiB")])  # as it is
        client.apply_settings([SettingChange("memory.total_budget", "64MiB")])
        assert value_of(client, "memory.total_budget") == ("64MiB", "changed while running")


def test_telemetry_starts_with_the_state_and_the_past(client: EngineClient, witnesses: Witnesses) -> None:
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses()))
    with client.telemetry(history_ns=60 * 10**9) as stream:
        first = next(stream)
        assert first.identity is not None
        assert {setting.key for setting in first.settings or []} >= {"pipeline.prestage", "cpu.arena"}
        assert first.memory == {}
        assert job.id in {info.id for info in first.jobs}
        assert abs(first.wall_ns - time.time_ns()) < 60 * 10**9
        spans, deltas = [], []
        for update in stream:
            spans += [span for span in update.events.spans if span.job == job.id]
            deltas += [a.delta for a in update.events.allocations if a.job == job.id]
            if len(spans) == 2:
                break
    assert deltas == [1000, -1000]
    assert {span.kind for span in spans} == {"host.evaluate", "lock.held"}


def test_a_reader_can_be_ended_from_another_thread(client: EngineClient) -> None:
    import threading

    stream = client.telemetry()
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(stream))
    reader.start()
    while not seen:
        time.sleep(0.01)
    stream.cancel()
    reader.join(5)
    assert not reader.is_alive()


def test_samples_keep_absent_apart_from_zero(client: EngineClient) -> None:
    with client.telemetry() as stream:
        sample = next(s for update in stream for s in update.events.samples if s.utilisation is not None)
    assert sample.device == "cpu"
    assert sample.memory_used == 0
    assert sample.memory_capacity == 1 << 30
    assert sample.memory_other is None
    assert sample.power is None
    assert sample.pcie_rx is None


def test_plan_and_its_errors(client: EngineClient, witnesses: Witnesses) -> None:
    circuit = client.register_circuit(witnesses.key)
    assert client.plan(circuit_id=circuit.id) == MemoryPlanInfo(
        device="cpu",
        capacity=1 << 30,
        peak=2000,
        fits=True,
        by_purpose={"witness": 2000},
        total=4000,
        free=(1 << 30) - 500,
        others=None,
        workers=2,
        stages={"upload": {"witness": 2000}},
        choices=(
            PlanChoice({"pipeline.prestage": "ahead"}, "", 2000, 4000, True, True),
            PlanChoice({"pipeline.prestage": "off"}, "no upload ahead", 1000, 2000, True, True),
        ),
        chosen=0,
        host_peak=3000,
        host_capacity=1 << 40,
    )


def test_a_plan_as_if_settings_were_others(client: EngineClient, witnesses: Witnesses) -> None:
    before = client.settings()
    off = SettingChange("pipeline.prestage", "off")
    plan = client.plan(key_path=witnesses.key, settings=[off], workers=5)
    assert (plan.peak, plan.workers, plan.total, plan.chosen) == (1000, 5, 5000, 1)
    three = SettingChange("gpus.gpu_workers_per_device", "3", "cpu")
    assert client.plan(key_path=witnesses.key, settings=[three]).workers == 3
    assert client.settings() == before
    for change, message in (
        (SettingChange("pipeline.prestage", "sideways"), 'expected one of "off"'),
        (SettingChange("jobs.retention", "1d"), "makes no difference to a plan"),
        (SettingChange("pipeline.prestige", "off"), "did you mean"),
        (SettingChange("gpus.gpu_workers_per_device", "9"), "from 1 to 8"),
    ):
        with pytest.raises(CuzkError, match=message):
            client.plan(key_path=witnesses.key, settings=[change])
    with pytest.raises(CuzkError, match="from 1 to 8"):
        client.plan(key_path=witnesses.key, workers=9)


def test_a_plan_counts_the_workers_that_have_a_partition_at_once(client: EngineClient, witnesses: Witnesses) -> None:
    off, one_waits = SettingChange("pipeline.enabled", "false"), SettingChange("pipeline.max_gpu_queue_depth", "1")
    for changes, asked, counted in (([off], 0, 1), ([off], 5, 1), ([one_waits], 5, 2), ([one_waits], 1, 1)):
        plan = client.plan(key_path=witnesses.key, settings=changes, workers=asked)
        assert (plan.workers, plan.total) == (counted, 2000 * counted)
    client.apply_settings([off])
    try:
        assert client.plan(key_path=witnesses.key).workers == 1
    finally:
        client.apply_settings([SettingChange("pipeline.enabled", "true")])
    assert client.plan(key_path=witnesses.key).workers == 2


def test_plans_that_cannot_be_made(client: EngineClient, witnesses: Witnesses) -> None:
    assert client.plan(key_path=witnesses.key, device="cpu").fits
    with pytest.raises(CuzkError, match="not in use"):
        client.plan(key_path=witnesses.key, device="cuda:0")
    with pytest.raises(CuzkError, match="a plan needs circuit_id or key_path"):
        client.plan()


def test_workers_of_a_device_that_is_not_there_are_told(cuzk_home: Path) -> None:
    with running(cuzk_home, config='[devices."GPU-7"]\nworkers = 3\n[devices.cpu]\nworkers = 3\n') as daemon:
        told = [line for line in daemon.log.splitlines() if "has no effect" in line]
    assert len(told) == 1
    assert '[devices."GPU-7"] has no effect: this engine has no such device; there is cpu' in told[0]
