"""Proofs from page-locked copies of keys, as far as a CPU can be made to want them."""

import threading
from itertools import product

import pytest

from cuzk_engine.daemon.runner_runtime import RunnerRuntime
from cuzk_engine.devices.base import Msm, Owner
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.formats.proof import PublicSignals
from cuzk_engine.groth16.plan import Query
from cuzk_engine.key_tiers import KeyTiers, Tier
from cuzk_engine.keys import KeyCache, LoadedKey
from cuzk_engine.params_keys import LoadedParams
from cuzk_engine.proving_process import OpenedDevice
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency, Runner
from tests.support.bellperson import ToyKey, make_toy
from tests.support.bench import ME, Bench
from tests.support.cases import case
from tests.support.lockers import FakeLocker, PinningCpu

MIB = 1 << 20
SETTINGS = {
    "pipeline.prestage": "ahead",
    "pipeline.double_buffer": "true",
    "pipeline.evaluate": "auto",
    "srs.residency": "auto",
}


class Watching(PinningCpu):
    """Notes where the points of each MSM lie."""

    def __init__(self, host, locker, sink=None):
        super().__init__(host, locker, sink)
        self.points = []

    def launch(self, operation, owner, cancel, after=None):
        if isinstance(operation, Msm) and operation.n:
            self.points.append(operation.points.ctypes.data)
        return super().launch(operation, owner, cancel, after)

    def is_hot(self, address):
        return any(start <= address < start + size for start, size in self.locker.locked.items())


class HotBench(Bench):
    def __init__(self, budget=256 * MIB, limit=None, **options):
        self.events = []
        self.host = HostMemory(budget, self.events.append, device="cpu", threads=1)
        self.device = Watching(self.host, FakeLocker(limit), self.events.append)
        self.keys = KeyCache(tiers=KeyTiers(self.device, self.host))
        self.runner = Runner(self.device, self.keys, self.events.append, **options)

    def close(self):
        self.runner.release_caches()
        self.host.close()
        assert self.device.locker.locked == {}
        self.assert_nothing_is_held()


@pytest.mark.parametrize(("prestage", "residency"), list(product(Prestage, Residency)))
def test_every_residency_proves(prestage, residency):
    item, bench = case("bn128", "merkle10"), HotBench()
    settings = PipelineSettings(prestage=prestage, residency=residency)
    for _ in range(2):
        outcome = bench.prove(item, settings)
        assert outcome.public == PublicSignals.read(item.path("public.json"))
    hot = [bench.device.is_hot(address) for address in bench.device.points]
    assert len(hot) >= 2 * len(Query)
    (state,) = bench.keys.states()
    if residency is Residency.DEVICE:
        assert not any(hot)
        assert state.tier is Tier.WARM
    else:
        assert all(hot)
        assert (state.tier, state.users) == (Tier.HOT, 0)
    bench.close()


def test_on_a_real_cpu_keys_stay_mapped():
    bench = Bench()
    host = HostMemory(256 * MIB)
    bench.runner.keys = KeyCache(tiers=KeyTiers(bench.device, host))
    bench.prove(case("bn128", "merkle10"), PipelineSettings(residency=Residency.HOST))
    (state,) = bench.runner.keys.states()
    assert state.tier is Tier.WARM
    bench.assert_nothing_is_held()


def test_memory_that_cannot_be_locked_proves_all_the_same(expected_logs):
    expected_logs("page-locking")
    bench = HotBench(limit=0)
    outcome = bench.prove(case("bls12381", "merkle10"), PipelineSettings(residency=Residency.HOST))
    assert outcome.public == PublicSignals.read(case("bls12381", "merkle10").path("public.json"))
    assert not any(bench.device.is_hot(address) for address in bench.device.points)
    bench.close()


def test_a_budget_for_the_proof_alone_proves_without_a_copy():
    item = case("bn128", "merkle10")
    bench = HotBench()
    bench.prove(item, PipelineSettings(evaluate=Evaluation.HOST))
    without_key = bench.host.memory().peak - bench.keys.states()[0].nbytes
    bench.close()
    short = HotBench(budget=without_key)
    short.prove(item, PipelineSettings(evaluate=Evaluation.HOST))
    assert short.keys.states()[0].tier is Tier.WARM
    short.close()


def test_workers_with_two_keys_and_memory_for_one():
    """Copies come and go under the proofs, and every proof is made."""
    items = [case("bn128", "merkle10"), case("bls12381", "merkle10")]
    bench = HotBench()
    for item in items:
        bench.prove(item)
    budget = bench.host.memory().peak * 2 // 3
    bench.close()
    bench, made = HotBench(budget=budget), []

    def run(number):
        item = items[number % 2]
        for index in range(4):
            owner = Owner(f"job {number}.{index}", 0, number)
            made.append(bench.runner.prove(item.path("circuit.zkey"), item.path("witness.wtns"), owner))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 16
    assert bench.host.memory().peak <= budget
    bench.close()


def test_a_bellperson_key_is_converted_once(tmp_path, monkeypatch):
    toy = make_toy(8, 5, 300)
    for name, content in (("key.params", ToyKey.of(toy).params()), ("w", toy.wtns()), ("c", toy.pce())):
        (tmp_path / name).write_bytes(content)
    bench, conversions = HotBench(), []
    original = LoadedParams.points

    def counted(self, *arguments):
        conversions.append(arguments[0])
        return original(self, *arguments)

    monkeypatch.setattr(LoadedParams, "points", counted)
    counts = []
    for _ in range(3):
        outcome = bench.runner.prove(tmp_path / "key.params", tmp_path / "w", ME, circuit=tmp_path / "c")
        assert list(outcome.public.values) == toy.public
        counts.append(len(conversions))
    assert counts == [len(Query)] * 3
    bench.close()


def test_threads_are_shared_out(monkeypatch):
    """Evaluation takes its own number of threads, the device's other work the rest of its own."""
    seen = []
    original = LoadedKey.evaluate

    def watched(self, witness, a, b, c, call):
        seen.append(call._call.threads)
        original(self, witness, a, b, c, call)

    monkeypatch.setattr(LoadedKey, "evaluate", watched)
    for options in ({"threads": 3}, {"threads": 3, "evaluation_threads": 1}, {"evaluation_threads": 2}, {}):
        Bench(**options).prove(case("bn128", "mul_pub"), PipelineSettings(evaluate=Evaluation.HOST))
    assert seen == [3, 1, 2, 0]


def test_the_runtime_says_where_keys_are():
    bench = HotBench()
    runtime = RunnerRuntime(OpenedDevice(bench.device, bench.host, 0), bench.events.append)
    path = str(case("bn128", "merkle10").path("circuit.zkey"))
    assert not runtime.load_key(path, SETTINGS)
    (state,) = runtime.loaded_keys()
    assert (state.path, state.tier, state.users) == (path, "warm", 0)
    assert not runtime.load_key(path, {**SETTINGS, "srs.residency": "host"})
    assert runtime.load_key(path, {**SETTINGS, "srs.residency": "host"})
    (state,) = runtime.loaded_keys()
    assert (state.tier, state.nbytes) == ("hot", bench.device.locker.used)
    assert (runtime.host_use().pinned, runtime.host_use().budget) == (state.nbytes, 256 * MIB)
    assert runtime.evict_key(path) == state.nbytes
    assert runtime.evict_key(path) is None
    assert runtime.host_use().pinned == 0
    runtime.close()
