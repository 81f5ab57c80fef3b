import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.wtns import Witness, check_witness, first_not_below
from cuzk_engine.formats.zkey import ZKey
from tests.formats.builders import Parts, memory_below, wtns
from tests.support.cases import BROKEN, CASES, case

GOLDILOCKS = (1 << 64) - (1 << 32) + 1


def expect(data, message):
    with pytest.raises(FormatError) as caught:
        Witness.from_buffer(data, "w.wtns")
    assert str(caught.value).startswith("w.wtns: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_witnesses(item, copy_below):
    witness = Witness.open(item.path("witness.wtns"), copy_below=copy_below)
    assert witness.curve.name == item.curve
    assert len(witness) == item.facts["n_vars"]
    assert witness.raw.shape == (len(witness), 32)
    assert witness.values.shape == (len(witness), 4)
    assert np.shares_memory(witness.values, witness.source.data)
    public = witness.public_values(item.facts["n_public"])
    assert [str(value) for value in public] == item.json("public.json")
    check_witness(ZKey.open(item.path("circuit.zkey")), witness)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("index", [1, 2, 6])
@pytest.mark.parametrize("excess", [0, 1, 1 << 64, 1 << 128, 1 << 192])
def test_values_that_are_not_below_r(curve, index, excess):
    values = [1, 5, 0, curve.r - 1, 2, 3, 4]
    values[index] = curve.r + excess
    expect(wtns(curve.r, values), f"value {index} is not below the prime of {curve.title}'s scalar field")


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_the_largest_values_are_accepted(curve):
    assert len(Witness.from_buffer(wtns(curve.r, [1] + [curve.r - 1] * 5))) == 6


def test_the_first_value_must_be_1_and_no_value_is_shown():
    secret = 271828182845904523536
    for first in (0, 2, secret, 1 << 64):
        with pytest.raises(FormatError, match="the first value is not 1") as caught:
            Witness.from_buffer(wtns(BN254.r, [first, secret]))
        assert str(secret) not in str(caught.value)


def test_no_values():
    expect(wtns(BN254.r, []), "has no values, expected at least the constant 1")


@pytest.mark.parametrize("count", [0, 2, 4, 1000, 2**32 - 1])
def test_lying_count(count):
    with memory_below(1 << 20):
        expect(wtns(BN254.r, [1, 2, 3], count=count), f"section 2 (values) has 96 bytes, expected {32 * count:,}")


def test_sections_in_any_order():
    """And others, and bytes behind them: as the usual file, whose parts are read in one step."""
    values = [1, 7, BN254.r - 1]
    usual = wtns(BN254.r, values)
    header, body = usual[24:64], usual[76:]
    for sections in (
        [(2, body), (1, header)],
        [(1, header), (9, b"other"), (2, body)],
        [(1, header), (2, body), (3, b"")],
    ):
        data = Parts(b"wtns", 2, sections).build()
        assert (
            Witness.from_buffer(data + b"behind").raw.tobytes() == Witness.from_buffer(usual + b"behind").raw.tobytes()
        )


@pytest.mark.parametrize("size", [0, 3, 11, 12, 75, 76, 77, 107, 171])
def test_a_file_that_ends_too_soon(size):
    with pytest.raises(FormatError):
        Witness.from_buffer(wtns(BN254.r, [1, 7, 8])[:size])


def test_other_primes():
    expect(wtns(GOLDILOCKS, [1], n8=8), "field is not supported: Goldilocks; expected the scalar field of BN254 or")
    expect(wtns(BN254.q, [1]), "field is not supported: BN254's base field")
    expect(wtns(BN254.r - 2, [1]), f"field is not supported: unknown prime {BN254.r - 2:#x}")
    expect(wtns(BN254.r, [1], n8=48), "values of 48 bytes, expected 32 on BN254")


@pytest.mark.parametrize(("mine", "other"), [("bn128", "bls12381"), ("bls12381", "bn128")])
def test_a_witness_of_the_other_curve(mine, other):
    key = ZKey.open(case(mine, "mul_pub").path("circuit.zkey"))
    witness = Witness.open(case(other, "mul_pub").path("witness.wtns"))
    message = f"witness is for {witness.curve.title}, the key {key.path} for {key.curve.title}"
    with pytest.raises(FormatError, match=message) as caught:
        check_witness(key, witness)
    assert caught.value.path == witness.path


@pytest.mark.parametrize("count", [1, 7, 9])
def test_a_witness_of_another_length(count):
    key = ZKey.open(case("bn128", "mul_pub").path("circuit.zkey"))
    witness = Witness.from_buffer(wtns(BN254.r, [1] * count))
    found = "1 value" if count == 1 else f"{count} values"
    with pytest.raises(FormatError, match=f"witness has {found}, the circuit of the key .* has 8 signals"):
        check_witness(key, witness)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_value_short.wtns", "witness has 7 values, the circuit of the key .* has 8 signals"),
        ("other_prime.wtns", "witness is for BLS12-381, the key .* for BN254"),
    ],
)
def test_whole_witnesses_that_do_not_fit_the_key(name, message):
    key = ZKey.open(BROKEN / "good.zkey")
    check_witness(key, Witness.open(BROKEN / "good.wtns"))
    with pytest.raises(FormatError, match=message):
        check_witness(key, Witness.open(BROKEN / name))


LIMB = st.one_of(st.sampled_from([0, 1, 2**64 - 1]), st.integers(0, 2**64 - 1))


@st.composite
def near(draw):
    modulus = draw(st.sampled_from([BN254.r, BLS12_381.r]))
    edge = st.integers(-2, 2).map(lambda step: modulus + step)
    limbs = st.tuples(LIMB, LIMB, LIMB, LIMB).map(lambda parts: sum(part << 64 * k for k, part in enumerate(parts)))
    # Numbers that share their top limbs with the modulus.
    shared = st.tuples(st.integers(0, 3), limbs).map(
        lambda pair: (modulus >> 64 * pair[0] << 64 * pair[0]) | (pair[1] & ((1 << 64 * pair[0]) - 1))
    )
    return modulus, draw(st.lists(st.one_of(edge, limbs, shared), max_size=20))


@given(near())
def test_comparison_with_the_modulus_agrees_with_integers(pair):
    modulus, numbers = pair
    data = b"".join(number.to_bytes(32, "little") for number in numbers)
    values = np.frombuffer(data, dtype="<u8").reshape(-1, 4)
    expected = next((index for index, number in enumerate(numbers) if number >= modulus), None)
    assert first_not_below(values, modulus) == expected


def test_comparison_finds_a_value_behind_many_chunks():
    values = np.zeros((200_000, 4), dtype=np.uint64)
    assert first_not_below(values, BN254.r) is None
    values[170_001] = 2**64 - 1
    values[190_000] = 2**64 - 1
    assert first_not_below(values, BN254.r) == 170_001
