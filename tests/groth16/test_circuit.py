"""Constraint systems as bellperson sees them, from both kinds of files."""

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254
from cuzk_engine.errors import CancelledError, FormatError
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.circuit import BELLMAN_STRIDE, open_circuit
from cuzk_engine.native import Call, aligned
from tests.formats import builders
from tests.formats.builders import put
from tests.support.bellperson import R, make_toy

TOY = make_toy(3, 4, 40)


@pytest.fixture
def opened(tmp_path):
    def write(content, name="circuit.file"):
        path = tmp_path / name
        path.write_bytes(content)
        return open_circuit(path)

    return write


def bits(circuit, present):
    return np.unpackbits(present, count=circuit.n_vars, bitorder="little").tolist()


def test_the_stride_takes_snarkjs_root_to_bellmans():
    assert pow(pow(5, (R - 1) >> 32, R), BELLMAN_STRIDE, R) == pow(7, (R - 1) >> 32, R)


@pytest.mark.parametrize("kind", ["r1cs", "pce"])
def test_sizes_and_presence(opened, kind):
    circuit = opened(getattr(TOY, kind)())
    assert (circuit.n_inputs, circuit.n_aux, circuit.n_vars, circuit.curve) == (4, 40, 44, BLS12_381)
    assert circuit.n_rows + circuit.extra_inputs == len(TOY.all_rows)
    assert circuit.domain_size == TOY.domain
    for which, present in ((0, circuit.a_present), (1, circuit.b_present)):
        expected = {k for row in TOY.all_rows for k in row[which]}
        assert bits(circuit, present) == [int(k in expected) for k in range(44)]
        assert circuit.count_present(present) == len(expected)


@pytest.mark.parametrize("kind", ["r1cs", "pce"])
def test_evaluation_puts_rows_at_bellmans_roots(opened, kind):
    circuit = opened(getattr(TOY, kind)())
    n = TOY.domain
    witness = Witness.from_buffer(TOY.wtns())
    vectors = [aligned(32 * n) for _ in "abc"]
    assert circuit.evaluate(witness.raw, n, *vectors, Call()) is None
    values = [0] * n
    for i, (a, _, _) in enumerate(TOY.all_rows):
        values[i * BELLMAN_STRIDE % n] = sum(TOY.values[k] * value for k, value in a.items()) % R
    inverse = pow(1 << 256, -1, R)
    found = [int.from_bytes(x.tobytes(), "little") * inverse % R for x in vectors[0].reshape(-1, 32)]
    assert found == values


@pytest.mark.parametrize("kind", ["r1cs", "pce"])
def test_the_first_violated_constraint(opened, kind):
    circuit = opened(getattr(TOY, kind)())
    vectors = [aligned(32 * TOY.domain) for _ in "abc"]
    for number in (0, 17, len(TOY.rows) - 3):
        (target,) = TOY.rows[number][2]
        bad = TOY.with_value(target, (TOY.values[target] + 1) % R)
        witness = Witness.from_buffer(bad.wtns())
        expected = next(k for k, row in enumerate(TOY.all_rows) if not satisfied(bad.values, row))
        assert circuit.evaluate(witness.raw, TOY.domain, *vectors, Call()) == expected <= number


def satisfied(values, row):
    a, b, c = (sum(values[k] * value for k, value in part.items()) for part in row)
    return (a * b - c) % R == 0


def test_repeated_and_vanishing_terms(opened):
    rows = [([(1, 3), (1, R - 3), (2, 1)], [(3, 0), (2, 1)], [(2, 1)])]
    circuit = opened(builders.r1cs(BLS12_381, rows, n_wires=4))
    assert bits(circuit, circuit.a_present) == [1, 0, 1, 0]  # the constant has its row of its own
    assert bits(circuit, circuit.b_present) == [0, 0, 1, 0]


@pytest.mark.parametrize("inputs", [1, 7, 8, 9, 16, 17])
def test_every_input_counts_in_a(opened, inputs):
    toy = make_toy(1, inputs, 5)
    for kind in ("r1cs", "pce"):
        circuit = opened(getattr(toy, kind)())
        assert bits(circuit, circuit.a_present)[:inputs] == [1] * inputs


def test_no_constraints_but_those_of_inputs(opened):
    circuit = opened(builders.r1cs(BLS12_381, [], n_wires=1))
    assert (circuit.n_rows, circuit.extra_inputs, circuit.domain_size) == (0, 1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this is empty, expected a constraint system"),
        (b"\x01\x02\x03\xff", "this is something else: it starts with"),
        (b"<html></html>", "this is an HTML page"),
        (builders.r1cs(BN254, [], n_wires=1), "is for BN254, a bellperson key is for BLS12-381"),
    ],
)
def test_other_files(opened, content, message):
    with pytest.raises(FormatError, match=message):
        opened(content)


def test_pce_matrices_are_checked(opened):
    data = TOY.pce()
    rows = 4 * (len(TOY.all_rows) + 1)
    columns = 32 + 8 + rows + 8
    terms = int.from_bytes(data[columns - 8 : columns], "little")
    values = columns + 4 * terms + 8
    for change, message in (
        (put(32 + 8, 1), "matrix A, row pointer 0: expected pointers that start at 0"),
        (put(32 + 8 + 8, 2**32 - 1), "matrix A, row pointer 3: "),
        (put(columns, 44), "matrix A, term 0: the column is not one of 44 variables"),
        (put(columns + 20, 2**32 - 1), "matrix A, term 5: the column is not"),
        (put(values + 32, R, 32), "matrix A, term 1: the value is not below the prime"),
    ):
        with pytest.raises(FormatError, match=message):
            opened(change(data))


def test_pce_bitmaps_must_be_those_of_the_matrices(opened):
    data = TOY.pce()
    last = len(data) - 24  # the word of: auxiliary variables in B
    word = int.from_bytes(data[last : last + 8], "little")
    absent, there = (next(k for k in range(40) if (word >> k & 1) == bit) for bit in (0, 1))
    moved = word ^ 1 << absent ^ 1 << there
    with pytest.raises(FormatError, match=f"bitmap of auxiliary variables in B: bit {min(absent, there)} disagrees"):
        opened(put(last, moved, 8)(data))


def test_pce_without_a_row_for_an_input(opened):
    toy, missing = make_toy(3, 5, 40), 4
    assert all(missing not in row[0] for row in toy.rows)
    kept = [({}, {}, {}) if row == ({missing: 1}, {}, {}) else row for row in toy.all_rows]

    class Without(type(toy)):
        all_rows = kept

    content = Without(toy.n_inputs, toy.values, toy.rows).pce()
    with pytest.raises(
        FormatError, match=f"matrix A has no coefficient for input {missing}, expected a row of its own"
    ):
        opened(content)


def test_cancellation(tmp_path):
    flag = np.ones(1, np.int32)
    for kind in ("r1cs", "pce"):
        path = tmp_path / kind
        path.write_bytes(getattr(TOY, kind)())
        with pytest.raises(CancelledError):
            open_circuit(path, cancel_address=int(flag.ctypes.data))
