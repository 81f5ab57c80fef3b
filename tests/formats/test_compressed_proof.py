"""Proofs of 192 bytes."""

import pytest

from cuzk_engine.curves import BLS12_381, G1_INFINITY
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.compressed_proof import (
    MAX_PROOFS,
    decode_proofs,
    encode_proofs,
    looks_like_proofs,
    read_proofs,
)
from cuzk_engine.formats.identify import FileKind, describe
from cuzk_engine.formats.proof import Proof, PublicSignals, public_lists, public_lists_json
from tests.support.cases import SAPLING_OUTPUT, SMALL_CASES, case

DATA = (SAPLING_OUTPUT / "proof.bin").read_bytes()


def test_the_real_sapling_proof():
    (proof,) = read_proofs(SAPLING_OUTPUT / "proof.bin")
    assert proof.curve is BLS12_381
    assert encode_proofs([proof]) == DATA


@pytest.mark.parametrize("item", [item for item in SMALL_CASES if item.curve == "bls12_381"], ids=str)
def test_snarkjs_proofs_round_trip(item):
    proof = Proof.read(item.path("proof.json"))
    data = encode_proofs([proof] * 3)
    assert len(data) == 3 * 192
    assert decode_proofs(data, "p") == (proof,) * 3
    assert looks_like_proofs(data)


@pytest.mark.parametrize("size", [0, 20, 191, 193, 383])
def test_wrong_lengths(size):
    whole = max(192, -(-size // 192) * 192)
    with pytest.raises(IncompleteFileError, match=f"needs {whole} bytes, the file has {size}"):
        decode_proofs((DATA * 2)[:size], "p")


def test_too_many(tmp_path):
    path = tmp_path / "many.bin"
    path.write_bytes(DATA)
    with path.open("r+b") as file:
        file.truncate((MAX_PROOFS + 1) * 192)
    with pytest.raises(FormatError, match="at most"):
        read_proofs(path)


@pytest.mark.parametrize(("point", "start", "size"), [("A", 0, 48), ("B", 48, 96), ("C", 144, 48)])
def test_points_that_are_none(point, start, size):
    def refused(new, data=DATA):
        with pytest.raises(FormatError) as caught:
            decode_proofs(data[:start] + new + data[start + len(new) :], "p")
        return str(caught.value)

    assert refused(b"\xc0" + bytes(size - 1)) == f"p: point {point} is infinity"
    assert refused(bytes([DATA[start] & 0x7F])) == f"p: point {point} lacks the flag of a compressed point"
    assert f"point {point} has a coordinate" in refused(b"\x9f" + b"\xff" * 47)
    two = DATA + DATA[:start] + b"\xc0" + bytes(size - 1) + DATA[start + size :]
    with pytest.raises(FormatError, match=f"proof 1, point {point} is infinity"):
        decode_proofs(two, "p")


def test_files_of_another_kind():
    with pytest.raises(FormatError, match="this is JSON text, expected compressed proofs"):
        decode_proofs(b'{"pi_a": []}', "p")


def test_what_cannot_be_written():
    proof = Proof.read(case("bn128", "mul_out").path("proof.json"))
    with pytest.raises(ValueError, match="BN254"):
        encode_proofs([proof])
    (proof,) = decode_proofs(DATA, "p")
    with pytest.raises(ValueError, match="infinity"):
        encode_proofs([Proof(BLS12_381, G1_INFINITY, proof.b, proof.c)])


def test_description(tmp_path):
    path = tmp_path / "proofs"
    path.write_bytes(DATA * 10)
    description = describe(path)
    assert (description.kind, description.fields["proofs"]) == (FileKind.COMPRESSED_PROOF, 10)
    path.write_bytes(DATA * 10 + b"\x00")
    assert describe(path).kind is FileKind.UNKNOWN


def test_public_signals_of_several_proofs():
    two = [PublicSignals((1, 2)), PublicSignals((3, 4))]
    document = [["1", "2"], ["3", "4"]]
    assert public_lists_json(two) == '[\n [\n  "1",\n  "2"\n ],\n [\n  "3",\n  "4"\n ]\n]'
    assert public_lists(document, "p", BLS12_381, 2, 2) == two
    assert public_lists(["1", "2"], "p", BLS12_381, 2, 1) == two[:1]
    assert public_lists([["1", "2"]], "p", BLS12_381, 2, 1) == two[:1]
    assert public_lists([], "p", BLS12_381, 0, 1) == [PublicSignals(())]
    for wrong, proofs, message in (
        (["1", "2"], 2, "holds no list of lists"),
        ([["1", "2"], "3"], 2, "holds no list of lists"),
        ({}, 1, "holds no list of lists"),
        (document, 3, "has the public signals of 2 proofs, expected those of 3"),
        ([["1"], ["2"]], 2, "has 1 public signal, the verification key expects 2"),
        ([["1", str(BLS12_381.r)], ["1", "2"]], 2, "public signal 1 is not below the prime"),
    ):
        with pytest.raises(FormatError, match=message):
            public_lists(wrong, "p", BLS12_381, 2, proofs)
