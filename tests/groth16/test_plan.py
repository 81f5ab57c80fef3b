"""The plan's figures, and that what it reserves is enough and no more than what is used needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.events import Purpose
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.plan import CircuitSizes, CostModel, Needs, Query, plan_partition
from cuzk_engine.runner import Evaluation, PipelineSettings, plan_for
from tests.support.cases import CASES

NEEDS = Needs(msm_scratch=lambda curve, group, n: 100 * group * n, ntt_table=lambda curve, log_n: 64 << log_n)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_sizes_of_a_key(item):
    sizes = CircuitSizes.of(ZKey.open(item.path("circuit.zkey")))
    facts = item.facts
    assert sizes.witness_bytes == 32 * facts["n_vars"]
    assert sizes.vector_bytes == 32 * facts["domain_size"]
    assert 1 << sizes.log_domain == facts["domain_size"]
    assert sizes.query_length(Query.L) == facts["n_vars"] - facts["n_public"] - 1
    assert sizes.query_length(Query.H) == facts["domain_size"]
    assert sizes.point_bytes(Query.B2) == 2 * sizes.point_bytes(Query.A) == sizes.curve.g2_bytes


@given(
    curve=st.sampled_from(CURVES),
    n_vars=st.integers(2, 5000),
    public_share=st.floats(0, 1),
    log_domain=st.integers(1, 14),
    on_device=st.booleans(),
)
def test_reservations_cover_every_stage(curve, n_vars, public_share, log_domain, on_device):
    sizes = CircuitSizes(curve, n_vars, int((n_vars - 1) * public_share), 1 << log_domain, 3 * n_vars)
    plan = plan_partition(sizes, NEEDS, evaluate_on_device=on_device)
    assert sum(plan.by_purpose.values()) == plan.peak
    assert plan.host_vectors == (0 if on_device else 3 * sizes.vector_bytes)
    for ahead in (True, False):
        held, serial = plan.reservation(ahead=ahead)
        assert held + serial == max(plan.peak, held)
        for stage in plan.stages.values():
            assert plan.table + sum(stage.values()) <= held + serial
    held, _ = plan.reservation(ahead=True)
    assert held == plan.table + plan.input_bytes
    assert plan.reservation(ahead=False)[0] == plan.table
    assert plan.stages["transform"][Purpose.ABC] == 3 * plan.stages["H"][Purpose.ABC]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_plan_of_the_cpu_device(item):
    device = CpuDevice(Capacity(1 << 30, "cpu.arena"))
    sizes = CircuitSizes.of(ZKey.open(item.path("circuit.zkey")))
    host = plan_for(device, sizes, PipelineSettings())
    assert host.peak == plan_for(device, sizes, PipelineSettings(evaluate=Evaluation.DEVICE)).peak
    assert host.peak >= sizes.witness_bytes + host.table


def test_costs_grow_with_the_circuit():
    small = CostModel(CircuitSizes(CURVES[0], 100, 1, 128, 300))
    large = CostModel(CircuitSizes(CURVES[0], 1000, 1, 1024, 3000))
    assert 0 < small.total() < large.total()
    wide = CostModel(CircuitSizes(CURVES[1], 1000, 1, 1024, 3000))
    assert wide.msm(Query.A) > large.msm(Query.A)
    parts = large.read_witness() + large.evaluate() + large.transforms() + large.finish()
    assert large.total() == pytest.approx(parts + sum(large.msm(query) for query in Query))
    assert large.check_key() > 0
