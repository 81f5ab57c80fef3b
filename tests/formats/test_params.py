"""bellperson's keys: their structure, and every way in which it can be broken."""

import struct

import pytest

from cuzk_engine.curves import BLS12_381
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats import params
from cuzk_engine.formats.identify import FileKind, describe
from cuzk_engine.formats.params import Params
from cuzk_engine.formats.points import decode_g1, decode_g2
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.groth16.verify import PreparedKey
from tests.formats.builders import memory_below
from tests.support.bellperson import SECTIONS, ToyKey, make_toy, section_places
from tests.support.cases import SAPLING_OUTPUT

TOY = make_toy(1, 3, 9)
KEY = ToyKey.of(TOY)
DATA = KEY.params()
PLACES = section_places(DATA)


def read(data, name="key.params"):
    return Params.from_source(SourceFile.from_buffer(data, name))


def read_vk(data, name="key.vk"):
    return params.verifying_key_from(SourceFile.from_buffer(data, name))


def with_count(name, count):
    start = PLACES[name][0] - 4
    return DATA[:start] + struct.pack(">I", count) + DATA[start + 4 :]


def refused(data, error=FormatError, reader=read):
    with memory_below(4 << 20), pytest.raises(error) as caught:
        reader(data)
    message = str(caught.value)
    assert message.startswith("key.")
    assert "\n" not in message
    return message


def test_a_key():
    key = read(DATA)
    assert (key.curve, key.n_inputs, key.n_public, key.n_aux, key.n_vars) == (BLS12_381, 3, 2, 9, 12)
    assert (key.domain_size, key.trailing_bytes, key.file_bytes) == (16, 0, len(DATA))
    assert {section.name: section.count for section in key.sections} == {
        name: len(points) for name, points in KEY.sections.items()
    }
    for section in key.sections:
        offset, count, size = PLACES[section.name]
        assert (section.offset, section.count, section.point_bytes) == (offset, count, size)
    assert bytes(key.b2[1]) == DATA[PLACES["b_g2"][0] + 192 :][:192]
    vkey = key.verification_key()
    assert vkey == read_vk(KEY.vk())
    assert vkey == read_vk(DATA)  # a proving key holds the verifying one
    assert (decode_g1(BLS12_381, key.alpha1), decode_g2(BLS12_381, key.delta2)) == (vkey.alpha1, vkey.delta2)
    assert repr(key) == "<Params key.params: 12 variables, domain 16>"


def test_file_size_is_that_of_the_format():
    counts = {name: len(points) for name, points in KEY.sections.items()}
    g1 = sum(counts[name] for name in ("ic", "h", "l", "a", "b_g1"))
    assert len(DATA) == 864 + 24 + 96 * g1 + 192 * counts["b_g2"]


def test_bytes_of_a_ceremony_are_accepted_and_counted(tmp_path):
    assert read(DATA + bytes(52_836)).trailing_bytes == 52_836
    path = tmp_path / "ceremony.params"
    path.write_bytes(DATA + bytes(52_836))
    assert describe(path).fields["ceremony_bytes"] == 52_836
    assert read_vk(DATA + b"\x00" * 64) == read_vk(DATA)


def test_the_real_sapling_key(tmp_path):
    key = params.read_verifying_key(SAPLING_OUTPUT / "verification.vk")
    assert (key.curve, key.n_public) == (BLS12_381, 5)
    PreparedKey(key)


@pytest.mark.parametrize("size", [0, 1, 95, 863, 864, 867, 868, 869, 963])
def test_files_that_are_too_short_for_anything(size):
    assert f"needs 964 bytes, the file has {size:,}" in refused(DATA[:size], IncompleteFileError)
    assert f"needs 964 bytes, the file has {size:,}" in refused(DATA[:size], IncompleteFileError, read_vk)


def offsets():
    for name, (offset, count, size) in PLACES.items():
        for where in (offset - 4, offset - 1, offset, offset + 1, offset + size, offset + count * size - 1):
            if where >= 964:
                yield name, where


@pytest.mark.parametrize(("name", "size"), list(offsets()))
def test_truncation(name, size):
    message = refused(DATA[:size], IncompleteFileError)
    assert f"the file has {size:,}" in message


def test_truncation_everywhere():
    for size in range(964, len(DATA)):
        with pytest.raises(IncompleteFileError):
            read(DATA[:size])


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 2**24])
def test_counts_beyond_the_file(name, count):
    message = refused(with_count(name, count), IncompleteFileError)
    assert f"section {name} ({count:,} points" in message


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("ic", 0, "section ic has 0 points, expected one for the constant"),
        ("h", 0, "section h has 0 points, expected one fewer than a power of two"),
        ("h", 14, "section h has 14 points, expected one fewer than a power of two"),
    ],
)
def test_counts_that_cannot_be(name, count, message):
    assert message in refused(with_count(name, count))


def changed(**counts):
    """The key with sections made shorter or longer; points repeat."""
    sections = {}
    for name, points in KEY.sections.items():
        count = counts.get(name, len(points))
        sections[name] = (points * (1 + count // max(1, len(points))))[:count]
    return ToyKey(KEY.header, sections).params()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"ic": 0}, "section ic has 0 points, expected one for the constant"),
        ({"h": 1}, "section h has 1 point, expected more: each of the 3 inputs"),
        ({"a": 2}, "section a has 2 points, expected 3 (inputs) to 12 (all variables)"),
        ({"a": 13}, "section a has 13 points, expected 3 (inputs) to 12 (all variables)"),
        ({"b_g1": 13}, "section b_g1 has 13 points, expected at most 12"),
        ({"b_g2": 3}, "section b_g2 has 3 points, expected 5, as many as section b_g1"),
    ],
)
def test_counts_that_do_not_go_together(counts, message):
    assert message in refused(changed(**counts))


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page, perhaps from a failed download"),
        (b"<html>" + b" " * 2000, "an HTML page, perhaps from a failed download"),
        (b"not found\n", "text"),
        (b"zkey\x01\x00\x00\x00" + bytes(2000), "a proving key (zkey)"),
        (b"{}", "JSON text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
    ],
)
def test_files_of_another_kind(tmp_path, content, guess):
    assert f"this is {guess}" in refused(content)
    assert f"this is {guess}" in refused(content, reader=read_vk)
    path = tmp_path / "v28-something.params"
    path.write_bytes(content)
    if not content.startswith((b"zkey", b"{")):
        with pytest.raises(FormatError, match="expected a bellperson proving key"):
            describe(path)


def put(data, offset, new):
    return data[:offset] + new + data[offset + len(new) :]


@pytest.mark.parametrize(("name", "offset", "size"), params.HEADER)
def test_points_of_the_header(name, offset, size):
    good = DATA[offset : offset + size]
    infinity = b"\x40" + bytes(size - 1)
    prime = BLS12_381.q.to_bytes(48, "big")
    for new, message in (
        (bytes([good[0] | 0x80]), "has the flag of a compressed point"),
        (bytes([good[0] | 0x20]), "has a flag that only compressed points have"),
        (infinity, "is infinity"),
        (prime, "has a coordinate that is not below the prime"),
    ):
        for reader, data in ((read, DATA), (read_vk, KEY.vk())):
            assert f"header, {name}: {message}" in refused(put(data, offset, new), reader=reader)


def test_points_of_ic():
    offset = PLACES["ic"][0] + 2 * 96
    for data, reader in ((KEY.vk(), read_vk), (DATA, lambda data: read(data).verification_key())):
        message = refused(put(data, offset, b"\x40" + bytes(95)), reader=reader)
        assert "section ic, point 2: is infinity" in message
    off_curve = put(KEY.vk(), offset + 95, bytes([KEY.vk()[offset + 95] ^ 1]))
    with pytest.raises(FormatError, match=r"key.vk: the verification key's IC\[2\] is not on its curve"):
        PreparedKey.checked(read_vk(off_curve), "key.vk")


def test_a_verifying_key_with_something_behind_it():
    assert "section h" in refused(KEY.vk() + bytes(4), reader=read_vk)
    refused(KEY.vk() + b"\x00", IncompleteFileError, read_vk)
    refused(KEY.vk()[:-1], IncompleteFileError, read_vk)


def test_descriptions(tmp_path):
    for name, data, kind in (
        ("a.params", DATA, FileKind.PARAMS),
        ("a.vk", KEY.vk(), FileKind.VK),
        ("b", DATA, FileKind.PARAMS),
        ("c", KEY.vk(), FileKind.VK),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert describe(path).kind is kind
    facts = describe(tmp_path / "b").fields
    expected = {"inputs": 3, "public_signals": 2, "auxiliary_variables": 9, "domain": 16, "log2_domain": 4}
    assert {name: facts[name] for name in expected} == expected
    assert [(section["name"], section["offset"], section["points"]) for section in facts["sections"]] == [
        (name, *PLACES[name][:2]) for name in SECTIONS
    ]
    assert "ceremony_bytes" not in facts


@pytest.mark.parametrize("size", [0, 863, 868])
def test_short_files_are_called_incomplete_by_their_name(tmp_path, size):
    for name in ("v28.params", "v28.vk"):
        path = tmp_path / name
        path.write_bytes(DATA[:size])
        with pytest.raises(IncompleteFileError, match=f"incomplete file: a bellperson .* the file has {size}"):
            describe(path)


def test_large_keys_are_mapped(tmp_path):
    path = tmp_path / "key.params"
    path.write_bytes(DATA)
    key = Params.open(path, copy_below=0)
    assert key.source.mapped
    assert key.is_unchanged()
    assert not key.h.flags.owndata
    path.write_bytes(DATA + b"\x00")
    assert not key.is_unchanged()
