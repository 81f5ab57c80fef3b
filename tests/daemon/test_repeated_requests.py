"""A request id that comes again: with the same request it gives the same job, with anything else an error."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobInfo
from cuzk_engine.client.address import parse_address
from cuzk_engine.proto import cuzk_v1_pb2 as pb
from cuzk_engine.proto import cuzk_v1_pb2_grpc as rpc
from cuzk_engine.proto.engine_v1_pb2 import SubmitRequest
from cuzk_engine.proto.engine_v1_pb2_grpc import JobsStub
from tests.support.daemons import Daemon, Witnesses, finished

THEN_AND_NOW = "as it was then, not as it is now: give a new job an id of its own"


@pytest.fixture
def name() -> str:
    return f"request-{uuid.uuid4()}"


@pytest.fixture
def channel(shared_daemon: Daemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(parse_address(shared_daemon.address).target) as connection:
        yield connection


@pytest.fixture
def stub(channel: grpc.Channel) -> rpc.ProvingEngineStub:
    return rpc.ProvingEngineStub(channel)


def other_bytes(path: Path) -> bytes:
    """As many as in the file, but others."""
    data = path.read_bytes()
    return data[:-1] + bytes([data[-1] ^ 1])


def refused(call: Callable[[], object], job: JobInfo, had: str) -> None:
    with pytest.raises(CuzkError) as refusal:
        call()
    assert f"request_id '{job.request_id}' is that of job {job.id}, which has {had}" in str(refusal.value)


def refused_v1(call: Callable[[], object], job_id: str, had: str) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        call()
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"is that of job {job_id}, which has {had}" in refusal.value.details()


def test_a_witness_that_was_made_anew(client: EngineClient, witnesses: Witnesses, name: str) -> None:
    """Under its path, while its job waits and when it has ended."""
    witness, seconds = witnesses(), {"seconds": 20}
    before, other = witness.read_bytes(), other_bytes(witness)
    blockers = [client.submit(key_path=witnesses.key, witness_path=witnesses(**seconds)) for _ in range(2)]
    job = client.submit(key_path=witnesses.key, witness_path=witness, request_id=name)

    def submit() -> JobInfo:
        return client.submit(key_path=witnesses.key, witness_path=witness, request_id=name)

    def check() -> None:
        witness.write_bytes(other)
        refused(submit, job, f"the witness {witness} {THEN_AND_NOW}")
        witness.write_bytes(before)  # copied once more
        assert submit().id == job.id
        shutil.copy2(witness, copied := witness.with_suffix(".copy"))
        copied.rename(witness)
        assert submit().id == job.id

    check()
    for blocker in blockers:
        client.cancel(blocker.id)
    finished(client, job)
    check()


def test_one_of_several_witnesses_was_made_anew(client: EngineClient, witnesses: Witnesses, name: str) -> None:
    first, second = witnesses(), witnesses()

    def submit() -> JobInfo:
        return client.submit(key_path=witnesses.key, witness_path=first, more_witnesses=[second], request_id=name)

    job = finished(client, submit())
    assert submit().id == job.id
    second.write_bytes(other_bytes(second))
    refused(submit, job, f"the witness {second} {THEN_AND_NOW}")


def test_a_key_that_was_made_anew(
    client: EngineClient, channel: grpc.Channel, witnesses: Witnesses, name: str, tmp_path: Path
) -> None:
    key, witness = Path(shutil.copy(witnesses.key, tmp_path / "mine.zkey")), witnesses()

    def submit(key_path: Path = key) -> JobInfo:
        return client.submit(key_path=key_path, witness_path=witness, request_id=name)

    job = finished(client, submit())
    key.write_bytes(other_bytes(key))
    refused(submit, job, f"the key {key} {THEN_AND_NOW}")
    shutil.copy(witnesses.key, key)
    assert submit().id == submit(witnesses.key).id == job.id
    assert client.submit(circuit_id=job.circuit_id, witness_path=witness, request_id=name).id == job.id
    client.remove_circuit(job.circuit_id)
    assert submit().id == job.id
    key.unlink()  # it comes late
    assert submit().id == job.id
    refused(lambda: submit(tmp_path / "none.zkey"), job, f"the key {key}, not {tmp_path / 'none.zkey'}")
    (other := tmp_path / "other.zkey").write_bytes(other_bytes(witnesses.key))
    refused(lambda: submit(other), job, f"the key {key}, not {other}")
    asked = SubmitRequest(request_id=name, witness_path=str(witness))
    with pytest.raises(grpc.RpcError, match="a job needs circuit_id or key_path"):
        JobsStub(channel).Submit(asked)


def test_other_files_once_the_first_have_gone(client: EngineClient, witnesses: Witnesses, name: str) -> None:
    witness, same, other, none = witnesses(), witnesses(), witnesses(), witnesses()
    other.write_bytes(other_bytes(other))

    def submit(path: Path) -> JobInfo:
        return client.submit(key_path=witnesses.key, witness_path=path, request_id=name)

    job = finished(client, submit(witness))
    witness.unlink()
    none.unlink()
    refused(lambda: submit(other), job, f"the witness {witness}, not {other}")
    refused(lambda: submit(none), job, f"the witness {witness}, not {none}")
    assert submit(witness).id == submit(same).id == job.id
    data = other.read_bytes()
    stream = {"key_path": witnesses.key, "request_id": name}
    refused(lambda: client.submit_stream(data, **stream), job, f"the witness {witness}, not the streamed one")
    assert client.submit_stream(same.read_bytes(), **stream).id == job.id


def test_an_id_of_the_other_service(
    client: EngineClient, stub: rpc.ProvingEngineStub, witnesses: Witnesses, name: str
) -> None:
    witness = witnesses()
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=witness, request_id=name))
    asked = pb.SubmitProofRequest(proof_kind=pb.WINNING_POST, request_id=name, vanilla_proof=b"x")
    refused_v1(lambda: stub.SubmitProof(asked), job.id, "the kind circom, not WINNING_POST")
    refused_v1(lambda: stub.Prove(pb.ProveRequest(submit=asked)), job.id, "the kind circom, not WINNING_POST")
    asked.request_id = name = f"{name}-2"
    job = finished(client, client.job(stub.SubmitProof(asked).job_id))
    had, common = "the kind WINNING_POST, not circom", {"key_path": witnesses.key, "request_id": name}
    refused(lambda: client.submit(witness_path=witness, **common), job, had)
    refused(lambda: client.submit_stream(witness.read_bytes(), **common), job, had)


def test_other_inputs_of_cuzk_v1(stub: rpc.ProvingEngineStub, name: str) -> None:
    inputs = {"vanilla_proof": b"abc", "vanilla_proofs": [b"a", b"bc"], "sector_number": 7, "comm_r_old": b"r"}
    asked = pb.SubmitProofRequest(proof_kind=pb.WINNING_POST, request_id=name, **inputs)
    job = stub.SubmitProof(asked).job_id
    kind = pb.SubmitProofRequest(proof_kind=pb.POREP_SEAL_COMMIT, request_id=name, **inputs)
    refused_v1(lambda: stub.SubmitProof(kind), job, "the kind WINNING_POST, not POREP_SEAL_COMMIT")
    for change in (
        {"vanilla_proof": b"abd"},
        {"vanilla_proof": b""},
        {"vanilla_proofs": [b"ab", b"c"]},
        {"sector_number": 8},
        {"miner_id": 1},
        {"comm_r_old": b"", "comm_r_new": b"r"},
    ):
        other = pb.SubmitProofRequest(proof_kind=pb.WINNING_POST, request_id=name, **(inputs | change))
        refused_v1(lambda other=other: stub.SubmitProof(other), job, "other inputs, not these")
        refused_v1(lambda other=other: stub.Prove(pb.ProveRequest(submit=other)), job, "other inputs, not these")
    asked.priority = pb.HIGH  # is no part of what is proved
    assert stub.SubmitProof(asked).job_id == stub.Prove(pb.ProveRequest(submit=asked)).result.job_id == job


def test_what_is_known_after_a_restart(cuzk_home: Path, witnesses: Witnesses) -> None:
    """Kind, circuit, and each witness by its file, while that is as it was."""
    kept, moved, made_anew, gone = witnesses(), witnesses(), witnesses(), witnesses()
    first, daemon = {}, Daemon(cuzk_home)
    inputs = {"request_id": "v1", "vanilla_proof": b"x"}
    try:
        daemon.start()
        with daemon.client() as client:
            for path in (kept, moved, made_anew, gone):
                job = client.submit(key_path=witnesses.key, witness_path=path, request_id=path.name)
                first[path] = finished(client, job)
            stream = {"key_path": witnesses.key, "request_id": "streamed"}
            streamed = finished(client, client.submit_stream(kept.read_bytes(), **stream))
            with grpc.insecure_channel(parse_address(daemon.address).target) as channel:
                asked = pb.SubmitProofRequest(proof_kind=pb.WINNING_POST, **inputs)
                v1 = rpc.ProvingEngineStub(channel).SubmitProof(asked).job_id
        daemon.stop()
        gone.unlink()
        shutil.copy2(moved, moved_to := moved.with_name("moved.wtns"))
        moved.unlink()
        made_anew.write_bytes(other_bytes(made_anew))
        (other := witnesses()).write_bytes(other_bytes(other))
        daemon.start()
        with daemon.client() as client:

            def submit(path: Path, job: JobInfo, key: Path = witnesses.key) -> JobInfo:
                return client.submit(key_path=key, witness_path=path, request_id=job.request_id)

            for path in (kept, gone, moved):  # the same request, also when it comes late
                assert submit(path, first[path]).id == first[path].id
            assert submit(witnesses(), first[kept]).id == first[kept].id  # compared with the first file
            refused(lambda: submit(other, first[kept]), first[kept], f"the witness {kept}, not {other}")
            refused(lambda: submit(kept, first[kept], other), first[kept], f"the key {witnesses.key}, not {other}")
            refused(
                lambda: submit(made_anew, first[made_anew]), first[made_anew], f"the witness {made_anew} {THEN_AND_NOW}"
            )
            had = f"the witness {gone}, not {other}"
            refused(lambda: submit(other, first[gone]), first[gone], had)
            had = f"the witness {moved}, not {moved_to}"
            refused(lambda: submit(moved_to, first[moved]), first[moved], had)
            late = {"key_path": witnesses.key, "request_id": first[gone].request_id}
            had = f"the witness {gone}, not the streamed one"
            refused(lambda: client.submit_stream(kept.read_bytes(), **late), first[gone], had)
            data = kept.read_bytes()
            for same in (data, other_bytes(kept)):  # only the size of a stream is known
                assert client.submit_stream(same, **stream).id == streamed.id
            for longer in (data[:-1], data + b"\0"):
                had = "another witness that was streamed, not this one"
                refused(lambda longer=longer: client.submit_stream(longer, **stream), streamed, had)
            refused(lambda: submit(kept, streamed), streamed, f"a witness that was streamed, not {kept}")
            with grpc.insecure_channel(parse_address(daemon.address).target) as channel:
                stub = rpc.ProvingEngineStub(channel)
                assert stub.SubmitProof(asked).job_id == v1
                kind = pb.SubmitProofRequest(proof_kind=pb.POREP_SEAL_COMMIT, **inputs)
                refused_v1(lambda: stub.SubmitProof(kind), v1, "the kind WINNING_POST, not POREP_SEAL_COMMIT")
        daemon.stop()
    finally:
        daemon.close()
