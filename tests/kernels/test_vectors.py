"""The vectors of a Groth16 proof: sparse products, their order and checks, and whole proofs on real keys."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES, Curve
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.native import CoefficientFacts, Field, Group, NativeLibrary, aligned
from tests.support.arithmetic import FieldMath, encode_scalars
from tests.support.cases import CASES, Case
from tests.support.native_proof import NativeProof

Array = npt.NDArray[np.uint8]

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@dataclass
class Entry:
    matrix: int
    constraint: int
    signal: int
    coefficient: int  # plain


def encode_entries(curve: Curve, entries: list[Entry]) -> Array:
    """Section 4 of a zkey, without its count; four bytes off any alignment of 8, as in a file."""
    r2 = pow(1 << 256, 2, curve.r)
    data = b"".join(
        entry.matrix.to_bytes(4, "little")
        + entry.constraint.to_bytes(4, "little")
        + entry.signal.to_bytes(4, "little")
        + (entry.coefficient * r2 % curve.r).to_bytes(32, "little")
        for entry in entries
    )
    array = aligned(4 + len(data))[4:]
    array[:] = np.frombuffer(data, np.uint8)
    return array


def some_entries(curve: Curve, n: int, n_vars: int, domain: int, seed: int) -> list[Entry]:
    rng = random.Random(seed)
    return [
        Entry(
            rng.randrange(2),
            rng.randrange(domain),
            rng.randrange(n_vars),
            rng.choice([1, curve.r - 1, rng.randrange(curve.r)]),
        )
        for _ in range(n)
    ]


def products(curve: Curve, entries: list[Entry], w: list[int], domain: int) -> tuple[list[int], list[int], list[int]]:
    sums = [[0] * domain, [0] * domain]
    for entry in entries:
        row = sums[entry.matrix]
        row[entry.constraint] = (row[entry.constraint] + entry.coefficient * w[entry.signal]) % curve.r
    return sums[0], sums[1], [a * b % curve.r for a, b in zip(*sums, strict=True)]


def evaluate(native: NativeLibrary, curve: Curve, entries: list[Entry], w: list[int], domain: int) -> list[list[int]]:
    data = encode_entries(curve, entries)
    n = len(entries)
    facts = native.coefficients_check(curve, data, n, len(w), domain)
    assert isinstance(facts, CoefficientFacts)
    order = None
    if not facts.is_sorted:
        order = np.zeros(n, np.uint32)
        native.coefficients_order(data, n, domain, order, aligned(8 * (domain + 1)))
        assert sorted(order.tolist()) == list(range(n))
    vectors = [aligned(32 * domain) for _ in range(3)]
    for vector in vectors:
        vector[:] = 0xA5
    native.evaluate(curve, data, n, order, encode_scalars(w), domain, *vectors)
    math = FieldMath(curve, Field.FR)
    without_c = [aligned(32 * domain) for _ in range(2)]
    native.evaluate(curve, data, n, order, encode_scalars(w), domain, *without_c, None)
    assert all(np.array_equal(x, y) for x, y in zip(vectors, without_c, strict=False))
    return [math.decode_mont(vector) for vector in vectors]


@curves
@settings(max_examples=25)
@given(
    n=st.integers(0, 60),
    n_vars=st.integers(1, 9),
    log_domain=st.integers(0, 5),
    is_sorted=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_sparse_products(
    native: NativeLibrary, curve: Curve, n: int, n_vars: int, log_domain: int, is_sorted: bool, seed: int
) -> None:
    domain = 1 << log_domain
    entries = some_entries(curve, n, n_vars, domain, seed)
    if is_sorted:
        entries.sort(key=lambda entry: entry.constraint)
    rng = random.Random(seed)
    w = [rng.choice([0, 1, curve.r - 1, rng.randrange(curve.r)]) for _ in range(n_vars)]
    assert evaluate(native, curve, entries, w, domain) == list(products(curve, entries, w, domain))


@curves
def test_sparse_products_of_many_rows(native: NativeLibrary, curve: Curve) -> None:
    """More rows than a task takes, with rows of very different lengths."""
    domain = 4200
    entries = some_entries(curve, 3000, 100, domain, 1) + some_entries(curve, 1000, 100, 3, 2)
    w = [random.Random(3).randrange(curve.r) for _ in range(100)]
    expected = list(products(curve, entries, w, domain))
    assert evaluate(native, curve, entries, w, domain) == expected
    entries.sort(key=lambda entry: entry.constraint)
    assert evaluate(native, curve, entries, w, domain) == expected


@curves
def test_check_counts_and_sees_the_order(native: NativeLibrary, curve: Curve) -> None:
    entries = sorted(some_entries(curve, 5000, 50, 4096, 4), key=lambda entry: entry.constraint)
    of_b = sum(entry.matrix for entry in entries)
    data = encode_entries(curve, entries)
    assert native.coefficients_check(curve, data, 5000, 50, 4096) == CoefficientFacts(True, 5000 - of_b, of_b)
    assert native.coefficients_check(curve, None, 0, 50, 4096) == CoefficientFacts(True, 0, 0)
    for at in (1, 2048, 4999):  # also where two tasks meet
        swapped = list(entries)
        swapped[at] = Entry(swapped[at].matrix, 0, 0, 1)
        facts = native.coefficients_check(curve, encode_entries(curve, swapped), 5000, 50, 4096)
        assert isinstance(facts, CoefficientFacts)
        assert facts.is_sorted == (entries[at - 1].constraint == 0)


@curves
@pytest.mark.parametrize("at", [0, 2047, 2048, 4999])
def test_check_names_the_first_bad_entry(native: NativeLibrary, curve: Curve, at: int) -> None:
    good = encode_entries(curve, some_entries(curve, 5000, 50, 4096, 4))
    for offset, value in (
        (0, (2).to_bytes(4, "little")),
        (4, (4096).to_bytes(4, "little")),
        (8, (50).to_bytes(4, "little")),
        (12, curve.r.to_bytes(32, "little")),
        (12, b"\xff" * 32),
    ):
        data = good.copy()
        data[at * 44 + offset : at * 44 + offset + len(value)] = np.frombuffer(value, np.uint8)
        data[4999 * 44] = 2
        assert native.coefficients_check(curve, data, 5000, 50, 4096) == at


@curves
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_join(native: NativeLibrary, curve: Curve, n: int) -> None:
    math = FieldMath(curve, Field.FR)
    rng = random.Random(n)
    a, b, c = ([rng.choice([0, 1, curve.r - 1, rng.randrange(curve.r)]) for _ in range(n)] for _ in range(3))
    x = math.encode_mont(a)
    native.h_join(curve, x, math.encode_mont(b), math.encode_mont(c), n)
    assert math.decode(x) == [(p * q - s) % curve.r for p, q, s in zip(a, b, c, strict=True)]


@pytest.mark.parametrize("case", [case for case in CASES if case.small], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_proofs_of_real_circuits_verify(native: NativeLibrary, case: Case, threads: int) -> None:
    """With snarkjs's own keys: the roots of unity, the coset and the bases all have to be the ones it uses."""
    proof = NativeProof(
        native, ZKey.open(case.path("circuit.zkey")), Witness.open(case.path("witness.wtns")), threads=threads
    )
    made = proof.prove()
    assert proof.verifies(made)
    changed = proof.add(Group.G1, made[2], proof.zkey.alpha1)
    assert not proof.verifies((made[0], made[1], changed))
