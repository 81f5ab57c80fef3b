"""Which mode a partition gets, when it waits, and when it is refused."""

import logging
import threading

import pytest

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.memory import Spare
from cuzk_engine.errors import CancelledError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Incident, Kind, Span
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, Work, by_base, modes
from cuzk_engine.pipeline.plan import plan_partition, steady_plan
from tests.support.bench import GIB, ME, Bench
from tests.support.card import Card
from tests.support.cases import case

ITEM = case("bn128", "merkle10")
KEYS = KeyCache()
LONG_S = 60


def bench_with(capacity, **options):
    events = []
    bench = Bench(device=Card(capacity, events.append, **options), events=events)
    bench.runner.keys = KEYS
    return bench


def plans(settings=PipelineSettings()):  # noqa: B008
    """(first, later) plan of each mode of the circuit on a card."""
    work = Work(KEYS.get(ITEM.path("circuit.zkey")).sizes)
    card = Card(1 << 40)
    return [(plan_partition(work, mode, card), steady_plan(work, mode, card)) for mode in modes(settings, "card", work)]


def worst(pair):
    return max(plan.peak for plan in pair)


def held(bench):
    bench.runner._tables.clear()
    bench.device.drop_residents()
    return bench.device.ledger.committed, bench.device.host.committed


def test_each_base_is_taken_when_the_one_before_it_cannot_fit():
    found = set()
    for group in by_base([first.mode for first, _ in plans()]):
        base = group[0].base
        needed = max(worst(pair) for pair in plans() if pair[0].mode.base == base)
        bench = bench_with(needed)
        first, second = bench.prove(ITEM).mode, bench.prove(ITEM).mode
        larger = [pair[0].mode.base for pair in plans() if worst(pair) <= needed]
        assert first.base == second.base == larger[0]
        found.add(first.base)
        assert held(bench) == (0, 0)
    assert len(found) >= 2


def test_too_little_for_any_mode():
    smallest = plans()[-1][0]
    bench = bench_with(smallest.peak - 1)
    with pytest.raises(MemoryPlanError, match=f"needs {smallest.peak:,} bytes, the device has {smallest.peak - 1:,}"):
        bench.prove(ITEM)
    (incident,) = [event for event in bench.events if isinstance(event, Incident)]
    assert incident.requested == smallest.peak
    assert incident.picture.capacity == smallest.peak - 1
    assert dict(incident.picture.settings)["pipeline.prestage"] == "off"


def test_a_later_partition_finds_what_the_first_left():
    bench = bench_with(GIB)
    (first, later), *_ = plans()
    assert bench.prove(ITEM).peak_bytes == first.peak
    assert bench.prove(ITEM).peak_bytes == later.peak
    assert bench.device.memory().used == first.stays == later.stays


def test_what_is_there_goes_when_it_must():
    """Points of another key are given up; the partition's own are not."""
    other = case("bls12381", "merkle10")
    bench = bench_with(GIB)
    bench.prove(other)
    left = bench.device.memory().used
    tight = bench_with(max(worst(pair) for pair in plans()[:1]) + left // 2)
    tight.prove(other)
    assert tight.prove(ITEM).mode == plans()[0][0].mode
    assert tight.device.memory().used <= plans()[0][0].stays + left // 2


def test_other_programs_make_it_smaller_and_their_end_larger(caplog):
    caplog.set_level(logging.INFO)
    largest = worst(plans()[0])
    bench = bench_with(2 * largest, context=1000)
    bench.device.taken_by_others = 2 * largest - worst(plans(PipelineSettings(residency=Residency.HOST))[-1]) - 1000
    outcome = bench.prove(ITEM)
    assert (outcome.mode.evaluate, outcome.mode.residency) != (Evaluation.DEVICE, Residency.DEVICE)
    (record,) = [r for r in caplog.records if "memory is short" in r.message]
    assert "partitions run with" in record.message
    bench.prove(ITEM)  # told once
    assert len([r for r in caplog.records if "memory is short" in r.message]) == 1
    bench.device.taken_by_others = 0
    assert bench.prove(ITEM).mode == plans()[0][0].mode


def test_waits_until_other_programs_have_gone():
    smallest = plans()[-1][0]
    bench, ended = bench_with(smallest.peak), []
    bench.device.taken_by_others = 1
    thread = threading.Thread(target=lambda: ended.append(bench.prove(ITEM)))
    thread.start()
    while bench.device.asked < 30:  # it has looked at what others hold again and again
        thread.join(0.01)
    assert thread.is_alive()
    bench.device.taken_by_others = 0
    thread.join(LONG_S)
    assert len(ended) == 1
    (wait,) = [e for e in bench.events if isinstance(e, Span) and e.kind == Kind.MEMORY_WAIT and e.device == "cpu"]
    assert wait.bytes == smallest.peak


def test_cancelled_while_waiting_for_memory():
    bench, cancel, raised = bench_with(plans()[-1][0].peak), CancelToken(), []
    bench.device.taken_by_others = 1

    def work():
        try:
            bench.prove(ITEM, cancel=cancel)
        except CancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while bench.device.asked < 30:
        thread.join(0.01)
    cancel.set()
    thread.join(LONG_S)
    assert len(raised) == 1
    assert held(bench) == (0, 0)


def test_host_memory_waits_for_another_worker():
    """Two workers, host memory for the vectors of one: both prove, one after the other."""
    bench = Bench()
    sizes = KEYS.get(ITEM.path("circuit.zkey")).sizes
    bench.device.host.ledger.capacity = 3 * sizes.vector_bytes + 1
    outcomes, owners = [], [Owner("job", 0, worker) for worker in range(3)]

    def work(owner):
        outcomes.append(bench.runner.prove(ITEM.path("circuit.zkey"), ITEM.path("witness.wtns"), owner))

    threads = [threading.Thread(target=work, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert len(outcomes) == 3
    assert bench.device.host.memory().peak <= bench.device.host.ledger.capacity
    bench.assert_nothing_is_held()


def test_too_little_host_memory_for_any_mode():
    bench = Bench()
    bench.device.host.ledger.capacity = 1000
    with pytest.raises(MemoryPlanError, match=r"^host memory: not enough memory: .* its budget is 1000 B; "):
        bench.prove(ITEM)
    bench.assert_nothing_is_held()


def test_page_locked_memory_that_cannot_be_had_is_done_without():
    """The witness needs no copy where pre-staging is off."""
    bench = bench_with(GIB)
    sizes = KEYS.get(ITEM.path("circuit.zkey")).sizes
    bench.device.host.ledger.capacity = 3 * sizes.vector_bytes
    assert bench.prove(ITEM, PipelineSettings(evaluate=Evaluation.HOST)).mode.prestage is Prestage.OFF


@pytest.mark.parametrize("reduced", range(3))
def test_reduced_starts_further_down(reduced):
    mode = bench_with(GIB).prove(ITEM, PipelineSettings(reduced=reduced)).mode
    assert mode == plans()[reduced][0].mode


class Refusing(Spare):
    """The system has no memory for buckets that the plan had promised."""

    refuse = True

    def take(self, nbytes):
        if self.refuse:
            raise MemoryError
        return super().take(nbytes)


def test_a_failure_of_the_driver_names_the_next_smaller_mode():
    events = []
    device = Card(GIB, events.append)
    device._scratch = spare = Refusing(GIB)
    device.taken_by_others = 5
    bench = Bench(device=device, events=events)
    seen, settings = [], PipelineSettings()
    while settings.reduced is not None:
        with pytest.raises(OutOfDeviceMemoryError) as failure:
            bench.prove(ITEM, settings)
        seen.append(settings.reduced)
        settings = PipelineSettings(reduced=failure.value.reduced)
    assert seen == sorted(set(seen))
    assert seen[0] == 0
    assert len(seen) > 3
    incident = next(event for event in events if isinstance(event, Incident))
    assert (incident.requested > 0, incident.free) == (True, 0)
    picture = incident.picture
    assert (picture.purpose, picture.worker) == ("msm", ME.worker)
    assert {holding.purpose for holding in picture.holdings} >= {"srs", "matrices", "ntt", "witness"}
    assert {holding.purpose for holding in picture.host} == {"witness"}
    assert picture.others == device.others()
    spare.refuse = False
    bench.prove(ITEM, PipelineSettings(reduced=seen[1]))
    assert held(bench) == (0, 0)
