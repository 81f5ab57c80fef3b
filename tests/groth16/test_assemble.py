"""The last step of a proof against Python integers, and its randomness."""

from collections import Counter

import pytest

from cuzk_engine.curves import BN254, CURVES
from cuzk_engine.formats.points import encode_g1, encode_g2
from cuzk_engine.formats.proof import Proof
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.assemble import Assembly, fresh_blinding, joined
from cuzk_engine.groth16.plan import Query
from cuzk_engine.native import Group
from tests.support.arithmetic import CurveMath
from tests.support.cases import case

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@curves
@pytest.mark.parametrize("blinding", [(0, 0), (1, 0), (0, 1), (17, 23), (-1, -1), (2**200 + 1, 2**100)], ids=str)
def test_the_formula(curve, blinding):
    zkey = ZKey.open(case(curve.snarkjs_name, "mul_pub").path("circuit.zkey"))
    g1, g2 = CurveMath(curve, Group.G1), CurveMath(curve, Group.G2)
    r, s = (value % curve.r for value in blinding)
    sums = {query: g1.mul(curve.g1, 1000 + index) for index, query in enumerate(Query)}
    sums[Query.B1] = None  # a circuit without B in any row: infinity
    sums[Query.B2] = g2.mul(curve.g2, 77)
    encoded = {
        query: encode_g2(curve, point) if query is Query.B2 else encode_g1(curve, point or (0, 0))
        for query, point in sums.items()
    }
    alpha, beta1, delta1 = (g1.decode(_array(raw))[0] for raw in (zkey.alpha1, zkey.beta1, zkey.delta1))
    beta2, delta2 = (g2.decode(_array(raw))[0] for raw in (zkey.beta2, zkey.delta2))
    a = g1.add(g1.add(sums[Query.A], alpha), g1.mul(delta1, r))
    b1 = g1.add(g1.add(sums[Query.B1], beta1), g1.mul(delta1, s))
    b2 = g2.add(g2.add(sums[Query.B2], beta2), g2.mul(delta2, s))
    c = g1.add(sums[Query.L], sums[Query.H])
    for term in (g1.mul(a, s), g1.mul(b1, r), g1.mul(delta1, -r * s % curve.r)):
        c = g1.add(c, term)
    early = {query: encoded[query] for query in (Query.A, Query.B1)}
    for known in ((), ({},), (early,), ({Query.H: encoded[Query.H]}, early, encoded)):
        factors = iter((r, s))  # and no third one
        assembly = Assembly(curve, joined(zkey), lambda _, factors=factors: next(factors))
        for these in known:
            assembly.begin(these)
        proof = assembly.finish(encoded)
        assert (proof.curve, proof.decoded()) == (curve, Proof(curve, a, b2, c))
        assert proof.data.startswith(encode_g1(curve, a) + encode_g2(curve, b2) + encode_g1(curve, c))


@curves
def test_factors_are_forgotten_and_never_shown(curve):
    zkey = ZKey.open(case(curve.snarkjs_name, "mul_pub").path("circuit.zkey"))
    sums = {query: bytes(curve.g2_bytes if query is Query.B2 else curve.g1_bytes) for query in Query}
    assembly = Assembly(curve, joined(zkey), lambda _: 4242)
    secret = (4242).to_bytes(32, "little")
    assembly.begin({})
    assert secret in assembly._blinding
    assembly.begin({Query.A: sums[Query.A], Query.B1: sums[Query.B1]})
    proof = assembly.finish(sums)
    assert not any(isinstance(held, bytes) and secret in held for held in vars(assembly).values())
    assert secret not in proof.data
    assert "4242" not in repr(assembly)


def _array(raw):
    import numpy as np

    return np.frombuffer(raw, np.uint8)


def test_blinding_is_fresh_and_covers_the_field():
    values = [value for _ in range(2000) for value in _values(fresh_blinding(BN254))]
    assert len(set(values)) == len(values)
    assert all(0 <= value < BN254.r for value in values)
    # Uniform: each of 8 equal parts of the field gets about 500; 5 standard deviations are 105.
    parts = Counter(value * 8 // BN254.r for value in values)
    assert all(abs(parts[part] - 500) < 110 for part in range(8))


def test_blinding_asks_for_values_below_the_order():
    asked = []

    def below(bound):
        asked.append(bound)
        return 424242 + len(asked)

    assert _values(fresh_blinding(BN254, below)) == [424243, 424244]
    assert asked == [BN254.r, BN254.r]


def _values(blinding):
    assert len(blinding) == 64
    return [int.from_bytes(part, "little") for part in (blinding[:32], blinding[32:])]
