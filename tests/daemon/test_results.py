"""Results with very many public signals: beside the event loop on their way in and out, and all can be fetched."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobState
from cuzk_engine.client.address import parse_address
from cuzk_engine.client.convert import proofs_from_wire
from cuzk_engine.client.types import CircuitInfo
from cuzk_engine.daemon import results as module
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.proving_engine import ProvingEngine
from cuzk_engine.daemon.records import CircuitRecord, JobRecord, Kept, Partition
from cuzk_engine.daemon.refusal import RefusedError
from cuzk_engine.daemon.repetition import Repetition
from cuzk_engine.daemon.results import PAGE_BYTES, Results
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.services import JobsService
from cuzk_engine.daemon.store import Store
from cuzk_engine.formats.proof import PublicSignals
from cuzk_engine.proto import cuzk_v1_pb2 as v1
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.proto import engine_v1_pb2_grpc as rpc
from tests.conftest import ExpectedLogs
from tests.support.daemons import Daemon, Witnesses, finished

LARGE = (bytes([7]) * 31 + b"\x20") * 20_000
SMALL = bytes(32)


class Device:
    id = "cpu"
    is_ready = True
    has_failed = False
    workers = 8
    keys = ()

    def start(self, job: JobRecord, part: Partition, worker: int) -> None: ...
    def cancel(self, job_id: str, number: int) -> None: ...


class Setup:
    """A manager with its results, and what was made on which side."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ended: list[str] = []
        self.manager = JobManager(
            store, policy=Policy(), changed=lambda job: None, settle=lambda job: self.ended.append(job.id)
        )
        self.manager.dispatcher.add_device(Device())
        self.results = Results(store, self.manager)

    async def prove(self, job: str, number: int, public: bytes) -> tuple[str, str] | Kept:
        proof = await self.results.take(job, number, f"proof {number}", public)
        self.manager.dispatcher.completed("cpu", (job, number), proof, [])
        return proof

    async def proved(self, name: str, public: bytes, count: int = 1) -> JobRecord:
        self.manager.accept(JobRecord(name, curve="bn128", parts=[Partition(k) for k in range(count)]))
        for number in range(count):
            await self.prove(name, number, public)
        job = self.manager.get(name)
        assert job.state is JobState.COMPLETED
        return job


def with_setup(tmp_path: Path, check: Callable[[Setup], Awaitable[None]]) -> None:
    async def run() -> None:
        store = Store(tmp_path / "jobs.sqlite")
        try:
            await check(Setup(store))
        finally:
            store.close()

    asyncio.run(run())


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """What was made → for each time, whether it was on the thread of the event loop, which is this one."""
    seen: dict[str, list[bool]] = {}
    here = threading.get_ident()

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def instead(*arguments: Any, **options: Any) -> Any:
            seen.setdefault(name, []).append(threading.get_ident() == here)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, instead)

    watch(PublicSignals, "to_json")
    for name in ("_keep", "_page", "_whole"):
        watch(module, name)
    return seen


def test_a_large_result_is_made_written_and_read_beside_the_loop(
    tmp_path: Path, on_loop: dict[str, list[bool]]
) -> None:
    async def check(setup: Setup) -> None:
        statements: list[str] = []
        setup.store._database.set_trace_callback(statements.append)
        job = await setup.proved("a", LARGE, 3)
        await setup.results.page(job, 0)
        await setup.results.whole(job)
        setup.store._database.set_trace_callback(None)
        assert on_loop == {"to_json": [False] * 3, "_keep": [False] * 3, "_page": [False], "_whole": [False]}
        assert not [text for text in statements if "results" in text]
        assert max(map(len, statements)) < 10_000
        text = PublicSignals.from_bytes(LARGE).to_json()
        assert setup.manager.proofs(job) == [(f"proof {number}", text) for number in range(3)]
        assert setup.manager.get("a").result_bytes == 3 * (len("proof 0") + len(text))

    with_setup(tmp_path, check)


def test_a_small_result_takes_no_way_through_another_thread(tmp_path: Path, on_loop: dict[str, list[bool]]) -> None:
    async def check(setup: Setup) -> None:
        job = await setup.proved("a", SMALL, 2)
        page, whole = await setup.results.page(job, 1), await setup.results.whole(job)
        assert on_loop == {"to_json": [True] * 2, "_page": [True], "_whole": [True]}
        assert [part.proof_json for part in page.partitions] == ["proof 1"]
        assert page.next == 0
        assert (whole.proof_json, whole.partitions[1].public_json) == ("proof 0", '[\n "0"\n]')

    with_setup(tmp_path, check)


def test_ends_are_told_in_the_order_in_which_the_device_told_them(expected_logs: ExpectedLogs) -> None:
    told: list[str] = []

    class Listener:
        async def partition_done(self, device: DeviceHandle, message: dict[str, Any], public: bytes) -> None:
            for _ in range(3 if public else 0):  # as one that is being written
                await asyncio.sleep(0)
            told.append(message["job"])

        def partition_progress(self, device: DeviceHandle, message: dict[str, Any]) -> None:
            told.append("progress")

    class Channel:
        messages = (
            ({"type": "done", "job": "large"}, LARGE),
            ({"type": "done", "job": "small"}, b""),
            ({"type": "progress"}, b""),
        )

        def __init__(self) -> None:
            self._rest = iter(self.messages)

        async def receive(self) -> Any:
            return next(self._rest, None)

    async def check() -> None:
        device = DeviceHandle("cpu", dict, Listener(), dict, lambda handle: 1)  # type: ignore[arg-type]
        await device._listen(Channel())  # type: ignore[arg-type]
        told.append("died")

    asyncio.run(check())
    assert told == ["large", "small", "progress", "died"]


def test_a_result_that_cannot_be_written_ahead_waits_with_its_job(tmp_path: Path, expected_logs: ExpectedLogs) -> None:
    expected_logs("job a is proved and waits until the job store can be written", level=logging.ERROR)

    async def check(setup: Setup) -> None:
        setup.manager.accept(JobRecord("a"))
        setup.store._database.execute("PRAGMA query_only = ON")
        path = module._connection
        module._connection = lambda _: path(tmp_path / "absent" / "jobs.sqlite")  # type: ignore[assignment]
        try:
            assert await setup.prove("a", 0, LARGE) == ("proof 0", PublicSignals.from_bytes(LARGE).to_json())
        finally:
            module._connection = path
        assert setup.ended == []
        setup.store._database.execute("PRAGMA query_only = OFF")
        setup.manager.housekeeping(10**18, 100)
        assert setup.ended == ["a"]
        page = await setup.results.page(setup.manager.get("a"), 0)
        assert page.partitions[0].public_json == PublicSignals.from_bytes(LARGE).to_json()

    with_setup(tmp_path, check)


def test_a_result_of_a_job_that_has_ended_is_not_kept(tmp_path: Path) -> None:
    async def check(setup: Setup) -> None:
        setup.manager.accept(JobRecord("a"))
        job = setup.manager.get("a")
        setup.manager.end(job, JobState.CANCELLED)
        await setup.prove("a", 0, LARGE)
        assert setup.store.proofs(job) == {}
        setup.manager.housekeeping(-(10**18), 0)  # and nothing is left of one that was dropped
        module._keep(tmp_path / "jobs.sqlite", (job.order, 0), "proof", LARGE)
        assert setup.store.proofs(job) == {}

    with_setup(tmp_path, check)


def test_results_go_with_their_job(tmp_path: Path) -> None:
    async def check(setup: Setup) -> None:
        job = await setup.proved("a", LARGE)
        size = len(setup.store.proofs(job)[0][1])
        setup.store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        setup.manager.housekeeping(-(10**18), 0)
        ((_, pages, _),) = setup.store._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        assert 0 < pages * 4096 < size / 4  # it is not written anew to be dropped
        assert setup.store.proofs(job) == {}
        with pytest.raises(sqlite3.DatabaseError, match="the result of partition 1 of job a is missing"):
            await setup.results.page(job, 0)

    with_setup(tmp_path, check)


def test_await_proof_reads_no_public_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(setup: Setup) -> None:
        await setup.proved("a", LARGE, 3)
        statements: list[str] = []
        connection = module._connection

        def traced(path: Path) -> sqlite3.Connection:
            database = connection(path)
            database.set_trace_callback(statements.append)
            return database

        monkeypatch.setattr(module, "_connection", traced)
        setup.store._database.set_trace_callback(statements.append)
        manager = setup.manager
        supervisor = SimpleNamespace(
            jobs=manager, dispatcher=manager.dispatcher, results=setup.results, repetition=Repetition()
        )
        monkeypatch.setattr("cuzk_engine.daemon.proving_engine.Metrics", lambda supervisor: None)
        engine = ProvingEngine(supervisor)  # type: ignore[arg-type]
        for few in (64, 2):  # on the loop, and beside it
            monkeypatch.setattr(module, "_FEW_PROOFS", few)
            answer = await engine.AwaitProof(v1.AwaitProofRequest(job_id="a"), None)
            assert answer.proof == b"proof 0proof 1proof 2"
        assert len([text for text in statements if "proof_json" in text]) == 2
        assert not [text for text in statements if "public_json" in text]

    with_setup(tmp_path, check)


def test_a_result_too_large_for_one_message_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(setup: Setup) -> None:
        job = await setup.proved("a", LARGE, 7)
        wanted = setup.manager.proofs(job)
        monkeypatch.setattr(module, "MAX_MESSAGE", 3 << 20)
        with pytest.raises(RefusedError, match="the result of job a is larger than the 3 MiB of one answer: fetch it"):
            await setup.results.whole(job)
        found: list[tuple[str, str]] = []
        first, pages = 0, 0
        while first or not pages:
            page = await setup.results.page(job, first)
            assert page.ByteSize() < PAGE_BYTES + len(wanted[0][1]) + 1000
            found += [(part.proof_json, part.public_json) for part in page.partitions]
            first, pages = page.next, pages + 1
        assert (found, pages) == (wanted, 3)
        with pytest.raises(RefusedError, match="has 7 partitions: there is none from 7 on"):
            await setup.results.page(job, 7)

    with_setup(tmp_path, check)


def test_a_circuit_with_more_public_signals_than_can_be_delivered_is_refused() -> None:
    circuit = CircuitInfo("c", "n", "/k.zkey", "bn128", 1 << 22, 2_097_153, 1 << 22, 1, 0)

    async def find(name: str) -> CircuitRecord:
        return CircuitRecord(circuit, ())

    supervisor = SimpleNamespace(
        jobs=SimpleNamespace(draining=False, find_request=lambda request_id: None),
        repetition=Repetition(),
        devices=SimpleNamespace(find=lambda name: SimpleNamespace(id="cpu", state="ready")),
        circuits=SimpleNamespace(find=find),
    )
    looking = JobsService(supervisor)._look_at(pb.SubmitRequest(circuit_id="c", device="cpu"))  # type: ignore[arg-type]
    with pytest.raises(
        RefusedError, match=r"^/k\.zkey: the circuit has 2,097,153 public signals, .* up to 2,097,152: "
    ):
        asyncio.run(looking)


def test_a_large_result_through_the_daemon(client: EngineClient, witnesses: Witnesses, shared_daemon: Daemon) -> None:
    count = 40_000
    paths = [witnesses(signals=count) for _ in range(3)]
    job = finished(client, client.submit(key_path=witnesses.key, witness_path=paths[0], more_witnesses=paths[1:]))
    assert job.state is JobState.COMPLETED
    result = client.fetch(job.id)
    for number, (proof, public) in enumerate(result.partitions):
        assert f'"partition": {number}' in proof
        value = int.from_bytes(bytes([number + 1]) * 31 + b"\x20", "little")
        assert public == PublicSignals((value,) * count).to_json()
    assert list(client.fetch_each(job.id)) == list(result.partitions)
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(parse_address(shared_daemon.address).target, options) as channel:
        fetch = rpc.JobsStub(channel).Fetch
        page = fetch(pb.FetchRequest(id=job.id, first=1), timeout=60)
        whole = fetch(pb.FetchRequest(id=job.id), timeout=60)
    assert (len(page.partitions), page.next, page.curve) == (2, 0, "bn128")
    assert [(part.proof_json, part.public_json) for part in whole.partitions] == list(result.partitions)
    assert (whole.proof_json, whole.public_json) == result.partitions[0]
    with pytest.raises(CuzkError, match="is unknown"):
        client.fetch("no-such-job")


def test_what_an_engine_without_pages_sends_is_understood() -> None:
    several = [pb.PartitionProof(proof_json=text, public_json="[]") for text in "ab"]
    one = pb.Proof(proof_json="a", public_json="[]")
    assert proofs_from_wire(one) == [("a", "[]")]
    assert proofs_from_wire(pb.Proof(proof_json="a", public_json="[]", partitions=several)) == [
        ("a", "[]"),
        ("b", "[]"),
    ]
    assert not one.next
    assert pb.FetchRequest(id="x").SerializeToString() == pb.JobRequest(id="x").SerializeToString()
