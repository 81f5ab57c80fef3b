"""Given the same r and s, every mode makes the same proof, bit by bit."""

import itertools
from contextlib import contextmanager

import pytest

from cuzk_engine.devices.base import CancelToken, CosetExtend, HJoin, Msm, Owner
from cuzk_engine.errors import CancelledError
from cuzk_engine.events import Allocation, Kind, Lane, Purpose
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from tests.support.bench import GIB, Bench
from tests.support.card import Card
from tests.support.cases import case

ALL = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for prestage, double_buffer, evaluate, residency, batch in itertools.product(
        Prestage, (True, False), (Evaluation.HOST, Evaluation.DEVICE), (Residency.HOST, Residency.DEVICE), (0, 104)
    )
]


@pytest.mark.parametrize("make", [lambda: None, lambda: Card(GIB, parallel=2)], ids=["cpu", "card"])
@pytest.mark.parametrize("curve", ["bn128", "bls12381"])
def test_all_modes_make_the_same_proof(curve, make):
    item, proofs = case(curve, "chain_252"), {}
    bench = Bench(device=make(), randomness=lambda bound: bound // 3)
    for settings in ALL:
        outcome = bench.prove(item, settings)
        mode = outcome.mode
        assert (mode.prestage, mode.double_buffer, mode.evaluate) == (
            settings.prestage, settings.double_buffer, settings.evaluate,
        )  # fmt: skip
        assert mode.residency == settings.residency
        proofs[outcome.proof] = settings
    assert len(proofs) == 1


def test_batches_are_what_the_mode_says():
    item, events = case("bn128", "chain_252"), []
    bench = Bench(device=Card(GIB, events.append))
    bench.prove(item, PipelineSettings(batch=100, residency=Residency.HOST))
    downloads = [e for e in events if getattr(e, "kind", "") == Kind.DOWNLOAD_RESULT]
    # Queries of 256, 255, 255, 255 and 252 points.
    assert len(downloads) == 5 * 3


@pytest.mark.parametrize("double_buffer", [True, False])
def test_results_stand_in_two_buffers_or_one(double_buffer):
    bench = Bench()
    bench.prove(case("bn128", "chain_252"), PipelineSettings(double_buffer=double_buffer, batch=64))
    results = [e.delta for e in bench.events if isinstance(e, Allocation) and e.purpose == Purpose.RESULT]
    assert results == ([128, 128, -128, -128] if double_buffer else [128, -128])
    waits = [span for span in bench.spans("host:0") if span.kind == Kind.RESULT_SYNC]
    assert len(waits) == (0 if double_buffer else 4 + 4 * 4)  # one a launch: 256 and four times less than that


class Ordered(Card):
    """Tells in which order results are launched and fetched."""

    def __init__(self):
        super().__init__(GIB)
        self.order = []

    def launch(self, operation, *args):
        if hasattr(operation, "points"):
            self.order.append("launch")
        return super().launch(operation, *args)

    def download(self, *args):
        self.order.append("fetch")
        return super().download(*args)


def test_a_result_is_added_while_the_next_launch_runs():
    """At most two are outstanding; the last is fetched when nothing is left to launch."""
    device = Ordered()
    Bench(device=device).prove(case("bn128", "chain_252"))
    assert device.order == ["launch"] + 4 * ["launch", "fetch"] + ["fetch"]
    device.order.clear()
    Bench(device=device).prove(case("bn128", "chain_252"), PipelineSettings(double_buffer=False))
    assert device.order == 5 * ["launch", "fetch"]


class Travelling(Ordered):
    """Tells in which order points are sent and summed, too."""

    def upload(self, target, source, kind, owner):
        if kind == Kind.UPLOAD_SRS:
            self.order.append("send")
        return super().upload(target, source, kind, owner)

    def launch(self, operation, *args):
        if isinstance(operation, CosetExtend):
            self.order.append("transform")
        return super().launch(operation, *args)


def test_points_are_sent_one_launch_ahead():
    """The first ones before the transforms, so that no launch waits for its points."""
    device = Travelling()
    settings = PipelineSettings(residency=Residency.HOST)
    Bench(device=device).prove(case("bn128", "chain_252"), settings)
    middle = ["launch", "send"] + 3 * ["launch", "send", "fetch"]
    assert device.order == ["send", *(3 * ["transform"]), *middle, "launch", "fetch", "fetch"]
    assert "srs" not in device.memory().by_purpose


def test_points_that_were_sent_for_nothing_go():
    class Refusing(Travelling):
        def launch(self, operation, *args):
            if isinstance(operation, HJoin):
                raise CancelledError("cancelled")
            return super().launch(operation, *args)

    bench = Bench(device=Refusing())
    with pytest.raises(CancelledError):
        bench.prove(case("bn128", "chain_252"), PipelineSettings(residency=Residency.HOST))
    assert bench.device.order == ["send", *(3 * ["transform"])]
    bench.device.drop_residents()
    bench.runner._tables.clear()
    assert bench.device.memory().used == bench.device.ledger.committed == 0


def test_the_lock_is_let_go_with_sums_under_way():
    """Where their memory may count beside the next worker's; else when they have ended."""

    class Waited(Card):
        waits = 0

        def launch(self, operation, *args):
            done = super().launch(operation, *args)
            card = self
            if isinstance(operation, Msm):

                class Event:
                    def wait(self):
                        card.waits += 1
                        done.wait()

                return Event()
            return done

        @contextmanager
        def compute_lock(self, owner, cancel):
            with super().compute_lock(owner, cancel):
                yield
            self.waited = self.waits

    device = Waited(GIB, parallel=2)
    Bench(device=device).prove(case("bn128", "chain_252"))
    assert device.waited == 4  # of five launches
    item = case("bn128", "chain_252")
    small = Waited(GIB, parallel=2)
    bench = Bench(device=small)
    plan = bench.runner.plan(bench.runner.keys.get(item.path("circuit.zkey")).sizes)
    small.ledger.reserve(GIB - sum(plan.reservation), plan.reservation[1], Owner("another", 0, 1), CancelToken())
    bench.prove(item)
    assert small.waited == 5


def test_the_host_works_outside_the_lock():
    """Evaluation, the last sums, assembly and verification happen while another may hold the device."""
    bench = Bench()
    bench.prove(case("bn128", "merkle10"))
    (held,) = [span for span in bench.spans(Lane.LOCK) if span.kind == Kind.LOCK_HELD]
    for span in bench.spans("host:0"):
        assert span.end_ns <= held.start_ns or held.end_ns <= span.start_ns, span.kind
    last = max(bench.spans(Lane.D2H), key=lambda span: span.start_ns)
    assert held.end_ns <= last.start_ns


def test_the_witness_is_copied_where_page_locking_pays():
    item = case("bn128", "chain_252")
    for page_locks, settings, expected in (
        (True, PipelineSettings(), True),
        (True, PipelineSettings(Prestage.OFF), False),
        (False, PipelineSettings(), False),
    ):
        events = []
        device = Card(GIB, events.append, page_locks=page_locks)
        Bench(device=device).prove(item, settings)
        copies = [
            e for e in events if isinstance(e, Allocation) and e.device == "host" and e.purpose == Purpose.WITNESS
        ]
        assert bool(copies) == expected
        assert sum(e.delta for e in copies) == 0
