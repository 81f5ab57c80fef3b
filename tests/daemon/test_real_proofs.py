"""Real proofs through a real daemon: each small case proves and verifies, each broken file is refused, and the
daemon goes on.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobState
from cuzk_engine.formats.container import Container
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.zkey import ZKEY_SPEC
from cuzk_engine.groth16.verify import verify
from tests.support.cases import BROKEN, TINY_CASES, Case, case
from tests.support.daemons import Daemon, finished, running_alone, until

BROKEN_FILES = [
    path for path in sorted(BROKEN.iterdir()) if path.suffix in (".zkey", ".wtns") and not path.name.startswith("good")
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Daemon]:
    with running_alone(fake=False) as daemon:
        yield daemon


@pytest.fixture
def client(engine: Daemon) -> Iterator[EngineClient]:
    with engine.client() as connection:
        yield connection


@pytest.mark.parametrize("item", TINY_CASES, ids=str)
def test_a_proof_verifies(client: EngineClient, item: Case) -> None:
    job = client.submit(key_path=item.path("circuit.zkey"), witness_path=item.path("witness.wtns"))
    last = finished(client, job)
    assert (last.state, last.error) == (JobState.COMPLETED, "")
    result = client.fetch(job.id)
    assert result.curve == item.snarkjs_curve
    key = VerificationKey.read(item.path("verification_key.json"))
    public = PublicSignals.from_document(json.loads(result.public_json), "public")
    verify(key, public.values, Proof.from_document(json.loads(result.proof_json), "proof"))
    assert json.loads(result.public_json) == item.json("public.json")


@pytest.mark.parametrize("path", BROKEN_FILES, ids=lambda path: path.name)
def test_a_broken_file_is_refused_and_a_good_one_still_proves(client: EngineClient, engine: Daemon, path: Path) -> None:
    pids = (client.identify().pid, client.identify().devices[0].pid)
    key = path if path.suffix == ".zkey" else BROKEN / "good.zkey"
    witness = path if path.suffix == ".wtns" else BROKEN / "good.wtns"
    started = time.monotonic()
    with pytest.raises(CuzkError, match=path.name) as refusal:
        client.submit(key_path=key, witness_path=witness)
    assert time.monotonic() - started < 1.0
    assert "\n" not in str(refusal.value)
    good = client.submit(key_path=BROKEN / "good.zkey", witness_path=BROKEN / "good.wtns")
    assert finished(client, good).state is JobState.COMPLETED
    assert (client.identify().pid, client.identify().devices[0].pid) == pids


def test_a_witness_that_does_not_satisfy_the_circuit(client: EngineClient, tmp_path: Path) -> None:
    item = case("bn128", "mul_pub")
    data = bytearray(item.path("witness.wtns").read_bytes())
    data[-32] ^= 1
    wrong = tmp_path / "wrong.wtns"
    wrong.write_bytes(data)
    job = finished(client, client.submit(key_path=item.path("circuit.zkey"), witness_path=wrong))
    assert job.state is JobState.FAILED
    assert job.error.startswith("proof did not verify: the witness does not satisfy the circuit")


def test_the_key_is_checked_again_when_it_changes_after_acceptance(client: EngineClient, tmp_path: Path) -> None:
    item = case("bn128", "mul_pub")
    key, witness = tmp_path / "key.zkey", tmp_path / "witness.wtns"
    shutil.copy(item.path("circuit.zkey"), key)
    shutil.copy(item.path("witness.wtns"), witness)
    assert finished(client, client.submit(key_path=key, witness_path=witness)).state is JobState.COMPLETED
    data = bytearray(key.read_bytes())
    section = Container.parse(SourceFile.open(key), ZKEY_SPEC).find(5)
    assert section is not None
    data[section.offset + section.size // 2] ^= 1
    key.write_bytes(data)
    job = finished(client, client.submit(key_path=key, witness_path=witness))
    assert job.state is JobState.FAILED
    assert "key.zkey" in job.error


def test_telemetry_of_a_proof(client: EngineClient) -> None:
    item = case("bn128", "chain_252")
    with client.telemetry() as stream:
        first = next(stream)
        assert first.identity is not None
        assert first.settings
        assert first.memory is not None
        job = client.submit(key_path=item.path("circuit.zkey"), witness_path=item.path("witness.wtns"))
        spans, balance, sampled, ended = [], dict(first.memory), False, False
        for update in stream:
            spans += update.events.spans
            sampled = sampled or bool(update.events.samples)
            for allocation in update.events.allocations:
                key = (allocation.device, allocation.purpose)
                balance[key] = balance.get(key, 0) + allocation.delta
                assert balance[key] >= 0
            ended = ended or any(change.id == job.id and change.state.ended for change in update.jobs)
            if sampled and ended:
                break
    mine = [span for span in spans if span.job == job.id]
    assert {"host.verify", "lock.held", "upload.witness"} <= {span.kind for span in mine}
    assert all(span.start_ns <= span.end_ns for span in mine)


def test_memory_plan(client: EngineClient) -> None:
    plan = client.plan(key_path=case("bn128", "chain_252").path("circuit.zkey"))
    assert plan.fits
    assert 0 < plan.peak <= plan.capacity
    assert sum(plan.by_purpose.values()) == plan.peak


def test_evict_then_prove_again(client: EngineClient, engine: Daemon) -> None:
    import grpc

    from cuzk_engine.client.address import parse_address
    from cuzk_engine.proto import cuzk_v1_pb2 as pb
    from cuzk_engine.proto import cuzk_v1_pb2_grpc as rpc

    item = case("bn128", "mul_out")
    circuit = client.register_circuit(item.path("circuit.zkey"), "mul-out")
    with grpc.insecure_channel(parse_address(engine.address).target) as channel:
        stub = rpc.ProvingEngineStub(channel)
        for _ in range(5):
            job = client.submit(circuit_id=circuit.id, witness_path=item.path("witness.wtns"))
            assert finished(client, job).state is JobState.COMPLETED
            assert stub.PreloadSRS(pb.PreloadSrsRequest(circuit_id="mul-out")).already_loaded
            loaded = stub.GetStatus(pb.GetStatusRequest()).loaded_srs
            assert circuit.id in {srs.circuit_id for srs in loaded}
            evicted = stub.EvictSRS(pb.EvictSrsRequest(circuit_id="mul-out"))
            assert (evicted.was_loaded, evicted.freed_bytes) == (True, circuit.key_bytes)
            assert not stub.EvictSRS(pb.EvictSrsRequest(circuit_id="mul-out")).was_loaded


def test_cancelling_real_work_frees_the_device(client: EngineClient) -> None:
    item = case("bn128", "merkle10")
    device = client.identify().devices[0].pid
    os.kill(device, signal.SIGSTOP)  # so that the first two are handed over and none can end before it is cancelled
    try:
        jobs = [
            client.submit(key_path=item.path("circuit.zkey"), witness_path=item.path("witness.wtns")) for _ in range(12)
        ]
        until(client, jobs[0], "running")
        for job in jobs:
            client.cancel(job.id)
    finally:
        os.kill(device, signal.SIGCONT)
    ended = [finished(client, job, 5) for job in jobs]
    assert {job.state for job in ended[2:]} == {JobState.CANCELLED}
    assert finished(client, client.submit(key_path=BROKEN / "good.zkey", witness_path=BROKEN / "good.wtns")).error == ""
    with client.telemetry() as stream:
        first = next(stream)
    left = {purpose: nbytes for (device, purpose), nbytes in (first.memory or {}).items() if device == "cpu"}
    assert set(left) <= {"ntt"}  # the table is kept for the next proof
