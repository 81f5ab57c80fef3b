import copy
import pickle

import pytest
from py_ecc import bls12_381, bn128

from cuzk_engine import curves
from cuzk_engine.curves import BLS12_381, BN254, CURVES, Curve
from cuzk_engine.formats.points import decode_g1, decode_g2, encode_g1, encode_g2

REFERENCE = [(BN254, bn128), (BLS12_381, bls12_381)]


@pytest.mark.parametrize(("curve", "reference"), REFERENCE, ids=lambda item: getattr(item, "name", None))
def test_constants_are_those_of_an_independent_library(curve, reference):
    assert curve.q == reference.field_modulus
    assert curve.r == reference.curve_order
    assert curve.b == int(reference.b)
    assert curve.b2 == tuple(int(part) for part in reference.b2.coeffs)
    assert curve.g1 == tuple(int(part) for part in reference.G1)
    assert curve.g2 == tuple(tuple(int(part) for part in coordinate.coeffs) for coordinate in reference.G2)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_sizes_and_two_adicity(curve):
    assert (curve.r - 1) % curve.max_domain == 0
    assert (curve.r - 1) % (2 * curve.max_domain) != 0
    assert (curve.q - 1).bit_length() <= 64 * curve.limbs < (curve.q - 1).bit_length() + 64
    assert (curve.g1_bytes, curve.g2_bytes, curve.n8r) == (2 * curve.n8q, 4 * curve.n8q, 32)
    assert curve.fq_montgomery * curve.fq_montgomery_inverse % curve.q == 1


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_lookup(curve):
    assert curves.curve_by_q(curve.q) is curve
    assert curves.curve_by_r(curve.r) is curve
    assert curves.curve_by_id(curve.id) is curve
    for name in (curve.name, curve.title, curve.snarkjs_name, curve.name.upper()):
        assert curves.curve_by_name(name) is curve


def test_lookup_of_what_is_not_there():
    assert curves.curve_by_q(BN254.r) is None
    assert curves.curve_by_r(BN254.q) is None
    assert curves.curve_by_id(2) is None
    assert curves.curve_by_name("pallas") is None


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_a_copy_is_the_same_curve(curve):
    assert pickle.loads(pickle.dumps(curve)) is curve
    assert copy.deepcopy(curve) is curve


def test_every_named_prime_is_prime():
    for prime, name in curves._PRIME_NAMES.items():
        assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7)), name


def test_relations_between_named_primes():
    x = 0x8508C00000000001  # of BLS12-377
    r = x**4 - x**2 + 1
    assert curves.describe_prime(r) == "BLS12-377's scalar field"
    assert curves.describe_prime((x - 1) ** 2 * r // 3 + x) == "BLS12-377's base field"


def test_unknown_primes_are_shown_and_stay_short():
    assert curves.describe_prime(97) == "unknown prime 0x61"
    assert len(curves.describe_prime(1 << 1000)) < 80


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_points_survive_encoding(curve: Curve):
    assert decode_g1(curve, encode_g1(curve, curve.g1)) == curve.g1
    assert decode_g2(curve, encode_g2(curve, curve.g2)) == curve.g2
    assert encode_g1(curve, curves.G1_INFINITY) == bytes(curve.g1_bytes)
    assert encode_g2(curve, curves.G2_INFINITY) == bytes(curve.g2_bytes)
    assert encode_g1(curve, (1, 0))[: curve.n8q] == pow(2, 64 * curve.limbs, curve.q).to_bytes(curve.n8q, "little")
    with pytest.raises(ValueError, match="expected"):
        decode_g1(curve, bytes(curve.g2_bytes))
