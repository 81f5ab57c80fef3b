"""Two workers on a card with room for one worker's buffers but not two: with a plan ten partitions of ten succeed in
each pre-staging mode, without one an allocation fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.curves import BLS12_381
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.devices.cuda.limit import ENVIRONMENT, read_limit
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Event, Incident
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.groth16.verify import verify
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.admission import Admission
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, Work, modes
from cuzk_engine.pipeline.plan import plan_partition
from cuzk_engine.runner import ProofOutcome, Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.gpu.conftest import KERNELS

PARTITIONS = 10
LONG_S = 120


def settings_of(prestage: Prestage) -> PipelineSettings:
    """As the reference daemon runs: everything travels."""
    return PipelineSettings(prestage, evaluate=Evaluation.HOST, residency=Residency.HOST)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("circuit")
    write_folder(make_circuit("porep:2^14", BLS12_381), folder, seed="test")
    return folder


@pytest.fixture(scope="module")
def room_for_one(folder: Path) -> int:
    """Bytes that hold all of one worker's partition and little of another's inputs. An MSM's memory depends on the
    card's, so the plan is asked for on a card of that size until it stays the same."""
    limit = 1 << 34
    work = Work(KeyCache().get(folder / "circuit.zkey").sizes)
    mode = modes(settings_of(Prestage.AHEAD), "cuda", work)[0]
    for _ in range(8):
        device = CudaDevice(0, KERNELS, limit=limit)
        plan = plan_partition(work, mode, device)
        device.close()
        found = plan.together(1) + plan.inputs // 8
        if found == limit:
            break
        limit = found
    assert plan.together(1) <= limit < plan.together(2) - plan.missing
    return limit


class FirstTime:
    """Holds both workers until both are there, once."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)
        self._seen: set[int] = set()

    def __call__(self, owner: Owner) -> None:
        if owner.worker not in self._seen:
            self._seen.add(owner.worker)
            self._barrier.wait(LONG_S)


class Run:
    """Ten partitions on two workers."""

    def __init__(self, runner: Runner, folder: Path, settings: PipelineSettings) -> None:
        self._runner, self._settings = runner, settings
        self._files = folder / "circuit.zkey", folder / "witness.wtns"
        self._numbers = itertools.count()
        self.outcomes: list[ProofOutcome] = []
        self.errors: list[OutOfDeviceMemoryError] = []
        threads = [threading.Thread(target=self._work, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert not any(thread.is_alive() for thread in threads)

    def _work(self, worker: int) -> None:
        while (number := next(self._numbers)) < PARTITIONS:
            try:
                owner = Owner("ten", number, worker)
                self.outcomes.append(self._runner.prove(*self._files, owner, self._settings))
            except OutOfDeviceMemoryError as error:
                self.errors.append(error)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def device(room_for_one: int, events: list[Event], monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    monkeypatch.setenv(ENVIRONMENT, f"{room_for_one}B")
    device = CudaDevice(0, KERNELS, events.append, read_limit())
    yield device
    device.release_residents()
    memory, committed = device.memory(), device.ledger.committed
    device.close()
    assert set(memory.by_purpose) <= {"context", "ntt"}  # a runner's tables stay
    assert committed == memory.used


def peak(events: list[Event]) -> int:
    running = highest = 0
    for event in events:
        if isinstance(event, Allocation) and event.device == "cuda:0":
            running += event.delta
            highest = max(highest, running)
    return highest


@pytest.mark.parametrize("prestage", Prestage)
def test_ten_proofs_and_no_failed_allocation(
    device: CudaDevice, events: list[Event], folder: Path, prestage: Prestage
) -> None:
    runner = Runner(device, KeyCache(), events.append)
    run = Run(runner, folder, settings_of(prestage))
    assert run.errors == []
    assert len(run.outcomes) == PARTITIONS
    key = VerificationKey.read(folder / "verification_key.json")
    for outcome in run.outcomes:
        verify(key, outcome.public.values, outcome.proof)
    assert not [event for event in events if isinstance(event, Incident)]
    assert device.context_bytes < peak(events) <= device.info.capacity


def test_without_a_plan_the_same_run_fails(device: CudaDevice, events: list[Event], folder: Path) -> None:
    runner = Runner(device, KeyCache(), events.append, admission=Admission.NONE, barrier=FirstTime())
    run = Run(runner, folder, settings_of(Prestage.AHEAD))
    assert run.errors
    assert len(run.outcomes) + len(run.errors) == PARTITIONS
    incidents = [event for event in events if isinstance(event, Incident)]
    assert len(incidents) == len(run.errors)
    assert peak(events) <= device.info.capacity
    picture = incidents[0].picture
    assert picture is not None
    held = {holding.worker for holding in picture.holdings if holding.purpose == "witness"}
    assert held == {0, 1}
    assert sum(holding.bytes for holding in picture.holdings) + picture.free == picture.capacity
    assert ("pipeline.prestage", "ahead") in picture.settings
    assert ("pipeline.prestage", "locked") in {(remedy.key, remedy.value) for remedy in picture.remedies}
