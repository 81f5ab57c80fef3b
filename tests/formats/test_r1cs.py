import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.r1cs import R1cs, first_unsatisfied
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.wtns import Witness
from tests.formats.builders import Parts, memory_below, put, r1cs, wtns
from tests.support.cases import CASES, case

# Offsets in section 1.
N_WIRES, N_OUTPUTS, N_CONSTRAINTS = 36, 40, 60


def parse(data):
    return R1cs.from_source(SourceFile.from_buffer(data, "c.r1cs"))


def expect(data, message):
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert str(caught.value).startswith("c.r1cs: ")
    assert message in str(caught.value)


def good():
    return Parts.of(case("bn128", "mul_pub").path("circuit.r1cs").read_bytes())


@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_systems(item, copy_below):
    system = R1cs.open(item.path("circuit.r1cs"), copy_below=copy_below)
    header, facts = system.header, item.facts
    assert header.curve.name == item.curve
    assert (header.n_constraints, header.n_wires, header.n_public) == (
        facts["n_constraints"],
        facts["n_vars"],
        facts["n_public"],
    )
    assert (header.n_outputs, header.n_public_inputs) == (facts["n_outputs"], facts["n_public_inputs"])
    rows = list(system.constraints())
    assert len(rows) == header.n_constraints
    for which in range(3):
        matrix = system.matrix(which)
        terms = [term for row in rows for term in row[which]]
        assert matrix.row_ptr.tolist() == _running_sum(len(row[which]) for row in rows)
        assert matrix.wires.tolist() == [wire for wire, _ in terms]
        assert matrix.values.tobytes() == b"".join(value.to_bytes(32, "little") for _, value in terms)


def _running_sum(counts):
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums


@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_witnesses_satisfy_their_systems(item):
    system, witness = R1cs.open(item.path("circuit.r1cs")), Witness.open(item.path("witness.wtns"))
    assert first_unsatisfied(system, witness) is None


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_the_first_violated_constraint_is_found(curve):
    # w2 = w1^2, w3 = w2 * w1, w4 = 3 * w3 - w1
    minus = curve.r - 1
    rows = [
        ([(1, 1)], [(1, 1)], [(2, 1)]),
        ([(2, 1)], [(1, 1)], [(3, 1)]),
        ([(3, 3), (1, minus)], [(0, 1)], [(4, 1)]),
    ]
    system = parse(r1cs(curve, rows, n_wires=5, outputs=1))
    for values, expected in (
        ([1, 5, 25, 125, 370], None),
        ([1, 5, 25, 125, 371], 2),
        ([1, 5, 25, 126, 370], 1),
        ([1, 5, 26, 125, 370], 0),
        ([1, minus, 1, minus, curve.r - 2], None),
        ([1, 0, 0, 0, 0], None),
    ):
        assert first_unsatisfied(system, Witness.from_buffer(wtns(curve.r, values))) == expected


def test_what_other_compilers_write():
    """Repeated wires, zero coefficients, empty combinations, unused wires, no outputs."""
    rows = [
        ([(1, 2), (1, 3)], [(2, 1), (3, 0)], [(4, 5)]),
        ([], [(1, 7)], []),
        ([(0, 6)], [(0, 1)], [(0, 6)]),
    ]
    system = parse(r1cs(BN254, rows, n_wires=9, public_inputs=3))
    assert list(system.constraints()) == rows
    assert system.matrix(0).row_ptr.tolist() == [0, 2, 2, 3]
    assert first_unsatisfied(system, Witness.from_buffer(wtns(BN254.r, [1, 3, 4, 8, 12, 0, 0, 0, 0]))) is None
    assert first_unsatisfied(system, Witness.from_buffer(wtns(BN254.r, [1, 3, 4, 8, 13, 0, 0, 0, 0]))) == 0


def test_no_constraints():
    system = parse(r1cs(BN254, [], n_wires=2, public_inputs=1))
    assert list(system.constraints()) == []
    assert system.matrix(2).row_ptr.tolist() == [0]
    assert first_unsatisfied(system, Witness.from_buffer(wtns(BN254.r, [1, 9]))) is None


def test_more_rows_than_one_block():
    rows = [([(index % 7, index)], [(0, 1)], [(index % 7, index)]) for index in range(40_000)]
    system = parse(r1cs(BN254, rows, n_wires=7))
    assert list(system.constraints()) == rows
    bad = [*rows[:30_000], ([(0, 1)], [(0, 1)], []), *rows[30_001:]]
    witness = Witness.from_buffer(wtns(BN254.r, [1] * 7))
    assert first_unsatisfied(parse(r1cs(BN254, bad, n_wires=7)), witness) == 30_000


def test_a_witness_that_does_not_belong():
    system = R1cs.open(case("bn128", "mul_pub").path("circuit.r1cs"))
    with pytest.raises(FormatError, match=r"witness is for BLS12-381, the constraint system .* for BN254"):
        first_unsatisfied(system, Witness.from_buffer(wtns(BLS12_381.r, [1] * 8)))
    with pytest.raises(FormatError, match=r"witness has 7 values, the circuit of .* has 8 wires"):
        first_unsatisfied(system, Witness.from_buffer(wtns(BN254.r, [1] * 7)))


@pytest.mark.parametrize("matrix", [0, 1, 2])
@pytest.mark.parametrize("row", [0, 6_000, 19_999])
def test_a_bad_term_is_named(matrix, row):
    def damaged(term):
        rows = [([(0, 1)], [(0, 1)], [(0, 1)]) for _ in range(20_000)]
        rows[row] = tuple([(0, 1), term] if which == matrix else [] for which in range(3))
        return r1cs(BN254, rows, n_wires=3)

    where = f"constraint {row:,} (matrix {'ABC'[matrix]})"
    expect(damaged((3, 1)), f"{where} names wire 3, expected one of 3")
    expect(damaged((2**32 - 1, 1)), f"{where} names wire 4,294,967,295, expected one of 3")
    expect(damaged((2, BN254.r)), f"{where} has a coefficient that is not below the prime of BN254's scalar field")
    assert parse(damaged((2, BN254.r - 1))).header.n_constraints == 20_000


@pytest.mark.parametrize("count", [3, 2**31, 2**32 - 1])
def test_lying_number_of_terms(count):
    rows = [([(0, 1)], [], []), ([], [(0, 1)], [(0, 1)])]  # the last two counts lie at bytes 52 and 92
    data = Parts.of(r1cs(BN254, rows, n_wires=1))
    with memory_below(1 << 20):
        expect(data.replace(2, put(52, count)).build(), "section 2 (constraints) ends within constraint 1 (matrix B)")
        expect(data.replace(2, put(92, count)).build(), "section 2 (constraints) ends within constraint 1 (matrix C)")


@pytest.mark.parametrize("count", [4, 5, 39, 40, 2**31, 2**32 - 1])
def test_lying_number_of_constraints(count):
    with memory_below(1 << 20):
        error = "expected at least" if 12 * count > 468 else "ends within constraint 3 (matrix A)"
        expect(good().replace(1, put(N_CONSTRAINTS, count)).build(), f"section 2 (constraints) {_had(error)}{error}")


def _had(error):
    return "has 468 bytes, " if error == "expected at least" else ""


@pytest.mark.parametrize("count", [0, 1, 2])
def test_constraints_after_the_last(count):
    data = good().replace(1, put(N_CONSTRAINTS, count)).build()
    expect(data, f"after constraint {count:,}, the last")


@pytest.mark.parametrize("size", [465, 466, 467])
def test_an_odd_section(size):
    data = good().replace(2, lambda payload: payload[:size]).build()
    expect(data, f"section 2 (constraints) has {size} bytes, expected a multiple of 4")


@pytest.mark.parametrize("wires", [7, 9, 2**31, 2**32 - 1])
def test_lying_number_of_wires(wires):
    message = f"section 3 (labels) has 64 bytes, expected {8 * wires:,}" if wires > 7 else "section 3 (labels)"
    expect(good().replace(1, put(N_WIRES, wires)).build(), message)
    if wires > 10_000:
        data = good().without(3).replace(1, put(N_WIRES, wires)).build()
        expect(data, f"header says {wires:,} wires, more than a file of {len(data)} bytes can use")


def test_without_labels():
    assert parse(good().without(3).build()).header.n_wires == 8


@pytest.mark.parametrize("outputs", [5, 2**32 - 1])
def test_more_inputs_and_outputs_than_wires(outputs):
    named = 1 + outputs + 3 + 1
    expect(good().replace(1, put(N_OUTPUTS, outputs)).build(), f"header says 8 wires, expected at least {named:,}")


def test_other_primes():
    expect(good().replace(1, put(4, BN254.q, 32)).build(), "field is not supported: BN254's base field")
    secq = (1 << 256) - (1 << 224) + (1 << 192) + (1 << 96) - 1
    expect(good().replace(1, put(4, secq, 32)).build(), "field is not supported: secp256r1's base field")


def test_custom_gates():
    def with_gates(uses):
        return r1cs(BN254, [], n_wires=1, extra=[(4, bytes(4)), (5, uses.to_bytes(4, "little"))])

    assert parse(with_gates(0)).header.n_wires == 1
    expect(with_gates(3), "uses custom gates, which Groth16 cannot prove")


def test_only_three_matrices():
    with pytest.raises(ValueError, match="matrix 3"):
        parse(good().build()).matrix(3)
