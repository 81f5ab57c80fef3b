import json

import pytest

from cuzk_engine.errors import FormatError
from cuzk_engine.formats.identify import FileKind, describe
from tests.support.cases import BROKEN, CASES, SAPLING_OUTPUT, case

KINDS = {
    "circuit.zkey": FileKind.ZKEY,
    "circuit.r1cs": FileKind.R1CS,
    "witness.wtns": FileKind.WTNS,
    "verification_key.json": FileKind.VERIFICATION_KEY,
    "proof.json": FileKind.PROOF,
    "public.json": FileKind.PUBLIC,
}


@pytest.mark.parametrize("file", KINDS)
@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_files(item, file):
    path, facts = item.path(file), item.facts
    description = describe(path)
    assert description.kind is KINDS[file]
    assert description.path == str(path)
    fields = description.fields
    assert list(fields)[:2] == ["kind", "bytes"]
    assert fields["bytes"] == path.stat().st_size
    assert json.loads(json.dumps(fields)) == fields
    if file != "public.json":
        assert fields["curve"] == item.curve
    if file not in ("proof.json", "witness.wtns"):
        assert fields["public_signals"] == facts["n_public"]
    if file == "circuit.zkey":
        assert (fields["signals"], fields["domain"]) == (facts["n_vars"], facts["domain_size"])
        assert 1 << fields["log2_domain"] == fields["domain"]
        assert fields["contributions"] == facts["n_contributions"]
        assert [section["type"] for section in fields["sections"]] == facts["section_order"]
        last = fields["sections"][-1]
        assert last["offset"] + last["bytes"] == fields["bytes"]
    if file == "circuit.r1cs":
        assert (fields["constraints"], fields["wires"]) == (facts["n_constraints"], facts["n_vars"])
    if file == "witness.wtns":
        assert fields["values"] == facts["n_vars"]


def test_no_value_of_a_witness_is_described():
    item = case("bn128", "merkle10")
    text = json.dumps(describe(item.path("witness.wtns")).fields)
    long = [value for value in item.json("public.json") if len(value) > 20]
    assert long
    assert not any(value in text for value in long)


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"", "empty"),
        (b"<html>", "an HTML page, perhaps from a failed download"),
        (b"<?xml version='1.0'?>", "an XML or HTML document"),
        (b"hello", "text"),
        ("ä".encode() * 300, "text"),
        (b"a" + "ä".encode() * 300, "text"),  # cut within a character at the end of the head
        (b"\x00\x01\x02", "no file that is known here"),
        (b"\xff\xfe\xfd\xfc\xfb", "no file that is known here"),
        (b"ptau\x01\x00\x00\x00", "a powers of tau file (ptau)"),
        (b"pragma circom 2.0.0;", "circom source; compile it first"),
        (b'{"a": 1}', "JSON that is no proof, public signals or verification key"),
        (b"PK\x03\x04", "a zip archive; unpack it first"),
    ],
)
def test_other_files(tmp_path, content, guess):
    path = tmp_path / "file"
    path.write_bytes(content)
    description = describe(path)
    assert description.kind is FileKind.UNKNOWN
    assert description.fields == {"kind": "unknown", "bytes": len(content), "guess": guess}


def test_binary_verification_key_and_proof():
    facts = describe(SAPLING_OUTPUT / "verification.vk")
    assert (facts.kind, facts.fields["curve"], facts.fields["public_signals"]) == (FileKind.VK, "bls12_381", 5)
    facts = describe(SAPLING_OUTPUT / "proof.bin")
    assert (facts.kind, facts.fields["proofs"]) == (FileKind.COMPRESSED_PROOF, 1)


@pytest.mark.parametrize(
    "name", ["huge_section.zkey", "plonk.zkey", "truncated.zkey", "truncated.wtns", "wrong_q.zkey"]
)
def test_damaged_files_are_refused(name):
    with pytest.raises(FormatError, match=name):
        describe(BROKEN / name)


@pytest.mark.parametrize("content", [b'{"pi_a": []}', b'{"vk_alpha_1": 1}', b"[1]", b"[", b"{not json}"])
def test_damaged_json_is_refused(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"file\.json"):
        describe(path)


def test_trailing_bytes_are_told(tmp_path):
    path = tmp_path / "w.wtns"
    path.write_bytes(case("bn128", "mul_pub").path("witness.wtns").read_bytes() + b"123")
    assert describe(path).fields["trailing_bytes"] == 3


def test_a_folder_and_a_missing_file(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FormatError):
            describe(path)
