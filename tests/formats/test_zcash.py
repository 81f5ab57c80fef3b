"""Points in the zcash encoding against arkworks."""

import py_arkworks_bls12381 as arkworks
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuzk_engine.curves import BLS12_381
from cuzk_engine.formats import zcash
from tests.support.bellperson import encode

Q = BLS12_381.q
scalars = st.integers(1, BLS12_381.r - 1)


def plain(point):
    """arkworks's point as plain integers."""
    raw = bytes(point.to_xy_bytes_le())
    values = [int.from_bytes(raw[start : start + 48], "little") for start in range(0, len(raw), 48)]
    return tuple(values) if len(values) == 2 else (tuple(values[:2]), tuple(values[2:]))


@settings(max_examples=30)
@given(scalars)
@example(1)
@example(BLS12_381.r - 1)
def test_g1(k):
    point = arkworks.G1Point() * arkworks.Scalar(k)
    expected = plain(point)
    assert zcash.compress_g1(expected) == bytes(point.to_compressed_bytes())
    assert zcash.decompress_g1(bytes(point.to_compressed_bytes())) == expected
    assert zcash.read_g1(encode(point)) == expected
    assert zcash.write_g1(expected) == encode(point)


@settings(max_examples=30)
@given(scalars)
@example(1)
@example(BLS12_381.r - 1)
def test_g2(k):
    point = arkworks.G2Point() * arkworks.Scalar(k)
    expected = plain(point)
    assert zcash.compress_g2(expected) == bytes(point.to_compressed_bytes())
    assert zcash.decompress_g2(bytes(point.to_compressed_bytes())) == expected
    assert zcash.read_g2(encode(point)) == expected
    assert zcash.write_g2(expected) == encode(point)


def test_roots_of_every_kind():
    """Roots in Fq2 of elements of Fq, whether squares there or not, and of others."""
    for value in [(4, 0), (Q - 4, 0), (5, 0), (Q - 5, 0), (0, 0), (0, 1), (0, Q - 1), (3, 4), (1, 1), (1, Q - 1)]:
        squared = zcash._mul(value, value)
        root = zcash._sqrt2(squared)
        assert root in (value, (-value[0] % Q, -value[1] % Q))
    found = [zcash._sqrt2((k, 1)) for k in range(30)]
    assert any(root is None for root in found)
    assert any(root is not None for root in found)
    assert all(zcash._mul(root, root) == (k, 1) for k, root in enumerate(found) if root is not None)


@pytest.mark.parametrize(
    ("size", "read", "write", "point"),
    [(96, zcash.read_g1, zcash.write_g1, BLS12_381.g1), (192, zcash.read_g2, zcash.write_g2, BLS12_381.g2)],
)
def test_uncompressed_faults(size, read, write, point):
    good = write(point)
    for flag, message in ((0x80, "flag of a compressed"), (0x40, "flag of infinity, but"), (0x20, "only compressed")):
        with pytest.raises(zcash.EncodingFaultError, match=message):
            read(bytes([good[0] | flag]) + good[1:])
    with pytest.raises(zcash.EncodingFaultError, match="is infinity"):
        read(b"\x40" + bytes(size - 1))
    for start in range(0, size, 48):
        with pytest.raises(zcash.EncodingFaultError, match="not below the prime"):
            read(good[:start] + Q.to_bytes(48, "big") + good[start + 48 :])
    with pytest.raises(ValueError, match="expected"):
        read(good[:-1])


@pytest.mark.parametrize(
    ("size", "read", "write", "point"),
    [
        (48, zcash.decompress_g1, zcash.compress_g1, BLS12_381.g1),
        (96, zcash.decompress_g2, zcash.compress_g2, BLS12_381.g2),
    ],
)
def test_compressed_faults(size, read, write, point):
    good = write(point)
    assert read(good) == point
    with pytest.raises(zcash.EncodingFaultError, match="lacks the flag"):
        read(bytes([good[0] & 0x7F]) + good[1:])
    with pytest.raises(zcash.EncodingFaultError, match="is infinity"):
        read(b"\xc0" + bytes(size - 1))
    with pytest.raises(zcash.EncodingFaultError, match="flag of infinity, but"):
        read(bytes([good[0] | 0x40]) + good[1:])
    with pytest.raises(zcash.EncodingFaultError, match="not below the prime"):
        read(b"\x9f" + b"\xff" * (size - 1))
    # About every second x is that of no point.
    with pytest.raises(zcash.EncodingFaultError, match="no y belongs to its x"):
        [read(good[:-1] + bytes([k])) for k in range(16)]
