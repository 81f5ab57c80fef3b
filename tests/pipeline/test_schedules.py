"""Any schedule: sizes, workers, modes, cancellations and faults. Every proof ends, and nothing is left."""

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.errors import CancelledError, CuzkError, OutOfDeviceMemoryError
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, Work, modes
from cuzk_engine.pipeline.plan import steady_plan
from cuzk_engine.runner import Runner
from tests.support.card import Card
from tests.support.cases import case

ITEMS = [case("bn128", "mul_pub"), case("bn128", "chain_252"), case("bls12381", "chain_254"), case("bn128", "merkle10")]
LONG_S = 120


class FaultError(Exception):
    """What nobody expects of a device."""


class FaultyCard(Card):
    """Calls of which the number is in ``faults`` fail, as a driver's may."""

    def __init__(self, capacity, faults, **options):
        self._faults, self._calls, self._counting = dict(faults), itertools.count(), threading.Lock()
        super().__init__(capacity, **options)

    def _step(self, what, nbytes=0):
        with self._counting:
            fault = self._faults.pop(next(self._calls), None)
        if fault == "memory":
            raise OutOfDeviceMemoryError(self.info.id, what, nbytes, 0, self.info.capacity)
        if fault is not None:
            raise FaultError(fault)

    def allocate(self, nbytes, purpose, *args, **options):
        self._step(purpose, nbytes)
        return super().allocate(nbytes, purpose, *args, **options)

    def staging(self, nbytes, purpose, *args, **options):
        self._step(purpose, nbytes)
        return super().staging(nbytes, purpose, *args, **options)

    def upload(self, *args):
        self._step("upload")
        return super().upload(*args)

    def launch(self, *args):
        self._step("launch")
        return super().launch(*args)

    def download(self, *args):
        self._step("download")
        return super().download(*args)


@pytest.fixture(scope="module")
def keys():
    """Loaded once for all schedules."""
    cache = KeyCache()
    for item in ITEMS:
        cache.get(item.path("circuit.zkey"))
    return cache


SETTINGS = st.builds(
    PipelineSettings,
    prestage=st.sampled_from(Prestage),
    double_buffer=st.booleans(),
    evaluate=st.sampled_from(Evaluation),
    residency=st.sampled_from(Residency),
    reduced=st.integers(0, 6),
    batch=st.sampled_from([0, 0, 64, 1000]),
)
JOBS = st.lists(st.tuples(st.sampled_from(ITEMS), SETTINGS, st.none() | st.integers(0, 25)), min_size=1, max_size=8)


@given(
    jobs=JOBS,
    workers=st.integers(1, 4),
    share=st.floats(0.3, 3),
    faults=st.dictionaries(st.integers(0, 150), st.sampled_from(["memory", "driver"]), max_size=4),
    others=st.sampled_from([0, 0, 0.3]),
    parallel=st.integers(1, 2),
)
def test_any_schedule_ends_and_leaves_nothing(keys, jobs, workers, share, faults, others, parallel):
    needed = 0
    for item, settings, _ in jobs:
        work, bare = Work(keys.get(item.path("circuit.zkey")).sizes), Card(1 << 40, parallel=parallel)
        needed = max(needed, steady_plan(work, modes(settings, "card", work)[-1], bare).peak)
    device = FaultyCard(max(1, int(needed * share)), faults, parallel=parallel)
    device.taken_by_others = int(device.info.capacity * others)
    runner = Runner(device, keys)
    ended = run(runner, jobs, workers, device)
    assert len(ended) == len(jobs)
    if not faults:
        refused = [error for error in ended if isinstance(error, CuzkError) and not isinstance(error, CancelledError)]
        assert bool(refused) <= (share < 1)  # what fits is proved
    runner._tables.clear()
    device.drop_residents()
    assert device.memory().used == device.ledger.committed == 0
    assert device.host.committed == 0
    assert not any(device.users.values())


def run(runner, jobs, workers, device):
    """What each job ended with: an outcome or an error. Other programs go when everything waits for them."""
    queue, ended, lock = iter(enumerate(jobs)), [], threading.Lock()

    def work(worker):
        while True:
            with lock:
                number, job = next(queue, (None, None))
            if job is None:
                return
            found = prove(runner, number, worker, *job)
            with lock:
                ended.append(found)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2)
    device.taken_by_others = 0
    for thread in threads:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)
    return ended


def prove(runner, number, worker, item, settings, cancel_at):
    cancel, count = CancelToken(), itertools.count()

    def progress(phase, fraction):
        if next(count) == cancel_at:
            cancel.set()

    try:
        return runner.prove(
            item.path("circuit.zkey"), item.path("witness.wtns"), Owner(f"job {number}", 0, worker), settings,
            progress, cancel,
        )  # fmt: skip
    except (CuzkError, FaultError) as error:
        return error
