"""Sizes of circuits, the parts in which their queries are summed, and costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import CancelledError
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.density import count_general, count_present
from cuzk_engine.groth16.plan import CircuitSizes, CostModel, Query
from tests.support.cases import CASES


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


@given(length=st.integers(0, 5000), batch=st.integers(1, 6000))
def test_launches_cover_a_query_once(length, batch):
    sizes = CircuitSizes(CURVES[0], length + 1, 0, 8, 0)
    parts = sizes.launches(Query.L, batch)
    assert [part.first for part in parts] == [sum(before.n for before in parts[:k]) for k in range(len(parts))]
    assert sum(part.n for part in parts) == length
    assert all(0 < part.n <= batch for part in parts) or (length == 0 and len(parts) == 1)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_points_at_infinity_are_counted(item):
    zkey = ZKey.open(item.path("circuit.zkey"))
    present = count_present(zkey)
    queries = (zkey.h, zkey.a, zkey.b1, zkey.b2, zkey.l)
    assert present == tuple(int(points.any(axis=1).sum()) for points in queries)
    sizes = CircuitSizes.of(zkey, present)
    assert [sizes.present_points(query) for query in Query] == list(present)
    assert CircuitSizes.of(zkey).present_points(Query.A) == zkey.n_vars


@pytest.mark.parametrize("item", CASES, ids=str)
def test_general_coefficients_are_counted(item, monkeypatch):
    """In parts, by several threads, as one by one."""
    zkey = ZKey.open(item.path("circuit.zkey"))
    r = zkey.curve.r
    factor = pow(1 << 512, -1, r)
    values = [int.from_bytes(row[12:].tobytes(), "little") * factor % r for row in zkey.coefficients]
    monkeypatch.setattr("cuzk_engine.groth16.density._PART", 7)
    assert count_general(zkey) == count_general(zkey, 1) == sum(value not in (1, r - 1) for value in values)


def test_counting_can_be_interrupted():
    cancel = CancelToken()
    cancel.set()
    with pytest.raises(CancelledError):
        count_present(ZKey.open(CASES[0].path("circuit.zkey")), cancel_address=cancel.address)


def test_costs_grow_with_the_circuit():
    small = CostModel(CircuitSizes(CURVES[0], 100, 1, 128, 300))
    large = CostModel(CircuitSizes(CURVES[0], 1000, 1, 1024, 3000))
    assert 0 < small.total() < large.total()
    wide = CostModel(CircuitSizes(CURVES[1], 1000, 1, 1024, 3000))
    assert wide.msm(Query.A) > large.msm(Query.A)
    parts = large.read_witness() + large.evaluate() + large.transforms() + large.finish()
    assert large.total() == pytest.approx(parts + sum(large.msm(query) for query in Query))
    assert large.check_key() > 0
