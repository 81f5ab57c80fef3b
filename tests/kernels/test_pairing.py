"""The pairings of the native library against py_ecc, against their defining properties, and on real proofs."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import py_ecc.optimized_bls12_381
import py_ecc.optimized_bn128
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BN254, CURVES, G1_INFINITY, G2_INFINITY, Curve, G1Point, G2Point, curve_by_name
from cuzk_engine.errors import CancelledError
from cuzk_engine.native import Call, NativeCallError, SpanKind, aligned, library
from tests.support.cases import CASES, Case

ROOT = Path(__file__).resolve().parents[2]

Pair = tuple[G1Point, G2Point]

# Neighbours of 1, 2, 4 and of the 8 pairs that share one Miller loop.
COUNTS = (1, 2, 3, 5, 7, 8, 9, 17)

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
scalars = st.integers(1, BN254.r - 1)  # the smaller of the two orders


def reference(curve: Curve) -> Any:
    return py_ecc.optimized_bn128 if curve is BN254 else py_ecc.optimized_bls12_381


def g1(curve: Curve, k: int) -> G1Point:
    """k times the generator of G1, computed by py_ecc."""
    return g1_affine(curve, reference(curve).multiply(reference(curve).G1, k % curve.r))


def g1_affine(curve: Curve, point: Any) -> G1Point:
    ec = reference(curve)
    if ec.is_inf(point):
        return G1_INFINITY
    x, y = ec.normalize(point)
    return int(x), int(y)


def g2(curve: Curve, k: int) -> G2Point:
    """k times the generator of G2, computed by py_ecc."""
    ec = reference(curve)
    point = ec.multiply(ec.G2, k % curve.r)
    if ec.is_inf(point):
        return G2_INFINITY
    x, y = ec.normalize(point)
    return (int(x.coeffs[0]), int(x.coeffs[1])), (int(y.coeffs[0]), int(y.coeffs[1]))


def opposite(curve: Curve, p: G1Point) -> G1Point:
    return p[0], -p[1] % curve.q


def encode(curve: Curve, values: list[int]) -> bytes:
    """Coordinates in Montgomery form."""
    return b"".join((v * curve.fq_montgomery % curve.q).to_bytes(curve.n8q, "little") for v in values)


def encode_pairs(curve: Curve, pairs: list[Pair]) -> tuple[bytes, bytes]:
    p = encode(curve, [v for point, _ in pairs for v in point])
    q = encode(curve, [v for _, point in pairs for coordinate in point for v in coordinate])
    return p, q


def pairing(curve: Curve, p: G1Point, q: G2Point) -> list[int]:
    """The 12 plain coefficients of e(p, q)."""
    out = bytearray(12 * curve.n8q)
    library().pairing(curve, *encode_pairs(curve, [(p, q)]), out)
    return [int.from_bytes(out[i : i + curve.n8q], "little") for i in range(0, len(out), curve.n8q)]


def product_is_one(curve: Curve, pairs: list[Pair], call: Call | None = None) -> bool:
    return library().pairing_check(curve, *encode_pairs(curve, pairs), len(pairs), call)


ONE = [1] + [0] * 11


def to_reference(curve: Curve, value: list[int]) -> Any:
    """The element of py_ecc's FQ12 with the same value.

    py_ecc writes Fq12 as Fq[w]/(w^12 - 2 a w^6 + a^2 + 1) where w^6 = xi = a + u, so u = w^6 - a. Of the tower, v is
    w^2, and the coefficients in Fq2 are those of 1, v, v^2, w, v w, v^2 w.
    """
    a = 9 if curve is BN254 else 1
    coefficients = [0] * 12
    for i, power in enumerate((0, 2, 4, 1, 3, 5)):
        c0, c1 = value[2 * i : 2 * i + 2]
        coefficients[power] = (c0 - a * c1) % curve.q
        coefficients[power + 6] = c1
    return reference(curve).FQ12(coefficients)


def reference_pairing(curve: Curve, p: G1Point, q: G2Point) -> Any:
    """f_{6x+2,Q} l l (BN254) or f_{x,Q} (BLS12-381) at P, to the power of (q^12 - 1) / r, by py_ecc.

    For BLS12-381 py_ecc takes the loop length |x| where x is negative, and so returns the inverse.
    """
    ec = reference(curve)
    value = ec.pairing(
        (ec.FQ2(q[0]), ec.FQ2(q[1]), ec.FQ2.one()),
        (ec.FQ(p[0]), ec.FQ(p[1]), ec.FQ.one()),
    )
    return value if curve is BN254 else value.inv()


def test_constants_are_what_the_script_derives() -> None:
    script = ROOT / "tools" / "pairing_constants.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@curves
@pytest.mark.parametrize(("a", "b"), [(1, 1), (0x1234567, -2), (-3, 0xFEDCBA9876543210)])
def test_equals_py_ecc(curve: Curve, a: int, b: int) -> None:
    p, q = g1(curve, a), g2(curve, b)
    assert to_reference(curve, pairing(curve, p, q)) == reference_pairing(curve, p, q)


@curves
def test_order_of_the_value_is_r(curve: Curve) -> None:
    value = pairing(curve, curve.g1, curve.g2)
    assert value != ONE
    assert to_reference(curve, value) ** curve.r == reference(curve).FQ12.one()


@curves
@settings(max_examples=8)
@given(a=scalars, b=scalars)
def test_bilinear_values(curve: Curve, a: int, b: int) -> None:
    value = pairing(curve, g1(curve, a), g2(curve, b))
    assert value == pairing(curve, g1(curve, a * b), curve.g2) == pairing(curve, curve.g1, g2(curve, a * b))
    assert value != pairing(curve, g1(curve, a * b + 1), curve.g2)


@curves
@settings(max_examples=8)
@given(a=scalars, b=scalars, c=scalars)
def test_product_is_one_exactly_when_the_exponents_cancel(curve: Curve, a: int, b: int, c: int) -> None:
    pairs = [(g1(curve, a), g2(curve, b)), (g1(curve, c), curve.g2), (curve.g1, g2(curve, -a * b - c))]
    assert product_is_one(curve, pairs)
    pairs[2] = (curve.g1, g2(curve, -a * b - c - 1))
    assert not product_is_one(curve, pairs)


@curves
def test_infinity_and_opposites(curve: Curve) -> None:
    p, q = g1(curve, 5), g2(curve, 7)
    assert pairing(curve, G1_INFINITY, q) == ONE
    assert pairing(curve, p, G2_INFINITY) == ONE
    assert pairing(curve, G1_INFINITY, G2_INFINITY) == ONE
    assert product_is_one(curve, [(G1_INFINITY, q), (p, G2_INFINITY)])
    assert not product_is_one(curve, [(p, q)])
    assert not product_is_one(curve, [(G1_INFINITY, q), (p, q), (p, G2_INFINITY)])
    assert product_is_one(curve, [(p, q), (G1_INFINITY, q), (opposite(curve, p), q)])
    assert to_reference(curve, pairing(curve, opposite(curve, p), q)) == to_reference(curve, pairing(curve, p, q)).inv()


@curves
def test_no_pairs(curve: Curve) -> None:
    assert library().pairing_check(curve, None, None, 0)


@curves
@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_many_pairs_on_several_threads(curve: Curve, threads: int) -> None:
    points = [(g1(curve, 3 + i), g2(curve, 2 + i)) for i in range(max(COUNTS))]
    for n in COUNTS:
        call = Call(threads=threads)
        sum_before = sum((3 + i) * (2 + i) for i in range(n - 1))
        last = (g1(curve, -sum_before), curve.g2)
        assert product_is_one(curve, [*points[: n - 1], last], call)
        if n > 1:
            assert not product_is_one(curve, [*points[: n - 1], points[n - 1]], call)


@curves
def test_more_pairs_than_one_round_holds(curve: Curve) -> None:
    ec = reference(curve)
    point, pairs = ec.G1, []
    for _ in range(300):  # a round holds at most 32 groups of 8
        pairs.append((g1_affine(curve, point), curve.g2))
        point = ec.add(point, ec.G1)
    pairs.append((g1(curve, -300 * 301 // 2), curve.g2))
    assert product_is_one(curve, pairs)
    assert not product_is_one(curve, [*pairs[:299], *pairs[300:]])


def groth16_pairs(curve: Curve, key: Any, proof: Any, public: list[str]) -> list[Pair]:
    """The four pairs of e(-A, B) e(alpha, beta) e(IC_0 + sum public_i IC_i, gamma) e(C, delta) = 1."""
    ec = reference(curve)

    def point1(value: list[str]) -> G1Point:
        return int(value[0]), int(value[1])

    def point2(value: list[list[str]]) -> G2Point:
        (x0, x1), (y0, y1) = value[:2]
        return (int(x0), int(x1)), (int(y0), int(y1))

    points = [(ec.FQ(x), ec.FQ(y), ec.FQ.one()) for x, y in map(point1, key["IC"])]
    inputs = points[0]
    for value, point in zip(public, points[1:], strict=True):
        inputs = ec.add(inputs, ec.multiply(point, int(value) % curve.r))
    return [
        (opposite(curve, point1(proof["pi_a"])), point2(proof["pi_b"])),
        (point1(key["vk_alpha_1"]), point2(key["vk_beta_2"])),
        (g1_affine(curve, inputs), point2(key["vk_gamma_2"])),
        (point1(proof["pi_c"]), point2(key["vk_delta_2"])),
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_real_proofs(case: Case) -> None:
    curve = curve_by_name(case.curve)
    assert curve is not None
    key, proof, public = (case.json(f"{name}.json") for name in ("verification_key", "proof", "public"))
    assert product_is_one(curve, groth16_pairs(curve, key, proof, public))
    for i in range(len(public)):
        altered = [*public[:i], str((int(public[i]) + 1) % curve.r), *public[i + 1 :]]
        assert not product_is_one(curve, groth16_pairs(curve, key, proof, altered))
    swapped = {**proof, "pi_a": proof["pi_c"], "pi_c": proof["pi_a"]}
    assert not product_is_one(curve, groth16_pairs(curve, key, swapped, public))


@curves
def test_cancelled_call_and_spans(curve: Curve) -> None:
    p, q = encode_pairs(curve, [(curve.g1, curve.g2), (opposite(curve, curve.g1), curve.g2)] * 9)
    cancel = ctypes.c_int32(0)
    call = Call(threads=2, cancel_address=ctypes.addressof(cancel), span_capacity=64)
    assert library().pairing_check(curve, p, q, 18, call)
    (span,) = call.spans()
    assert span.kind is SpanKind.PAIRING
    assert 0 < span.start_ns < span.end_ns
    cancel.value = 1
    with pytest.raises(CancelledError):
        library().pairing_check(curve, p, q, 18, call)


@curves
def test_points_at_addresses_of_mapped_files(curve: Curve) -> None:
    p, q = encode_pairs(curve, [(curve.g1, curve.g2), (opposite(curve, curve.g1), curve.g2)])
    memory = aligned(4 + len(p) + len(q))
    memory[4:] = np.frombuffer(p + q, np.uint8)
    address = memory.ctypes.data + 4
    assert library().pairing_check(curve, address, address + len(p), 2)


@curves
def test_wrong_arguments(curve: Curve) -> None:
    p, q = encode_pairs(curve, [(curve.g1, curve.g2)])
    out = bytearray(12 * curve.n8q)
    for third in (dataclasses.replace(curve, id=2), dataclasses.replace(curve, id=-1)):
        with pytest.raises(NativeCallError, match="argument refused"):
            library().pairing(third, p, q, out)
        with pytest.raises(NativeCallError, match="argument refused"):
            library().pairing_check(third, p, q, 1)
    for arguments in ((None, q, out), (p, None, out), (p, q, None)):
        with pytest.raises(NativeCallError, match="argument refused"):
            library().pairing(curve, *arguments)
    for data in ((None, q, 1), (p, None, 1), (p, q, 1 << 60)):
        with pytest.raises(NativeCallError, match="argument refused"):
            library().pairing_check(curve, *data)


def test_every_code_path_gives_the_same_values() -> None:
    script = (
        "from cuzk_engine.curves import CURVES\n"
        "from cuzk_engine.native import library\n"
        "from tests.kernels.test_pairing import pairing\n"
        "print(library().isa())\n"
        "print([pairing(curve, curve.g1, curve.g2) for curve in CURVES])\n"
    )
    expected = str([pairing(curve, curve.g1, curve.g2) for curve in CURVES])
    for path in library().isa_available():
        features = path.replace("+", ",")
        environment = {**os.environ, "CUZK_CPU_FEATURES": features}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [path, expected]
