"""New keys: their points by definition, proofs made from them, and both layouts."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES, Curve
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.points import decode_g1, decode_g2
from cuzk_engine.formats.proof import Proof, VerificationKey
from cuzk_engine.formats.r1cs import R1cs, R1csHeader
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.layouts import write_zkey
from cuzk_engine.groth16.setup import System, check_domain, coset_shift, root_of_unity
from cuzk_engine.groth16.toxic import ToxicWaste, seeded_scalar
from cuzk_engine.groth16.verify import verify
from cuzk_engine.keys import CheckedKeys, load_key
from cuzk_engine.native import Group, NativeLibrary, library
from tests.formats.builders import Parts, Row, put, r1cs
from tests.support.arithmetic import CurveMath
from tests.support.cases import CASES, SMALL_CASES, Case, case
from tests.support.keys import load_system, open_zkey, params_bytes, zkey_bytes
from tests.support.native_proof import NativeProof

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@pytest.fixture(scope="module")
def native() -> NativeLibrary:
    return library()


def system_of(item: Case) -> System:
    return System.load(SourceFile.open(item.path("circuit.r1cs")))


@pytest.mark.parametrize("item", CASES, ids=str)
def test_a_proof_from_a_new_key_verifies(native: NativeLibrary, item: Case) -> None:
    zkey = open_zkey(zkey_bytes(system_of(item)))
    proof = NativeProof(native, zkey, Witness.open(item.path("witness.wtns")))
    assert proof.verifies(proof.prove())


@pytest.mark.parametrize("item", SMALL_CASES, ids=str)
def test_everything_that_is_no_point_is_as_in_the_key_from_snarkjs(item: Case) -> None:
    """Counts, and the coefficients to the byte, entry by entry."""
    ours, theirs = open_zkey(zkey_bytes(system_of(item))), ZKey.open(item.path("circuit.zkey"))
    for name in ("curve", "n_vars", "n_public", "domain_size"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.coefficients.tobytes() == theirs.coefficients.tobytes()
    for name in ("a", "b1", "b2", "l", "ic"):
        # Which polynomials are 0 is the circuit's, not the secrets'.
        assert np.array_equal(getattr(ours, name).any(axis=1), getattr(theirs, name).any(axis=1))
    assert ours.h.any(axis=1).all()


def test_new_keys_pass_every_check_of_a_key(tmp_path) -> None:
    for item in (case("bn128", "mul_pub"), case("bls12381", "chain_254")):
        path = tmp_path / f"{item}.zkey"
        path.write_bytes(zkey_bytes(system_of(item)))
        assert load_key(path, CheckedKeys(tmp_path)).zkey.n_vars == item.facts["n_vars"]


@curves
def test_points_are_what_the_paper_says(curve: Curve) -> None:
    """Every point of a small key against Python's arithmetic on the secret scalars."""
    rows: list[Row] = [
        ([(3, 2), (4, 1)], [(4, curve.r - 1), (0, 5)], [(1, 1)]),
        ([(2, 1), (2, 7)], [(3, 3)], [(5, 4), (0, 9)]),
        ([], [(5, 1)], []),
    ]
    n_wires, n_public, r = 7, 2, curve.r  # wire 6 is used nowhere
    system = load_system(r1cs(curve, rows, n_wires=n_wires, outputs=1, public_inputs=1))
    toxic = ToxicWaste.from_seed(curve, "points")
    zkey = open_zkey(zkey_bytes(system, "points"))
    n = zkey.domain_size
    assert n == 8
    tau, w = toxic.tau, root_of_unity(curve, 5, 3)
    assert pow(w, 4, r) == r - 1

    def lagrange(domain: list[int], i: int, x: int) -> int:
        value = 1
        for j, point in enumerate(domain):
            if j != i:
                value = value * (x - point) * pow(domain[i] - point, -1, r) % r
        return value

    domain = [pow(w, i, r) for i in range(n)]
    basis = [lagrange(domain, i, tau) for i in range(n)]
    u, v, z = ([0] * n_wires for _ in range(3))
    for row, value in zip([*rows, *(([(s, 1)], [], []) for s in range(n_public + 1))], basis, strict=False):
        for column, combination in zip((u, v, z), row, strict=True):
            for wire, coefficient in combination:
                column[wire] += coefficient * value
    joined = [(toxic.beta * a + toxic.alpha * b + c) % r for a, b, c in zip(u, v, z, strict=True)]
    one, two = CurveMath(curve, Group.G1), CurveMath(curve, Group.G2)

    def check(points: np.ndarray, math: CurveMath, scalars: list[int], divisor: int = 1) -> None:
        expected = [math.mul(math.generator, k * pow(divisor, -1, r) % r) for k in scalars]
        assert math.decode(points) == expected

    check(zkey.a, one, u)
    check(zkey.b1, one, v)
    check(zkey.b2, two, v)
    check(zkey.ic, one, joined[: n_public + 1], toxic.gamma)
    check(zkey.l, one, joined[n_public + 1 :], toxic.delta)
    # The coset that snarkjs extends to: its values over Z, summed up at tau, are H.
    g = coset_shift(curve, 3)
    coset = [g * point % r for point in domain]
    vanishing = (pow(tau, n, r) - 1) * pow(pow(g, n, r) - 1, -1, r)
    check(zkey.h, one, [lagrange(coset, i, tau) * vanishing for i in range(n)], toxic.delta)
    for name, math, scalar in (
        ("alpha1", one, toxic.alpha),
        ("beta1", one, toxic.beta),
        ("delta1", one, toxic.delta),
        ("beta2", two, toxic.beta),
        ("gamma2", two, toxic.gamma),
        ("delta2", two, toxic.delta),
    ):
        check(np.frombuffer(getattr(zkey, name), np.uint8), math, [scalar])


@curves
def test_the_coset_of_the_largest_domain(curve: Curve) -> None:
    """There is no root of twice the order: the shift must lie in no smaller domain either."""
    shift = coset_shift(curve, curve.two_adicity)
    assert pow(shift, curve.max_domain, curve.r) != 1
    for log_domain in (1, 5, curve.two_adicity - 1):
        g = coset_shift(curve, log_domain)
        assert pow(g, 1 << log_domain, curve.r) == curve.r - 1


@curves
def test_a_row_with_more_entries_than_a_chunk(curve: Curve, native: NativeLibrary) -> None:
    n = 70_000
    wide = [(2 + i % 3, 1) for i in range(n)]
    rows: list[Row] = [(wide, [(0, 1)], [(1, 1)]), ([(2, 1)], [(3, 1)], [(4, 1)])]
    zkey = open_zkey(zkey_bytes(load_system(r1cs(curve, rows, n_wires=5, outputs=1))))
    assert zkey.n_coefficients == n + 1 + 2 + 2
    count = [sum(wire == 2 + k for wire, _ in wide) for k in range(3)]
    values = [1, count[0] * 2 + count[1] * 3 + count[2] * 6, 2, 3, 6]
    witness = witness_of(curve, values)
    proof = NativeProof(native, zkey, witness)
    assert proof.verifies(proof.prove())
    wrong = NativeProof(native, zkey, witness_of(curve, [1, values[1] + 1, 2, 3, 6]))
    assert not wrong.verifies(wrong.prove())


def witness_of(curve: Curve, values: list[int]) -> Witness:
    header = struct.pack("<I", 32) + curve.r.to_bytes(32, "little") + struct.pack("<I", len(values))
    body = b"".join(value.to_bytes(32, "little") for value in values)
    return Witness.from_buffer(Parts(b"wtns", 2, [(1, header), (2, body)]).build())


# ---- secrets ----


@curves
def test_a_seed_gives_the_same_key_and_no_seed_another_each_time(curve: Curve) -> None:
    system = load_system(r1cs(curve, [([(1, 1)], [(1, 1)], [(2, 1)])], n_wires=3, outputs=1))
    assert zkey_bytes(system, "a") == zkey_bytes(system, "a")
    assert zkey_bytes(system, "a") != zkey_bytes(system, "b")
    assert ToxicWaste.random(curve) != ToxicWaste.random(curve)


@curves
def test_seeded_secrets_differ_from_each_other(curve: Curve) -> None:
    toxic = ToxicWaste.from_seed(curve, "x")
    values = {toxic.tau, toxic.alpha, toxic.beta, toxic.gamma, toxic.delta}
    assert len(values) == 5
    assert all(0 < value < curve.r for value in values)
    assert seeded_scalar(BN254, "setup tau", "x") != seeded_scalar(BLS12_381, "setup tau", "x")


def test_secrets_are_not_shown() -> None:
    toxic = ToxicWaste.from_seed(BN254, "x")
    assert str(toxic.tau) not in repr(toxic)


# ---- files that are no sound system ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.without(2), "section 2 (constraints) is missing"),
        (lambda data: data.replace(2, lambda payload: payload[:-4]), "ends within constraint 0"),
        (lambda data: data.replace(2, lambda payload: payload + bytes(36)), "goes on for 36 bytes after constraint 1"),
        (lambda data: data.replace(2, put(4, 9)), "names wire 9, expected one of 3"),
        (lambda data: data.replace(2, put(8, BN254.r, 32)), "has a coefficient that is not below the prime"),
        (lambda data: Parts(b"zkey", 1, data.sections), "this is a proving key (zkey)"),
    ],
)
def test_a_damaged_system_is_refused(change, message) -> None:
    good = Parts.of(r1cs(BN254, [([(1, 1)], [(1, 1)], [(2, 1)])], n_wires=3))
    with pytest.raises(FormatError, match=r"test\.r1cs: ") as caught:
        load_system(change(good).build())
    assert message in str(caught.value)


def test_a_system_that_no_domain_holds_is_refused() -> None:
    header = R1csHeader(BN254, 10, 1, 1, 0, 10, 2**28 - 3)
    check_domain("test.r1cs", header)
    with pytest.raises(
        FormatError, match=r"test\.r1cs: has 268,435,454 constraints and 2 public signals, expected at most"
    ):
        check_domain("test.r1cs", replace(header, n_constraints=2**28 - 2))


@curves
def test_systems_without_rows_or_signals(curve: Curve, native: NativeLibrary) -> None:
    """The smallest there are: the domain has two points at least."""
    for rows, n_wires in (([], 1), ([([(0, 1)], [(0, 1)], [(0, 1)])], 1)):
        zkey = open_zkey(zkey_bytes(load_system(r1cs(curve, rows, n_wires=n_wires))))
        assert zkey.domain_size == 2
        proof = NativeProof(native, zkey, witness_of(curve, [1]))
        assert proof.verifies(proof.prove())


# ---- bellperson's layout ----


class Params:
    """Takes a .params file apart, by itself."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.alpha1, self.beta1 = self._g1(), self._g1()
        self.beta2, self.gamma2 = self._g2(), self._g2()
        self.delta1, self.delta2 = self._g1(), self._g2()
        self.ic, self.h, self.l, self.a, self.b1 = (self._list(self._g1) for _ in range(5))
        self.b2 = self._list(self._g2)
        assert self._at == len(data)

    def _number(self) -> int:
        self._at += 48
        value = int.from_bytes(self._data[self._at - 48 : self._at], "big")
        assert value < BLS12_381.q  # so that no flag is set
        return value

    def _g1(self):
        return self._number(), self._number()

    def _g2(self):
        x1, x0, y1, y0 = (self._number() for _ in range(4))
        return (x0, x1), (y0, y1)

    def _list(self, read):
        (count,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4
        return [read() for _ in range(count)]


def polynomial_h(system: R1cs, values: list[int], n: int, base: int) -> list[int]:
    """Coefficients of (A B - C) / Z on the domain whose root is a power of `base`, by the definition."""
    r = BLS12_381.r
    root = root_of_unity(BLS12_381, base, n.bit_length() - 1)
    rows = [tuple(sum(k * values[wire] for wire, k in part) % r for part in row) for row in system.constraints()]
    rows += [(values[s], 0, 0) for s in range(system.header.n_public + 1)]
    rows += [(0, 0, 0)] * (n - len(rows))

    def interpolate(points: list[int]) -> list[int]:
        inverse, size = pow(root, -1, r), pow(n, -1, r)
        return [sum(y * pow(inverse, i * k, r) for i, y in enumerate(points)) * size % r for k in range(n)]

    a, b, c = (interpolate([row[part] for row in rows]) for part in range(3))
    product = [0] * (2 * n)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    for i, x in enumerate(c):
        product[i] -= x
    h = [value % r for value in product[n:]]
    # P = H (X^n - 1): the low half is -H.
    assert all((low + high) % r == 0 for low, high in zip(product[:n], h, strict=True))
    return h


@pytest.mark.parametrize("name", ["mul_pub", "mul_none", "mul_out"])
def test_params_prove_as_bellman_does(name: str) -> None:
    """A proof from the file alone, with r = s = 0, in Python's arithmetic, on bellman's domain."""
    item = case("bls12381", name)
    system = R1cs.open(item.path("circuit.r1cs"))
    params = Params(params_bytes(system_of(item)))
    raw = Witness.open(item.path("witness.wtns")).raw
    values = [int.from_bytes(row.tobytes(), "little") for row in raw]
    n_public, n = system.header.n_public, item.facts["domain_size"]
    assert (len(params.ic), len(params.h), len(params.l)) == (n_public + 1, n - 1, len(values) - n_public - 1)
    used = [[False] * len(values) for _ in range(2)]
    for row in system.constraints():
        for which in range(2):
            for wire, coefficient in row[which]:
                used[which][wire] |= coefficient != 0
    used[0][: n_public + 1] = [True] * (n_public + 1)
    one, two = CurveMath(BLS12_381, Group.G1), CurveMath(BLS12_381, Group.G2)

    def total(math: CurveMath, start, points, scalars):
        for point, scalar in zip(points, scalars, strict=True):
            start = math.add(start, math.mul(point, scalar))
        return start

    in_a = [value for value, flag in zip(values, used[0], strict=True) if flag]
    in_b = [value for value, flag in zip(values, used[1], strict=True) if flag]
    a = total(one, params.alpha1, params.a, in_a)
    b = total(two, params.beta2, params.b2, in_b)
    total(one, params.beta1, params.b1, in_b)
    h = polynomial_h(system, values, n, 7)
    assert h[n - 1] == 0
    c = total(one, total(one, None, params.l, values[n_public + 1 :]), params.h, h[: n - 1])
    vkey = VerificationKey(BLS12_381, params.alpha1, params.beta2, params.gamma2, params.delta2, tuple(params.ic))
    verify(vkey, values[1 : n_public + 1], Proof(BLS12_381, a, b, c))


def test_both_layouts_of_one_seed_share_the_key_where_the_domain_does_not_matter() -> None:
    system = system_of(case("bls12381", "mul_pub"))
    params, zkey = Params(params_bytes(system)), open_zkey(zkey_bytes(system))
    for name in ("alpha1", "beta1", "delta1"):
        assert getattr(params, name) == decode_g1(BLS12_381, getattr(zkey, name))
    for name in ("beta2", "gamma2", "delta2"):
        assert getattr(params, name) == decode_g2(BLS12_381, getattr(zkey, name))


def test_params_are_for_bls12_381_only() -> None:
    with pytest.raises(FormatError, match="is for BN254; the params layout exists on BLS12-381 only"):
        params_bytes(system_of(case("bn128", "mul_pub")))


def test_params_need_every_wire_used() -> None:
    rows: list[Row] = [([(1, 1)], [(1, 1)], [(2, 1)])]
    with pytest.raises(FormatError, match="no constraint uses wire 3"):
        params_bytes(load_system(r1cs(BLS12_381, rows, n_wires=4, outputs=1)))


def test_progress_goes_from_nothing_to_all() -> None:
    seen: list[tuple[str, float]] = []
    system = system_of(case("bn128", "chain_254"))
    write_zkey(system, ToxicWaste.random(BN254), io.BytesIO(), lambda phase, share: seen.append((phase, share)))
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == pytest.approx(1, abs=0.05)
    assert {phase for phase, _ in seen} >= {"constraints", "A query", "B query in G2", "H query", "L query"}
