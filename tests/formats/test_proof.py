import json
import os

import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.zkey import ZKey
from tests.support.cases import CASES, case

CASE = case("bn128", "mul_pub")


@pytest.mark.parametrize("item", CASES, ids=str)
def test_files_of_snarkjs_are_read_and_written_to_the_byte(item):
    key = VerificationKey.read(item.path("verification_key.json"))
    assert key.curve.name == item.curve
    assert key.n_public == item.facts["n_public"]
    proof = Proof.read(item.path("proof.json"), key.curve)
    assert proof.to_json() == item.path("proof.json").read_text()
    public = PublicSignals.read(item.path("public.json"), key.curve, key.n_public)
    assert public.to_json() == item.path("public.json").read_text()
    target = item.json("verification_key.json")["vk_alphabeta_12"]
    flat = [int(value) for half in target for pair in half for value in pair]
    assert key.to_json(flat) == item.path("verification_key.json").read_text()


@pytest.mark.parametrize("item", CASES, ids=str)
def test_the_verification_key_of_a_proving_key(item):
    key = VerificationKey.from_zkey(ZKey.open(item.path("circuit.zkey")))
    assert key == VerificationKey.read(item.path("verification_key.json"))
    without = json.loads(key.to_json())
    full = item.json("verification_key.json")
    del full["vk_alphabeta_12"]
    assert list(without.items()) == list(full.items())


def test_a_pairing_has_12_coefficients():
    key = VerificationKey.read(CASE.path("verification_key.json"))
    with pytest.raises(ValueError, match="11 coefficients"):
        key.to_json([1] * 11)


def test_no_public_signals():
    assert json.loads(PublicSignals(()).to_json()) == []
    assert PublicSignals.from_document([], "public.json", BN254, 0).values == ()


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_infinity_survives(curve):
    proof = Proof(curve, (0, 0), ((0, 0), (0, 0)), curve.g1)
    document = json.loads(proof.to_json())
    assert document["pi_a"] == ["0", "1", "0"]
    assert document["pi_b"] == [["0", "0"], ["1", "0"], ["0", "0"]]
    assert proof.to_json() == json.dumps(document, indent=1)
    assert Proof.from_document(document, "proof.json") == proof


READERS = {"proof.json": Proof, "public.json": PublicSignals, "verification_key.json": VerificationKey}


def refusal(file, document, *args):
    with pytest.raises(FormatError) as caught:
        READERS[file].from_document(document, file, *args)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert len(message) < 250
    return message


def changed(file, keys, value, curve="bn128"):
    """The document of a good file with one item replaced; None as the last key's value removes it."""
    document = case(curve, "mul_pub").json(file)
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value(place[keys[-1]]) if callable(value) else value
    return document


NOT_DECIMAL = ["", " 1", "1 ", "+1", "-1", "0x10", "1e3", "1.0", "01", "١", "1_0", "abc", "1\n", "9" * 201]
NOT_TEXT = [1, 1.5, None, True, [], {}]
ITEMS = {
    "proof.json": [("pi_a", 0), ("pi_a", 1), ("pi_a", 2), ("pi_b", 1, 0), ("pi_b", 2, 1), ("pi_c", 0)],
    "public.json": [(0,), (4,)],
    "verification_key.json": [("vk_alpha_1", 1), ("vk_beta_2", 0, 1), ("vk_delta_2", 1, 1), ("IC", 5, 0)],
}


def name_of(file, keys):
    if file == "public.json":
        return f"public signal {keys[0]}"
    return keys[0] + "".join(f"[{key}]" for key in keys[1:])


@pytest.mark.parametrize(("file", "keys"), [(file, keys) for file, items in ITEMS.items() for keys in items])
def test_numbers_must_be_decimal_strings(file, keys):
    for value in NOT_DECIMAL + NOT_TEXT:
        message = refusal(file, changed(file, keys, value))
        assert message.startswith(f"{file}: {name_of(file, keys)} is ")
        assert message.endswith("expected a number as a decimal string")


@pytest.mark.parametrize(("file", "keys"), [(file, keys) for file, items in ITEMS.items() for keys in items])
@pytest.mark.parametrize("curve", ["bn128", "bls12381"])
def test_numbers_must_be_reduced(curve, file, keys):
    mine = BN254 if curve == "bn128" else BLS12_381
    prime, field = (mine.r, "scalar") if file == "public.json" else (mine.q, "base")
    args = (mine, 5) if file == "public.json" else ()
    for value in (lambda text: str(int(text) + prime), str(prime), str(10**199)):
        message = refusal(file, changed(file, keys, value, curve), *args)
        assert f"{name_of(file, keys)} is not below the prime of {mine.title}'s {field} field" in message


def test_the_largest_values_are_read():
    document = [str(BN254.r - 1), "0"]
    assert PublicSignals.from_document(document, "public.json", BN254, 2).values == (BN254.r - 1, 0)


@pytest.mark.parametrize("count", [0, 4, 6])
def test_wrong_number_of_public_signals(count):
    message = refusal("public.json", ["1"] * count, BN254, 5)
    assert message == f"public.json: has {count} public signals, the verification key expects 5"


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        ("proof.json", ("pi_a",), ["1", "2"], "pi_a has 2 entries, expected 3"),
        ("proof.json", ("pi_a",), "1", "pi_a is text, expected a list of 3"),
        ("proof.json", ("pi_b",), [["1", "2"]] * 4, "pi_b has 4 entries, expected 3"),
        ("proof.json", ("pi_b", 1), ["1"], "pi_b[1] has 1 entries, expected 2"),
        ("proof.json", ("pi_c", 2), "2", 'pi_c[2] is not "1": expected an affine point'),
        ("proof.json", ("pi_c", 2), "0", 'pi_c[2] is not "1": expected an affine point'),
        ("proof.json", ("pi_b", 2), ["1", "1"], 'pi_b[2] is not ["1", "0"]'),
        ("proof.json", ("pi_a",), ["0", "0", "1"], "pi_a is (0, 0), which is not a point"),
        ("proof.json", ("pi_b",), [["0", "0"], ["0", "0"], ["1", "0"]], "pi_b is zero, which is not a point"),
        ("proof.json", ("protocol",), "plonk", 'protocol is "plonk", expected "groth16"'),
        ("proof.json", ("protocol",), None, 'protocol is null, expected "groth16"'),
        ("proof.json", ("protocol",), {"a": 1}, 'protocol is an object, expected "groth16"'),
        ("proof.json", ("curve",), "bls12377", 'curve is "bls12377", expected "bn128" or "bls12381"'),
        ("proof.json", ("curve",), 5, 'curve is 5, expected "bn128" or "bls12381"'),
        ("proof.json", ("curve",), "é\n" * 90, "characters), expected"),
        ("verification_key.json", ("protocol",), "fflonk", 'protocol is "fflonk"'),
        ("verification_key.json", ("nPublic",), 4, "IC has 6 points, expected 5 for nPublic 4"),
        ("verification_key.json", ("nPublic",), True, '"nPublic" is true, expected a count'),
        ("verification_key.json", ("nPublic",), -1, '"nPublic" is -1, expected a count'),
        ("verification_key.json", ("nPublic",), "5", '"nPublic" is "5", expected a count'),
        ("verification_key.json", ("IC",), {}, "IC is not a list"),
        ("verification_key.json", ("IC", 2), 7, "IC[2] is a number, expected a list of 3"),
        ("verification_key.json", ("IC",), [], "IC has 0 points, expected 6"),
    ],
)
def test_wrong_shapes(file, keys, value, message):
    assert message in refusal(file, changed(file, keys, value))


@pytest.mark.parametrize("file", ["proof.json", "verification_key.json"])
def test_every_key_is_needed(file):
    for key in CASE.json(file):
        document = CASE.json(file)
        del document[key]
        if key == "vk_alphabeta_12":
            assert VerificationKey.from_document(document, file).n_public == 5
        else:
            assert f'"{key}" is missing from a' in refusal(file, document)


def test_what_is_not_needed_is_not_looked_at():
    document = CASE.json("verification_key.json") | {"vk_alphabeta_12": "nonsense", "other": 1}
    assert VerificationKey.from_document(document, "vk") == VerificationKey.read(CASE.path("verification_key.json"))


def test_a_proof_without_a_curve_takes_the_keys():
    document = CASE.json("proof.json")
    del document["curve"]
    assert Proof.from_document(document, "proof.json", BN254) == Proof.read(CASE.path("proof.json"))


def test_a_proof_of_the_other_curve():
    message = refusal("proof.json", CASE.json("proof.json"), BLS12_381)
    assert message == "proof.json: proof is for BN254, the verification key for BLS12-381"


@pytest.mark.parametrize("file", READERS)
@pytest.mark.parametrize("document", [None, 1, "text", True, [], {}, [[]]])
def test_other_documents(file, document):
    if not (file == "public.json" and document == []):
        assert "expected" in refusal(file, document) or "missing" in refusal(file, document)


CONTENTS = {
    b"": "incomplete file",
    b"  \n": "this is blank, expected",
    b'{"pi_a": ["1",': "incomplete file: the JSON ends at line 1",
    b'["1", "2"': "incomplete file: the JSON ends at line 1",
    b"<!doctype html><html>": "this is an HTML page, perhaps from a failed download, expected",
    b"Not found": "this is text, expected",
    b'["1",]': "is not JSON: ",
    b'["1"] x': "is not JSON: Extra data at line 1 column 7",
    b'{"curve": "bn128", "curve": "bls12381"}': 'has the key "curve" twice',
    b"[NaN]": "holds NaN, which is not JSON",
    b"[-Infinity]": "holds -Infinity, which is not JSON",
    b"[" + b"9" * 5000 + b"]": "is not JSON text",
    b'["\xff"]': "is not JSON text",
    b"\x1f\x8b\x08": "this is packed with gzip",
}


@pytest.mark.parametrize("file", READERS)
@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: repr(content[:20]))
def test_files_that_are_not_json(tmp_path, file, content):
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        READERS[file].read(path)
    assert str(caught.value).startswith(f"{path}: {CONTENTS[content]}")
    assert len(str(caught.value)) < 250 + len(str(path))
    if not content:
        assert isinstance(caught.value, IncompleteFileError)


@pytest.mark.parametrize("file", READERS)
def test_cut_at_every_byte(tmp_path, file):
    path = tmp_path / file
    data = CASE.path(file).read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            READERS[file].read(path)


@pytest.mark.parametrize("file", ["public.json", "verification_key.json"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("before", [b"", b'["]]]]\\"]]]]",', b'["' + b"]" * 1000 + b'",'])
def test_deep_nesting(tmp_path, file, opening, before):
    path = tmp_path / file
    path.write_bytes(before + opening * 1_000_000)
    with pytest.raises(FormatError, match="is nested too deeply"):
        READERS[file].read(path)


@pytest.mark.timeout(10)
def test_a_string_without_an_end(tmp_path):
    path = tmp_path / "public.json"
    path.write_bytes(b'["' + b'\\"' * 1_000_000 + b"[" * 1_000_000)
    with pytest.raises(FormatError, match=r"Unterminated string|is not JSON"):
        PublicSignals.read(path)


def test_brackets_in_strings_do_not_nest(tmp_path):
    path = tmp_path / "public.json"
    path.write_bytes(b'["' + b"[" * 1000 + b'"]')
    with pytest.raises(FormatError, match=r"public signal 0 is .* expected a number as a decimal string"):
        PublicSignals.read(path)


@pytest.mark.parametrize("file", READERS)
def test_a_huge_file_is_refused_by_its_size(tmp_path, file):
    path = tmp_path / file
    path.touch()
    os.truncate(path, 100_000_000)
    with pytest.raises(FormatError, match=r"has 100,000,000 bytes, expected .* of at most"):
        READERS[file].read(path)


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = tmp_path / "public.json"
    path.write_bytes(b'\xef\xbb\xbf["7"]\r\n')
    assert PublicSignals.read(path, BN254, 1).values == (7,)


@pytest.mark.parametrize("file", READERS)
def test_missing(tmp_path, file):
    with pytest.raises(FormatError, match="no such file"):
        READERS[file].read(tmp_path / file)
