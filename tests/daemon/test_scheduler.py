"""Which partition starts where: the scheduler with devices that are only numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client import Priority
from cuzk_engine.daemon.queue import Waiting
from cuzk_engine.daemon.scheduler import Choice, Policy, Scheduler
from tests.daemon.test_queue import AGING, LEVELS, part


@dataclass
class Device:
    id: str = "cpu"
    workers: int = 1
    is_ready: bool = True
    has_failed: bool = False
    keys: set[str] = field(default_factory=set)


PLAIN = Policy()


def scheduler(policy: Policy = PLAIN, *devices: Device, parts: Iterable[Waiting] = ()) -> Scheduler:
    made = Scheduler(policy)
    for device in devices or (Device(),):
        made.add_device(device)
    for item in parts:
        made.queue.add(item)
    return made


def start_all(made: Scheduler, now: int = 0) -> list[Choice]:
    """What starts until no worker is free."""
    found = []
    while (choice := made.choose(now)) is not None:
        made.started(choice)
        found.append(choice)
    return found


def drain(made: Scheduler, now: int = 0) -> list[str]:
    """The jobs in the order in which one worker after another takes them."""
    taken = []
    while choices := start_all(made, now):
        taken += [choice.part.job for choice in choices]
        for choice in choices:
            made.ended(choice.part.id)
    return taken


entries = st.lists(st.tuples(st.sampled_from(LEVELS), st.integers(0, 1000), st.sampled_from("abc")), max_size=30)


@given(entries, st.integers(1000, 3000), st.integers(0, 500), st.booleans())
def test_positions_are_the_order_in_which_jobs_are_taken(
    items: list[tuple[Priority, int, str]], now: int, aging: int, grouped: bool
) -> None:
    since, parts = 0, []
    for order, (priority, step, circuit) in enumerate(items):
        since += step // 40
        parts.append(part(order, priority, since, circuit))
    made = scheduler(Policy(aging_ns=aging, sort_by_circuit=grouped), parts=parts)
    positions = made.positions(now)
    assert sorted(positions.values()) == list(range(1, len(items) + 1))
    assert drain(made, now) == sorted(positions, key=positions.__getitem__)
    assert len(made.queue) == 0


def test_low_is_overtaken_for_at_most_twice_the_aging() -> None:
    made = scheduler(Policy(aging_ns=AGING), parts=[part(0, Priority.LOW)])
    order, now = 1, 0
    while True:
        made.queue.add(part(order, Priority.HIGH, since=now))
        choice = made.choose(now)
        assert choice is not None
        made.started(choice)
        made.ended(choice.part.id)
        if choice.part.job == "j0":
            break
        order, now = order + 1, now + 10
    assert now == 2 * AGING


def test_critical_comes_next_and_interrupts_nothing() -> None:
    made = scheduler(Policy(aging_ns=AGING), parts=[part(0, number=k) for k in range(5)])
    (first,) = start_all(made)
    made.queue.add(part(9, Priority.CRITICAL, since=10**6))
    assert start_all(made, 10**6) == []
    assert made.running.keys() == {first.part.id}
    made.ended(first.part.id)
    (second,) = start_all(made, 10**6)
    assert second.part.job == "j9"


def test_partitions_of_several_jobs_fill_all_workers_of_all_devices() -> None:
    devices = [Device(f"cuda:{k}", workers=2) for k in range(4)]
    made = scheduler(Policy(), *devices, parts=[part(order, number=k) for order in range(3) for k in range(4)])
    choices = start_all(made)
    assert sorted((choice.device, choice.worker) for choice in choices) == [
        (device.id, worker) for device in devices for worker in (0, 1)
    ]
    assert [choice.part.place for choice in choices] == [(order, k) for order in range(2) for k in range(4)]


def test_a_device_that_has_the_key_is_preferred_and_none_idles_for_it() -> None:
    near, far = Device("cuda:0"), Device("cuda:1", keys={"a"})
    made = scheduler(Policy(), near, far, parts=[part(0, circuit="a"), part(1, circuit="a")])
    assert [(choice.part.job, choice.device) for choice in start_all(made)] == [("j0", "cuda:1"), ("j1", "cuda:0")]


def test_what_can_only_run_on_one_device_waits_for_it_and_blocks_no_other() -> None:
    made = scheduler(Policy(), Device("cuda:0"), Device("cuda:1"))
    made.queue.add(replace(part(0), device="cuda:0"))
    made.queue.add(replace(part(1), device="cuda:0"))
    made.queue.add(replace(part(2), refused=frozenset({"cuda:1"})))
    made.queue.add(part(3))
    assert [(choice.part.job, choice.device) for choice in start_all(made)] == [("j0", "cuda:0"), ("j3", "cuda:1")]


def test_a_device_without_room_for_a_circuit_is_asked_again_only_where_no_other_is_left() -> None:
    small, large = Device("cuda:0"), Device("cuda:1")
    made = scheduler(Policy(), small, large, parts=[part(k, circuit="a") for k in range(3)])
    made.does_not_fit("cuda:0", "a")
    made.queue.add(part(5, circuit="b"))
    assert [(choice.part.job, choice.device) for choice in start_all(made)] == [("j0", "cuda:1"), ("j5", "cuda:0")]
    large.has_failed, large.is_ready = True, False
    made.ended(("j5", 0))
    assert [choice.part.job for choice in start_all(made)] == ["j1"]
    made.ended(("j1", 0))
    large.has_failed = False
    assert start_all(made) == []
    made.forget_fits("cuda:1")
    assert start_all(made) == []
    made.forget_fits("cuda:0")
    assert [choice.part.job for choice in start_all(made)] == ["j2"]


def test_what_runs_alone_gets_a_device_to_itself() -> None:
    device = Device(workers=3)
    made = scheduler(Policy(), device, parts=[part(0), replace(part(1), alone=True), part(2)])
    assert [choice.part.job for choice in start_all(made)] == ["j0"]  # j1 is next, and waits until it has ended
    made.ended(("j0", 0))
    assert [choice.part.job for choice in start_all(made)] == ["j1"]
    made.ended(("j1", 0))
    assert [choice.part.job for choice in start_all(made)] == ["j2"]


def test_after_a_death_another_device_is_preferred() -> None:
    made = scheduler(Policy(), Device("cuda:0"), Device("cuda:1"))
    made.queue.add(replace(part(0), avoid="cuda:0", alone=True, again=True))
    assert [choice.device for choice in start_all(made)] == ["cuda:1"]
    made.queue.add(replace(part(1), avoid="cuda:0", alone=True, again=True))
    assert [choice.device for choice in start_all(made)] == ["cuda:0"]


def test_circuits_run_one_after_another_and_a_run_takes_in_no_later_job() -> None:
    made = scheduler(Policy(sort_by_circuit=True))
    for order, circuit in enumerate("abab"):
        made.queue.add(part(order, circuit=circuit))
    taken = []
    for later in range(10, 20):
        (choice,) = start_all(made)
        taken.append(choice.part.order)
        made.queue.add(part(later, circuit="a"))
        made.ended(choice.part.id)
    assert taken[:4] == [0, 2, 1, 3]  # a's of the beginning, then b's, whatever a's came meanwhile


def test_a_batch_waits_until_it_is_full_or_its_time_is_over() -> None:
    made = scheduler(Policy(batch_size=3, batch_wait_ns=100), Device(workers=2))
    made.queue.add(part(0, circuit="a", since=1000))
    made.queue.add(part(1, circuit="a", since=1010))
    made.queue.add(part(2, Priority.CRITICAL, circuit="b", since=1010))
    assert [choice.part.job for choice in start_all(made, 1020)] == ["j2"]
    assert made.wake_ns == 1100
    made.queue.add(part(3, circuit="a", since=1030))
    (first,) = start_all(made, 1030)
    assert first.part.job == "j0"
    made.ended(first.part.id)
    (second,) = start_all(made, 1030)
    assert (second.part.job, second.worker) == ("j1", first.worker)


def test_a_batch_that_does_not_fill_starts_in_time_and_closes() -> None:
    made = scheduler(Policy(batch_size=3, batch_wait_ns=100))
    made.queue.add(part(0, circuit="a", since=1000))
    assert start_all(made, 1099) == []
    (first,) = start_all(made, 1100)
    made.queue.add(part(1, circuit="a", since=1110))  # joins the batch that runs
    made.ended(first.part.id)
    (second,) = start_all(made, 1120)
    made.ended(second.part.id)
    made.queue.add(part(2, circuit="a", since=1130))  # and this one begins another
    assert start_all(made, 1140) == []
    assert made.wake_ns == 1230


def test_a_worker_finishes_its_batch_before_an_older_circuit() -> None:
    made = scheduler(Policy(batch_size=2))
    for order, circuit in enumerate("abaab"):
        made.queue.add(part(order, circuit=circuit))
    assert drain(made) == ["j0", "j2", "j1", "j4", "j3"]
    made.queue.add(part(10, circuit="a"))
    made.queue.add(part(11, circuit="a"))
    (first,) = start_all(made)
    made.queue.add(part(12, Priority.CRITICAL, circuit="b"))
    made.ended(first.part.id)
    assert drain(made) == ["j12", "j11"]


def test_limits() -> None:
    parts = [part(k) for k in range(6)]
    assert len(start_all(scheduler(Policy(at_once=1), Device(workers=4), parts=parts))) == 1
    assert len(start_all(scheduler(Policy(at_once=3), Device(workers=2), parts=parts))) == 2
    made = scheduler(Policy(preparing=2), Device("a", workers=3), Device("b", workers=3), parts=parts)
    first = start_all(made)
    assert len(first) == 2
    made.running[first[0].part.id].preparing = False
    assert len(start_all(made)) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(LEVELS), st.sampled_from("ab"), st.sampled_from(["", "cuda:0", "cuda:1"])),
        max_size=20,
    ),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
)
def test_nothing_is_left_while_a_worker_is_free(
    items: list[tuple[Priority, str, str]], workers: int, batch: int, grouped: bool
) -> None:
    made = scheduler(Policy(sort_by_circuit=grouped, batch_size=batch), Device("cuda:0", workers), Device("cuda:1"))
    for order, (priority, circuit, device) in enumerate(items):
        made.queue.add(replace(part(order, priority, circuit=circuit), device=device))
    first = start_all(made)
    for waiting in made.queue.all():
        for name, count in (("cuda:0", workers), ("cuda:1", 1)):
            if waiting.device in ("", name):
                assert len(made.on(name)) == count
    for choice in first:
        made.ended(choice.part.id)
    assert len(first) + len(drain(made)) == len(items)
