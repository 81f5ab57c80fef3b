"""Verification: every real proof is valid, and every change of it is refused by the name of what was changed."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cuzk_engine import native
from cuzk_engine.curves import BLS12_381, BN254, CURVES, G1_INFINITY, G2_INFINITY
from cuzk_engine.errors import FormatError, ProofInvalidError
from cuzk_engine.formats.points import encode_g1, encode_g2
from cuzk_engine.formats.proof import EncodedProof, Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.native import Field, Group, library
from cuzk_engine.units import format_count
from tests.support.arithmetic import CurveMath, FieldMath
from tests.support.cases import CASES, case

cases = pytest.mark.parametrize("item", CASES, ids=str)
curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def load(item):
    vkey = VerificationKey.read(item.path("verification_key.json"))
    proof = Proof.read(item.path("proof.json"), vkey.curve)
    return vkey, PublicSignals.read(item.path("public.json"), vkey.curve, vkey.n_public).values, proof


@pytest.fixture(params=[True, False], ids=["independent", "native"])
def verify(request):
    """With the code that nothing of the prover's is in, where there is some, and with the prover's own."""

    def check(vkey, public, proof):
        PreparedKey(vkey, independent=request.param).verify(public, proof)

    return check


def good(curve):
    return load(case(curve.snarkjs_name, "mul_pub"))


@cases
def test_proofs_of_snarkjs_are_valid(item, verify):
    vkey, public, proof = load(item)
    verify(vkey, public, proof)
    assert VerificationKey.from_zkey(ZKey.open(item.path("circuit.zkey"))) == vkey


@cases
@pytest.mark.parametrize("independent", [True, False])
def test_proofs_as_they_are_assembled(item, independent):
    vkey, public, proof = load(item)
    prepared, signals = PreparedKey(vkey, independent=independent), encode_signals(public)
    prepared.verify_encoded(signals, encode(proof))
    if not public:
        return
    with pytest.raises(ProofInvalidError, match="pairing equation does not hold"):
        prepared.verify_encoded(bytes([signals[0] ^ 1]) + signals[1:], encode(proof))
    found = format_count(len(public) - 1, "public signal")
    with pytest.raises(ProofInvalidError, match=f"^{found}, the verification key expects"):
        prepared.verify_encoded(signals[32:], encode(proof))


@curves
def test_bad_points_as_they_are_assembled(curve):
    vkey, public, proof = good(curve)
    prepared, signals, data, size = PreparedKey(vkey), encode_signals(public), encode(proof).data, curve.n8q
    over = curve.q.to_bytes(size, "little")
    for place, item in ((0, "pi_a"), (1, "pi_a"), (2, "pi_b"), (5, "pi_b"), (6, "pi_c"), (7, "pi_c")):
        at = place * size
        for part, text in ((over, "has a coordinate that is out of range"), (bytes(size), "is not on its curve")):
            changed = EncodedProof(curve, data[:at] + part + data[at + size :])
            with pytest.raises(ProofInvalidError, match=f"^{item} {text}$"):
                prepared.verify_encoded(signals, changed)
    outside = EncodedProof(curve, data[: 2 * size] + encode_g2(curve, _outside_g2(curve)) + data[6 * size :])
    with pytest.raises(ProofInvalidError, match=r"^pi_b is not of the group's order$"):
        prepared.verify_encoded(signals, outside)
    other = next(other for other in CURVES if other is not curve)
    with pytest.raises(ProofInvalidError, match=f"proof is for {other.title}, the verification key for {curve.title}"):
        prepared.verify_encoded(signals, EncodedProof(other, data))


def encode_signals(public):
    return b"".join(value.to_bytes(32, "little") for value in public)


def encode(proof):
    """As the native library would."""
    curve = proof.curve
    plain = b"".join(v.to_bytes(curve.n8q, "little") for v in (*proof.a, *proof.b[0], *proof.b[1], *proof.c))
    points = encode_g1(curve, proof.a) + encode_g2(curve, proof.b) + encode_g1(curve, proof.c)
    encoded = EncodedProof(curve, points + plain)
    assert encoded.decoded() == proof
    return encoded


@cases
def test_another_public_signal_is_refused(item, verify):
    vkey, public, proof = load(item)
    for index, value in enumerate(public):
        changed = [*public[:index], (value + 1) % vkey.curve.r, *public[index + 1 :]]
        with pytest.raises(ProofInvalidError, match="pairing equation does not hold"):
            verify(vkey, changed, proof)


@curves
def test_public_signals_out_of_range(curve, verify):
    vkey, public, proof = good(curve)
    for value in (public[1] + curve.r, -1, curve.r, 1 << 300):
        with pytest.raises(ProofInvalidError, match=r"public signal 1 is not below the prime of .*scalar field"):
            verify(vkey, [public[0], value, *public[2:]], proof)
    with pytest.raises(ProofInvalidError, match="4 public signals, the verification key expects 5"):
        verify(vkey, public[:-1], proof)
    with pytest.raises(ProofInvalidError, match="6 public signals, the verification key expects 5"):
        verify(vkey, [*public, 0], proof)


@curves
@pytest.mark.parametrize("item", ["pi_a", "pi_b", "pi_c"])
def test_coordinates_out_of_range(curve, item, verify):
    vkey, public, proof = good(curve)
    field = item[-1]
    (x0, x1), y = (proof.b[0], proof.b[1]) if field == "b" else (getattr(proof, field), None)
    for x in (x0 + curve.q, -1, curve.q):
        point = ((x, x1), y) if field == "b" else (x, x1)
        with pytest.raises(ProofInvalidError, match=f"^{item} has a coordinate not below"):
            verify(vkey, public, dataclasses.replace(proof, **{field: point}))


@curves
@pytest.mark.parametrize("item", ["pi_a", "pi_b", "pi_c"])
def test_points_off_their_curve(curve, item, verify):
    vkey, public, proof = good(curve)
    field = item[-1]
    point = ((proof.b[0][0], 5), proof.b[1]) if field == "b" else (getattr(proof, field)[0], 5)
    with pytest.raises(ProofInvalidError, match=f"^{item} is not on its curve"):
        verify(vkey, public, dataclasses.replace(proof, **{field: point}))


@curves
def test_a_point_outside_the_subgroup(curve, verify):
    """G2's curve has more points than the group: one of another order must not pass, on BLS12-381 in G1 neither."""
    vkey, public, proof = good(curve)
    outside = _outside_g2(curve)
    with pytest.raises(ProofInvalidError, match=r"^pi_b is not of the group's order"):
        verify(vkey, public, dataclasses.replace(proof, b=outside))
    with pytest.raises(ProofInvalidError, match=r"^the verification key's gamma2 is not of the group's order"):
        verify(dataclasses.replace(vkey, gamma2=outside), public, proof)
    if curve is BLS12_381:
        with pytest.raises(ProofInvalidError, match=r"^pi_a is not of the group's order"):
            verify(vkey, public, dataclasses.replace(proof, a=_outside_g1(curve)))


@curves
def test_infinity_is_no_proof(curve, verify):
    vkey, public, proof = good(curve)
    for change in ({"a": G1_INFINITY}, {"b": G2_INFINITY}, {"c": G1_INFINITY}):
        with pytest.raises(ProofInvalidError, match="pairing equation"):
            verify(vkey, public, dataclasses.replace(proof, **change))


@curves
def test_exchanged_and_negated_points(curve, verify):
    vkey, public, proof = good(curve)
    negated = (proof.a[0], curve.q - proof.a[1])
    for change in ({"a": proof.c}, {"c": proof.a}, {"a": negated}):
        with pytest.raises(ProofInvalidError, match="pairing equation"):
            verify(vkey, public, dataclasses.replace(proof, **change))


def test_a_proof_of_another_curve(verify):
    vkey, public, _ = good(BN254)
    with pytest.raises(ProofInvalidError, match="proof is for BLS12-381, the verification key for BN254"):
        verify(vkey, public, good(BLS12_381)[2])


@curves
def test_bad_points_of_the_key_are_named(curve, verify):
    vkey, public, proof = good(curve)
    x, y = vkey.ic[2]
    broken = dataclasses.replace(vkey, ic=(*vkey.ic[:2], (x, (y + 1) % curve.q), *vkey.ic[3:]))
    with pytest.raises(FormatError, match=r"^vk.json: the verification key's IC\[2\] is not on its curve"):
        PreparedKey.checked(broken, "vk.json")
    broken = dataclasses.replace(vkey, alpha1=(x, (y + 1) % curve.q))
    with pytest.raises(ProofInvalidError, match="alpha1 is not on its curve"):
        verify(broken, public, proof)


def _outside_g2(curve):
    """A point of the twist whose order is not r, found by trying x = (k, 1)."""
    field, group = FieldMath(curve, Field.FQ2), CurveMath(curve, Group.G2)
    for k in range(1, 200):
        x = (k, 1)
        square = field.add(field.mul(field.mul(x, x), x), curve.b2)
        root = _sqrt2(square, curve.q)
        if root is not None and group.mul((x, root), curve.r) is not None:
            return x, root
    raise AssertionError("no point found")


def _outside_g1(curve):
    q, group = curve.q, CurveMath(curve, Group.G1)
    for x in range(1, 200):
        y = pow(x**3 + curve.b, (q + 1) // 4, q)
        if y * y % q == (x**3 + curve.b) % q and group.mul((x, y), curve.r) is not None:
            return x, y
    raise AssertionError("no point found")


def _sqrt2(value, q):
    """A square root in Fq2 = Fq[u]/(u^2 + 1), q = 3 mod 4, by the complex method; None where there is none."""
    a, b = value
    norm = pow(a * a + b * b, (q + 1) // 4, q)
    if norm * norm % q != (a * a + b * b) % q:
        return None
    for sign in (norm, -norm):
        half = (a + sign) * pow(2, -1, q) % q
        c = pow(half, (q + 1) // 4, q)
        if c and c * c % q == half:
            return c, b * pow(2 * c, -1, q) % q
    return None


def test_threads_take_turns_with_one_scratch(monkeypatch):
    """Else each of them leaves one in a heap of its own."""
    vkey, public, proof = good(BN254)
    prepared, made = PreparedKey(vkey), []
    aligned = native.aligned
    monkeypatch.setattr(native, "aligned", lambda nbytes: made.append(nbytes) or aligned(nbytes))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: prepared.verify(public, proof), range(9)))
    scratch = library().msm_scratch_bytes(BN254, Group.G1, vkey.n_public, 1)
    assert made.count(scratch) == 1


@curves
def test_many_public_signals(curve, verify):
    """A key of 500 signals from known exponents, IC_i = [i + 1] and γ = δ = 1, so that a proof can be made by hand."""
    g1, g2 = CurveMath(curve, Group.G1), CurveMath(curve, Group.G2)
    n, rng = 500, np.random.default_rng(5)
    public = [int(value) for value in rng.integers(0, 1 << 62, n)]
    alpha, beta, a, b = 3, 5, 7, 11
    x = 1 + sum((index + 2) * value for index, value in enumerate(public))
    c = (a * b - alpha * beta - x) % curve.r
    ic = tuple(g1.multiples(n + 1))
    vkey = VerificationKey(curve, g1.mul(curve.g1, alpha), g2.mul(curve.g2, beta), curve.g2, curve.g2, ic)
    proof = Proof(curve, g1.mul(curve.g1, a), g2.mul(curve.g2, b), g1.mul(curve.g1, c))
    verify(vkey, public, proof)
    public[499] += 1
    with pytest.raises(ProofInvalidError, match="pairing equation"):
        verify(vkey, public, proof)
