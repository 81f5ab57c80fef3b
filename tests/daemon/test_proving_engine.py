"""cuzk.v1.ProvingEngine on the wire, as clients of the reference system use it."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from cuzk_engine.client import CuzkError, EngineClient, SettingChange
from cuzk_engine.client.address import parse_address
from cuzk_engine.proto import cuzk_v1_pb2 as pb
from cuzk_engine.proto import cuzk_v1_pb2_grpc as rpc
from tests.support.daemons import Daemon, Witnesses, finished, until, wait_for

MAX = 256 << 20


@pytest.fixture
def channel(shared_daemon: Daemon) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", MAX), ("grpc.max_send_message_length", MAX + (1 << 20))]
    with grpc.insecure_channel(parse_address(shared_daemon.address).target, options) as connection:
        yield connection


@pytest.fixture
def stub(channel: grpc.Channel) -> rpc.ProvingEngineStub:
    return rpc.ProvingEngineStub(channel)


def code_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    return failure.value.code(), failure.value.details()


def test_a_filecoin_proof_ends_failed_and_says_why(stub: rpc.ProvingEngineStub) -> None:
    for kind in (pb.POREP_SEAL_COMMIT, pb.SNAP_DEALS_UPDATE, pb.WINDOW_POST_PARTITION, pb.WINNING_POST):
        job = stub.SubmitProof(pb.SubmitProofRequest(proof_kind=kind, vanilla_proof=b"x" * 1000))
        assert job.job_id
        ended = stub.AwaitProof(pb.AwaitProofRequest(job_id=job.job_id, timeout_ms=5000))
        assert (ended.job_id, ended.status) == (job.job_id, pb.AwaitProofResponse.FAILED)
        assert ended.error_message.startswith(f"no synthesiser for {pb.ProofKind.Name(kind)} is installed: ")
        assert not ended.proof


def test_prove_is_submit_and_await(stub: rpc.ProvingEngineStub) -> None:
    request = pb.SubmitProofRequest(proof_kind=pb.WINNING_POST, request_id="prove-1")
    result = stub.Prove(pb.ProveRequest(submit=request)).result
    assert result.status == pb.AwaitProofResponse.FAILED
    assert stub.SubmitProof(request).job_id == result.job_id


def test_wrong_arguments(stub: rpc.ProvingEngineStub) -> None:
    code, text = code_of(lambda: stub.SubmitProof(pb.SubmitProofRequest()))
    assert (code, text[:15]) == (grpc.StatusCode.INVALID_ARGUMENT, "proof_kind is 0")
    assert code_of(lambda: stub.SubmitProof(pb.SubmitProofRequest(proof_kind=5)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    bad = pb.SubmitProofRequest(proof_kind=1, priority=9)
    assert code_of(lambda: stub.SubmitProof(bad))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert code_of(lambda: stub.Prove(pb.ProveRequest())) == (grpc.StatusCode.INVALID_ARGUMENT, "submit is missing")
    for call in (stub.AwaitProof, stub.CancelProof):
        request = pb.AwaitProofRequest(job_id="x") if call is stub.AwaitProof else pb.CancelProofRequest(job_id="x")
        assert code_of(lambda call=call, request=request: call(request))[0] is grpc.StatusCode.NOT_FOUND
    for call in (stub.PreloadSRS, stub.EvictSRS):
        name = pb.PreloadSrsRequest if call is stub.PreloadSRS else pb.EvictSrsRequest
        code, text = code_of(lambda call=call, name=name: call(name(circuit_id="porep-32g")))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "'porep-32g' is not registered" in text


def test_await_keeps_to_its_timeout(stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20))
    started = time.monotonic()
    answer = stub.AwaitProof(pb.AwaitProofRequest(job_id=job.id, timeout_ms=300))
    assert answer.status == pb.AwaitProofResponse.TIMEOUT
    assert 0.3 <= time.monotonic() - started < 1.3
    assert client.job(job.id).state == "running"
    waiting = stub.AwaitProof.future(pb.AwaitProofRequest(job_id=job.id))
    assert stub.CancelProof(pb.CancelProofRequest(job_id=job.id)).was_running
    assert waiting.result(10).status == pb.AwaitProofResponse.CANCELLED
    assert not stub.CancelProof(pb.CancelProofRequest(job_id=job.id)).was_running


def test_a_hundred_waiters_and_many_pollers(
    stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon
) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=1.5))
    waiters = [stub.AwaitProof.future(pb.AwaitProofRequest(job_id=job.id)) for _ in range(110)]
    for future in waiters[100:]:
        future.cancel()  # a client that goes away frees its waiter
    times: list[float] = []

    def poll() -> None:
        for _ in range(4):
            start = time.monotonic()
            stub.GetStatus(pb.GetStatusRequest())
            times.append(time.monotonic() - start)

    with ThreadPoolExecutor(50) as pool:
        for _ in range(50):
            pool.submit(poll)
    assert len(times) == 200
    assert sorted(times)[197] < 1.0  # a time-out, not a benchmark
    assert {future.result(20).status for future in waiters[:100]} == {pb.AwaitProofResponse.COMPLETED}
    proofs = {future.result().proof for future in waiters[:100]}
    assert proofs == {client.fetch(job.id).proof_json.encode()}


def test_times_of_a_proof(stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.1))
    answer = stub.AwaitProof(pb.AwaitProofRequest(job_id=job.id))
    assert answer.synthesis_ms == 2
    assert 100 <= answer.gpu_compute_ms <= answer.total_ms + 1


def test_status_counts_queues(stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses) -> None:
    jobs = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(5)]
    for job in jobs[:2]:
        until(client, job, "running")
    status = stub.GetStatus(pb.GetStatusRequest())
    assert [(q.proof_kind, q.pending, q.in_progress) for q in status.queues] == [("circom", 3, 2)]
    assert len(status.gpus) == 0  # the CPU is no card
    for job in jobs:
        client.cancel(job.id)
    for job in jobs:
        finished(client, job)
    assert len(stub.GetStatus(pb.GetStatusRequest()).queues) == 0


def test_metrics_are_valid_and_agree_with_the_status(
    stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses
) -> None:
    finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses()))
    stub.Prove(pb.ProveRequest(submit=pb.SubmitProofRequest(proof_kind=1)))
    text = stub.GetMetrics(pb.GetMetricsRequest()).prometheus_text
    status = stub.GetStatus(pb.GetStatusRequest())
    families = list(text_string_to_metric_families(text))
    samples = {(sample.name, *sample.labels.values()): sample.value for f in families for sample in f.samples}
    assert samples["cuzk_proofs_completed_total",] == status.total_proofs_completed > 0
    assert samples["cuzk_proofs_failed_total",] == status.total_proofs_failed > 0
    assert samples["cuzk_proofs_failed", "POREP_SEAL_COMMIT"] >= 1
    assert samples["cuzk_proofs_completed", "circom"] == status.total_proofs_completed
    assert samples["cuzk_proof_duration_seconds_count", "circom"] == status.total_proofs_completed
    assert samples["cuzk_queue_depth",] == samples["cuzk_running_jobs",] == 0
    assert abs(samples["cuzk_uptime_seconds",] - status.uptime_seconds) <= 1
    for word in ("HELP", "TYPE"):
        names = [line.split()[2] for line in text.splitlines() if line.startswith(f"# {word} ")]
        assert len(names) == len(set(names))


def test_metrics_say_that_a_job_counts_once_however_many_proofs_it_has(
    stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses
) -> None:
    names = ("cuzk_proofs_completed_total", "cuzk_partitions_completed_total")

    def counted() -> list[float]:
        text = stub.GetMetrics(pb.GetMetricsRequest()).prometheus_text
        samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples if not s.labels}
        return [samples[name] for name in names]

    before = counted()
    finished(
        client,
        client.submit(key_path=witnesses.key, witness_path=witnesses(), more_witnesses=[witnesses(), witnesses()]),
    )
    assert [after - earlier for earlier, after in zip(before, counted(), strict=True)] == [1, 3]
    text = stub.GetMetrics(pb.GetMetricsRequest()).prometheus_text
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    of_jobs, of_proofs = (helps[name] for name in names)
    assert of_jobs == "Jobs whose proofs were delivered; cuzk_partitions_completed_total counts the proofs."
    assert of_proofs == "Proofs made: one for each partition of a job."
    for name, said in helps.items():
        if name.startswith("cuzk_proof"):  # the names are older than jobs of several proofs
            assert "jobs" in said.lower(), name


def test_preload_and_evict(stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses) -> None:
    circuit = client.register_circuit(witnesses.key)
    stub.EvictSRS(pb.EvictSrsRequest(circuit_id=circuit.id))
    assert circuit.id not in {s.circuit_id for s in stub.GetStatus(pb.GetStatusRequest()).loaded_srs}
    assert not stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id=circuit.id)).already_loaded
    assert stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id=circuit.id)).already_loaded
    loaded = {s.circuit_id: s for s in stub.GetStatus(pb.GetStatusRequest()).loaded_srs}
    assert loaded[circuit.id].size_bytes == circuit.key_bytes
    assert stub.EvictSRS(pb.EvictSrsRequest(circuit_id=circuit.id)).was_loaded


def test_preloading_follows_the_residency(
    stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses
) -> None:
    circuit = client.register_circuit(witnesses.key)
    stub.EvictSRS(pb.EvictSrsRequest(circuit_id=circuit.id))
    seen = []
    for residency in ("host", "auto"):
        client.apply_settings([SettingChange("srs.residency", residency)])
        stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id=circuit.id))
        status = stub.GetStatus(pb.GetStatusRequest())
        (found,) = [srs for srs in status.loaded_srs if srs.circuit_id == circuit.id]
        seen.append((found.tier, found.ref_count, status.pinned_memory_bytes > 0))
        assert status.pinned_memory_limit_bytes == 8 << 30
    assert seen == [(pb.SRSStatus.HOT, 0, True), (pb.SRSStatus.WARM, 0, False)]
    stub.EvictSRS(pb.EvictSrsRequest(circuit_id=circuit.id))


def test_a_circuit_of_the_parameter_folder_says_what_is_missing(stub: rpc.ProvingEngineStub) -> None:
    code, text = code_of(lambda: stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="snap-32g")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "its .params file and, beside it, its constraint system" in text
    assert "in srs.param_cache (/data/zk/params) there is no such folder" in text


def test_message_sizes(stub: rpc.ProvingEngineStub) -> None:
    def submit(size: int) -> str:
        return stub.SubmitProof(pb.SubmitProofRequest(proof_kind=1, vanilla_proof=bytes(size))).job_id

    assert submit((4 << 20) + 1)
    assert submit(64 << 20)
    code, text = code_of(lambda: submit(MAX + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX) in text
    assert submit(10)


def test_health_and_reflection(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "cuzk.v1.ProvingEngine", "cuzk.engine.v1.Jobs"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = list(reflection.ServerReflectionInfo(iter([request])))
    services = {service.name for service in answer.list_services_response.service}
    assert {"cuzk.v1.ProvingEngine", "cuzk.engine.v1.Control", "grpc.health.v1.Health"} <= services


def test_two_jobs_in_the_same_moment(client: EngineClient, witnesses: Witnesses) -> None:
    start = threading.Barrier(2)
    paths = [witnesses(), witnesses()]

    def submit(path: object) -> str:
        start.wait()
        return finished(client, client.submit(key_path=witnesses.key, witness_path=str(path))).state

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            assert list(pool.map(submit, paths)) == ["completed", "completed"]
    wait_for(lambda: client.identify().jobs_running == 0)


def test_the_largest_numbers_do_no_harm(
    stub: rpc.ProvingEngineStub, client: EngineClient, witnesses: Witnesses
) -> None:
    largest = 2**64 - 1
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.3))
    answer = stub.AwaitProof(pb.AwaitProofRequest(job_id=job.id, timeout_ms=largest))
    assert answer.status == pb.AwaitProofResponse.COMPLETED
    request = pb.SubmitProofRequest(
        proof_kind=1, sector_size=largest, sector_number=largest, miner_id=largest, partition_index=2**32 - 1
    )
    assert stub.Prove(pb.ProveRequest(submit=request)).result.status == pb.AwaitProofResponse.FAILED
    for history in (-(2**63), 2**63 - 1):
        with client.telemetry(history_ns=history) as stream:
            assert next(stream).identity is not None
    assert len(client.jobs(limit=2**32 - 1)) >= 1
    with pytest.raises(CuzkError, match="may have 4096"):
        client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="x" * 5000)
