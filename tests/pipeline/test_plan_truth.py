"""The plan's peak is the measured one, in every mode, the first time and when everything is there."""

import itertools

import pytest

from cuzk_engine.curves import CURVES
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from tests.support.bench import GIB, Bench
from tests.support.card import Card
from tests.support.cases import case
from tests.support.plan_truth import DENSE, OTHERWISE, assert_plan_is_true

MODES = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for (prestage, double_buffer), evaluate, residency, batch in itertools.product(
        ((Prestage.OFF, False), (Prestage.AHEAD, True)),
        (Evaluation.HOST, Evaluation.DEVICE),
        (Residency.HOST, Residency.DEVICE),
        (0, 1000),
    )
]
CIRCUITS = [
    (case("bn128", "chain_254"), DENSE),
    (case("bls12381", "chain_254"), DENSE),
    (case("bn128", "merkle10"), OTHERWISE),
    (case("bls12381", "mul_pub"), OTHERWISE),
]


def shown(settings):
    batch = f"-{settings.batch}" if settings.batch else ""
    return f"{settings.prestage}-{settings.double_buffer}-{settings.evaluate}-{settings.residency}{batch}"


@pytest.mark.parametrize("settings", MODES, ids=shown)
@pytest.mark.parametrize("device", ["cpu", "card", "parallel"])
def test_plan_is_true(device, settings):
    for item, slack in CIRCUITS:
        parallel = 2 if device == "parallel" else 1
        bench = Bench(device=None if device == "cpu" else Card(GIB, context=12345, parallel=parallel))
        for _ in range(2):
            assert_plan_is_true(bench.device, lambda bench=bench, item=item: bench.prove(item, settings), slack)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_plan_is_true_after_another_circuit(curve):
    """What another key left on the device is no part of the plan, nor of what a partition adds."""
    card = Card(GIB)
    bench = Bench(device=card)
    bench.prove(case(curve.snarkjs_name, "merkle10"))
    left = card.memory().used
    item = case(curve.snarkjs_name, "chain_254")
    card.ledger.reset_peak()
    outcome = bench.prove(item)
    measured = card.memory().peak - left
    assert measured <= outcome.peak_bytes <= DENSE * measured
