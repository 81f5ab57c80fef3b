"""bellperson's keys and proofs from the command line."""

import json

import pytest

from cuzk_engine.curves import BLS12_381
from cuzk_engine.formats.compressed_proof import encode_proofs, read_proofs
from cuzk_engine.formats.proof import Proof
from tests.formats.builders import put
from tests.support.bellperson import ToyKey, make_toy
from tests.support.cases import SAPLING_OUTPUT, case

SAPLING = [SAPLING_OUTPUT / name for name in ("verification.vk", "public.json", "proof.bin")]
TOYS = [make_toy(7, 3, 30, witness) for witness in range(3)]
KEY = ToyKey.of(TOYS[0])


@pytest.fixture
def files(tmp_path):
    (tmp_path / "key.params").write_bytes(KEY.params())
    (tmp_path / "key.vk").write_bytes(KEY.vk())
    (tmp_path / "circuit.r1cs").write_bytes(TOYS[0].r1cs())
    (tmp_path / "circuit.pce").write_bytes(TOYS[0].pce())
    for number, toy in enumerate(TOYS):
        (tmp_path / f"{number}.wtns").write_bytes(toy.wtns())
    return tmp_path


def prove(cuzk, folder, *options, witnesses=("0.wtns",), circuit="circuit.r1cs", key="key.params"):
    return cuzk(
        "prove",
        folder / key,
        *(folder / name for name in witnesses),
        folder / "proof.bin",
        folder / "public.json",
        "--circuit",
        folder / circuit,
        *options,
    )


def verify(cuzk, folder, key="key.vk"):
    return cuzk("verify", folder / key, folder / "public.json", folder / "proof.bin")


def assert_nothing_written(folder):
    assert not (folder / "proof.bin").exists()
    assert not (folder / "public.json").exists()


# ---- a real key and proof ----


def test_the_real_sapling_proof(cuzk):
    result = cuzk("verify", *SAPLING)
    assert (result.code, result.out, result.err) == (0, "valid\n", "")


@pytest.mark.parametrize("index", range(5))
def test_an_altered_public_input(cuzk, tmp_path, index):
    public = json.loads(SAPLING[1].read_text())
    public[index] = str(int(public[index]) ^ 1)
    (tmp_path / "public.json").write_text(json.dumps(public))
    result = cuzk("verify", SAPLING[0], tmp_path / "public.json", SAPLING[2])
    assert (result.code, result.out) == (1, "invalid: the pairing equation does not hold for these public signals\n")


def test_an_altered_proof(cuzk, tmp_path):
    data, path = SAPLING[2].read_bytes(), tmp_path / "proof.bin"
    for bit in range(0, 192 * 8, 37):
        path.write_bytes(put(bit // 8, data[bit // 8] ^ 1 << bit % 8, 1)(data))
        result = cuzk("verify", *SAPLING[:2], path)
        assert result.code == 1
        assert result.out.startswith("invalid: ")
        assert result.err == ""


def test_a_proof_of_another_kind_for_the_same_statement(cuzk, tmp_path):
    """Any combination of key and proof files is understood."""
    item = case("bls12381", "mul_pub")
    path = tmp_path / "proof.bin"
    path.write_bytes(encode_proofs([Proof.read(item.path("proof.json"))]))
    assert cuzk("verify", item.path("verification_key.json"), item.path("public.json"), path).out == "valid\n"
    (proof,) = read_proofs(SAPLING[2])
    path = tmp_path / "proof.json"
    path.write_text(proof.to_json())
    assert cuzk("verify", *SAPLING[:2], path).out == "valid\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "incomplete file: a bellperson verifying key"),
        (b"<!doctype html><html></html>", "this is an HTML page, perhaps from a failed download"),
        (SAPLING[0].read_bytes()[:-1], "incomplete file: section ic (6 points"),
        (put(864, 2**31)(SAPLING[0].read_bytes()), "incomplete file: section ic (128 points"),
        (put(95, SAPLING[0].read_bytes()[95] ^ 1, 1)(SAPLING[0].read_bytes()), "alpha1 is not on its curve"),
        (b"\x40" + bytes(95) + SAPLING[0].read_bytes()[96:], "header, alpha_g1: is infinity"),
    ],
)
def test_broken_verifying_keys(cuzk, tmp_path, content, message):
    path = tmp_path / "broken.vk"
    path.write_bytes(content)
    result = cuzk("verify", path, *SAPLING[1:])
    assert (result.code, result.out) == (1, "")
    assert result.error.startswith(f"{path}: ")
    assert message in result.error


def test_content_counts_more_than_the_name(cuzk, tmp_path):
    path = tmp_path / "proof.json"
    path.write_bytes(SAPLING[2].read_bytes())
    assert cuzk("verify", *SAPLING[:2], path).out == "valid\n"


def test_proofs_of_wrong_length(cuzk, tmp_path):
    path = tmp_path / "proof.bin"
    path.write_bytes(SAPLING[2].read_bytes()[:-1])
    result = cuzk("verify", *SAPLING[:2], path)
    assert result.code == 1
    assert "incomplete file: compressed proofs of 192 bytes each needs 192 bytes, the file has 191" in result.error


# ---- proving ----


@pytest.mark.parametrize("circuit", ["circuit.r1cs", "circuit.pce"])
@pytest.mark.parametrize("key", ["key.vk", "key.params"])
def test_one_proof(cuzk, files, circuit, key):
    result = prove(cuzk, files, circuit=circuit)
    assert (result.code, result.err) == (0, "")
    assert (files / "proof.bin").stat().st_size == 192
    assert json.loads((files / "public.json").read_text()) == [str(value) for value in TOYS[0].public]
    assert verify(cuzk, files, key).out == "valid\n"


def test_several_witnesses(cuzk, files):
    result = prove(cuzk, files, "--json", witnesses=["0.wtns", "1.wtns", "2.wtns"])
    assert result.code == 0
    document = json.loads(result.out)
    assert (document["proofs"], document["verified"], document["curve"]) == (3, True, "bls12381")
    assert (files / "proof.bin").stat().st_size == 3 * 192
    publics = [[str(value) for value in toy.public] for toy in TOYS]
    assert json.loads((files / "public.json").read_text()) == publics
    assert verify(cuzk, files).out == "valid\n"

    (files / "public.json").write_text(json.dumps([publics[0], publics[2], publics[1]]))
    result = verify(cuzk, files)
    assert (result.code, result.out) == (
        1,
        "invalid: proof 1: the pairing equation does not hold for these public signals\n",
    )
    (files / "public.json").write_text(json.dumps(publics[:2]))
    result = verify(cuzk, files)
    assert result.code == 1
    assert "has the public signals of 2 proofs, expected those of 3" in result.out
    again = prove(cuzk, files, witnesses=["0.wtns", "1.wtns"])
    assert ": 2 proofs verified, " in again.out


def test_one_bad_witness_of_several_leaves_nothing(cuzk, files):
    (target,) = TOYS[1].rows[3][2]
    (files / "1.wtns").write_bytes(TOYS[1].with_value(target, 1).wtns())
    result = prove(cuzk, files, witnesses=["0.wtns", "1.wtns", "2.wtns"])
    assert result.code == 1
    assert f"{files / '1.wtns'}: the witness does not satisfy the circuit: constraint " in result.error
    assert_nothing_written(files)


def test_info(cuzk, files):
    for name, words in (
        ("key.params", ["params", "BLS12-381", "inputs", "b_g2"]),
        ("key.vk", ["vk", "public signals"]),
        ("circuit.pce", ["pce", "constraints", "terms A"]),
    ):
        result = cuzk("info", files / name)
        assert result.code == 0
        assert all(word in result.out for word in words)
        assert json.loads(cuzk("info", files / name, "--json").out)["curve"] == "bls12_381"
    memory = json.loads(cuzk("info", files / "key.params", "--json").out)["memory"]
    assert memory["fits"] is True
    assert memory["mapped_key"] == len(KEY.params())
    document = json.loads(prove(cuzk, files, "--json", witnesses=["0.wtns", "1.wtns"]).out)
    assert document["peak_device_bytes"] == memory["device_peak"]
    assert json.loads(cuzk("info", files / "proof.bin", "--json").out)["proofs"] == 2


# ---- what is refused ----


def test_a_key_without_its_circuit(cuzk, files):
    result = cuzk("prove", files / "key.params", files / "0.wtns", files / "proof.bin", files / "public.json")
    assert result.code == 2
    assert "is a bellperson key; give its constraint system, too: --circuit" in result.error
    assert_nothing_written(files)


def test_the_engine_takes_zkeys_only(cuzk, files):
    result = prove(cuzk, files, "--daemon", "127.0.0.1:1")
    assert result.code == 2
    assert "--circuit" in result.error


def test_a_zkey_with_a_circuit(cuzk, files):
    key = case("bls12381", "mul_out").path("circuit.zkey")
    result = prove(cuzk, files, key=key)
    assert result.code == 1
    assert result.error == f"{key}: this is a proving key (zkey), expected a bellperson proving key (params)"


@pytest.mark.parametrize("output", ["key.params", "0.wtns", "1.wtns", "circuit.r1cs"])
def test_outputs_never_replace_inputs(cuzk, files, output):
    before = (files / output).read_bytes()
    witnesses = [files / "0.wtns", files / "1.wtns"]
    circuit = files / "circuit.r1cs"
    result = cuzk(
        "prove", files / "key.params", *witnesses, files / output, files / "public.json", "--circuit", circuit
    )
    assert result.code == 2
    assert "it would be overwritten" in result.error
    assert (files / output).read_bytes() == before


@pytest.mark.parametrize("size", [0, 863, 868, 1000])
def test_cut_keys(cuzk, files, size):
    (files / "key.params").write_bytes(KEY.params()[:size])
    result = prove(cuzk, files)
    assert result.code == 1
    assert f"{files / 'key.params'}: incomplete file: " in result.error
    assert f"the file has {size:,}" in result.error
    assert_nothing_written(files)


def test_a_damaged_point(cuzk, files):
    data = KEY.params()
    at = len(data) - 1  # the last byte of the last point of b_g2
    (files / "key.params").write_bytes(put(at, data[at] ^ 1, 1)(data))
    result = prove(cuzk, files)
    last = len(KEY.sections["b_g2"]) - 1
    assert result.error == f"{files / 'key.params'}: section b_g2, point {last}: is not on its curve"
    assert_nothing_written(files)


def test_a_value_out_of_range_in_the_circuit(cuzk, files):
    data = TOYS[0].pce()
    values = 32 + 8 + 4 * (len(TOYS[0].all_rows) + 1)
    terms = int.from_bytes(data[values : values + 8], "little")
    values += 8 + 4 * terms + 8
    (files / "circuit.pce").write_bytes(put(values, BLS12_381.r, 32)(data))
    result = prove(cuzk, files, circuit="circuit.pce")
    assert "circuit.pce: matrix A, term 0: the value is not below the prime" in result.error
    assert_nothing_written(files)
