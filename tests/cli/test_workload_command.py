"""`cuzk workload`: files that every other command takes."""

import json

import pytest

from tests.support.cases import case


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_what_it_writes_proves_and_verifies(cuzk, tmp_path, curve):
    folder = tmp_path / "w"
    result = cuzk("workload", "porep:2^9", folder, "--curve", curve)
    assert (result.code, result.err) == (0, "")
    title = {"bn254": "BN254", "bls12_381": "BLS12-381"}[curve]
    assert result.out.startswith(f"{folder}: porep:2^9 on {title}, 497 constraints, domain 2^9, ")
    assert result.out.endswith("whoever ran this command could forge proofs\n")
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    assert cuzk("prove", folder / "circuit.zkey", folder / "witness.wtns", proof, public).code == 0
    assert cuzk("verify", folder / "verification_key.json", public, proof).out == "valid\n"
    vkey = json.loads((folder / "verification_key.json").read_text())
    reference = case({"bn254": "bn128", "bls12_381": "bls12381"}[curve], "mul_pub").json("verification_key.json")
    assert list(vkey) == list(reference)


def test_json_and_seed(cuzk, tmp_path):
    keys = []
    for name in ("a", "b"):
        result = cuzk("workload", "chain:2^4", tmp_path / name, "--seed", "x", "--json")
        assert result.err.startswith("cuzk: warning: --seed: ")
        document = json.loads(result.out)
        assert (document["constraints"], document["domain_size"], document["seeded"]) == (13, 16, True)
        keys.append((tmp_path / name / "circuit.zkey").read_bytes())
    assert keys[0] == keys[1]


def test_files_are_replaced_on_demand_only(cuzk, tmp_path):
    folder = tmp_path / "w"
    folder.mkdir()
    key = folder / "circuit.zkey"
    key.write_bytes(b"of a ceremony")
    result = cuzk("workload", "chain:2^4", folder, "--seed", "x")
    assert (result.code, result.out) == (1, "")
    assert result.error == f"{folder}: has circuit.zkey already; name another folder, or give --force to replace it"
    assert [path.read_bytes() for path in folder.iterdir()] == [b"of a ceremony"]
    assert cuzk("workload", "chain:2^4", folder, "--force").code == 0
    assert key.read_bytes()[:4] == b"zkey"
    names = "circuit.r1cs, witness.wtns, circuit.zkey and verification_key.json"
    again = f"{folder}: has {names} already; name another folder, or give --force to replace them"
    assert cuzk("workload", "chain:2^4", folder).error == again


def test_wrong_usage(cuzk, tmp_path):
    result = cuzk("workload", "chain:16", tmp_path / "w")
    assert result.code == 2
    assert result.error.startswith(
        'profile "chain:16" has another form, a domain is written as a power: chain:2^16; expected one like '
    )
    for profile, form in (("dense:4096", "as a power: dense:2^12; "), ("dense:4097", "as a power; expected one like")):
        assert form in cuzk("workload", profile, tmp_path / "w").error
    result = cuzk("workload", "chain:2^4", tmp_path / "w", "--curve", "secp256k1")
    assert result.code == 2
    assert result.error == '--curve: "secp256k1" is not known, expected bn254 or bls12_381'
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(cuzk, tmp_path):
    result = cuzk("workload", "chain:2^4", tmp_path / "missing" / "w")
    assert result.code == 1
    assert result.error.startswith(f"{tmp_path / 'missing' / 'w'}: cannot be made: ")
