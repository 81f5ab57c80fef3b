import dataclasses
import struct

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.zkey import ZKey
from tests.formats.builders import Parts, memory_below, put
from tests.support.cases import CASES, case

POINT_FIELDS = ("ic", "a", "b1", "b2", "l", "h")
GOLDILOCKS = (1 << 64) - (1 << 32) + 1
PALLAS = 0x40000000000000000000000000000000224698FC094CF91B992D30ED00000001
# Offsets in section 2 of a BN254 key.
N_VARS, N_PUBLIC, DOMAIN = 72, 76, 80


def parse(parts):
    return ZKey.from_source(SourceFile.from_buffer(parts.build(), "key"))


def good(curve="bn128", name="mul_pub"):
    return Parts.of(case(curve, name).path("circuit.zkey").read_bytes())


def expect(parts, message):
    with pytest.raises(FormatError) as caught:
        parse(parts)
    assert message in str(caught.value)


@pytest.mark.parametrize("copy_below", [0, 1 << 30], ids=["mapped", "copied"])
@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_keys(item, copy_below):
    path = item.path("circuit.zkey")
    key = ZKey.open(path, copy_below=copy_below)
    facts, data = item.facts, path.read_bytes()
    parts = Parts.of(data)
    assert key.curve.name == item.curve
    assert (key.n_vars, key.n_public, key.domain_size) == (facts["n_vars"], facts["n_public"], facts["domain_size"])
    assert 1 << key.log_domain == key.domain_size
    assert key.file_bytes == facts["zkey_bytes"]
    assert key.n_private == key.n_vars - key.n_public - 1
    g1, g2 = key.curve.g1_bytes, key.curve.g2_bytes
    shapes = {
        "ic": (key.n_public + 1, g1),
        "a": (key.n_vars, g1),
        "b1": (key.n_vars, g1),
        "b2": (key.n_vars, g2),
        "l": (key.n_private, g1),
        "h": (key.domain_size, g1),
    }
    for section, field in zip((3, 5, 6, 7, 8, 9), POINT_FIELDS, strict=True):
        points = getattr(key, field)
        assert (points.dtype, points.shape) == (np.uint8, shapes[field])
        assert points.tobytes() == parts.get(section)
        assert points.size == 0 or np.shares_memory(points, key.source.data)
        assert not points.flags.writeable
    header = parts.get(2)
    constants = (key.alpha1, key.beta1, key.beta2, key.gamma2, key.delta1, key.delta2)
    assert header.endswith(b"".join(constants))
    assert [len(point) for point in constants] == [g1, g1, g2, g2, g1, g2]
    assert key.coefficients.tobytes() == parts.get(4)[4:]
    assert key.coefficients.shape == (key.n_coefficients, 44)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_coefficients_end_with_the_rows_of_the_public_signals(item):
    key = ZKey.open(item.path("circuit.zkey"))
    rows = key.coefficients[:, :12].copy().view("<u4")
    expected = [(0, item.facts["n_constraints"] + signal, signal) for signal in range(key.n_public + 1)]
    found = sorted(tuple(row) for row in rows.tolist() if row[0] == 0 and row[1] >= item.facts["n_constraints"])
    assert found == expected


def test_the_hash_is_that_of_the_content():
    path = case("bn128", "mul_pub").path("circuit.zkey")
    one, other = ZKey.open(path, copy_below=0), ZKey.open(path)
    assert one.content_hash() == other.content_hash() == one.content_hash()
    assert len(one.content_hash()) == 64
    assert one.content_hash() != ZKey.open(case("bn128", "mul_initial").path("circuit.zkey")).content_hash()
    assert one.identity == other.identity
    assert one.is_unchanged()


def test_opening_a_mapped_key_allocates_next_to_nothing():
    path = case("bls12381", "merkle10").path("circuit.zkey")
    with memory_below(64 << 10):
        ZKey.open(path, copy_below=0)


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (2, "this is a PLONK key, expected Groth16"),
        (10, "this is a FFLONK key, expected Groth16"),
        (99, "this is a key for the unknown protocol 99, expected Groth16"),
        (0, "unknown protocol 0"),
    ],
)
def test_other_protocols(protocol, message):
    expect(good().replace(1, put(0, protocol)), message)


@pytest.mark.parametrize(
    ("prime", "message"),
    [
        (GOLDILOCKS, "base field is not supported: Goldilocks; expected that of BN254 or BLS12-381"),
        (PALLAS, "base field is not supported: Pallas's base field"),
        (BN254.r, "base field is not supported: BN254's scalar field"),
        (BN254.q + 2, f"base field is not supported: unknown prime {BN254.q + 2:#x}"),
        (0, "base field is not supported: unknown prime 0x0"),
    ],
)
def test_other_base_fields(prime, message):
    expect(good().replace(2, put(4, prime, 32)), message)


@pytest.mark.parametrize(
    ("prime", "name"), [(BLS12_381.r, "BLS12-381's scalar field"), (BN254.q, "BN254's base field"), (PALLAS, "Pallas")]
)
def test_scalar_field_of_another_curve(prime, name):
    expect(good().replace(2, put(40, prime, 32)), f"scalar field is {name}")


@pytest.mark.parametrize("size", [0, 31, 33, 48, 132, 2**31, 2**32 - 1])
@pytest.mark.parametrize("offset", [0, 36])
def test_lying_element_sizes(size, offset):
    with pytest.raises(FormatError, match=r"has a size of|not supported|too few|scalar field is"):
        parse(good().replace(2, put(offset, size)))


def test_a_field_with_padding_is_refused():
    def widen(header):
        return struct.pack("<I", 48) + BN254.q.to_bytes(48, "little") + header[36:]

    expect(good().replace(2, widen), "base field elements of 48 bytes, expected 32 on BN254")


@pytest.mark.parametrize("domain", [0, 1, 3, 15, 17, 2**32 - 1])
def test_domains_that_are_no_power_of_two(domain):
    expect(good().replace(2, put(DOMAIN, domain)), f"domain size is {domain:,}, expected a power of two")


@pytest.mark.parametrize("domain", [2**29, 2**31])
def test_domains_beyond_the_two_adicity(domain):
    expect(good().replace(2, put(DOMAIN, domain)), f"domain size is {domain:,}, expected at most 268,435,456 on BN254")


def test_a_domain_without_room_for_the_public_signals():
    expect(good().replace(2, put(DOMAIN, 4)), "domain size is 4, expected at least 6")


@pytest.mark.parametrize("domain", [8, 32, 2**28])
def test_a_domain_that_does_not_fit_the_h_query(domain):
    message = f"section 9 (H query) has 1,024 bytes, expected {64 * domain:,}: {domain:,} points of 64 bytes"
    expect(good().replace(2, put(DOMAIN, domain)), message)


def test_a_huge_domain_in_a_bls12_381_key():
    header = 4 + 48 + 4 + 32 + 8
    expect(
        good("bls12381").replace(2, put(header, 2**31)), "expected 206,158,430,208: 2,147,483,648 points of 96 bytes"
    )


@pytest.mark.parametrize("n_vars", [7, 9, 2**31, 2**32 - 1])
def test_lying_number_of_signals(n_vars):
    with memory_below(1 << 20):
        expect(good().replace(2, put(N_VARS, n_vars)), f"section 5 (A query) has 512 bytes, expected {64 * n_vars:,}")


@pytest.mark.parametrize("n_public", [8, 9, 2**32 - 1])
def test_more_public_signals_than_signals(n_public):
    expect(good().replace(2, put(N_PUBLIC, n_public)), f"header says {n_public:,} public signals of 8 signals")


@pytest.mark.parametrize("n_public", [0, 4, 6, 7])
def test_lying_number_of_public_signals(n_public):
    expect(good().replace(2, put(N_PUBLIC, n_public)), f"section 3 (IC) has 384 bytes, expected {64 * (n_public + 1)}")


@pytest.mark.parametrize("count", [0, 13, 15, 2**31, 2**32 - 1])
def test_lying_number_of_coefficients(count):
    message = f"section 4 (coefficients) has 620 bytes, expected {4 + 44 * count:,}: {count:,} coefficients of 44 bytes"
    expect(good().replace(4, put(0, count)), message)


def test_no_private_signal_leaves_the_l_query_empty():
    parts = good()
    parts = parts.replace(2, put(N_VARS, 6)).replace(8, lambda _: b"")
    for section, size in ((5, 64), (6, 64), (7, 128)):
        parts = parts.replace(section, lambda payload, end=6 * size: payload[:end])
    key = parse(parts)
    assert key.l.shape == (0, 64)
    assert key.n_private == 0


def test_every_point_may_be_infinity():
    parts = good()
    for section in (3, 5, 6, 7, 8, 9):
        parts = parts.replace(section, lambda payload: bytes(len(payload)))
    assert not parse(parts).h.any()


def test_a_key_without_contributions_section():
    assert parse(good().without(10)).n_vars == 8


def test_fields_cannot_be_changed():
    key = parse(good())
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.n_vars = 9
