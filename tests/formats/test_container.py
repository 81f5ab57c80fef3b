"""What .zkey, .wtns and .r1cs have in common: sections in any order, cuts and lies at every place."""

import itertools
import struct

import pytest

from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.container import Container, FormatSpec
from cuzk_engine.formats.r1cs import R1cs
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from tests.formats.builders import Parts, memory_below, section_headers
from tests.support.cases import BROKEN, CASES, TINY_CASES, case

READERS = {"circuit.zkey": ZKey, "witness.wtns": Witness, "circuit.r1cs": R1cs}
FILES = sorted(READERS)
NEEDED = {"circuit.zkey": range(1, 10), "witness.wtns": (1, 2), "circuit.r1cs": (1, 2)}
SPEC = FormatSpec(b"test", "a test file", 1, {1: "one"}, needed=(1,), optional=(2,))


def parse(file, data):
    return READERS[file].from_source(SourceFile.from_buffer(data, file))


def refusal(file, data):
    with pytest.raises(FormatError) as caught:
        parse(file, data)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert len(message) < 400
    return caught.value


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("item", TINY_CASES, ids=str)
def test_cut_at_every_byte(item, file):
    data = item.path(file).read_bytes()
    for size in range(len(data)):
        error = refusal(file, data[:size])
        assert isinstance(error, IncompleteFileError), size
        assert f"the file has {size:,}" in str(error)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", ["chain_252", "merkle10"])
@pytest.mark.parametrize("curve", ["bn128", "bls12381"])
def test_cut_at_every_section(curve, name, file, tmp_path):
    data = case(curve, name).path(file).read_bytes()
    offsets = section_headers(data)
    cuts = {0, 3, 4, 11, 12, 20, len(data) - 1}
    for start, end in itertools.pairwise(offsets):
        cuts |= {start, start + 3, start + 4, start + 11, start + 12, (start + end) // 2, end - 1}
    path = tmp_path / file
    for size in sorted(cuts):
        path.write_bytes(data[:size])
        for copy_below in (0, 1 << 30):
            with pytest.raises(IncompleteFileError, match=f"the file has {size:,}"):
                READERS[file].open(path, copy_below=copy_below)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("length", [2**63 - 1, 2**63, 2**64 - 1, 2**32, None], ids=str)
def test_lying_section_lengths(file, length):
    data = case("bn128", "mul_pub").path(file).read_bytes()
    for offset in section_headers(data)[:-1]:
        lie = len(data) + 1 if length is None else length
        damaged = bytearray(data)
        struct.pack_into("<Q", damaged, offset + 4, lie)
        with memory_below(1 << 20):
            error = refusal(file, damaged)
        assert isinstance(error, IncompleteFileError)
        assert f"{lie:,} bytes from offset {offset + 12:,}" in str(error)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("count", [11, 1000, 2**32 - 1])
def test_lying_section_count(file, count):
    data = bytearray(case("bn128", "mul_pub").path(file).read_bytes())
    struct.pack_into("<I", data, 8, count)
    assert isinstance(refusal(file, data), IncompleteFileError)


def test_a_count_of_sections_that_fits_but_is_absurd():
    data = struct.pack("<4sII", b"test", 1, 5000) + bytes(12 * 5000)
    with pytest.raises(FormatError, match=r"header says 5,000 sections, expected at most 1,024"):
        Container.parse(SourceFile.from_buffer(data, "file"), SPEC)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("item", TINY_CASES, ids=str)
def test_sections_in_any_order_and_unknown_ones(item, file):
    parts = Parts.of(item.path(file).read_bytes())
    backwards = Parts(parts.magic, parts.version, [(4711, b"unknown"), *reversed(parts.sections), (4711, b"")])
    assert repr(parse(file, backwards.build())) == repr(parse(file, parts.build()))


@pytest.mark.parametrize("file", FILES)
def test_missing_and_repeated_sections(file):
    parts = Parts.of(case("bn128", "mul_pub").path(file).read_bytes())
    for kind in NEEDED[file]:
        label = rf"section {kind} \([A-Za-z0-9 ]+\)"
        with pytest.raises(FormatError, match=f"{label} is missing"):
            parse(file, parts.without(kind).build())
        for twin in ((kind, parts.get(kind)), (kind, b"")):
            with pytest.raises(FormatError, match=f"{label} appears 2 times, expected once"):
                parse(file, Parts(parts.magic, parts.version, [*parts.sections, twin]).build())


@pytest.mark.parametrize("file", FILES)
def test_every_needed_section_has_an_exact_length(file):
    parts = Parts.of(case("bls12381", "mul_pub").path(file).read_bytes())
    for kind in NEEDED[file]:
        for change in (lambda payload: payload[:-4], lambda payload: payload + bytes(4), lambda payload: b""):
            assert f"section {kind} " in str(refusal(file, parts.replace(kind, change).build()))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_other_versions(file, version):
    parts = Parts.of(case("bn128", "mul_pub").path(file).read_bytes())
    assert f"version {version} of" in str(refusal(file, Parts(parts.magic, version, parts.sections).build()))


@pytest.mark.parametrize("file", FILES)
def test_trailing_bytes_are_harmless(file):
    data = case("bn128", "mul_pub").path(file).read_bytes()
    assert repr(parse(file, data + b"\0" * 5)) == repr(parse(file, data))


WRONG_KINDS = {
    b"<!DOCTYPE html><html><body>404</body>": "this is an HTML page, perhaps from a failed download, expected",
    b'{"protocol": "groth16"}': "this is JSON text, expected",
    b"\x1f\x8b\x08\x00": "this is packed with gzip; unpack it first, expected",
    b"version https://git-lfs.github.com/spec/v1\n": "this is a Git LFS pointer",
    b"Not Found": "this is text, expected",
    b"ptau\x01\x00": "this is a powers of tau file (ptau), expected",
    b"\x00\x01\x02\x03\xff": "starts with b'\\x00\\x01\\x02\\x03', expected",
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("head", WRONG_KINDS)
def test_files_of_another_kind(file, head):
    assert WRONG_KINDS[head] in str(refusal(file, head))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("other", FILES)
def test_one_kind_in_the_place_of_another(file, other):
    if file != other:
        suffix = other.rpartition(".")[2]
        error = refusal(file, case("bn128", "mul_pub").path(other).read_bytes())
        assert f"({suffix}), expected" in str(error)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_order_of_sections_is_that_of_the_file(item):
    source = SourceFile.open(item.path("circuit.zkey"))
    table = Container.parse(source, SPEC_OF_ZKEY).table
    assert [section.type for section in table] == item.facts["section_order"]


SPEC_OF_ZKEY = FormatSpec(b"zkey", "a proving key (zkey)", 1, {}, needed=range(1, 11))

BROKEN_MESSAGES = {
    "bad_magic.zkey": "starts with b'zkex', expected \"zkey\"",
    "empty.zkey": "incomplete file: the header needs 12 bytes, the file has 0",
    "empty.wtns": "incomplete file: the header needs 12 bytes, the file has 0",
    "huge_section.zkey": "incomplete file: section 5 (9,223,372,036,854,775,807 bytes from offset 1,740) needs",
    "plonk.zkey": "this is a PLONK key, expected Groth16",
    "truncated.zkey": "incomplete file: section 7 (1,024 bytes from offset 2,788) needs 3,812 bytes",
    "truncated.wtns": "incomplete file: section 2 (256 bytes from offset 76) needs 332 bytes, the file has 199",
    "wrong_q.zkey": "base field is not supported: secp256k1's base field; expected that of BN254 or BLS12-381",
}


@pytest.mark.parametrize("name", BROKEN_MESSAGES)
@pytest.mark.timeout(2)
def test_broken_files(name):
    path = BROKEN / name
    reader = ZKey if path.suffix == ".zkey" else Witness
    with pytest.raises(FormatError) as caught:
        reader.open(path)
    assert str(caught.value).startswith(f"{path}: {BROKEN_MESSAGES[name]}")
    assert "\n" not in str(caught.value)
