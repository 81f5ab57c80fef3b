"""The order of waiting jobs, as properties of the pure queue."""

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client import Priority
from cuzk_engine.daemon.queue import JobQueue, Waiting

AGING = 100
LEVELS = [Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL]


def job(order: int, priority: Priority = Priority.NORMAL, since: int = 0, device: str = "") -> Waiting:
    return Waiting(f"j{order}", priority, order, since, device)


def drain(queue: JobQueue, now: int, device: str = "cpu") -> list[str]:
    taken = []
    while (waiting := queue.next(device, now)) is not None:
        taken.append(waiting.id)
        assert queue.remove(waiting.id)
    return taken


jobs = st.lists(
    st.tuples(st.sampled_from(LEVELS), st.integers(0, 1000), st.sampled_from(["", "cpu", "cuda:0"])), max_size=30
)


@given(jobs, st.integers(1000, 3000), st.integers(0, 500))
def test_positions_are_the_order_in_which_jobs_are_taken(
    entries: list[tuple[Priority, int, str]], now: int, aging: int
) -> None:
    queue = JobQueue(aging)
    since = 0
    for order, (priority, step, _) in enumerate(entries):
        since += step // 40
        queue.add(job(order, priority, since))
    positions = queue.positions(now)
    assert sorted(positions.values()) == list(range(1, len(entries) + 1))
    assert drain(queue, now) == sorted(positions, key=positions.__getitem__)
    assert len(queue) == 0


@given(jobs)
def test_without_aging_priority_then_order(entries: list[tuple[Priority, int, str]]) -> None:
    queue = JobQueue(0)
    for order, (priority, _, _) in enumerate(entries):
        queue.add(job(order, priority))
    expected = sorted(range(len(entries)), key=lambda n: (-LEVELS.index(entries[n][0]), n))
    assert drain(queue, 10**9) == [f"j{n}" for n in expected]


@given(jobs)
def test_a_device_takes_only_what_may_run_there(entries: list[tuple[Priority, int, str]]) -> None:
    queue = JobQueue(0)
    for order, (priority, _, device) in enumerate(entries):
        queue.add(job(order, priority, device=device))
    assert set(drain(queue, 0)) == {f"j{n}" for n, entry in enumerate(entries) if entry[2] != "cuda:0"}
    assert sorted(queue.wanting("cuda:0")) == sorted(f"j{n}" for n, entry in enumerate(entries) if entry[2] == "cuda:0")


def test_low_is_overtaken_for_at_most_twice_the_aging() -> None:
    queue = JobQueue(AGING)
    queue.add(job(0, Priority.LOW, since=0))
    order, now = 1, 0
    while True:
        queue.add(job(order, Priority.HIGH, since=now))
        taken = queue.next("cpu", now)
        assert taken is not None
        queue.remove(taken.id)
        if taken.id == "j0":
            break
        order, now = order + 1, now + 10
    assert now == 2 * AGING


def test_critical_is_never_overtaken() -> None:
    queue = JobQueue(AGING)
    for order in range(5):
        queue.add(job(order, Priority.LOW, since=0))
    queue.add(job(9, Priority.CRITICAL, since=10**6))
    waiting = queue.next("cpu", 10**6)
    assert waiting is not None
    assert waiting.id == "j9"


def test_one_that_comes_back_has_its_old_place() -> None:
    queue = JobQueue(0)
    for order in (3, 4, 5):
        queue.add(job(order))
    for order in (2, 1):
        queue.add(job(order))
    assert drain(queue, 0) == ["j1", "j2", "j3", "j4", "j5"]


def test_removing_what_does_not_wait() -> None:
    queue = JobQueue(0)
    assert not queue.remove("j1")
    queue.add(job(1))
    assert "j1" in queue
    assert queue.remove("j1")
    assert not queue.remove("j1")
    assert queue.next("cpu", 0) is None
