"""The job manager against everything that can happen, in any order: every accepted job ends, no partition is proved
after its proof was taken, and proofs come in the order of the witnesses."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cuzk_engine.client import JobState, Priority
from cuzk_engine.daemon.jobs import JobManager
from cuzk_engine.daemon.queue import PartId
from cuzk_engine.daemon.records import Failure, Fault, JobRecord, Partition, PartitionState
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.daemon.store import Store

AGING, WAIT = 50, 30
DEVICES = ("cuda:0", "cuda:1")
# Faults of each kind that one partition survives: memory, unverified, a death; and one refusal a device.
MOST_STARTS = 1 + 3 + len(DEVICES)
policies = st.builds(
    Policy,
    aging_ns=st.sampled_from([0, AGING]),
    sort_by_circuit=st.booleans(),
    batch_size=st.integers(1, 3),
    batch_wait_ns=st.sampled_from([0, WAIT]),
    at_once=st.integers(0, 2),
    preparing=st.integers(0, 3),
)


class QuickStore(Store):
    """One that does not wait for the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._database.execute("PRAGMA synchronous = OFF")


class Slot:
    """A device that notes its orders and answers when the machine says so."""

    def __init__(self, machine: JobMachine, name: str) -> None:
        self.id = name
        self.workers = 2
        self.is_ready = True
        self.has_failed = False
        self.keys: set[str] = set()
        self.orders: dict[int, PartId] = {}
        self.stopped: set[PartId] = set()
        self._machine = machine

    def start(self, job: JobRecord, part: Partition, worker: int) -> None:
        assert self.is_ready
        assert worker not in self.orders
        assert worker < self.workers
        self.orders[worker] = (job.id, part.number)
        self.keys.add(job.key_path)
        self._machine.on_start(self, job, part)

    def cancel(self, job_id: str, number: int) -> None:
        assert (job_id, number) in self.orders.values()
        self.stopped.add((job_id, number))

    def answered(self, part: PartId) -> None:
        self.orders = {worker: order for worker, order in self.orders.items() if order != part}
        self.stopped.discard(part)

    def empty(self) -> None:
        self.orders, self.stopped = {}, set()
        self.keys.clear()


class JobMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cuzk-jobs-"))
        self.now = 0
        self.jobs: dict[str, tuple[int, Priority]] = {}
        self.requests: dict[str, str] = {}
        self.taken: dict[PartId, str] = {}
        self.starts: Counter[PartId] = Counter()
        self.crashes = 0
        self.settled: dict[str, tuple[JobState, str]] = {}
        self.alarms: list[tuple[int, Callable[[], None]]] = []
        self.devices = {name: Slot(self, name) for name in DEVICES}
        self.policy = Policy()
        self.clock_is_ahead = 10**6

    @initialize(policy=policies)
    def begin(self, policy: Policy) -> None:
        self.policy = policy
        self.open()

    def open(self) -> None:
        self.store = QuickStore(self.folder / "jobs.sqlite")
        self.alarms.clear()
        self.manager = JobManager(
            self.store,
            policy=self.policy,
            changed=lambda job: None,
            settle=self.on_settle,
            clock=lambda: self.now + self.clock_is_ahead,
            ticks=lambda: self.now,
            later=self.later,
        )
        self.manager.recover()
        for device in self.devices.values():
            self.manager.dispatcher.add_device(device)
        self.manager.dispatcher.pump()

    def later(self, nanoseconds: int, call: Callable[[], None]) -> Any:
        alarm = (self.now + nanoseconds, call)
        self.alarms.append(alarm)

        class Handle:
            def cancel(handle) -> None:  # noqa: N805
                if alarm in self.alarms:
                    self.alarms.remove(alarm)

        return Handle()

    # ---- what is seen ----

    def on_start(self, device: Slot, job: JobRecord, part: Partition) -> None:
        key = job.id, part.number
        assert job.id not in self.settled, "a job that has ended runs"
        assert key not in self.taken, "a partition is proved again"
        assert sum(key in other.orders.values() for other in self.devices.values()) == 1, "it runs twice at once"
        assert job.wanted_device in ("", device.id)
        assert len(device.orders) <= min(device.workers, self.policy.at_once or device.workers)
        self.starts[key] += 1
        assert self.starts[key] <= MOST_STARTS + self.crashes
        if job.priority is not Priority.CRITICAL:
            self.assert_no_critical_waits_for(device)

    def assert_no_critical_waits_for(self, device: Slot) -> None:
        queue = self.manager.dispatcher._scheduler.queue
        for waiting in queue.all():
            could = waiting.device in ("", device.id) and device.id not in waiting.refused and not waiting.alone
            fits = (device.id, waiting.circuit) not in self.manager.dispatcher._scheduler._unfit
            assert not (waiting.priority is Priority.CRITICAL and could and fits), "critical is overtaken"

    def on_settle(self, job: JobRecord) -> None:
        assert job.id not in self.settled, "a job ends twice"
        self.settled[job.id] = job.state, job.error

    def orders(self) -> list[tuple[Slot, PartId]]:
        return [(device, part) for device in self.devices.values() for part in device.orders.values()]

    def pick(self, data: st.DataObject) -> tuple[Slot, PartId]:
        device, part = data.draw(st.sampled_from(self.orders()), label="order")
        return device, part

    # ---- what happens ----

    @rule(
        priority=st.sampled_from(list(Priority)),
        count=st.integers(1, 4),
        circuit=st.sampled_from("ab"),
        device=st.sampled_from(["", *DEVICES]),
        request=st.sampled_from(["", "r1", "r2"]),
    )
    def submit(self, priority: Priority, count: int, circuit: str, device: str, request: str) -> None:
        name = f"j{len(self.jobs)}"
        job = JobRecord(
            name,
            request_id=request,
            key_path=circuit,
            wanted_device=device,
            priority=priority,
            parts=[Partition(number, f"/{name}/{number}") for number in range(count)],
        )
        accepted = self.manager.accept(job)
        if request in self.requests:
            assert accepted.id == self.requests[request]
            return
        assert accepted is job
        assert self.store.get(name) is not None
        self.jobs[name] = count, priority
        if request:
            self.requests[request] = name

    @rule(critical=st.integers(0, 2), device=st.sampled_from(["", *DEVICES]))
    def submit_many(self, critical: int, device: str) -> None:
        """More than there are workers."""
        for circuit in "ab":
            self.submit(Priority.LOW, 4, circuit, "", "")
        for _ in range(critical):
            self.submit(Priority.CRITICAL, 3, "b", device, "")

    @rule(by=st.sampled_from([-(10**5), -WAIT, AGING, 10**5]))
    def somebody_sets_the_clock(self, by: int) -> None:
        self.clock_is_ahead += by

    @precondition(lambda self: self.orders())
    @rule(
        data=st.data(), phase=st.sampled_from(["load_key", "evaluate", "lock", "upload", "msm"]), part=st.floats(0, 1)
    )
    def progress(self, data: st.DataObject, phase: str, part: float) -> None:
        device, order = self.pick(data)
        self.manager.dispatcher.progress(device.id, order, phase, part)

    @precondition(lambda self: self.orders())
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.answer(*self.pick(data))

    @precondition(lambda self: self.orders())
    @rule(count=st.integers(2, 8))
    def work(self, count: int) -> None:
        for _ in range(count):
            for device, part in self.orders()[:1]:
                self.answer(device, part)

    def answer(self, device: Slot, part: PartId) -> None:
        proof = f"{part[0]}/{part[1]} by {device.id}, start {self.starts[part]}"
        device.answered(part)
        if part[0] not in self.settled:
            self.taken[part] = proof
        self.manager.dispatcher.completed(device.id, part, (proof, "[]"), [("msm", 1)])
        self.manager.dispatcher.completed(device.id, part, ("again", "[]"), [])  # as a confused process might

    @precondition(lambda self: self.orders())
    @rule(data=st.data(), fault=st.sampled_from(list(Fault)), never=st.booleans())
    def fail(self, data: st.DataObject, fault: Fault, never: bool) -> None:
        device, part = self.pick(data)
        device.answered(part)
        never = never and fault is Fault.PLAN
        self.manager.dispatcher.failed(device.id, part, Failure(f"{fault} on {device.id}", fault, never, reduced=1))

    @precondition(lambda self: any(device.stopped for device in self.devices.values()))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        stopped = [(device, part) for device in self.devices.values() for part in sorted(device.stopped)]
        device, part = data.draw(st.sampled_from(stopped))
        device.answered(part)
        self.manager.dispatcher.cancelled(device.id, part)

    @rule(name=st.sampled_from(DEVICES))
    def die(self, name: str) -> None:
        device = self.devices[name]
        device.is_ready = False
        device.empty()
        self.manager.dispatcher.device_died(name, f"{name} died")

    @precondition(lambda self: any(device.stopped for device in self.devices.values()))
    @rule(data=st.data())
    def end_what_does_not_stop(self, data: st.DataObject) -> None:
        device = data.draw(st.sampled_from([device for device in self.devices.values() if device.stopped]))
        blamed = set(self.manager.dispatcher.stopping(device.id))
        assert blamed == device.stopped
        others = [part for part in device.orders.values() if part not in blamed]
        device.is_ready = False
        device.empty()
        self.crashes += 1
        self.manager.dispatcher.device_died(device.id, f"{device.id} did not stop", blamed)
        assert not any(job in self.settled for job, _ in others)

    @rule(name=st.sampled_from(DEVICES))
    def give_up(self, name: str) -> None:
        device = self.devices[name]
        if not device.is_ready:
            device.has_failed = True
            self.manager.dispatcher.fail_impossible(f"{name} does not start")

    @rule(name=st.sampled_from(DEVICES), workers=st.integers(1, 3))
    def come_back(self, name: str, workers: int) -> None:
        device = self.devices[name]
        device.is_ready, device.has_failed, device.workers = True, False, workers
        self.manager.dispatcher.pump()

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        ended = self.settled.get(name)
        was_running = self.manager.cancel(name)
        assert not (ended and was_running)
        assert was_running or name in self.settled

    @rule(time=st.integers(1, 60))
    def wait(self, time: int) -> None:
        self.now += time
        while due := [alarm for alarm in self.alarms if alarm[0] <= self.now]:
            self.alarms.remove(due[0])
            due[0][1]()

    @rule(policy=policies)
    def change_settings(self, policy: Policy) -> None:
        self.policy = policy
        self.manager.dispatcher.set_policy(policy)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.manager.drain()
        if clean:
            self.manager.put_back()
        else:
            self.crashes += 1
        for device in self.devices.values():
            device.empty()
        self.store.close()
        self.open()

    # ---- what holds ----

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "manager"):
            return
        for name, (count, _) in self.jobs.items():
            job = self.manager.get(name)
            assert job.state.ended == (name in self.settled)
            if name in self.settled:
                assert (job.state, job.error) == self.settled[name]
            parts = self.manager.parts(job)
            assert [part.number for part in parts] == list(range(count))
            done = {(name, part.number) for part in parts if part.state is PartitionState.DONE}
            assert done == {key for key in self.taken if key[0] == name}
            assert job.partitions_done == len(done)
            assert 0 <= job.progress <= 1 + 1e-9
            if job.state is JobState.COMPLETED:
                wanted = [(self.taken[name, number], "[]") for number in range(count)]
                assert self.manager.proofs(job) == wanted
        assert set(self.manager.dispatcher._scheduler.running) == {part for _, part in self.orders()}
        assert self.manager.dispatcher._scheduler.choose(self.now) is None, (
            "a worker is free, and something waits for it"
        )

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            shutil.rmtree(self.folder)
            return
        for device in self.devices.values():
            device.is_ready, device.has_failed = True, False
        self.manager.dispatcher.pump()
        for _ in range(1000):
            for device, part in self.orders():
                self.answer(device, part)
            if not self.orders() and self.alarms:
                self.wait(WAIT)
            if not self.orders() and not self.alarms:
                break
        assert set(self.settled) == set(self.jobs), "a job was accepted and did not end"
        assert self.manager.dispatcher.is_idle
        assert len(self.manager.dispatcher._scheduler.queue) == 0
        self.books_agree()
        self.store.close()
        shutil.rmtree(self.folder)


JobMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture
def quiet_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is warned of, as often as the machine likes."""
    monkeypatch.setattr(logging.getLogger("cuzk"), "disabled", True)


@pytest.mark.usefixtures("quiet_log")
class TestJobs(JobMachine.TestCase):  # type: ignore[misc]
    pass
