"""A proof's assembly and verification against the same put together from single operations on points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cuzk_engine.curves import BN254, CURVES, Curve
from cuzk_engine.formats.points import encode_g1, encode_g2
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.native import (
    Call,
    Field,
    FieldOp,
    Group,
    NativeCallError,
    NativeLibrary,
    PointFault,
    PointOp,
    Status,
    aligned,
)
from cuzk_engine.native_proof import BEGIN, BLIND, FINISH, ProofItem, ProofProblem
from tests.kernels.test_points import find_point
from tests.support.arithmetic import CurveMath
from tests.support.cases import CASES, Case

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
G1, G2 = Group.G1, Group.G2
ALL = BLIND | BEGIN | FINISH


class Points:
    """Points of one curve as bytes, by operations that are tested elsewhere."""

    def __init__(self, native: NativeLibrary, curve: Curve) -> None:
        self.native, self.curve = native, curve
        self.generators = {G1: encode_g1(curve, curve.g1), G2: encode_g2(curve, curve.g2)}

    def infinity(self, group: Group = G1) -> bytes:
        return bytes(len(self.generators[group]))

    def add(self, first: bytes, *others: bytes, group: Group = G1) -> bytes:
        for other in others:
            first = self._do(group, PointOp.ADD, first, other)
        return first

    def mul(self, point: bytes, factor: int, group: Group = G1) -> bytes:
        return self._do(group, PointOp.MUL, point, (factor % self.curve.r).to_bytes(32, "little"))

    def neg(self, point: bytes, group: Group = G1) -> bytes:
        return self._do(group, PointOp.NEG, point, None)

    def multiple(self, factor: int, group: Group = G1) -> bytes:
        return self.mul(self.generators[group], factor, group)

    def _do(self, group: Group, op: PointOp, a: bytes, b: bytes | None) -> bytes:
        out = np.empty(len(a), np.uint8)
        self.native.point_op(self.curve, group, op, out, a, b, 1)
        return out.tobytes()


@dataclass
class Parts:
    """What a proof is assembled from."""

    alpha1: bytes
    delta1: bytes
    beta1: bytes
    beta2: bytes
    delta2: bytes
    a: bytes
    b1: bytes
    b2: bytes
    l: bytes  # noqa: E741 - the query's name
    h: bytes
    r: int
    s: int

    @classmethod
    def random(cls, points: Points, rng: np.random.Generator) -> Parts:
        one = [points.multiple(number(points.curve, rng)) for _ in range(7)]
        two = [points.multiple(number(points.curve, rng), G2) for _ in range(3)]
        r, s = number(points.curve, rng), number(points.curve, rng)
        return cls(*one[:3], *two[:2], *one[3:5], two[2], *one[5:], r, s)

    @property
    def key(self) -> bytes:
        return self.alpha1 + self.delta1 + self.beta1 + self.beta2 + self.delta2

    @property
    def blinding(self) -> bytes:
        return self.r.to_bytes(32, "little") + self.s.to_bytes(32, "little")


def number(curve: Curve, rng: np.random.Generator) -> int:
    return int.from_bytes(rng.bytes(40), "little") % curve.r


def expected(points: Points, of: Parts) -> bytes:
    """As the formula is written: with B in G1, and r s delta."""
    add, mul = points.add, points.mul
    a = add(of.alpha1, mul(of.delta1, of.r), of.a)
    b1 = add(of.beta1, mul(of.delta1, of.s), of.b1)
    b = add(of.beta2, mul(of.delta2, of.s, G2), of.b2, group=G2)
    return a + b + add(of.l, of.h, mul(a, of.s), mul(b1, of.r), mul(of.delta1, -of.r * of.s))


def assemble(native: NativeLibrary, curve: Curve, of: Parts, groups: tuple[int, ...] = (ALL,)) -> tuple[bytes, bytes]:
    """The proof and its plain coordinates, with these steps a call; a call is given what it needs alone."""
    data = np.full(16 * curve.n8q, 0xA5, np.uint8)
    at, half = data.ctypes.data, 8 * curve.n8q
    for steps in groups:
        secret = steps & (BLIND | BEGIN)
        native.proof_assemble(
            curve,
            steps,
            of.key if secret else None,
            of.blinding if secret else None,
            *([of.a, of.b1] if steps & BEGIN else [None] * 2),
            *([of.b2, of.l, of.h] if steps & FINISH else [None] * 3),
            at,
            at + half if steps & FINISH else None,
        )
    return data[:half].tobytes(), data[half:].tobytes()


# ---- assembly ----


@curves
def test_random_proofs(native: NativeLibrary, curve: Curve) -> None:
    points, rng = Points(native, curve), np.random.default_rng(11)
    for _ in range(12):
        parts = Parts.random(points, rng)
        proof, coordinates = assemble(native, curve, parts)
        assert proof == expected(points, parts)
        plain = np.empty(len(proof), np.uint8)
        native.field_op(curve, Field.FQ, FieldOp.FROM_MONT, plain, proof, None, 8)
        assert coordinates == plain.tobytes()


@curves
def test_steps_may_come_in_any_number_of_calls(default_native: NativeLibrary, curve: Curve) -> None:
    parts = Parts.random(Points(default_native, curve), np.random.default_rng(12))
    whole = assemble(default_native, curve, parts)
    for groups in ((BLIND, BEGIN, FINISH), (BLIND | BEGIN, FINISH), (BLIND, BEGIN | FINISH)):
        assert assemble(default_native, curve, parts, groups) == whole


@curves
@pytest.mark.parametrize("r", [0, 1, 2, -1])
@pytest.mark.parametrize("s", [0, 1, -1])
def test_factors_at_the_ends_of_the_field(default_native: NativeLibrary, curve: Curve, r: int, s: int) -> None:
    points = Points(default_native, curve)
    parts = Parts.random(points, np.random.default_rng(13))
    parts.r, parts.s = r % curve.r, s % curve.r
    assert assemble(default_native, curve, parts)[0] == expected(points, parts)


@curves
def test_infinity_equal_and_opposite_points(native: NativeLibrary, curve: Curve) -> None:
    """Every addition of the assembly meets each of them; both operands at infinity, too."""
    points, rng = Points(native, curve), np.random.default_rng(14)

    def changed(**changes: bytes | int) -> None:
        parts = Parts.random(points, np.random.default_rng(15))
        for name, value in changes.items():
            setattr(parts, name, value)
        assert assemble(native, curve, parts)[0] == expected(points, parts), changes.keys()

    none, none2 = points.infinity(), points.infinity(G2)
    known = Parts.random(points, np.random.default_rng(15))
    for name in ("alpha1", "delta1", "beta1", "a", "b1", "l", "h"):
        changed(**{name: none})
    for name in ("beta2", "delta2", "b2"):
        changed(**{name: none2})
    changed(a=none, b1=none, b2=none2, l=none, h=none)
    blinded = points.add(known.alpha1, points.mul(known.delta1, known.r))
    blinded2 = points.add(known.beta2, points.mul(known.delta2, known.s, G2), group=G2)
    for same in (False, True):
        sign = (lambda point, group=G1: point) if same else points.neg
        changed(a=sign(blinded))
        changed(b2=sign(blinded2, G2))
        changed(b1=sign(known.beta1))
        changed(h=sign(known.l))
        changed(alpha1=sign(points.mul(known.delta1, known.r)))
        changed(beta2=sign(points.mul(known.delta2, known.s, G2), G2))
        # s A and r (beta + sum_b1) are the same, or cancel
        a = points.add(blinded, known.a)
        factor = known.s * pow(known.r, -1, curve.r)
        changed(beta1=none, b1=sign(points.mul(a, factor)))
        # and all of C before l and h
        rest = points.add(points.mul(a, known.s), points.mul(points.add(known.beta1, known.b1), known.r))
        changed(l=sign(rest))
    changed(r=0, s=0, a=points.neg(known.alpha1))
    changed(r=number(curve, rng), s=0, delta1=none, delta2=none2)


# ---- the public signals' point ----


@curves
@pytest.mark.parametrize(("n", "threads"), [(0, 1), (1, 1), (4, 2), (5, 1), (300, 1), (300, 3)])
def test_the_point_of_the_public_signals(native: NativeLibrary, curve: Curve, n: int, threads: int) -> None:
    points, rng = Points(native, curve), np.random.default_rng(n)
    for special in (None, "infinity", "opposite"):
        values = [number(curve, rng) for _ in range(n)]
        values[:3] = [0, 1, curve.r - 1][:n]
        ic = [points.multiple(5 + i) for i in range(n + 1)]
        if special == "infinity":
            ic[rng.integers(n + 1)] = points.infinity()
        signals = b"".join(value.to_bytes(32, "little") for value in values)
        total = reference(native, curve, ic[1:], signals)
        if special == "opposite":
            ic[0] = points.neg(total)
        assert proof_input(native, curve, b"".join(ic), signals, n, threads) == points.add(ic[0], total)
        if special == "infinity":  # equal points
            ic[0] = total
            assert proof_input(native, curve, b"".join(ic), signals, n, threads) == points.add(total, total)


def reference(native: NativeLibrary, curve: Curve, points: list[bytes], signals: bytes) -> bytes:
    out = np.empty(curve.g1_bytes, np.uint8)
    native.msm_reference(curve, G1, b"".join(points), signals, len(points), out)
    return out.tobytes()


def proof_input(native: NativeLibrary, curve: Curve, ic: bytes, signals: bytes, n: int, threads: int = 1) -> bytes:
    nbytes = native.msm_scratch_bytes(curve, G1, n, threads)
    out, scratch = np.empty(curve.g1_bytes, np.uint8), aligned(nbytes)
    native.proof_input(curve, ic, signals, n, out.ctypes.data, scratch.ctypes.data, nbytes, Call(threads))
    return out.tobytes()


# ---- verification ----


@dataclass
class Checked:
    """A proof that holds by its exponents: a b = alpha beta + x gamma + c delta."""

    key: bytes
    x: bytes
    a: bytes
    b: bytes
    c: bytes

    @classmethod
    def random(cls, points: Points, rng: np.random.Generator) -> Checked:
        alpha, beta, gamma, delta, x, a, b = (number(points.curve, rng) for _ in range(7))
        c = (a * b - alpha * beta - x * gamma) * pow(delta, -1, points.curve.r)
        key = points.multiple(alpha) + b"".join(points.multiple(value, G2) for value in (beta, gamma, delta))
        return cls(key, points.multiple(x), points.multiple(a), points.multiple(b, G2), points.multiple(c))


def check(native: NativeLibrary, curve: Curve, of: Checked, **changes: bytes) -> ProofProblem | None:
    parts = {name: changes.get(name, getattr(of, name)) for name in ("key", "x", "a", "b", "c")}
    return native.proof_check(curve, parts["key"], parts["x"], parts["a"] + parts["b"] + parts["c"])


def product(points: Points, of: Checked, **changes: bytes) -> bool:
    """The same as four pairings."""
    x, a, b, c = (changes.get(name, getattr(of, name)) for name in ("x", "a", "b", "c"))
    size = points.curve.g1_bytes
    p, q = points.neg(a) + of.key[:size] + x + c, b + of.key[size:]
    return points.native.pairing_check(points.curve, p, q, 4)


EQUATION = ProofProblem(ProofItem.EQUATION, None)


@curves
def test_proofs_that_hold_and_others(native: NativeLibrary, curve: Curve) -> None:
    points, rng = Points(native, curve), np.random.default_rng(21)
    for _ in range(4):
        of = Checked.random(points, rng)
        assert check(native, curve, of) is None
        none, none2 = points.infinity(), points.infinity(G2)
        for changes in (
            {"x": of.c},
            {"a": of.c, "c": of.a},
            {"a": points.neg(of.a)},
            {"b": points.neg(of.b, G2)},
            {"a": points.neg(of.a), "b": points.neg(of.b, G2)},  # holds
            {"a": none},
            {"b": none2},
            {"c": none},
            {"x": none},
            {"a": none, "b": none2, "c": none},
        ):
            found = check(native, curve, of, **changes)
            assert found == (None if product(points, of, **changes) else EQUATION), changes.keys()


@curves
def test_infinity_where_it_may_hold(default_native: NativeLibrary, curve: Curve) -> None:
    """Without A: alpha beta + x gamma + c delta = 0."""
    points = Points(default_native, curve)
    key = points.multiple(3) + b"".join(points.multiple(value, G2) for value in (5, 1, 1))
    of = Checked(key, points.multiple(2), points.infinity(), points.multiple(9, G2), points.multiple(-17))
    assert check(default_native, curve, of) is None
    assert check(default_native, curve, of, a=points.multiple(1)) == EQUATION
    assert check(default_native, curve, of, x=points.infinity()) == EQUATION
    assert check(default_native, curve, of, x=points.infinity(), c=points.multiple(-15)) is None


@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_proofs(default_native: NativeLibrary, item: Case) -> None:
    vkey = VerificationKey.read(item.path("verification_key.json"))
    curve = vkey.curve
    proof = Proof.read(item.path("proof.json"), curve)
    public = PublicSignals.read(item.path("public.json"), curve).values
    twos = (encode_g2(curve, point) for point in (vkey.beta2, vkey.gamma2, vkey.delta2))
    key = encode_g1(curve, vkey.alpha1) + b"".join(twos)
    ic = b"".join(encode_g1(curve, point) for point in vkey.ic)
    signals = b"".join(value.to_bytes(32, "little") for value in public)
    x = proof_input(default_native, curve, ic, signals, len(public))
    points = encode_g1(curve, proof.a), encode_g2(curve, proof.b), encode_g1(curve, proof.c)
    of = Checked(key, x, *points)
    assert check(default_native, curve, of) is None
    for index in range(len(public)):
        changed = bytearray(signals)
        changed[32 * index] ^= 1
        x = proof_input(default_native, curve, ic, bytes(changed), len(public))
        assert check(default_native, curve, of, x=x) == EQUATION


@curves
def test_bad_points_are_told_by_name_and_fault(native: NativeLibrary, curve: Curve) -> None:
    points = Points(native, curve)
    of = Checked.random(points, np.random.default_rng(22))
    bad: dict[str, dict[str, tuple[bytes, PointFault]]] = {}
    for name in "abc":
        group, size = G2 if name == "b" else G1, curve.n8q
        point = getattr(of, name)
        bad[name] = {
            "over": (curve.q.to_bytes(size, "little") + point[size:], PointFault.COORDINATE),
            "last": (point[:-size] + bytes([255] * size), PointFault.COORDINATE),
            "off": (point[:-size] + bytes([point[-size] ^ 1]) + point[1 - size :], PointFault.OFF_CURVE),
            "half": (point[: len(point) // 2] + bytes(len(point) // 2), PointFault.OFF_CURVE),
        }
        if (curve, group) != (BN254, G1):
            math = CurveMath(curve, group)
            bad[name]["outside"] = math.encode([find_point(math, 3)]).tobytes(), PointFault.SUBGROUP
        for changed, fault in bad[name].values():
            assert check(native, curve, of, **{name: changed}) == ProofProblem(ProofItem[name.upper()], fault)
    for first, second in pairwise("abc"):
        both = {first: bad[first]["off"][0], second: bad[second]["over"][0]}
        found = check(native, curve, of, **both)
        assert found == ProofProblem(ProofItem[first.upper()], PointFault.OFF_CURVE)


# ---- refusals ----


def refuses(status: Status, function: Any, *arguments: Any) -> None:
    with pytest.raises(NativeCallError) as caught:
        function(*arguments)
    assert caught.value.status is status


@curves
def test_arguments_out_of_range_are_refused(default_native: NativeLibrary, curve: Curve) -> None:
    native, x, call = default_native, aligned(4096), Call(1)
    at, bad = x.ctypes.data, Status.ARGUMENT
    x[:] = 0
    no: Any = Curve.__new__(Curve)
    object.__setattr__(no, "id", 2)
    whole = [at] * 9
    for steps in (0, 8, 15, 1 << 31):
        refuses(bad, native.proof_assemble, curve, steps, *whole)
    refuses(bad, native.proof_assemble, no, ALL, *whole)
    needs = {BLIND: (0, 1, 7), BEGIN: (0, 1, 2, 3, 7), FINISH: (4, 5, 6, 7, 8), ALL: range(9)}
    for steps, places in needs.items():
        for place in places:
            arguments: list[int | None] = [*whole]
            arguments[place] = None
            refuses(bad, native.proof_assemble, curve, steps, *arguments)
        native.proof_assemble(curve, steps, *[at if place in places else None for place in range(9)])
    nbytes = native.msm_scratch_bytes(curve, G1, 5, 1)
    room = aligned(nbytes + 64)
    scratch = room.ctypes.data
    fine = [at, at, 5, at, scratch, nbytes, call]
    refuses(bad, native.proof_input, no, *fine)
    for place, value in ((0, None), (1, None), (2, 1 << 62), (3, None), (4, scratch + 8)):
        refuses(bad, native.proof_input, curve, *fine[:place], value, *fine[place + 1 :])
    refuses(Status.SCRATCH, native.proof_input, curve, *fine[:5], nbytes - 1, call)
    refuses(Status.SCRATCH, native.proof_input, curve, *fine[:4], None, nbytes, call)
    x[:160] = 255  # signals that are not below r
    refuses(Status.DATA, native.proof_input, curve, at + 512, *fine[1:])
    refuses(bad, native.proof_check, no, at, at, at)
    for place in range(3):
        refuses(bad, native.proof_check, curve, *[None if k == place else at for k in range(3)])
