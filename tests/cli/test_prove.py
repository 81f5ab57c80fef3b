"""`cuzk prove`: both files or none, one line for every fault, and the exit codes."""

import itertools
import json
import os
import stat
import time
from types import SimpleNamespace

import pytest

from cuzk_engine.cli import prove as command_prove
from cuzk_engine.cli.outputs import write_pair
from cuzk_engine.curves import BN254, CURVES
from cuzk_engine.devices.cuda import probe
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats import atomic
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.verify import verify
from cuzk_engine.runner import PipelineSettings, Prestage, Runner
from tests.formats.builders import Parts, put, section_headers, wtns
from tests.support.cases import BROKEN, CASES, TINY_CASES, case

GOOD = (BROKEN / "good.zkey", BROKEN / "good.wtns")


@pytest.fixture
def outputs(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "proof.json", folder / "public.json"


def assert_nothing_written(outputs):
    assert list(outputs[0].parent.iterdir()) == []


def assert_proof(outputs, item):
    vkey = VerificationKey.read(item.path("verification_key.json"))
    proof = Proof.read(outputs[0], vkey.curve)
    public = PublicSignals.read(outputs[1], vkey.curve, vkey.n_public)
    verify(vkey, public.values, proof)
    assert outputs[1].read_text() == item.path("public.json").read_text()
    assert sorted(path.name for path in outputs[0].parent.iterdir()) == sorted(path.name for path in outputs)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_every_case(cuzk, outputs, item):
    result = cuzk("prove", item.path("circuit.zkey"), item.path("witness.wtns"), *outputs)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{outputs[0]}, {outputs[1]}: proof verified, ")
    assert_proof(outputs, item)
    document = json.loads(outputs[0].read_text())
    assert list(document) == ["pi_a", "pi_b", "pi_c", "protocol", "curve"]
    assert (document["protocol"], document["curve"]) == ("groth16", item.snarkjs_curve)
    assert cuzk("verify", item.path("verification_key.json"), outputs[1], outputs[0]).out == "valid\n"


def test_json(cuzk, outputs):
    item = case("bls12381", "mul_pub")
    result = cuzk("prove", item.path("circuit.zkey"), item.path("witness.wtns"), *outputs, "--json", "--device", "cpu")
    document = json.loads(result.out)
    assert result.code == 0
    assert (document["proof"], document["public"]) == (str(outputs[0]), str(outputs[1]))
    assert (document["curve"], document["device"], document["verified"]) == ("bls12381", "cpu", True)
    assert document["public_signals"] == 5
    assert 0 < sum(document["phases"].values()) <= document["seconds"]


# ---- what is refused ----


def refused(cuzk, outputs, key, witness, *options):
    """The one line of a refusal, which comes within a second and leaves nothing."""
    start = time.monotonic()
    result = cuzk("prove", key, witness, *outputs, *options)
    assert time.monotonic() - start < 1.0
    assert (result.code, result.out) == (1, "")
    assert_nothing_written(outputs)
    return result.error


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.zkey", "incomplete file: the header needs 12 bytes, the file has 0"),
        ("truncated.zkey", "incomplete file"),
        ("bad_magic.zkey", "this is not a proving key"),
        ("wrong_q.zkey", "secp256k1"),
        ("huge_section.zkey", "incomplete file"),
        ("plonk.zkey", "this is a PLONK key, expected Groth16"),
        ("empty.wtns", "incomplete file: the header needs 12 bytes, the file has 0"),
        ("truncated.wtns", "incomplete file"),
        ("one_value_short.wtns", "witness has 7 values"),
        ("other_prime.wtns", "witness is for BLS12-381"),
    ],
)
def test_broken_files(cuzk, outputs, name, message):
    key = BROKEN / name if name.endswith(".zkey") else GOOD[0]
    witness = BROKEN / name if name.endswith(".wtns") else GOOD[1]
    error = refused(cuzk, outputs, key, witness)
    assert error.startswith(f"{BROKEN / name}: ")
    assert message in error


@pytest.mark.parametrize("which", ["key", "witness"])
def test_cut_anywhere(cuzk, outputs, tmp_path, which):
    """At the borders of every section and in the middle of each, and one byte before the end."""
    source = GOOD[0] if which == "key" else GOOD[1]
    data, short = source.read_bytes(), tmp_path / "short"
    borders = section_headers(data)
    middles = [(first + second) // 2 for first, second in itertools.pairwise(borders)]
    for size in sorted({0, 3, 4, 11, 12, 20, *borders[:-1], *(b + 5 for b in borders[:-1]), *middles, len(data) - 1}):
        short.write_bytes(data[:size])
        files = (short, GOOD[1]) if which == "key" else (GOOD[0], short)
        error = refused(cuzk, outputs, *files)
        assert "incomplete file" in error


@pytest.mark.parametrize(
    ("section", "offset", "value", "size"),
    [(2, 72, 2**32 - 1, 4), (2, 76, 2**32 - 1, 4), (2, 80, 2**31, 4), (4, 0, 2**32 - 1, 4), (2, 0, 2**31, 4)],
)
def test_huge_counts(cuzk, outputs, tmp_path, section, offset, value, size):
    path = tmp_path / "huge.zkey"
    path.write_bytes(Parts.of(GOOD[0].read_bytes()).replace(section, put(offset, value, size)).build())
    assert str(path) in refused(cuzk, outputs, path, GOOD[1])


@pytest.mark.parametrize("section", [3, 5, 6, 7, 8, 9])
def test_a_point_off_its_curve(cuzk, outputs, tmp_path, section):
    path = tmp_path / "point.zkey"
    parts = Parts.of(GOOD[0].read_bytes())
    size = 128 if section == 7 else 64
    index = next(
        i for i in range(len(parts.get(section)) // size) if any(parts.get(section)[i * size : (i + 1) * size])
    )
    path.write_bytes(parts.replace(section, put(index * size + 8, 0xABCDEF)).build())
    error = refused(cuzk, outputs, path, GOOD[1])
    assert f"section {section} (" in error
    assert f"point {index}: is not on its curve" in error


@pytest.mark.parametrize("index", [1, 3, 7])
def test_an_unsatisfied_witness(cuzk, outputs, tmp_path, index):
    values = [int.from_bytes(row.tobytes(), "little") for row in Witness.open(GOOD[1]).raw]
    values[index] = (values[index] + 1) % BN254.r
    path = tmp_path / "witness.wtns"
    path.write_bytes(wtns(BN254.r, values))
    error = refused(cuzk, outputs, GOOD[0], path)
    assert error.startswith("proof did not verify: the witness does not satisfy the circuit, or the key is of another")
    assert str(values[index]) not in error


def test_special_files_are_refused_without_hanging(cuzk, outputs, tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nowhere")
    for path, message in [
        (tmp_path, "is a folder"),
        (pipe, "is a pipe"),
        (link, "is a link to"),
        (tmp_path / "nothing", "no such file"),
        ("/dev/zero", "is a device"),
    ]:
        assert message in refused(cuzk, outputs, path, GOOD[1])
        assert message in refused(cuzk, outputs, GOOD[0], path)


def test_exchanged_arguments(cuzk, outputs):
    assert "this is a witness (wtns), expected a proving key" in refused(cuzk, outputs, GOOD[1], GOOD[0])


def test_memory_that_is_too_small(cuzk, outputs, monkeypatch):
    monkeypatch.setenv("CUZK_CPU_ARENA", "2MiB")
    error = refused(cuzk, outputs, case("bn128", "merkle10").path("circuit.zkey"), GOOD[1])
    assert "witness has 8 values" in error
    item = case("bn128", "merkle10")
    error = refused(cuzk, outputs, item.path("circuit.zkey"), item.path("witness.wtns"))
    assert "the device has 2 MiB; raise cpu.arena (or CUZK_CPU_ARENA)" in error
    monkeypatch.setenv("CUZK_CPU_ARENA", "2 gigabytes")
    assert "CUZK_CPU_ARENA in the environment: cpu.arena is '2 gigabytes'" in refused(cuzk, outputs, *GOOD)


def test_the_configuration_counts(cuzk, outputs, tmp_path, monkeypatch):
    path = tmp_path / "cuzk.toml"
    path.write_text('[cpu]\narena = "1MiB"\n')
    item = case("bn128", "merkle10")
    files = (item.path("circuit.zkey"), item.path("witness.wtns"))
    refused = cuzk("prove", *files, *outputs, "--config", path)
    assert refused.code == 1
    assert "cpu.arena" in refused.error
    assert_nothing_written(outputs)
    path.write_text('[cpu]\narena = "100MiB"\n[pipeline]\nprestage = "locked"\ndouble_buffer = false\n')
    taken = []
    prove = Runner.prove
    monkeypatch.setattr(Runner, "prove", lambda *given, **more: (taken.append(given[4]), prove(*given, **more))[1])
    assert cuzk("prove", *files, *outputs, "--config", path).code == 0
    assert taken == [PipelineSettings(Prestage.LOCKED, False)]


def test_the_host_s_budget_counts(cuzk, outputs, tmp_path):
    files = make_workload(cuzk, tmp_path)
    path = tmp_path / "cuzk.toml"
    path.write_text('[memory]\ntotal_budget = "1MiB"\n')
    refused = cuzk("prove", *files, *outputs, "--config", path)
    assert refused.code == 1
    assert "the proof needs 1.5 MiB, its budget is 1 MiB; raise memory.total_budget" in refused.error
    assert_nothing_written(outputs)
    path.write_text('[memory]\ntotal_budget = "2MiB"\n')
    assert cuzk("prove", *files, *outputs, "--config", path).code == 0


def test_auto_is_the_first_device_of_the_configuration(cuzk, outputs, tmp_path, monkeypatch):
    monkeypatch.setenv("CUZK_TEST_CARDS", '[["GPU-1", "0000:01:00.0"]]')  # that cannot be opened
    path = tmp_path / "cuzk.toml"
    path.write_text('[gpus]\ndevices = ["cpu"]\n')
    assert cuzk("prove", *GOOD, *outputs, "--config", path).code == 0
    path.write_text('[gpus]\ndevices = ["cuda:7"]\n')
    assert "gpus.devices names 'cuda:7'" in cuzk("prove", *GOOD, *outputs, "--config", path).error


def make_workload(cuzk, tmp_path):
    folder = tmp_path / "chain"
    assert cuzk("workload", "chain:2^14", folder).code == 0
    return folder / "circuit.zkey", folder / "witness.wtns"


@pytest.mark.parametrize("name", ["cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there(cuzk, outputs, name, monkeypatch):
    monkeypatch.setattr(probe, "read_driver", lambda: None)
    error = refused(cuzk, outputs, *GOOD, "--device", name)
    assert error.startswith(f"device {name} cannot be used: no NVIDIA driver was found")


def test_an_unknown_device(cuzk, outputs):
    result = cuzk("prove", *GOOD, *outputs, "--device", "gpu")
    assert result.code == 2
    assert result.error == 'device "gpu" is not known, expected auto, cpu or cuda:N'
    assert_nothing_written(outputs)


# ---- paths ----


def test_unusual_names(cuzk, tmp_path, monkeypatch):
    folder = tmp_path / "ein Ordner mit ümläuten 日本"
    folder.mkdir()
    for path, name in zip(GOOD, ("key ä.zkey", "witness ß.wtns"), strict=True):
        (folder / name).write_bytes(path.read_bytes())
        (folder / name).chmod(0o444)
    (folder / "link").symlink_to("key ä.zkey")
    monkeypatch.chdir(folder)
    result = cuzk("prove", "link", "witness ß.wtns", "proof ü.json", "-öffentlich.json".lstrip("-"))
    assert (result.code, result.err) == (0, "")
    assert json.loads((folder / "proof ü.json").read_text())["curve"] == "bn128"


@pytest.mark.parametrize("through", ["same", "link", "hard link", "dots"])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("output", [0, 1])
def test_an_output_over_an_input_is_refused(cuzk, tmp_path, through, which, output):
    inputs = [tmp_path / "key.zkey", tmp_path / "witness.wtns"]
    for path, source in zip(inputs, GOOD, strict=True):
        path.write_bytes(source.read_bytes())
    alias = {
        "same": inputs[which],
        "link": tmp_path / "link",
        "hard link": tmp_path / "hard",
        "dots": tmp_path / ".." / tmp_path.name / inputs[which].name,
    }[through]
    if through == "link":
        alias.symlink_to(inputs[which])
    if through == "hard link":
        alias.hardlink_to(inputs[which])
    names = [tmp_path / "proof.json", tmp_path / "public.json"]
    names[output] = alias
    result = cuzk("prove", *inputs, *names)
    assert result.code == 2
    assert "it would be overwritten" in result.error
    for path, source in zip(inputs, GOOD, strict=True):
        assert path.read_bytes() == source.read_bytes()


def test_both_outputs_in_one_file(cuzk, tmp_path):
    result = cuzk("prove", *GOOD, tmp_path / "out.json", tmp_path / "." / "out.json")
    assert result.code == 2
    assert "cannot be written to one file" in result.error
    assert cuzk("prove", *GOOD, "/dev/null", "/dev/null").code == 0


def test_outputs_that_cannot_be_written_are_refused_before_the_proof(cuzk, outputs, tmp_path, monkeypatch):
    monkeypatch.setattr(command_prove, "_prove_here", lambda task: pytest.fail("the proof was begun"))
    result = cuzk("prove", *GOOD, tmp_path / "missing" / "proof.json", outputs[1])
    assert result.code == 1
    assert result.error == (
        f"{tmp_path / 'missing' / 'proof.json'}: cannot be written: the folder {tmp_path / 'missing'} does not exist"
    )
    result = cuzk("prove", *GOOD, outputs[0], tmp_path)
    assert result.error == f"{tmp_path}: cannot be written: is a folder"
    monkeypatch.setattr(command_prove.os, "access", lambda path, mode: path != outputs[1].parent)
    result = cuzk("prove", *GOOD, *outputs)
    assert result.error == f"{outputs[0]}: cannot be written: permission denied"
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NODEV))
    result = cuzk("prove", *GOOD, *outputs)
    assert result.error == f"{outputs[0]}: cannot be written: the file system is read-only"


def test_links_and_modes_of_outputs_stay(cuzk, outputs, tmp_path):
    target = tmp_path / "target.json"
    target.write_text("old")
    target.chmod(0o640)
    outputs[0].symlink_to(target)
    assert cuzk("prove", *GOOD, *outputs).code == 0
    assert outputs[0].is_symlink()
    assert json.loads(target.read_text())["protocol"] == "groth16"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize("which", [0, 1])
def test_an_output_that_cannot_be_looked_at(cuzk, outputs, tmp_path, which):
    chosen = list(outputs)
    chosen[which] = tmp_path / ("x" * 300)
    result = cuzk("prove", *GOOD, *chosen)
    assert (result.code, result.error) == (1, f"{chosen[which]}: cannot be written: file name too long")
    assert not any(path.exists() for path in outputs)


# ---- a disk that is full, and other faults while writing ----


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_full_disk(cuzk, outputs, monkeypatch, existing, fails_at):
    if existing:
        for path in outputs:
            path.write_text("old")
    calls = []

    def write_fully(descriptor, data):
        calls.append(descriptor)
        if len(calls) == fails_at:
            os.write(descriptor, data[:100])
            raise OSError(28, "No space left on device")
        os.write(descriptor, data)

    # The memory of checked keys would be the first to meet the full disk.
    monkeypatch.setattr("cuzk_engine.keys.CheckedKeys.remember", lambda *args: None)
    monkeypatch.setattr(atomic, "_write_fully", write_fully)
    result = cuzk("prove", *GOOD, *outputs)
    assert result.code == 1
    assert result.error == f"{outputs[fails_at - 1]}: cannot be written: no space left on the device"
    if existing:
        assert [path.read_text() for path in outputs] == ["old", "old"]
    assert len(list(outputs[0].parent.iterdir())) == (2 if existing else 0)


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_neither_file_appears_alone(outputs, monkeypatch, existing, fails_at):
    if existing:
        for path in outputs:
            path.write_text("old")
    replace, calls = os.replace, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == fails_at:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", failing)
    with pytest.raises(CuzkError, match="input/output error"):
        write_pair(outputs[0], "proof", outputs[1], "public")
    if existing:
        assert [path.read_text() for path in outputs] == ["old", "old"]
    assert len(list(outputs[0].parent.iterdir())) == (2 if existing else 0)


def test_old_outputs_stay_when_the_proof_fails(cuzk, outputs):
    for path in outputs:
        path.write_text("old")
    assert cuzk("prove", GOOD[0], BROKEN / "truncated.wtns", *outputs).code == 1
    assert [path.read_text() for path in outputs] == ["old", "old"]
    assert cuzk("prove", *GOOD, *outputs).code == 0
    assert_proof(outputs, case("bn128", "mul_pub"))


def test_the_key_is_replaced_between_two_proofs(cuzk, outputs, tmp_path):
    path = tmp_path / "circuit.zkey"
    for name in ("mul_pub", "mul_initial", "mul_pub"):
        item = case("bn128", name)
        path.write_bytes(item.path("circuit.zkey").read_bytes())
        assert cuzk("prove", path, GOOD[1], *outputs).code == 0
        assert_proof(outputs, item)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_no_private_signals_and_strange_witnesses(cuzk, outputs, curve):
    """The tiny circuits, whose L query may be empty and whose domain is 4."""
    for item in (item for item in TINY_CASES if item.curve == curve.name):
        assert cuzk("prove", item.path("circuit.zkey"), item.path("witness.wtns"), *outputs).code == 0
        assert_proof(outputs, item)
