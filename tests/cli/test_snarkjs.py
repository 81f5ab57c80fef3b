"""snarkjs accepts what `cuzk prove` makes, for every case on both curves."""

import json
import subprocess

import pytest

from tests.cli.conftest import ROOT
from tests.support.cases import CASES

# One process for all: starting snarkjs takes longer than a verification. Also snarkjs must refuse what is wrong.
SCRIPT = """
const snarkjs = require("snarkjs"), fs = require("fs");
const read = (path) => JSON.parse(fs.readFileSync(path, "utf8"));
(async () => {
  const results = [];
  for (const [vkey, signals, proof] of read(process.argv[1])) {
    results.push(await snarkjs.groth16.verify(read(vkey), read(signals), read(proof)));
  }
  console.log(JSON.stringify(results));
  process.exit(0);
})();
"""


@pytest.mark.node
def test_snarkjs_accepts_every_proof(cuzk, tmp_path):
    files = []
    for item in CASES:
        proof, public = tmp_path / f"{item}-proof.json", tmp_path / f"{item}-public.json"
        assert cuzk("prove", item.path("circuit.zkey"), item.path("witness.wtns"), proof, public).code == 0
        files.append([str(item.path("verification_key.json")), str(public), str(proof)])
    wrong = [files[0][0], files[0][1], files[1][2]]
    (tmp_path / "list.json").write_text(json.dumps([*files, wrong]))
    finished = subprocess.run(
        ["node", "-e", SCRIPT, str(tmp_path / "list.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    assert json.loads(finished.stdout) == [True] * len(files) + [False]
