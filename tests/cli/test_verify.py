"""`cuzk verify`: "valid", or "invalid: …" with the item, and the exit code."""

import json

import pytest

from cuzk_engine.curves import CURVES
from tests.support.cases import CASES, case

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def files(item):
    return item.path("verification_key.json"), item.path("public.json"), item.path("proof.json")


@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_proofs(cuzk, item):
    result = cuzk("verify", *files(item))
    assert (result.code, result.out, result.err) == (0, "valid\n", "")


def test_json(cuzk):
    result = cuzk("verify", *files(case("bn128", "mul_out")), "--json")
    assert (result.code, json.loads(result.out)) == (0, {"valid": True, "reason": None})
    vkey, _, proof = files(case("bn128", "mul_out"))
    result = cuzk("verify", vkey, case("bn128", "mul_pub").path("public.json"), proof, "--json")
    document = json.loads(result.out)
    assert result.code == 1
    assert document["valid"] is False
    assert "has 5 public signals, the verification key expects 1" in document["reason"]


@curves
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, c: [str(int(p[0]) + c.r), *p[1:]], "public signal 0 is not below the prime"),
        (lambda p, c: [*p[:4], str(c.r)], "public signal 4 is not below the prime"),
        (lambda p, c: ["-1", *p[1:]], 'public signal 0 is "-1", expected a number'),
        (lambda p, c: ["0x10", *p[1:]], 'public signal 0 is "0x10", expected a number'),
        (lambda p, c: ["", *p[1:]], 'public signal 0 is "", expected a number'),
        (lambda p, c: [None, *p[1:]], "public signal 0 is null"),
        (lambda p, c: [*p[:4], str(int(p[4]) ^ 1)], "the pairing equation does not hold"),
        (lambda p, c: p[:-1], "has 4 public signals, the verification key expects 5"),
        (lambda p, c: [*p, "1"], "has 6 public signals, the verification key expects 5"),
        (lambda p, c: [], "has 0 public signals, the verification key expects 5"),
        (lambda p, c: {"a": 1}, "holds no list"),
    ],
)
def test_changed_public_signals(cuzk, tmp_path, curve, change, message):
    item = case(curve.snarkjs_name, "mul_pub")
    path = tmp_path / "public.json"
    path.write_text(json.dumps(change(item.json("public.json"), curve)))
    result = cuzk("verify", item.path("verification_key.json"), path, item.path("proof.json"))
    assert result.code == 1
    assert result.out.startswith("invalid: ")
    assert message in result.out
    assert result.out.count("\n") == 1
    assert result.err == ""


@curves
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, c: p["pi_a"].__setitem__(0, str(int(p["pi_a"][0]) + c.q)), "pi_a[0] is not below the prime"),
        (lambda p, c: p["pi_b"][1].__setitem__(0, str(c.q)), "pi_b[1][0] is not below the prime"),
        (lambda p, c: p["pi_a"].__setitem__(1, "7"), "pi_a is not on its curve"),
        (lambda p, c: p["pi_b"][0].__setitem__(1, "7"), "pi_b is not on its curve"),
        (lambda p, c: p["pi_c"].__setitem__(0, "7"), "pi_c is not on its curve"),
        (lambda p, c: p.__setitem__("pi_a", p["pi_c"]), "the pairing equation does not hold"),
        (lambda p, c: p["pi_a"].pop(), "pi_a has 2 entries, expected 3"),
        (lambda p, c: p.pop("pi_c"), '"pi_c" is missing'),
        (lambda p, c: p.__setitem__("protocol", "plonk"), 'protocol is "plonk"'),
        (lambda p, c: p.__setitem__("curve", "bls12381" if c.name == "bn254" else "bn128"), "proof is for"),
        (lambda p, c: p["pi_c"].__setitem__(2, "2"), "expected an affine point"),
    ],
)
def test_changed_proofs(cuzk, tmp_path, curve, change, message):
    item = case(curve.snarkjs_name, "mul_pub")
    proof = item.json("proof.json")
    change(proof, curve)
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof))
    result = cuzk("verify", item.path("verification_key.json"), item.path("public.json"), path)
    assert result.code == 1
    assert result.out.startswith("invalid: ")
    assert message in result.out
    assert result.err == ""


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "incomplete file"),
        (b"{", "incomplete file"),
        (b"<!DOCTYPE html><html>", "this is an HTML page"),
        (b"\xff\xfe\x00" * 9, "is not JSON text"),
        (b"[" * 60_000, "nested too deeply"),
    ],
)
def test_files_that_are_nothing_of_the_kind(cuzk, tmp_path, which, content, message):
    names = list(files(case("bn128", "mul_out")))
    names[which] = tmp_path / "file.json"
    if content is not None:
        names[which].write_bytes(content)
    result = cuzk("verify", *names)
    assert result.code == 1
    assert message in result.error
    assert str(names[which]) in result.error
    assert result.out == ""


def test_faults_of_the_verification_key_are_errors(cuzk, tmp_path):
    item = case("bn128", "mul_pub")
    key = item.json("verification_key.json")
    key["IC"][3][1] = "5"
    path = tmp_path / "vk.json"
    path.write_text(json.dumps(key))
    result = cuzk("verify", path, item.path("public.json"), item.path("proof.json"))
    assert result.code == 1
    assert result.error == f"{path}: the verification key's IC[3] is not on its curve"


def test_arguments_in_the_wrong_order(cuzk):
    vkey, public, proof = files(case("bn128", "mul_out"))
    result = cuzk("verify", proof, public, vkey)
    assert result.code == 1
    assert str(proof) in result.error
