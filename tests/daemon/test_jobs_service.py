"""Submitting, following, cancelling and fetching through cuzk.engine.v1."""

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobState, Priority, SettingChange
from tests.support.cases import BROKEN, case
from tests.support.daemons import Daemon, Witnesses, finished, until, wait_for


def test_a_job_runs_to_its_proof(client: EngineClient, witnesses: Witnesses) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.2), label="mine")
    seen = list(client.watch(job.id))
    assert seen[-1].state is JobState.COMPLETED
    assert [info.progress for info in seen] == sorted(info.progress for info in seen)
    assert "msm" in {info.phase for info in seen}
    last = seen[-1]
    assert (last.label, last.curve, last.circuit_name, last.device, last.attempts) == (
        "mine",
        "bn128",
        "mul_pub",
        "cpu",
        1,
    )
    assert last.submitted_unix_ns <= last.started_unix_ns < last.finished_unix_ns
    assert [phase.name for phase in last.phases] == ["evaluate", "msm"]
    assert json.loads(client.fetch(job.id).proof_json)["pipeline.prestage"] == "ahead"
    assert client.job(job.id) == last
    assert client.jobs(limit=1) == [last]


def test_one_request_id_gives_one_job(client: EngineClient, witnesses: Witnesses) -> None:
    name = f"request-{uuid.uuid4()}"
    first = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.3), request_id=name)
    again = client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id=name)
    assert again.id == first.id
    finished(client, first)
    after = client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id=name)
    assert (after.id, after.state) == (first.id, JobState.COMPLETED)


def test_a_request_id_with_other_files_is_an_error(client: EngineClient, witnesses: Witnesses) -> None:
    name, witness = f"request-{uuid.uuid4()}", witnesses()
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=witness, request_id=name))
    (other := witnesses()).write_bytes(witness.read_bytes()[:-1] + b"\1")
    (key := witness.with_name("other.zkey")).write_bytes(witnesses.key.read_bytes() + b"\0")
    for asked, had in (
        ({"key_path": witnesses.key, "witness_path": other}, f"the witness {witness}, not {other}"),
        ({"key_path": key, "witness_path": witness}, f"the key {witnesses.key}, not {key}"),
        ({"circuit_id": "f" * 16, "witness_path": witness}, f"the key {witnesses.key}, not {'f' * 16}"),
        ({"key_path": witnesses.key, "witness_path": witness, "more_witnesses": [witness]}, "1 witness, not 2"),
    ):
        with pytest.raises(CuzkError) as refusal:
            client.submit(request_id=name, **asked)
        assert f"request_id '{name}' is that of job {job.id}, which has " in str(refusal.value)
        assert had in str(refusal.value)
    witness.unlink()  # it comes late
    assert client.submit(key_path=witnesses.key, witness_path=witness, request_id=name).id == job.id
    assert client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id=name).id == job.id


def test_a_request_id_with_another_stream_is_an_error(client: EngineClient, witnesses: Witnesses) -> None:
    """While the witness lies in the spool, and when it has gone."""
    name, witness = f"request-{uuid.uuid4()}", witnesses()
    data = witness.read_bytes()
    blockers = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(2)]
    job = client.submit_stream(data, key_path=witnesses.key, request_id=name)
    (other := witnesses()).write_bytes(data[:-1] + b"\1")
    (key := witness.with_name("other.zkey")).write_bytes(witnesses.key.read_bytes() + b"\0")
    is_that_of = f"request_id '{name}' is that of job {job.id}, which has "

    def check() -> None:
        for stream in (other.read_bytes(), data[:-1], data + b"\0", b"", [bytes(1 << 16)] * 64):
            with pytest.raises(CuzkError) as refusal:
                client.submit_stream(stream, key_path=witnesses.key, request_id=name)
            assert f"{is_that_of}another witness that was streamed, not this one" in str(refusal.value)
        with pytest.raises(CuzkError) as refusal:
            client.submit_stream(data, key_path=key, request_id=name)
        assert f"{is_that_of}the key {witnesses.key}, not {key}" in str(refusal.value)
        with pytest.raises(CuzkError) as refusal:
            client.submit(key_path=witnesses.key, witness_path=other, request_id=name)
        assert f"{is_that_of}a witness that was streamed, not {other}" in str(refusal.value)
        for parts in (data, [data[:7], data[7:]]):
            assert client.submit_stream(parts, key_path=witnesses.key, request_id=name).id == job.id
        assert client.submit(key_path=witnesses.key, witness_path=witness, request_id=name).id == job.id

    check()
    for blocker in blockers:
        client.cancel(blocker.id)
    assert finished(client, job).state is JobState.COMPLETED
    check()


def test_a_stream_is_compared_with_a_file(client: EngineClient, witnesses: Witnesses) -> None:
    name, witness = f"request-{uuid.uuid4()}", witnesses()
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=witness, request_id=name))
    data = witness.read_bytes()
    assert client.submit_stream(data, key_path=witnesses.key, request_id=name).id == job.id
    with pytest.raises(CuzkError, match=f"which has the witness {witness}, not the streamed one"):
        client.submit_stream(data[:-1] + b"\1", key_path=witnesses.key, request_id=name)
    witness.unlink()  # it comes late
    assert client.submit_stream(data, key_path=witnesses.key, request_id=name).id == job.id
    both = client.submit(
        key_path=witnesses.key, witness_path=witnesses(), more_witnesses=[witnesses()], request_id=f"{name}-2"
    )
    with pytest.raises(CuzkError, match="which has 2 witnesses, not 1"):
        client.submit_stream(data, key_path=witnesses.key, request_id=f"{name}-2")
    assert finished(client, both).state is JobState.COMPLETED


def test_other_requests_of_one_id_at_the_same_time(client: EngineClient, witnesses: Witnesses) -> None:
    """One is accepted; the others are told, whichever was quicker."""
    name, data = f"request-{uuid.uuid4()}", witnesses().read_bytes()
    made: dict[int, str] = {}
    refused: list[str] = []
    together = threading.Barrier(8)

    def submit(number: int) -> None:
        def stream() -> Iterator[bytes]:
            yield data[:-1]
            together.wait(30)  # nobody has been accepted yet
            yield bytes([number])

        try:
            made[number] = client.submit_stream(stream(), key_path=witnesses.key, request_id=name).id
        except CuzkError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    (job,) = made.values()
    assert len(refused) == 7
    assert all(f"is that of job {job}, which has another witness" in text for text in refused)
    finished(client, client.job(job))


def test_the_same_request_at_the_same_time_gives_one_job(client: EngineClient, witnesses: Witnesses) -> None:
    name, data = f"request-{uuid.uuid4()}", witnesses().read_bytes()
    ids: list[str] = []

    def submit() -> None:
        ids.append(client.submit_stream(data, key_path=witnesses.key, request_id=name).id)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert finished(client, client.job(ids[0])).state is JobState.COMPLETED


def test_streamed_witness_is_spooled_privately_and_removed(
    client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon
) -> None:
    blocker = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(2)]
    data = witnesses().read_bytes()
    job = client.submit_stream([data[:100], data[100:]], key_path=witnesses.key)
    spool = shared_daemon.home / "run" / "spool"
    (spooled,) = spool.iterdir()
    assert spool.stat().st_mode & 0o777 == 0o700
    assert spooled.stat().st_mode & 0o777 == 0o600
    assert spooled.read_bytes() == data
    for waiting in blocker:
        client.cancel(waiting.id)
    assert finished(client, job).state is JobState.COMPLETED
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize("name", ["empty.wtns", "truncated.wtns", "one_value_short.wtns", "other_prime.wtns"])
def test_a_broken_stream_is_refused_and_leaves_nothing(
    client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon, name: str
) -> None:
    with pytest.raises(CuzkError, match="the streamed witness"):
        client.submit_stream((BROKEN / name).read_bytes(), key_path=witnesses.key)
    with pytest.raises(CuzkError, match="too many for"):
        client.submit_stream((bytes(1 << 19) for _ in range(5)), key_path=witnesses.key)
    spool = shared_daemon.home / "run" / "spool"
    assert not spool.exists() or list(spool.iterdir()) == []


def test_a_spool_that_cannot_be_written_is_told(
    client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon
) -> None:
    spool = shared_daemon.home / "run" / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    spool.rename(spool.with_name("away"))
    try:
        spool.symlink_to("/proc/self/task")  # a folder of the daemon's own user in which nobody can make a file
        with pytest.raises(CuzkError, match="spool: the witness cannot be kept: "):
            client.submit_stream(witnesses().read_bytes(), key_path=witnesses.key)
    finally:
        spool.unlink()
        spool.with_name("away").rename(spool)


def test_cancel_while_waiting(client: EngineClient, witnesses: Witnesses) -> None:
    blockers = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(2)]
    for job in blockers:
        until(client, job, "running")
    waiting = client.submit(key_path=witnesses.key, witness_path=witnesses())
    assert client.job(waiting.id).queue_position == 1
    assert client.cancel(waiting.id) is False
    assert client.job(waiting.id).state is JobState.CANCELLED
    assert client.cancel(waiting.id) is False
    for job in blockers:
        assert client.cancel(job.id) is True
        assert finished(client, job, 5).state is JobState.CANCELLED
        assert client.cancel(job.id) is False
    again = client.submit(key_path=witnesses.key, witness_path=witnesses())
    assert finished(client, again).state is JobState.COMPLETED


def test_unknown_jobs_are_not_found(client: EngineClient) -> None:
    for call in (client.job, client.fetch, client.cancel, lambda name: list(client.watch(name))):
        with pytest.raises(CuzkError, match="'nothing' is unknown"):
            call("nothing")


def test_a_failed_job_has_its_reason_and_no_proof(client: EngineClient, witnesses: Witnesses) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(error="it was told to fail"))
    assert finished(client, job).error == "it was told to fail"
    with pytest.raises(CuzkError, match="has no proof: it failed: it was told to fail"):
        client.fetch(job.id)
    crashed = client.submit(key_path=witnesses.key, witness_path=witnesses(crash="by zero"))
    assert finished(client, crashed).error.startswith("internal fault: ZeroDivisionError: by zero (fake_runtime.py:")


def test_a_hundred_failures_cost_nothing(client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon) -> None:
    pid = shared_daemon.device_pid()
    bad, good = witnesses(crash="again"), witnesses()

    def run_all(path: Path, count: int) -> set[JobState]:
        jobs = [client.submit(key_path=witnesses.key, witness_path=path) for _ in range(count)]
        return {finished(client, job).state for job in jobs}

    def use() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{shared_daemon.pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

    assert run_all(bad, 20) == {JobState.FAILED}
    wait_for(lambda: client.identify().jobs_running == 0)
    before = use()
    assert run_all(bad, 100) == {JobState.FAILED}
    assert run_all(good, 20) == {JobState.COMPLETED}
    assert use() == before
    assert shared_daemon.device_pid() == pid


def test_critical_overtakes_what_waits(client: EngineClient, witnesses: Witnesses) -> None:
    long = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)) for _ in range(5)]
    urgent = client.submit(key_path=witnesses.key, witness_path=witnesses(), priority=Priority.CRITICAL)
    assert client.job(urgent.id).queue_position in (0, 1)
    done = [finished(client, job) for job in (*long, urgent)]
    assert all(job.state is JobState.COMPLETED for job in done)
    starts = [job.started_unix_ns for job in done]
    assert starts[-1] < min(starts[2:-1])


def test_work_in_order_and_none_lost(client: EngineClient, witnesses: Witnesses) -> None:
    jobs = [client.submit(key_path=witnesses.key, witness_path=witnesses()) for _ in range(30)]
    done = [finished(client, job) for job in jobs]
    assert {job.state for job in done} == {JobState.COMPLETED}
    assert len({job.id for job in done}) == 30
    starts = [job.started_unix_ns for job in done]
    assert starts == sorted(starts)


def test_workers_change_while_it_runs(client: EngineClient, witnesses: Witnesses) -> None:
    def running_at_once(count: int) -> int:
        jobs = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(6)]
        wait_for(lambda: client.identify().jobs_running >= count)
        found = client.identify().jobs_running
        for job in reversed(jobs):
            client.cancel(job.id)
        for job in jobs:
            finished(client, job)
        return found

    client.apply_settings([SettingChange("gpus.gpu_workers_per_device", "4")])
    assert client.identify().devices[0].workers == 4
    assert running_at_once(4) == 4
    client.apply_settings([SettingChange("gpus.gpu_workers_per_device", "1", "cpu")])
    assert running_at_once(1) == 1
    client.apply_settings([SettingChange("gpus.gpu_workers_per_device", "2", "cpu")])
    assert running_at_once(2) == 2


def test_files_outside_the_allowed_folders_are_refused(
    client: EngineClient, witnesses: Witnesses, tmp_path: Path
) -> None:
    with pytest.raises(CuzkError, match=r"daemon\.allowed_paths"):
        client.submit(key_path="/etc/hostname", witness_path=witnesses())
    link = tmp_path / "link.wtns"
    link.symlink_to("/etc/hostname")
    with pytest.raises(CuzkError, match=r"daemon\.allowed_paths"):
        client.submit(key_path=witnesses.key, witness_path=link)


def test_names_that_no_message_can_carry_are_refused(
    client: EngineClient, witnesses: Witnesses, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"k\xff.zkey")
    shutil.copy(witnesses.key, odd)
    link = tmp_path / "link.zkey"
    link.symlink_to(odd)
    with pytest.raises(CuzkError, match=r"k\\udcff\.zkey': the name is not UTF-8, which the engine's protocol needs"):
        client.submit(key_path=odd, witness_path=witnesses())
    for attempt in (client.register_circuit, lambda path: client.submit(key_path=path, witness_path=witnesses())):
        with pytest.raises(CuzkError, match=r"link\.zkey: leads to .*k\\udcff\.zkey', whose name is not UTF-8"):
            attempt(link)
    assert client.circuits()
    with client.telemetry() as stream:
        assert next(stream).identity is not None


def test_requests_that_make_no_sense(client: EngineClient, witnesses: Witnesses) -> None:
    with pytest.raises(CuzkError, match="'cuda:3' is not in use by this engine; there is cpu"):
        client.submit(key_path=witnesses.key, witness_path=witnesses(), device="cuda:3")
    with pytest.raises(CuzkError, match="either the path"):
        client.submit(witness_path=witnesses())
    with pytest.raises(CuzkError, match="is not registered"):
        client.submit(circuit_id="0" * 16, witness_path=witnesses())
    with pytest.raises(CuzkError, match="may have 200"):
        client.submit(key_path=witnesses.key, witness_path=witnesses(), label="x" * 201)


def test_circuits_are_known_by_content(client: EngineClient, witnesses: Witnesses, tmp_path: Path) -> None:
    copy = tmp_path / "copy.zkey"
    shutil.copy(witnesses.key, copy)
    first, second = client.register_circuit(witnesses.key), client.register_circuit(copy, "the copy")
    assert first.id == second.id
    assert second.name == "the copy"
    other = client.register_circuit(case("bls12381", "mul_pub").path("circuit.zkey"))
    assert (other.curve, other.n_public) == ("bls12381", 5)
    assert {first.id, other.id} <= {circuit.id for circuit in client.circuits()}
    job = client.submit(circuit_id=first.id, witness_path=witnesses())
    assert finished(client, job).state is JobState.COMPLETED
    used = next(circuit for circuit in client.circuits() if circuit.id == first.id)
    assert time.time_ns() - used.last_used_unix_ns < 60 * 10**9
    client.remove_circuit(other.id)
    with pytest.raises(CuzkError, match="is not registered"):
        client.remove_circuit(other.id)


def test_a_key_replaced_under_its_path_is_noticed(client: EngineClient, witnesses: Witnesses, tmp_path: Path) -> None:
    key = tmp_path / "key.zkey"
    shutil.copy(witnesses.key, key)
    circuit = client.register_circuit(key)
    shutil.copy(case("bn128", "mul_initial").path("circuit.zkey"), key)
    with pytest.raises(CuzkError, match="holds another key than when"):
        client.submit(circuit_id=circuit.id, witness_path=witnesses())
    assert client.submit(key_path=key, witness_path=witnesses()).circuit_id != circuit.id


def test_keys_that_were_replaced_are_not_kept_for_ever(
    client: EngineClient, witnesses: Witnesses, tmp_path: Path
) -> None:
    key = tmp_path / "key.zkey"
    ids = []
    for number in range(12):
        key.write_bytes(witnesses.key.read_bytes() + bytes([number]))  # bytes behind the last section mean nothing
        ids.append(client.submit(key_path=key, witness_path=witnesses()).circuit_id)
    assert len(set(ids)) == 12
    assert [circuit.id for circuit in client.circuits() if circuit.key_path == str(key)] == ids[-5:]
