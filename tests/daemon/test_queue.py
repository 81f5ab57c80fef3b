"""The order of waiting partitions, as properties of the pure queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client import Priority
from cuzk_engine.daemon.queue import PartitionQueue, Waiting, in_order, level

AGING = 100
LEVELS = [Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL]


def part(
    order: int, priority: Priority = Priority.NORMAL, since: int = 0, circuit: str = "", number: int = 0
) -> Waiting:
    return Waiting(f"j{order}", number, priority, order, since, circuit)


entries = st.lists(st.tuples(st.sampled_from(LEVELS), st.integers(0, 1000), st.sampled_from("abc")), max_size=30)


@given(entries, st.booleans())
def test_without_aging_priority_then_order(items: list[tuple[Priority, int, str]], grouped: bool) -> None:
    parts = [part(order, priority, circuit=circuit) for order, (priority, _, circuit) in enumerate(items)]
    found = in_order(parts, 10**9, 0, grouped)
    assert sorted(item.order for item in found) == list(range(len(items)))
    ranks = [LEVELS.index(item.priority) for item in found]
    assert ranks == sorted(ranks, reverse=True)
    for priority in LEVELS:
        same = [item for item in found if item.priority is priority]
        if not grouped:
            assert same == sorted(same, key=lambda item: item.place)
            continue
        runs = [item.circuit for k, item in enumerate(same) if k == 0 or same[k - 1].circuit != item.circuit]
        assert len(runs) == len(set(runs)), "a circuit is taken up again"
        assert all(
            [item.place for item in same if item.circuit == circuit]
            == sorted(item.place for item in same if item.circuit == circuit)
            for circuit in runs
        )


@given(st.sampled_from(LEVELS), st.integers(0, 10**6), st.integers(0, 10**6))
def test_aging_never_lowers_and_never_makes_critical(priority: Priority, first: int, more: int) -> None:
    item = part(0, priority)
    before, after = level(item, first, AGING), level(item, first + more, AGING)
    assert before <= after
    assert (after == level(part(0, Priority.CRITICAL), 0, AGING)) == (priority is Priority.CRITICAL)
    if priority is Priority.LOW and first >= 2 * AGING:
        assert before == level(part(0, Priority.HIGH), 0, AGING)


def test_one_that_comes_back_has_its_old_place() -> None:
    queue = PartitionQueue()
    for order in (3, 4, 5):
        queue.add(part(order))
    for order, number in ((2, 0), (1, 1), (1, 0)):
        queue.add(part(order, number=number))
    taken = []
    while heads := queue.heads():
        assert len(heads) == 1
        taken.append(heads[0].place)
        assert queue.remove(heads[0].id)
    assert taken == [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0)]


def test_removing_what_does_not_wait() -> None:
    queue = PartitionQueue()
    assert not queue.remove(("j1", 0))
    queue.add(part(1, circuit="a"))
    queue.add(part(1, circuit="a", number=1))
    assert ("j1", 0) in queue
    assert (len(queue), queue.jobs, queue.of_circuit("a"), queue.has_job("j1")) == (2, 1, 2, True)
    assert queue.remove(("j1", 0))
    assert not queue.remove(("j1", 0))
    assert queue.remove(("j1", 1))
    assert (len(queue), queue.jobs, queue.of_circuit("a"), queue.has_job("j1")) == (0, 0, 0, False)
    assert queue.heads() == []
