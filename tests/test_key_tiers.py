"""Hot copies of keys: true to the file, made once, given up when memory is short, and never while they are used."""

import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cuzk_engine import native
from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.pages import block_bytes
from cuzk_engine.errors import CancelledError
from cuzk_engine.groth16.plan import Query
from cuzk_engine.groth16.proving_key import PointRange
from cuzk_engine.key_tiers import HotKey, KeyTiers, Tier
from cuzk_engine.keys import KeyCache
from tests.support.cases import case
from tests.support.lockers import FakeLocker, PinningCpu

MIB = 1 << 20
NAMES = ("merkle10", "chain_255", "mul_pub")
JOB = Owner("job", 0, 0)


def path_of(name, curve="bn128"):
    return case(curve, name).path("circuit.zkey")


def hot_size(name, curve="bn128"):
    sizes = KeyCache().get(path_of(name, curve)).sizes
    return sum(block_bytes(sizes.query_length(query) * sizes.point_bytes(query)) for query in Query)


class Scene:
    """A cache of keys on a device that gains from page-locked memory, with a clock that stands still."""

    def __init__(self, budget=64 * MIB, limit=None, min_idle=100, kept=8):
        self.now = 1000
        self.locker = FakeLocker(limit)
        self.host = HostMemory(budget, threads=1)
        self.device = PinningCpu(self.host, self.locker)
        self.cache = KeyCache(
            kept=kept,
            tiers=KeyTiers(self.device, self.host, 2),
            min_idle_ns=min_idle,
            clock=lambda: self.now,
        )

    def tiers(self):
        names = {str(path_of(name)): name for name in NAMES}
        return {names[state.path]: state.tier for state in self.cache.states()}

    def close(self):
        self.cache.evict()
        self.host.close()
        assert self.locker.locked == {}
        assert self.host.ledger.committed == 0


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.close()


@pytest.mark.parametrize("curve", ["bn128", "bls12381"])
def test_a_hot_copy_is_true_to_the_file(scene, curve):
    warm = KeyCache().get(path_of("merkle10", curve))
    with scene.cache.use(path_of("merkle10", curve), hot=True) as hot:
        assert isinstance(hot, HotKey)
        for query in Query:
            n = warm.sizes.query_length(query)
            for part in (PointRange(0, n), PointRange(n // 3, n // 2), PointRange(n, 0)):
                expected = warm.points(query, part, None, native.Call())
                found = hot.points(query, part, None, native.Call())
                np.testing.assert_array_equal(found, expected)
                assert not found.flags.writeable
        assert scene.host.ledger.use().by_purpose["srs"] == scene.locker.used >= hot.hot_bytes


def test_a_copy_holds_what_the_file_does_and_tells_when_it_is_whole(scene):
    seen = []
    with scene.cache.use(path_of("merkle10"), progress=seen.append, hot=True) as hot:
        n = hot.sizes.query_length(Query.B2)
        expected = hot.key.points(Query.B2, PointRange(0, n), None, native.Call())
        np.testing.assert_array_equal(hot.points(Query.B2, PointRange(0, n), None, native.Call()), expected)
    assert seen[-1] == 1.0


def test_it_is_made_once(scene):
    found = []

    def prove():
        with scene.cache.use(path_of("merkle10"), hot=True) as key:
            found.append(key)

    threads = [threading.Thread(target=prove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(key) for key in found}) == 1
    assert scene.locker.calls == 5, "one for each query"
    assert scene.tiers() == {"merkle10": Tier.HOT}


def test_without_hot_the_file_is_used(scene):
    with scene.cache.use(path_of("merkle10"), hot=True), scene.cache.use(path_of("merkle10")) as key:
        assert not isinstance(key, HotKey)
        (state,) = scene.cache.states()
        assert state.users == 2


def test_the_cpu_gains_nothing_from_a_copy(scene):
    scene.device._info = type(scene.device._info)("cpu", "cpu", "cpu", 1, "test")
    with scene.cache.use(path_of("merkle10"), hot=True) as key:
        assert not isinstance(key, HotKey)
    assert scene.tiers() == {"merkle10": Tier.WARM}


def test_what_the_budget_does_not_admit_stays_warm():
    scene = Scene(budget=hot_size("merkle10") // 2)
    with scene.cache.use(path_of("merkle10"), hot=True) as key:
        assert not isinstance(key, HotKey)
        assert scene.host.ledger.use().used == 0
    assert scene.tiers() == {"merkle10": Tier.WARM}
    scene.close()


def test_what_cannot_be_locked_stays_warm(expected_logs):
    expected_logs("page-locking")
    scene = Scene(limit=0)
    with scene.cache.use(path_of("merkle10"), hot=True) as key:
        assert not isinstance(key, HotKey)
        assert scene.host.ledger.use().used == 0
    scene.close()


def test_a_cancelled_copy_leaves_nothing(scene, monkeypatch):
    cancel = CancelToken()
    scene.cache.get(path_of("merkle10"))

    def progress(share):
        cancel.set()

    with pytest.raises(CancelledError), scene.cache.use(path_of("merkle10"), cancel, progress, hot=True):
        pytest.fail("it was cancelled")
    assert scene.locker.locked == {}
    (state,) = scene.cache.states()
    assert (state.users, state.tier) == (0, Tier.WARM)


def test_proofs_come_before_unused_copies(scene):
    """Whatever its idle time: a proof that waits is worse than a copy that is made again."""
    scene.cache.load(path_of("merkle10"), hot=True)
    assert scene.host.ledger.idle() == hot_size("merkle10")
    with scene.host.ledger.reserve(scene.host.budget, 0, JOB, CancelToken()):
        assert scene.locker.locked == {}
    assert scene.tiers() == {"merkle10": Tier.WARM}
    with scene.cache.use(path_of("merkle10"), hot=True) as key:
        assert not isinstance(key, HotKey), "it would have to give way again"
    scene.now += 200
    with scene.cache.use(path_of("merkle10"), hot=True) as key:
        assert isinstance(key, HotKey)


def test_copies_in_use_never_give_way(scene):
    with scene.cache.use(path_of("merkle10"), hot=True) as hot:
        assert scene.host.ledger.try_reserve(scene.host.budget, 0, JOB) is None
        assert hot.points(Query.H, PointRange(0, 1), None, native.Call()).size
    assert scene.tiers() == {"merkle10": Tier.HOT}


def test_who_waits_gets_the_copy_when_its_last_user_ends(scene):
    got = threading.Event()
    keeper = scene.host.ledger.reserve(0, 0, Owner("keeper"), CancelToken())

    def wait():
        with scene.host.ledger.reserve(scene.host.budget, 0, JOB, CancelToken()):
            got.set()

    with scene.cache.use(path_of("merkle10"), hot=True):
        thread = threading.Thread(target=wait)
        thread.start()
        with scene.host.ledger._changed:
            assert scene.host.ledger._changed.wait_for(lambda: scene.host.ledger._waiting, 10)
        assert not got.is_set()
    thread.join(10)
    assert got.is_set()
    keeper.release()


def test_another_key_takes_only_what_idled_for_long():
    """The least recently used first."""
    first, second = hot_size("merkle10"), hot_size("chain_255")
    scene = Scene(budget=first + second - 1)
    scene.cache.load(path_of("merkle10"), hot=True)
    scene.now += 50
    with scene.cache.use(path_of("chain_255"), hot=True) as key:
        assert not isinstance(key, HotKey)
    assert scene.tiers() == {"merkle10": Tier.HOT, "chain_255": Tier.WARM}
    scene.now += 100
    with scene.cache.use(path_of("chain_255"), hot=True) as key:
        assert isinstance(key, HotKey)
    assert scene.tiers() == {"merkle10": Tier.WARM, "chain_255": Tier.HOT}
    scene.close()


def test_eviction_gives_everything_back(scene):
    scene.cache.load(path_of("merkle10"), hot=True)
    assert scene.cache.evict(path_of("merkle10")) == hot_size("merkle10")
    assert scene.locker.locked == {}
    assert scene.cache.evict(path_of("merkle10")) is None
    assert scene.cache.states() == []


def test_eviction_of_a_mapped_key(scene):
    key = scene.cache.get(path_of("merkle10"))
    assert scene.cache.evict(path_of("merkle10")) == key.file_bytes


def test_a_key_that_is_evicted_while_it_is_used_goes_afterwards(scene):
    with scene.cache.use(path_of("merkle10"), hot=True) as hot:
        assert scene.cache.evict(path_of("merkle10")) == 0
        assert hot.points(Query.H, PointRange(0, 1), None, native.Call()).size
        with scene.cache.use(path_of("merkle10"), hot=True) as other:
            assert other is not hot
    assert scene.locker.used == scene.host.ledger.use().used
    assert scene.cache.evict() == hot_size("merkle10")
    assert scene.locker.locked == {}


def test_what_the_device_keeps_counts_and_goes(scene):
    key = scene.cache.get(path_of("merkle10"))
    sections = (key.zkey.h, key.zkey.a, key.zkey.b1, key.zkey.b2, key.zkey.l)
    for points in sections[:4]:
        scene.device.resident[points.ctypes.data] = 1000
    assert scene.tiers() == {"merkle10": Tier.WARM}, "one query is missing"
    scene.device.resident[sections[4].ctypes.data] = 500
    (state,) = scene.cache.states()
    assert (state.tier, state.nbytes) == (Tier.DEVICE, 4500)
    scene.device.resident[key.zkey.coefficients.ctypes.data] = 70
    assert scene.cache.evict(path_of("merkle10")) == 4570
    assert scene.device.resident == {}


def test_loading_says_whether_there_was_anything_to_do(scene):
    path = path_of("merkle10")
    assert [scene.cache.load(path, hot=hot) for hot in (False, False, True, True, False)] == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_more_keys_than_are_kept():
    """Those in use and those of late stay."""
    scene = Scene(kept=1)
    with scene.cache.use(path_of("merkle10")):
        scene.now += 200
        scene.cache.get(path_of("chain_255"))
        assert set(scene.tiers()) == {"merkle10", "chain_255"}
        scene.now += 99
        scene.cache.get(path_of("mul_pub"))
        assert set(scene.tiers()) == set(NAMES)
    scene.now += 100
    scene.cache.evict(path_of("mul_pub"))
    scene.cache.get(path_of("mul_pub"))
    assert set(scene.tiers()) == {"mul_pub"}
    scene.close()


def test_a_replaced_file_gets_a_new_copy(scene, tmp_path):
    path = tmp_path / "key.zkey"
    path.write_bytes(path_of("merkle10").read_bytes())
    with scene.cache.use(path, hot=True) as before:
        path.unlink()
        path.write_bytes(path_of("chain_255").read_bytes())
        with scene.cache.use(path, hot=True) as after:
            assert after.sizes != before.sizes
            assert len(scene.cache.states()) == 1
    scene.cache.evict()
    assert scene.locker.locked == {}


class CacheMachine(RuleBasedStateMachine):
    """Any order of uses, evictions, needs of proofs and passing time: what is used stays readable, and the sums of the
    ledger and of the locker agree."""

    uses = Bundle("uses")

    @initialize(budget=st.sampled_from((64 * MIB, 300_000, 120_000)), kept=st.integers(1, 3))
    def start(self, budget, kept):
        self.scene = Scene(budget, kept=kept)
        self.open = {}
        self.reservation = None

    @rule(target=uses, name=st.sampled_from(NAMES), hot=st.booleans())
    def use(self, name, hot):
        use = self.scene.cache.use(path_of(name), hot=hot)
        self.open[use] = use.__enter__()
        return use

    @rule(use=consumes(uses))
    def end(self, use):
        del self.open[use]
        use.__exit__(None, None, None)

    @rule(name=st.sampled_from((*NAMES, None)))
    def evict(self, name):
        self.scene.cache.evict(None if name is None else path_of(name))

    @rule(share=st.integers(0, 100))
    def prove(self, share):
        if self.reservation is not None:
            self.reservation.release()
        self.reservation = self.scene.host.ledger.try_reserve(self.scene.host.budget * share // 100, 0, JOB)
        if self.reservation is None:
            used_hot = {id(key): key for key in self.open.values() if isinstance(key, HotKey)}
            assert used_hot, "only what is used can be in the way"

    @rule(passing=st.sampled_from((1, 60, 150)))
    def wait(self, passing):
        self.scene.now += passing

    @invariant()
    def sums_are_right(self):
        scene = self.scene
        assert scene.locker.used == scene.host.ledger.use().used <= scene.host.budget
        for key in self.open.values():
            assert key.points(Query.H, PointRange(0, 1), None, native.Call()).any()
        if not self.open:
            assert scene.host.ledger.use().used == scene.host.ledger.idle()

    def teardown(self):
        if not hasattr(self, "scene"):
            return
        for use in list(self.open):
            self.end(use)
        if self.reservation is not None:
            self.reservation.release()
        assert all(state.users == 0 for state in self.scene.cache.states())
        self.scene.close()


TestCache = CacheMachine.TestCase
TestCache.settings = settings(stateful_step_count=25)
