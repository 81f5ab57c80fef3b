"""The pipeline: every whole case proves and verifies in every mode; every failure gives all memory back and says
why."""

import itertools
import random
import threading
import time

import pytest

from cuzk_engine.curves import BN254
from cuzk_engine.devices import base
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.errors import (
    CancelledError,
    MemoryPlanError,
    OutOfDeviceMemoryError,
)
from cuzk_engine.events import Allocation, Incident, Kind, Lane, Purpose
from cuzk_engine.formats.proof import PublicSignals, VerificationKey
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.plan import CircuitSizes
from cuzk_engine.groth16.verify import verify
from cuzk_engine.keys import KeyCache
from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Runner
from cuzk_engine.units import format_size, parse_size
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.support.bench import GIB, ME, Bench
from tests.support.cases import CASES, SMALL_CASES, TINY_CASES, case

MODES = [
    PipelineSettings(prestage=prestage, evaluate=evaluate, double_buffer=double_buffer)
    for prestage, evaluate, double_buffer in itertools.product(
        Prestage, (Evaluation.HOST, Evaluation.DEVICE), (True, False)
    )
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_every_case_proves(item):
    bench = Bench()
    outcome = bench.prove(item)
    assert outcome.public == PublicSignals.read(item.path("public.json"))
    verify(VerificationKey.read(item.path("verification_key.json")), outcome.public.values, outcome.proof)
    plan = bench.runner.plan(CircuitSizes.of(bench.runner.keys.get(item.path("circuit.zkey")).zkey))
    assert bench.device.memory().peak <= plan.peak == outcome.peak_bytes
    bench.assert_nothing_is_held()
    assert not [event for event in bench.events if isinstance(event, Incident)]


@pytest.mark.parametrize("settings", MODES, ids=lambda s: f"{s.prestage}-{s.evaluate}-{s.double_buffer}")
@pytest.mark.parametrize("item", [case("bn128", "chain_254"), case("bls12381", "mul_pub")], ids=str)
def test_every_mode_proves(item, settings):
    bench = Bench()
    outcome = bench.prove(item, settings)
    assert outcome.prestage == settings.prestage
    (held,) = [span for span in bench.spans(Lane.LOCK) if span.kind == Kind.LOCK_HELD]
    uploads = bench.spans(Lane.H2D)
    inside = [held.start_ns <= span.start_ns and span.end_ns <= held.end_ns for span in uploads]
    assert all(inside) if settings.prestage != Prestage.AHEAD else not any(inside)
    kinds = [span.kind for span in uploads]
    if settings.evaluate is Evaluation.HOST:
        assert kinds == [Kind.UPLOAD_WITNESS] + 3 * [Kind.UPLOAD_ABC]
        assert [span.kind for span in bench.spans("host:0")].count(Kind.EVALUATE) == 1
    else:
        assert kinds == [Kind.UPLOAD_WITNESS]
        assert Kind.SPMV in {span.kind for span in bench.spans(Lane.COMPUTE)}
    for span in bench.spans(Lane.COMPUTE):
        assert held.start_ns <= span.start_ns <= span.end_ns <= held.end_ns
    bench.assert_nothing_is_held()


def test_what_the_spans_say():
    bench = Bench()
    bench.prove(case("bn128", "chain_254"))
    kinds = [span.kind for span in bench.spans("host:0")]
    assert kinds == [Kind.LOAD_KEY, Kind.READ_WITNESS, Kind.EVALUATE, Kind.ASSEMBLE, Kind.VERIFY]
    compute = {span.kind for span in bench.spans(Lane.COMPUTE)}
    assert {Kind.NTT, Kind.POINTWISE, Kind.MSM_ACCUMULATE} <= compute
    assert len(bench.spans(Lane.D2H)) == 5
    for span in bench.spans():
        assert (span.job, span.worker, span.device) == ("job 1", 0, "cpu")
        assert span.start_ns <= span.end_ns
    by_purpose = {event.purpose for event in bench.events if isinstance(event, Allocation)}
    assert by_purpose == {Purpose.WITNESS, Purpose.ABC, Purpose.NTT, Purpose.MSM, Purpose.RESULT}


def test_two_proofs_of_one_witness_share_nothing():
    bench, item = Bench(), case("bn128", "mul_pub")
    first, second = bench.prove(item), bench.prove(item)
    assert first.public == second.public
    assert len({first.proof.a, second.proof.a, first.proof.c, second.proof.c}) == 4
    assert first.proof.b != second.proof.b


def test_the_same_randomness_gives_the_same_proof():
    item = case("bls12381", "chain_253")
    proofs = [Bench(randomness=lambda bound: bound // 3).prove(item, settings).proof for settings in MODES[::3]]
    assert len(set(proofs)) == 1


@pytest.mark.parametrize("item", TINY_CASES, ids=str)
def test_progress_goes_forward_to_the_end(item):
    seen = []
    Bench().prove(item, progress=lambda phase, fraction: seen.append((phase, fraction)))
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert fractions[-1] == pytest.approx(1.0)
    phases = list(dict.fromkeys(phase for phase, _ in seen))
    assert phases == [
        "load_key",
        "read_witness",
        "memory",
        "evaluate",
        "upload",
        "lock",
        "ntt",
        "msm",
        "assemble",
        "verify",
    ]


def test_phases_are_timed():
    bench = Bench()
    start = time.monotonic_ns()
    outcome = bench.prove(case("bn128", "chain_254"))
    total = time.monotonic_ns() - start
    assert 0 < sum(outcome.phases.values()) <= total
    assert outcome.verified_ms == outcome.phases["verify"] / 1e6 > 0


def test_one_runner_alternates_between_curves():
    bench = Bench()
    for item in (case("bn128", "mul_out"), case("bls12381", "mul_out")) * 2:
        assert bench.prove(item).proof.curve.snarkjs_name == item.snarkjs_curve
    bench.assert_nothing_is_held()


# ---- memory ----


def planned(item, settings=PipelineSettings()):  # noqa: B008
    """The planned peak of a case on the CPU device."""
    sizes = CircuitSizes.of(KeyCache().get(item.path("circuit.zkey")).zkey)
    return Bench().runner.plan(sizes, settings).peak


def test_a_plan_that_can_never_fit_is_refused_with_the_numbers():
    item, small = case("bn128", "merkle10"), case("bn128", "mul_none")
    capacity = planned(small)
    bench = Bench(capacity=capacity)
    for settings in MODES:
        needed = planned(item, settings)
        with pytest.raises(MemoryPlanError) as refusal:
            bench.prove(item, settings)
        assert f"the proof needs {format_size(needed)}, the device has {format_size(capacity)}; raise cpu" in str(
            refusal.value
        )
    assert bench.device.memory().peak == 0
    incidents = [event for event in bench.events if isinstance(event, Incident)]
    requested = {planned(item, settings) for settings in MODES}
    assert {(event.kind, event.job) for event in incidents} == {("out-of-memory", "job 1")}
    assert {event.requested for event in incidents} == requested
    bench.prove(small)
    bench.assert_nothing_is_held()


def test_the_first_memory_limit_that_a_refusal_advises_is_enough(tmp_path):
    write_folder(make_circuit("chain:2^15", BN254), tmp_path, seed="memory")
    files = tmp_path / "circuit.zkey", tmp_path / "witness.wtns"
    bench = Bench(capacity=2 << 20)
    with pytest.raises(MemoryPlanError) as refusal:
        bench.runner.prove(*files, ME)
    (incident,) = [event for event in bench.events if isinstance(event, Incident)]
    smaller, larger = [parse_size(r.value) for r in incident.picture.remedies if r.key == "cpu.arena"]
    assert refusal.value.requested <= smaller < larger
    Bench(capacity=smaller).runner.prove(*files, ME)
    with pytest.raises(MemoryPlanError):
        Bench(capacity=smaller - (1 << 20)).runner.prove(*files, ME)


@pytest.mark.parametrize("item", [case("bn128", "merkle10"), case("bls12381", "chain_254")], ids=str)
def test_exactly_the_planned_memory_is_enough(item):
    for settings in MODES:
        needed = planned(item, settings)
        bench = Bench(capacity=needed)
        bench.prove(item, settings)
        bench.assert_nothing_is_held()
        with pytest.raises(MemoryPlanError):
            Bench(capacity=needed - 1).prove(item, settings)


def test_ahead_becomes_locked_when_memory_is_short():
    """Another worker's proof needs the device's whole memory under the lock: this one cannot stage ahead of it."""
    item = case("bn128", "merkle10")
    sizes = CircuitSizes.of(KeyCache().get(item.path("circuit.zkey")).zkey)
    plan = Bench().runner.plan(sizes, PipelineSettings(prestage=Prestage.LOCKED))
    assert plan.inputs > plan.missing + plan.own
    bench = Bench(capacity=plan.peak + plan.missing + plan.own)
    with bench.device.reserve(*plan.reservation, Owner("other", 0, 1), CancelToken()):
        outcome = bench.prove(item)
    assert outcome.prestage is Prestage.LOCKED
    assert bench.prove(item).prestage is Prestage.AHEAD
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("prestage", Prestage)
@pytest.mark.parametrize("share", [1.0, 1.3, 3.0])
def test_workers_share_little_memory(prestage, share):
    """Four workers, three circuits of both curves, memory for about one: every proof is made, the limit is never
    passed."""
    items = [case("bn128", "merkle10"), case("bls12381", "chain_254"), case("bn128", "mul_pub")]
    bench = Bench(capacity=int(max(map(planned, items)) * share))
    outcomes, errors = [], []

    def work(worker):
        for index in range(3):
            item = items[(worker + index) % 3]
            try:
                owner = Owner(f"job {worker}.{index}", 0, worker)
                files = item.path("circuit.zkey"), item.path("witness.wtns")
                outcomes.append(bench.runner.prove(*files, owner, PipelineSettings(prestage=prestage)))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(outcomes) == 12
    held = sorted((s.start_ns, s.end_ns) for s in bench.spans(Lane.LOCK) if s.kind == Kind.LOCK_HELD)
    assert len(held) == 12
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(held))
    running = 0
    for event in bench.events:
        if isinstance(event, Allocation) and event.device == "cpu":
            running += event.delta
            assert 0 <= running <= bench.device.info.capacity
    bench.assert_nothing_is_held()


class FaultyDevice(CpuDevice):
    """Fails at the n-th call of anything."""

    def __init__(self, sink, fail_at, error):
        super().__init__(Capacity(GIB, "cpu.arena"), sink)
        self.calls, self.fail_at, self.error = 0, fail_at, error

    def _step(self):
        self.calls += 1
        if self.calls == self.fail_at:
            raise self.error

    def admit(self, *args):
        self._step()
        return super().admit(*args)

    def allocate(self, *args, **options):
        self._step()
        return super().allocate(*args, **options)

    def upload(self, *args):
        self._step()
        return super().upload(*args)

    def launch(self, *args):
        self._step()
        return super().launch(*args)

    def download(self, *args):
        self._step()
        return super().download(*args)


@pytest.mark.parametrize(
    "settings", MODES[:1] + MODES[4:7], ids=lambda s: f"{s.prestage}-{s.evaluate}-{s.double_buffer}"
)
def test_a_fault_at_any_step_gives_everything_back(settings):
    """A fault at each call in turn, until none is left to fail; then a good proof on the same device."""
    item = case("bn128", "mul_out")
    for fail_at in itertools.count(1):
        events = []
        device = FaultyDevice(events.append, fail_at, RuntimeError(f"fault {fail_at}"))
        bench = Bench(device=device)
        bench.events = events
        try:
            bench.prove(item, settings)
            break
        except RuntimeError as error:
            told = str(error)
        assert told == f"fault {fail_at}"
        bench.prove(item, settings)
        bench.assert_nothing_is_held()
    assert fail_at > 20


def test_a_real_failure_of_an_allocation_is_an_incident():
    events = []
    error = OutOfDeviceMemoryError("cpu", "msm", 100, 50, 1000)
    device = FaultyDevice(events.append, 12, error)
    runner = Runner(device, KeyCache(), events.append)
    item = case("bn128", "mul_out")
    with pytest.raises(OutOfDeviceMemoryError):
        runner.prove(item.path("circuit.zkey"), item.path("witness.wtns"), ME)
    (incident,) = [event for event in events if isinstance(event, Incident)]
    assert (incident.kind, incident.requested, incident.free, incident.device) == ("out-of-memory", 100, 50, "cpu")


# ---- cancellation ----


def test_cancelled_at_any_progress():
    """Cancelled at each report of progress in turn: nothing is held, and the next proof is right."""
    bench, item = Bench(), case("bn128", "chain_254")
    reports = []
    bench.prove(item)  # from now on the key is loaded
    bench.prove(item, progress=lambda phase, fraction: reports.append(fraction))
    for stop_at in range(len(reports) - 1):
        cancel, count = CancelToken(), itertools.count()

        def progress(phase, fraction, cancel=cancel, count=count, stop_at=stop_at):
            if next(count) == stop_at:
                cancel.set()

        with pytest.raises(CancelledError):
            bench.prove(item, progress=progress, cancel=cancel)
    bench.prove(item)
    bench.assert_nothing_is_held()


def test_cancelled_as_soon_as_the_key_is_there(monkeypatch):
    """It is given back."""
    bench, item, cancel = Bench(), case("bn128", "chain_254"), CancelToken()
    acquire = KeyCache._acquire

    def and_cancel(*arguments):
        entry = acquire(*arguments)
        cancel.set()
        return entry

    monkeypatch.setattr(KeyCache, "_acquire", and_cancel)
    with pytest.raises(CancelledError):
        bench.prove(item, cancel=cancel)
    assert [key.users for key in bench.runner.keys.states()] == [0]


def test_cancelled_within_a_native_call():
    """From another thread, at random times; native calls look at the flag themselves."""
    bench, item = Bench(), case("bls12381", "merkle10")
    bench.prove(item)
    rng, cancelled = random.Random(3), 0
    for _ in range(8):
        cancel = CancelToken()
        timer = threading.Timer(rng.uniform(0, 0.06), cancel.set)
        timer.start()
        try:
            bench.prove(item, cancel=cancel)
        except CancelledError:
            cancelled += 1
        timer.join()
    assert cancelled > 0
    bench.assert_nothing_is_held()


def test_cancelled_while_waiting_for_the_lock():
    bench, cancel, raised = Bench(), CancelToken(), []
    item = case("bn128", "mul_out")

    def work():
        try:
            bench.prove(item, cancel=cancel)
        except CancelledError as error:
            raised.append(error)

    with bench.device.compute_lock(Owner("other"), CancelToken()):
        thread = threading.Thread(target=work)
        thread.start()
        with bench.device._lock._changed:
            while bench.device._lock.waiting == 0:
                bench.device._lock._changed.wait(timeout=0.01)
        cancel.set()
        thread.join()
    assert len(raised) == 1
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("item", [item for item in SMALL_CASES if item.name == "chain_252"], ids=str)
def test_no_secret_is_told(item, caplog):
    """Neither the witness nor r and s appear in an event, a log record or the outcome."""
    caplog.set_level("DEBUG")
    drawn = []

    def below(bound):
        drawn.append(random.SystemRandom().randrange(bound))
        return drawn[-1]

    bench = Bench(randomness=below)
    outcome = bench.prove(item)
    witness = Witness.open(item.path("witness.wtns"))
    secrets = [int.from_bytes(row.tobytes(), "little") for row in witness.raw[3:]]
    told = repr(bench.events) + caplog.text + repr(outcome.phases) + repr(outcome.public)
    for secret in [value for value in secrets if value > 10**9] + drawn:
        assert str(secret) not in told
        assert f"{secret:x}" not in told


def test_a_witness_may_be_given_opened():
    item = case("bn128", "mul_pub")
    data = item.path("witness.wtns").read_bytes()
    outcome = Bench().runner.prove(item.path("circuit.zkey"), Witness.from_buffer(data), ME)
    assert outcome.public == PublicSignals.read(item.path("public.json"))


def test_the_pipeline_asks_a_device_for_nothing_but_the_protocol():
    """Everything that the runner calls on a device is in the protocol."""
    used = set()
    real = CpuDevice(Capacity(GIB, "cpu.arena"))

    class Recorder:
        def __getattr__(self, name):
            used.add(name)
            return getattr(real, name)

    item = case("bn128", "mul_out")
    runner = Runner(Recorder(), KeyCache())
    for settings in MODES:
        runner.prove(item.path("circuit.zkey"), item.path("witness.wtns"), ME, settings)
    assert used <= {name for name in dir(base.Device) if not name.startswith("_")}
    assert used >= {"admit", "allocate", "staging", "upload", "launch", "download", "compute_lock", "info"}
    assert real.msm_need(BN254, 1, 10, 10, resident=True).scratch > 0
