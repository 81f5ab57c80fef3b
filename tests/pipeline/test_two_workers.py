"""Two workers on a device with room for one worker's buffers but not two.

Without a plan both allocate before they have the device, and one of them fails. With it none does, whatever the
pre-staging.
"""

import threading

import pytest

from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Incident
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.groth16.plan import Query
from cuzk_engine.groth16.verify import verify
from cuzk_engine.pipeline.admission import Admission, Meeting
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, Work, modes
from cuzk_engine.pipeline.plan import plan_partition
from cuzk_engine.settings import WORKERS_KEY
from tests.support.bench import GIB, Bench
from tests.support.card import Card
from tests.support.cases import case

ITEM = case("bn128", "merkle10")
PARTITIONS = 10
LONG_S = 120


def settings_of(prestage=Prestage.AHEAD):
    """Where points can travel, they do."""
    return PipelineSettings(prestage, evaluate=Evaluation.HOST, residency=Residency.HOST)


def bench_of(kind, capacity=GIB, **options):
    events = []
    device = Card(capacity, events.append, parallel=2) if kind == "card" else None
    return Bench(capacity, device, events, **options)


def room_for_one(kind="cpu"):
    """Bytes that hold all of one worker's partition and little of another's inputs."""
    bench = bench_of(kind)
    sizes = bench.runner.keys.get(ITEM.path("circuit.zkey")).sizes
    work = Work(sizes)
    plan = plan_partition(work, modes(settings_of(), bench.device.info.kind, work)[0], bench.device)
    capacity = plan.together(1) + plan.inputs // 8
    assert plan.together(1) <= capacity < plan.together(2) - plan.missing  # even without the table, which would go
    return capacity


class FirstTime:
    """Holds both workers until both are there, once."""

    def __init__(self):
        self._barrier = threading.Barrier(2)
        self._seen = set()

    def __call__(self, owner):
        if owner.worker not in self._seen:
            self._seen.add(owner.worker)
            self._barrier.wait(LONG_S)


def run(bench, settings):
    """Ten partitions on two workers: proofs and errors."""
    outcomes, errors, numbers = [], [], iter(range(PARTITIONS))
    lock = threading.Lock()

    def work(worker):
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            files = ITEM.path("circuit.zkey"), ITEM.path("witness.wtns")
            try:
                outcomes.append(bench.runner.prove(*files, Owner("ten", number, worker), settings))
            except OutOfDeviceMemoryError as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes, errors


def peak(bench):
    running = highest = 0
    for event in bench.events:
        if isinstance(event, Allocation) and event.device == "cpu":
            running += event.delta
            highest = max(highest, running)
    return highest


@pytest.mark.parametrize("kind", ["cpu", "card"])
@pytest.mark.parametrize("prestage", Prestage)
def test_ten_proofs_and_no_failed_allocation(kind, prestage):
    bench = bench_of(kind, room_for_one(kind))
    outcomes, errors = run(bench, settings_of(prestage))
    assert errors == []
    key = VerificationKey.read(ITEM.path("verification_key.json"))
    assert len(outcomes) == PARTITIONS
    for outcome in outcomes:
        verify(key, outcome.public.values, outcome.proof)
    assert not [event for event in bench.events if isinstance(event, Incident)]
    assert 0 < peak(bench) <= bench.device.info.capacity
    bench.assert_nothing_is_held()


class HandedOver(Card):
    """Worker 0's last sum ends when worker 1's first one was launched."""

    def __init__(self, capacity, sink):
        super().__init__(capacity, sink, parallel=2)
        self.launched = [0, 0]
        self.last, self.next = threading.Event(), threading.Event()

    def launch(self, operation, owner, cancel, after=None):
        done = super().launch(operation, owner, cancel, after)
        if not isinstance(operation, Msm) or owner.job == "warm":
            return done
        self.launched[owner.worker] += 1
        if self.launched == [len(Query), 0]:
            self.last.set()
            return Until(self.next, done)
        if self.launched[1]:
            self.next.set()
        return done


class Until:
    def __init__(self, event, done):
        self._event, self._done = event, done

    def wait(self):
        assert self._event.wait(LONG_S)
        self._done.wait()


@pytest.mark.parametrize("prestage", Prestage)
def test_a_sum_under_way_counts_beside_the_next_worker(prestage):
    """The peak of two workers is in the plan, where there is room for the lock to be given up early."""
    events = []
    card = HandedOver(GIB, events.append)
    bench = Bench(GIB, card, events)
    settings = PipelineSettings(prestage, evaluate=Evaluation.HOST, residency=Residency.DEVICE)
    files = ITEM.path("circuit.zkey"), ITEM.path("witness.wtns")
    bench.runner.prove(*files, Owner("warm", 0, 0), settings)
    before = peak(bench)
    one, two = (bench.runner.report(files[0], settings, workers).total for workers in (1, 2))
    assert before <= one
    first = threading.Thread(target=bench.runner.prove, args=(*files, Owner("one", 0, 0), settings))
    first.start()
    assert card.last.wait(LONG_S)
    bench.runner.prove(*files, Owner("two", 0, 1), settings)
    first.join(LONG_S)
    assert not first.is_alive()
    assert one < peak(bench) <= two


def test_without_a_plan_the_same_run_fails():
    bench = Bench(capacity=room_for_one(), admission=Admission.NONE, barrier=FirstTime())
    outcomes, errors = run(bench, PipelineSettings())
    assert errors
    assert len(outcomes) + len(errors) == PARTITIONS
    incidents = [event for event in bench.events if isinstance(event, Incident)]
    assert len(incidents) == len(errors)
    assert peak(bench) <= bench.device.info.capacity
    bench.assert_nothing_is_held()

    picture = incidents[0].picture
    assert {holding.worker for holding in picture.holdings if holding.purpose == "witness"} == {0, 1}
    assert sum(holding.bytes for holding in picture.holdings) + picture.free == picture.capacity
    assert picture.purpose in ("witness", "abc", "msm")
    assert ("pipeline.prestage", "ahead") in picture.settings
    assert {holding.purpose for holding in picture.host} == {"abc"}
    assert incidents[0].time_ns - picture.since_ns >= 10 * 10**9
    found = {(remedy.key, remedy.value) for remedy in picture.remedies}
    assert {("pipeline.prestage", "locked"), (WORKERS_KEY, "1")} <= found
    assert all(0 < r.peak <= picture.capacity for r in picture.remedies if r.key != "cpu.arena")
    assert errors[0].reduced == 1  # once more, with pre-staging locked

    # What it advises cures it, still without a plan.
    cured = Bench(capacity=room_for_one(), admission=Admission.NONE, barrier=FirstTime())
    first = picture.remedies[0]
    outcomes, errors = run(cured, PipelineSettings(Prestage(first.value)))
    assert (first.key, len(outcomes), errors) == ("pipeline.prestage", PARTITIONS, [])


def test_the_hook_is_read_from_the_environment(monkeypatch, expected_logs):
    expected_logs("CUZK_TEST_NO_PLAN is set")
    monkeypatch.setenv("CUZK_TEST_NO_PLAN", "1")
    bench = Bench(capacity=room_for_one())
    _, errors = run(bench, PipelineSettings())
    assert errors
    bench.assert_nothing_is_held()
    monkeypatch.setenv("CUZK_TEST_NO_PLAN", "0")
    assert run(Bench(capacity=room_for_one()), PipelineSettings())[1] == []


def test_a_meeting_waits_for_nobody_for_ever():
    meeting = Meeting(seconds=0.01)
    for _ in range(3):
        meeting(Owner("alone", 0, 0))


def test_a_worker_that_failed_meanwhile_counts_in_what_would_have_fitted():
    """Both may fail at once; whoever explains it later finds himself alone."""
    bench = Bench(capacity=room_for_one(), admission=Admission.NONE, barrier=FirstTime())
    explained = bench.runner._explained

    def alone(*arguments):
        active, bench.runner._active = bench.runner._active, 1
        try:
            return explained(*arguments)
        finally:
            bench.runner._active = active

    bench.runner._explained = alone
    run(bench, PipelineSettings())
    picture = next(event for event in bench.events if isinstance(event, Incident)).picture
    assert {0, 1} <= {holding.worker for holding in picture.holdings if holding.bytes}
    assert WORKERS_KEY in {remedy.key for remedy in picture.remedies}
