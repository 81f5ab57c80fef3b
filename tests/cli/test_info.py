"""`cuzk info`: what a file holds, as text and as JSON, and no secret of it."""

import json
import os
import shutil

import pytest

from cuzk_engine.formats.wtns import Witness
from tests.cli.conftest import run_process
from tests.support.cases import BROKEN, CASES, case


@pytest.mark.parametrize("item", CASES, ids=str)
def test_a_key_and_what_a_proof_needs(cuzk, item):
    document = json.loads(cuzk("info", item.path("circuit.zkey"), "--json").out)
    facts = item.facts
    assert (document["kind"], document["protocol"], document["curve"]) == ("zkey", "groth16", item.curve)
    assert (document["signals"], document["public_signals"]) == (facts["n_vars"], facts["n_public"])
    assert document["domain"] == facts["domain_size"]
    memory = document["memory"]
    assert memory["device"] == "cpu"
    assert memory["fits"] is True
    assert memory["device_peak"] == sum(memory["by_purpose"].values()) <= memory["device_capacity"]
    assert memory["mapped_key"] == facts["zkey_bytes"]
    text = cuzk("info", item.path("circuit.zkey"))
    assert text.code == 0
    assert "memory of a proof" in text.out
    assert f"{facts['n_vars']:,}" in text.out


def test_a_key_that_does_not_fit_here(cuzk, monkeypatch):
    monkeypatch.setenv("CUZK_CPU_ARENA", "1MiB")
    result = cuzk("info", case("bn128", "merkle10").path("circuit.zkey"))
    assert result.code == 0
    assert "does not fit into 1 MiB (CUZK_CPU_ARENA)" in result.out


def test_the_configuration_counts(cuzk, tmp_path):
    path = tmp_path / "cuzk.toml"
    path.write_text('[cpu]\narena = "1MiB"\n[pipeline]\nprestage = "off"\n')
    key = case("bn128", "merkle10").path("circuit.zkey")
    assert "does not fit into 1 MiB (cpu.arena)" in cuzk("info", key, "--config", path).out
    path.write_text('[memory]\ntotal_budget = "64MiB"\n')
    assert "fits into 64 MiB of the host's memory" in cuzk("info", key, "--config", path).out
    path.write_text('[gpus]\ndevices = ["cuda:4095"]\n')  # of another machine
    result = cuzk("info", key, "--config", path)
    assert (result.code, result.err) == (0, "")
    assert "memory of a proof  not known: gpus.devices names 'cuda:4095': " in result.out
    assert "memory" not in json.loads(cuzk("info", key, "--json", "--config", path).out)
    path.write_text('[cpu]\narena = "lots"\n')
    assert "cpu.arena is 'lots'" in cuzk("info", key, "--config", path).error


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("witness.wtns", "wtns"),
        ("circuit.r1cs", "r1cs"),
        ("proof.json", "proof"),
        ("public.json", "public"),
        ("verification_key.json", "verification_key"),
        ("circuit.circom", "unknown"),
    ],
)
def test_other_files(cuzk, file, kind):
    path = case("bn128", "mul_pub").path(file)
    document = json.loads(cuzk("info", path, "--json").out)
    assert (document["kind"], document["path"], document["bytes"]) == (kind, str(path), path.stat().st_size)
    text = cuzk("info", path)
    assert text.code == (1 if kind == "unknown" else 0)
    assert text.out.startswith(f"{path}\n")


def test_no_value_of_a_witness_is_shown(cuzk):
    path = case("bn128", "chain_252").path("witness.wtns")
    values = [int.from_bytes(row.tobytes(), "little") for row in Witness.open(path).raw]
    shown = cuzk("info", path).out + cuzk("info", path, "--json").out
    assert not any(str(value) in shown for value in values if value > 10**9)


@pytest.mark.parametrize("name", sorted(path.name for path in BROKEN.glob("*.zkey") if path.name != "good.zkey"))
def test_broken_files(cuzk, name):
    result = cuzk("info", BROKEN / name)
    assert result.code == 1
    if name in ("empty.zkey", "bad_magic.zkey"):
        assert "unknown" in result.out
    else:
        assert name in result.error


def test_a_missing_file(cuzk, tmp_path):
    result = cuzk("info", tmp_path / "nothing")
    assert result.code == 1
    assert result.error == f"{tmp_path / 'nothing'}: no such file"


def test_names_in_an_output_that_takes_ascii_only(tmp_path):
    path = tmp_path / os.fsdecode("schlüssel-é\u20ac".encode() + b"\xff.zkey")
    shutil.copy(BROKEN / "good.zkey", path)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = run_process("info", path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "schl\\xfcssel" in done.stdout


def test_people_read_the_title_of_a_curve(cuzk):
    shown = cuzk("info", BROKEN / "good.zkey")
    assert [line.split() for line in shown.out.splitlines() if line.startswith("  curve")] == [["curve", "BN254"]]
