"""The order in which ways to run give way to smaller ones."""

import pytest

from cuzk_engine.curves import BN254
from cuzk_engine.groth16.plan import CircuitSizes
from cuzk_engine.pipeline.modes import (
    BATCH_FLOOR,
    Evaluation,
    PipelineSettings,
    Prestage,
    Residency,
    Work,
    by_base,
    loss,
    modes,
)

N = 1 << 16
WORK = Work(CircuitSizes(BN254, N - 5, 3, N, 3 * N))


def told(found):
    return [(m.prestage.value, m.evaluate.value, m.residency.value, m.batch) for m in found]


def test_order_on_a_card():
    found = modes(PipelineSettings(), "cuda", WORK)
    assert told(found) == [
        (prestage, evaluate, residency, batch)
        for evaluate, residency, batch in (
            ("device", "device", N),
            ("host", "device", N),
            ("device", "host", N),
            ("host", "host", N),
            ("host", "host", N // 2),
            ("host", "host", N // 4),
        )
        for prestage in ("ahead", "locked", "off")
    ]
    assert N // 4 == BATCH_FLOOR
    assert [len(group) for group in by_base(found)] == [3] * 6


def test_what_was_chosen_is_not_left():
    settings = PipelineSettings(Prestage.LOCKED, False, Evaluation.DEVICE, Residency.DEVICE)
    found = modes(settings, "cuda", WORK)
    assert {mode.evaluate for mode in found} == {Evaluation.DEVICE}
    assert {mode.double_buffer for mode in found} == {False}
    assert [mode.prestage for mode in found[:3]] == [Prestage.LOCKED, Prestage.OFF, Prestage.LOCKED]
    assert [mode.residency for mode in found[:4:2]] == [Residency.DEVICE, Residency.HOST]
    assert {mode.residency for mode in modes(PipelineSettings(residency=Residency.HOST), "cuda", WORK)} == {
        Residency.HOST
    }


def test_on_the_cpu_only_batches_are_left():
    found = modes(PipelineSettings(prestage=Prestage.OFF), "cpu", WORK)
    assert told(found) == [("off", "host", "host", batch) for batch in (N, N // 2, N // 4)]


def test_a_key_that_is_converted_or_has_no_matrices():
    work = Work(WORK.sizes, has_matrices=False, converts=True)
    for evaluate in Evaluation:
        found = modes(PipelineSettings(evaluate=evaluate), "cuda", work)
        assert {(mode.evaluate, mode.residency) for mode in found} == {(Evaluation.HOST, Residency.HOST)}


@pytest.mark.parametrize("reduced", [0, 1, 5, 17, 18, 1000])
def test_reduced_begins_further_down(reduced):
    everything = modes(PipelineSettings(), "cuda", WORK)
    found = modes(PipelineSettings(reduced=reduced), "cuda", WORK)
    assert found == everything[min(reduced, 17) :]


@pytest.mark.parametrize(("batch", "largest"), [(1, 8), (1000, 1000), (1001, 1000), (1 << 30, N), (0, N)])
def test_a_batch_that_was_asked_for(batch, largest):
    found = modes(PipelineSettings(batch=batch), "cpu", WORK)
    assert found[0].batch == largest
    assert all(mode.batch % 8 == 0 for mode in found)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100])
def test_small_circuits_are_not_cut(n):
    work = Work(CircuitSizes(BN254, n, 0, 1 << n.bit_length(), n))
    assert len(by_base(modes(PipelineSettings(), "cpu", work))) == 1
    halves = modes(PipelineSettings(prestage=Prestage.OFF), "cpu", work, floor=1)
    assert [mode.batch for mode in halves[1:]] == [k for k in (64, 32, 16, 8) if k < work.longest]


def test_what_is_given_up_in_words():
    found = modes(PipelineSettings(), "cuda", WORK)
    assert loss(found[0], found[0]) == ""
    assert loss(found[0], found[-1]) == (
        "pre-staging off, evaluation on the host, key streamed from the host, MSMs of 16,384 points"
    )
    assert found[0].settings() == {
        "pipeline.prestage": "ahead",
        "pipeline.double_buffer": "true",
        "pipeline.evaluate": "device",
        "srs.residency": "device",
    }
