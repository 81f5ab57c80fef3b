"""`cuzk setup`: keys that prove here and with snarkjs, and one line for every fault."""

import json
import os
import select
import signal
import subprocess

import pytest

from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16 import layouts
from cuzk_engine.units import format_size
from tests.cli.conftest import ROOT, command
from tests.support.cases import TINY_CASES, case

WARNING = "for development only: whoever ran this command could forge proofs\n"

# One process for all. Key and witness in; snarkjs's verification key and proof of it out; the proof of cuzk checked.
SCRIPT = """
const snarkjs = require("snarkjs"), fs = require("fs");
const read = (path) => JSON.parse(fs.readFileSync(path, "utf8"));
(async () => {
  const results = [];
  for (const folder of read(process.argv[1])) {
    const vkey = await snarkjs.zKey.exportVerificationKey(folder + "/circuit.zkey");
    fs.writeFileSync(folder + "/snarkjs-vkey.json", JSON.stringify(vkey));
    const made = await snarkjs.groth16.prove(folder + "/circuit.zkey", folder + "/witness.wtns");
    fs.writeFileSync(folder + "/snarkjs-proof.json", JSON.stringify(made.proof));
    fs.writeFileSync(folder + "/snarkjs-public.json", JSON.stringify(made.publicSignals));
    results.push(await snarkjs.groth16.verify(vkey, read(folder + "/public.json"), read(folder + "/proof.json")));
  }
  console.log(JSON.stringify(results));
  process.exit(0);
})();
"""


@pytest.fixture
def circuit():
    return case("bls12381", "mul_pub").path("circuit.r1cs")


def test_a_key_that_proves_and_verifies(cuzk, tmp_path):
    for item in TINY_CASES:
        key, proof, public = (tmp_path / name for name in ("key.zkey", "proof.json", "public.json"))
        result = cuzk("setup", item.path("circuit.r1cs"), key, "--force")
        assert (result.code, result.err) == (0, "")
        title = {"bn128": "BN254", "bls12381": "BLS12-381"}[item.snarkjs_curve]
        log_domain = item.facts["domain_size"].bit_length() - 1
        assert result.out.startswith(f"{key}: {title} key, domain 2^{log_domain}, ")
        assert result.out.endswith(WARNING)
        assert cuzk("prove", key, item.path("witness.wtns"), proof, public).code == 0
        # A key of another ceremony: its proof is none for the case's key.
        assert cuzk("verify", item.path("verification_key.json"), public, proof).code == 1


@pytest.mark.node
def test_snarkjs_reads_proves_and_verifies(cuzk, tmp_path):
    folders = []
    for item in (*TINY_CASES, case("bn128", "chain_253"), case("bls12381", "chain_254"), case("bls12381", "merkle10")):
        folder = tmp_path / str(item)
        folder.mkdir()
        (folder / "witness.wtns").write_bytes(item.path("witness.wtns").read_bytes())
        files = [folder / name for name in ("circuit.zkey", "witness.wtns", "proof.json", "public.json")]
        assert cuzk("setup", item.path("circuit.r1cs"), files[0]).code == 0
        assert cuzk("prove", *files).code == 0
        folders.append(str(folder))
    (tmp_path / "list.json").write_text(json.dumps(folders))
    finished = subprocess.run(
        ["node", "-e", SCRIPT, str(tmp_path / "list.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    assert json.loads(finished.stdout) == [True] * len(folders)
    for folder in folders:
        theirs = [f"{folder}/snarkjs-{name}.json" for name in ("vkey", "public", "proof")]
        assert cuzk("verify", *theirs).out == "valid\n"


def test_a_seed_gives_the_same_key_and_warns(cuzk, circuit, tmp_path):
    keys = [tmp_path / f"{number}.zkey" for number in range(3)]
    for key, seed in zip(keys, ("x", "x", "y"), strict=True):
        result = cuzk("setup", circuit, key, "--seed", seed)
        assert result.code == 0
        assert result.err.startswith("cuzk: warning: --seed: everybody who knows the seed")
        assert result.err.count("\n") == 1
    assert keys[0].read_bytes() == keys[1].read_bytes()
    assert keys[0].read_bytes() != keys[2].read_bytes()


def test_json(cuzk, circuit, tmp_path):
    key = tmp_path / "key.zkey"
    result = cuzk("setup", circuit, key, "--json")
    document = json.loads(result.out)
    assert result.err == ""
    assert document.pop("seconds") > 0
    assert document == {
        "key": str(key),
        "format": "zkey",
        "curve": "bls12381",
        "constraints": 3,
        "signals": 8,
        "public_signals": 5,
        "domain_size": 16,
        "bytes": key.stat().st_size,
        "seeded": False,
        "warning": WARNING.rstrip("\n"),
    }


def test_params(cuzk, circuit, tmp_path):
    key = tmp_path / "key.params"
    assert cuzk("setup", circuit, key, "--format", "params").code == 0
    facts = case("bls12381", "mul_pub").facts
    ic, h, private = facts["n_public"] + 1, facts["domain_size"] - 1, facts["n_vars"] - facts["n_public"] - 1
    assert key.stat().st_size > 864 + 24 + 96 * (ic + h + private)
    bn254 = case("bn128", "mul_pub").path("circuit.r1cs")
    result = cuzk("setup", bn254, tmp_path / "other.params", "--format", "params")
    assert result.code == 1
    assert result.error == f"{bn254}: is for BN254; the params layout exists on BLS12-381 only"
    assert not (tmp_path / "other.params").exists()


def test_faults_leave_the_old_key(cuzk, circuit, tmp_path):
    key = tmp_path / "key.zkey"
    key.write_bytes(b"old")
    broken = tmp_path / "broken.r1cs"
    broken.write_bytes(circuit.read_bytes()[:-100])
    result = cuzk("setup", broken, key, "--force")
    assert result.code == 1
    assert result.error.startswith(f"{broken}: incomplete file: ")
    missing = tmp_path / "missing.r1cs"
    assert cuzk("setup", missing, key, "--force").error == f"{missing}: no such file"
    assert key.read_bytes() == b"old"
    nowhere = tmp_path / "nowhere" / "key.zkey"
    assert cuzk("setup", circuit, nowhere).error.endswith(f"the folder {nowhere.parent} does not exist")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.r1cs", "key.zkey"]


def test_a_file_is_replaced_on_demand_only(cuzk, circuit, tmp_path):
    key, ours, theirs = tmp_path / "key.zkey", tmp_path / "new.zkey", tmp_path / "new.params"
    assert cuzk("setup", circuit, ours).code == 0
    assert cuzk("setup", circuit, theirs, "--format", "params").code == 0
    for content, found in (
        (ours.read_bytes(), f" (a proving key (zkey), {format_size(ours.stat().st_size)})"),
        (theirs.read_bytes(), f" (a bellperson key, {format_size(theirs.stat().st_size)})"),
        (b"\x1f\x8bx", " (packed with gzip, 3 B)"),
        (b"\xff" * 8, " (8 B)"),
    ):
        key.write_bytes(content)
        result = cuzk("setup", tmp_path / "missing.r1cs", key, "--seed", "x")  # before anything else is looked at
        assert (result.code, result.out) == (1, "")
        assert result.error == f"{key}: exists already{found}; name another file, or give --force to replace it"
        assert key.read_bytes() == content
    assert cuzk("setup", circuit, key, "--force").code == 0
    assert ZKey.open(key).domain_size == 16
    (link := tmp_path / "link.zkey").symlink_to(key)
    assert "exists already" in cuzk("setup", circuit, link).error


def test_a_key_that_came_meanwhile_stays(cuzk, circuit, tmp_path, monkeypatch):
    key = tmp_path / "key.zkey"

    def slow(system, toxic, stream, report):
        stream.write(b"new")
        key.write_bytes(b"theirs")

    monkeypatch.setattr(layouts, "write_zkey", slow)
    result = cuzk("setup", circuit, key)
    assert result.code == 1
    assert result.error == f"{key}: cannot be written: somebody else made a file of this name meanwhile"
    assert key.read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["key.zkey"]


def test_standard_output_is_no_file_to_replace(circuit, tmp_path):
    path = tmp_path / "key.zkey"
    with path.open("wb") as out:
        arguments = command("setup", circuit, "/dev/stdout")
        subprocess.run(arguments, cwd=ROOT, check=True, stdout=out, stderr=subprocess.PIPE)
    assert path.read_bytes()[:4] == b"zkey"


def test_the_circuit_is_not_overwritten(cuzk, circuit, tmp_path):
    copy = tmp_path / "copy.r1cs"
    copy.write_bytes(circuit.read_bytes())
    result = cuzk("setup", copy, copy)
    assert result.code == 2
    assert result.error == f"{copy}: is the constraint system, it would be overwritten"
    assert cuzk("setup", copy, copy, "--force").error == result.error
    assert copy.read_bytes() == circuit.read_bytes()


def test_wrong_usage(cuzk, circuit, tmp_path):
    assert cuzk("setup", circuit).code == 2
    assert cuzk("setup", circuit, tmp_path / "key", "--format", "pem").code == 2


@pytest.fixture
def pipe(tmp_path):
    """A pipe with this test at its reading end, which waits for the first data."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def first(count):
        assert select.select([descriptor], [], [], 60)[0]
        os.set_blocking(descriptor, True)
        return os.read(descriptor, count)

    def rest():
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))

    yield path, first, rest
    os.close(descriptor)


def start(*arguments):
    return subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(process, number):
    """Sends the signal until the process ends. One that comes between the interpreter's last look and a blocking write
    interrupts nothing, as with every program; a user presses the keys again."""
    for _ in range(10):
        process.send_signal(number)
        try:
            return process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    pytest.fail("the process does not end")


def test_a_key_into_a_pipe(circuit, tmp_path, pipe):
    """A stream that cannot seek gets the same bytes as a file."""
    path, first, rest = pipe
    expected = tmp_path / "key.zkey"
    subprocess.run(command("setup", circuit, expected, "--seed", "x"), cwd=ROOT, check=True, capture_output=True)
    with start("setup", circuit, path, "--seed", "x") as process:
        received = first(4) + rest()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert received == expected.read_bytes()
    assert ZKey.open(expected).domain_size == 16


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_it_writes(number, code, tmp_path, pipe):
    """The key goes into a pipe that is read no further than its first bytes: the command is in the midst of it."""
    path, first, _ = pipe
    folder = tmp_path / "w"
    subprocess.run(command("workload", "chain:2^12", folder), cwd=ROOT, check=True, capture_output=True)
    with start("setup", folder / "circuit.r1cs", path) as process:
        assert first(4) == b"zkey"
        out, err = end(process, number)
    assert (process.returncode, out, err) == (code, b"", b"")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["pipe", "w"]
