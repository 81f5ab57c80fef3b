"""Jobs with several witnesses, through a daemon with the fake device."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobInfo, JobState, Priority, SettingChange
from cuzk_engine.client.address import parse_address
from cuzk_engine.proto import cuzk_v1_pb2 as v1
from cuzk_engine.proto import cuzk_v1_pb2_grpc as v1_rpc
from tests.support.daemons import Daemon, Witnesses, finished, running, until, wait_for


@pytest.fixture
def home(cuzk_home: Path) -> Path:
    return cuzk_home


def submit(client: EngineClient, witnesses: Witnesses, todos: list[dict[str, Any]], **more: Any) -> JobInfo:
    first, *others = [witnesses(**todo) for todo in todos]
    return client.submit(key_path=witnesses.key, witness_path=first, more_witnesses=others, **more)


def proofs(client: EngineClient, job: JobInfo) -> list[dict[str, Any]]:
    return [json.loads(proof) for proof, _ in client.fetch(job.id).partitions]


def test_one_proof_a_witness_in_their_order(client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon) -> None:
    job = submit(client, witnesses, [{"seconds": 0.3 - 0.1 * k} for k in range(4)])
    seen = list(client.watch(job.id))
    last = seen[-1]
    assert (last.state, last.partitions, last.partitions_done, last.progress) == (JobState.COMPLETED, 4, 4, 1.0)
    assert [info.progress for info in seen] == sorted(info.progress for info in seen)
    assert [info.partitions_done for info in seen] == sorted(info.partitions_done for info in seen)
    found = proofs(client, last)
    assert [(proof["partition"], proof["partitions"]) for proof in found] == [(k, 4) for k in range(4)]
    assert len({proof["witness"] for proof in found}) == 4
    result = client.fetch(job.id)
    assert (result.proof_json, result.public_json) == result.partitions[0]
    assert last.phases[0].nanoseconds == 4 * 2_000_000
    with grpc.insecure_channel(parse_address(shared_daemon.address).target) as channel:
        answer = v1_rpc.ProvingEngineStub(channel).AwaitProof(v1.AwaitProofRequest(job_id=job.id))
    assert answer.proof.decode() == "".join(proof for proof, _ in result.partitions)
    assert answer.synthesis_ms == 8


def test_a_job_with_one_witness_is_as_before(client: EngineClient, witnesses: Witnesses) -> None:
    job = finished(client, submit(client, witnesses, [{}]))
    assert (job.partitions, job.partitions_done) == (1, 1)
    assert client.fetch(job.id).partitions == ()


def test_a_failing_partition_fails_the_job_and_stops_the_others(client: EngineClient, witnesses: Witnesses) -> None:
    paths = [witnesses(seconds=20), witnesses(error="no luck"), witnesses(seconds=20)]
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=paths[0], more_witnesses=paths[1:]), 10)
    assert (job.state, job.error) == (JobState.FAILED, f"partition 2 of 3 ({paths[1]}): no luck")
    after = submit(client, witnesses, [{}, {}])
    assert finished(client, after, 10).state is JobState.COMPLETED  # the workers are free again


def test_cancel_stops_what_runs_and_what_waits(client: EngineClient, witnesses: Witnesses) -> None:
    job = until(client, submit(client, witnesses, [{"seconds": 20}] * 5), "running")
    assert client.cancel(job.id) is True
    last = finished(client, job, 5)
    assert (last.state, last.partitions_done) == (JobState.CANCELLED, 0)
    assert client.cancel(job.id) is False
    wait_for(lambda: client.identify().jobs_running == 0)
    with client.telemetry() as stream:
        assert next(stream).memory == {}


def test_critical_comes_at_the_next_partition(client: EngineClient, witnesses: Witnesses) -> None:
    long = until(client, submit(client, witnesses, [{"seconds": 0.3}] * 8), "running")
    urgent = submit(client, witnesses, [{}], priority=Priority.CRITICAL)
    assert finished(client, urgent, 10).state is JobState.COMPLETED
    between = client.job(long.id)
    assert not between.state.ended
    last = finished(client, long)
    assert (last.state, last.attempts) == (JobState.COMPLETED, 1)  # and nothing was thrown away for it


def test_partitions_of_several_jobs_interleave(client: EngineClient, witnesses: Witnesses) -> None:
    jobs = [submit(client, witnesses, [{"seconds": 0.05}] * 3) for _ in range(4)]
    assert {finished(client, job).state for job in jobs} == {JobState.COMPLETED}
    for job in jobs:
        assert [proof["partition"] for proof in proofs(client, job)] == [0, 1, 2]


def test_requests_that_make_no_sense(client: EngineClient, witnesses: Witnesses, tmp_path: Path) -> None:
    with pytest.raises(CuzkError, match=r"missing\.wtns"):
        client.submit(
            key_path=witnesses.key, witness_path=witnesses(), more_witnesses=[witnesses(), tmp_path / "missing.wtns"]
        )
    with pytest.raises(CuzkError, match=r"daemon\.allowed_paths"):
        client.submit(key_path=witnesses.key, witness_path=witnesses(), more_witnesses=["/etc/hostname"])
    with pytest.raises(CuzkError, match="the job has 5,001 witnesses, may have 4,096"):
        client.submit(key_path=witnesses.key, witness_path=witnesses(), more_witnesses=[witnesses()] * 5000)


def test_one_request_id_gives_one_job_after_a_restart_too(home: Path, witnesses: Witnesses) -> None:
    name = f"request-{uuid.uuid4()}"
    daemon = Daemon(home)
    try:
        daemon.start()
        with daemon.client() as client:
            first = submit(client, witnesses, [{}, {}], request_id=name)
            finished(client, first)
        daemon.stop()
        daemon.start()
        with daemon.client() as client:
            again = submit(client, witnesses, [{}, {}], request_id=name)
            assert (again.id, again.state, again.partitions_done) == (first.id, JobState.COMPLETED, 2)
            assert len(proofs(client, again)) == 2
        daemon.stop()
    finally:
        daemon.close()


def test_finished_partitions_survive_a_crash(home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(home, config="[gpus]\ngpu_workers_per_device = 1\n")
    try:
        daemon.start()
        with daemon.client() as client:
            job = submit(client, witnesses, [{}, {}, {"seconds": 1.0}, {}])
            wait_for(lambda: client.job(job.id).partitions_done == 2)
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            assert client.job(job.id).partitions_done >= 2
            last = finished(client, job)
            assert (last.state, last.partitions_done) == (JobState.COMPLETED, 4)
            found = proofs(client, last)
        assert [proof["partition"] for proof in found] == [0, 1, 2, 3]
        assert found[0]["pid"] == found[1]["pid"] != found[2]["pid"]  # those that were done are not proved again
        daemon.stop()
    finally:
        daemon.close()


def test_the_status_page_shows_each_partition(home: Path, witnesses: Witnesses) -> None:
    path = home / "run" / "status.sock"
    with running(home, status_listen=f"unix://{path}") as daemon, daemon.client() as client:
        todos = [{}, {"seconds": 20}, {"seconds": 20, "preparing": True}, {}]
        job = submit(client, witnesses, todos, request_id="mine")
        wait_for(lambda: [part["state"] for part in _pipeline(path)["partitions"]] == _STATES)
        shown = _pipeline(path)
        assert (shown["total_partitions"], shown["partitions_done"]) == (4, 1)
        assert [part["index"] for part in shown["partitions"]] == [0, 1, 2, 3]
        assert shown["partitions"][0]["synth_ms"] == 2
        assert shown["partitions"][0]["gpu_ms"] >= 0
        assert shown["partitions"][3]["synth_ms"] is None
        workers = {worker["current_partition"] for worker in _document(path)["gpu_workers"]}
        assert workers == {1, 2}
        client.cancel(job.id)
        finished(client, job)
        assert [part["state"] for part in _pipeline(path)["partitions"]] == ["done", "failed", "failed", "failed"]


_STATES = ["done", "gpu", "synthesizing", "pending"]


def test_the_log_names_partitions(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        finished(client, submit(client, witnesses, [{}, {}], request_id="sector"))
        wait_for(lambda: daemon.stderr.count("GPU_END") == 2)
        lines = [line.split(",", 4) for line in daemon.stderr.splitlines() if line.startswith("TIMELINE,")]
    assert {line[4] for line in lines if line[2] == "SYNTH_START"} == {"partition=0", "partition=1"}
    ends = [line[4] for line in lines if line[2] == "GPU_END"]
    assert {end.split(",")[1] for end in ends} == {"partition=0", "partition=1"}
    assert all(end.startswith("worker=") and ",gpu_ms=" in end for end in ends)


def test_a_process_that_dies_costs_no_finished_partition(home: Path, witnesses: Witnesses) -> None:
    with running(home, config="[gpus]\ngpu_workers_per_device = 1\n") as daemon, daemon.client() as client:
        job = submit(client, witnesses, [{}, {"seconds": 1.0}, {}])
        wait_for(lambda: client.job(job.id).partitions_done == 1)
        os.kill(daemon.device_pid(), signal.SIGKILL)
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)
        found = proofs(client, last)
        assert found[0]["pid"] != found[1]["pid"]


def test_workers_change_while_a_job_runs(client: EngineClient, witnesses: Witnesses) -> None:
    jobs = [submit(client, witnesses, [{"seconds": 0.05}] * 6) for _ in range(3)]
    for count in ("8", "1", "5", "2"):
        client.apply_settings([SettingChange("gpus.gpu_workers_per_device", count)])
    for job in jobs:
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 1)


def test_host_threads_change_without_losing_a_job(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        job = until(client, submit(client, witnesses, [{"seconds": 0.2}] * 4), "running")
        client.apply_settings([SettingChange("gpus.gpu_threads", "3"), SettingChange("synthesis.threads", "2")])
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 1)
        assert proofs(client, last)[-1]["threads"] == [3, 2]


@pytest.fixture
def plain_settings(client: EngineClient) -> Iterator[None]:
    yield
    defaults = {"scheduler.max_batch_size": "1", "pipeline.enabled": "true", "pipeline.max_parallel_synthesis": "18"}
    client.apply_settings([SettingChange(key, value) for key, value in defaults.items()])


@pytest.mark.usefixtures("plain_settings")
def test_settings_of_the_scheduler_take_effect_while_it_runs(client: EngineClient, witnesses: Witnesses) -> None:
    def at_once(todo: dict[str, Any]) -> int:
        jobs = [submit(client, witnesses, [todo]) for _ in range(3)]
        wait_for(lambda: client.job(jobs[0].id).phase != "")
        found = client.identify().jobs_running
        for job in reversed(jobs):
            client.cancel(job.id)
        for job in jobs:
            finished(client, job)
        return found

    assert at_once({"seconds": 20}) == 2
    client.apply_settings([SettingChange("pipeline.enabled", "false")])
    assert at_once({"seconds": 20}) == 1
    client.apply_settings([SettingChange("pipeline.enabled", "true")])
    client.apply_settings([SettingChange("pipeline.max_parallel_synthesis", "1")])
    assert at_once({"seconds": 20, "preparing": True}) == 1
    client.apply_settings([SettingChange("scheduler.max_batch_size", "2")])
    held = submit(client, witnesses, [{}])
    assert client.job(held.id).state is JobState.QUEUED  # for ten seconds, unless another comes
    other = submit(client, witnesses, [{}])
    assert {finished(client, job, 8).state for job in (held, other)} == {JobState.COMPLETED}


def _document(path: Path) -> dict[str, Any]:
    from tests.daemon.test_status_page import get

    found: dict[str, Any] = json.loads(get(str(path), "/status")[2])
    return found


def _pipeline(path: Path) -> dict[str, Any]:
    (entry,) = [entry for entry in _document(path)["pipelines"] if entry["job_id"] == "mine"]
    found: dict[str, Any] = entry
    return found
