"""benchmarks/compare.py with programs in the peers' places: pairs, ratios, verdicts and faults. The table of the
pipeline's modes and the comparison of engines, on a small circuit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, peers
from tests.support.cases import case

ROOT = Path(__file__).resolve().parent.parent
CASE = case("bn128", "mul_pub")
KEY, WITNESS = CASE.path("circuit.zkey"), CASE.path("witness.wtns")


def run(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "benchmarks" / script, KEY, WITNESS, *arguments]
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """A program of the given shell text; what it is called with is added to `calls`."""

    def make(text: str, name: str = "peer") -> Path:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{text}\n')
        path.chmod(0o755)
        return path

    return make


COPY = f'cp {CASE.path("proof.json")} "$3"; cp {CASE.path("public.json")} "$4"'


def test_pairs_alternate_and_the_ratio_is_their_median(program: Any, tmp_path: Path) -> None:
    ours = program("exit 0", "cuzk")
    prover = program(COPY, "prover")
    result = run("compare.py", "--json", "--pairs", 3, "--only", "rapidsnark", "--rapidsnark", prover, "--cuzk", ours)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert (document["pairs"], document["key_bytes"]) == (3, KEY.stat().st_size)
    (pairs,) = document["results"]
    assert (pairs["peer"], pairs["proof"]) == ("rapidsnark", "right")
    assert len(pairs["ratios"]) == 3
    assert pairs["ratio"] == sorted(pairs["ratios"])[1]
    for mine, theirs, ratio in zip(
        pairs["cuzk"]["seconds"], pairs["rapidsnark"]["seconds"], pairs["ratios"], strict=True
    ):
        assert ratio == mine / theirs
    assert pairs["rapidsnark"]["peak_bytes"] > 0
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call[0] for call in calls] == ["cuzk", "prover", "prover", "cuzk", "cuzk", "prover", "prover", "cuzk"]
    assert calls[0][1:4] == ["prove", str(KEY), str(WITNESS)]
    assert calls[1][1:3] == [str(KEY), str(WITNESS)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (COPY.replace("public.json", "case.json"), "the peer's proof is WRONG: "),
        ("exit 0", "the peer's proof is WRONG: no proof: "),
        ("echo 'Error: bad key' >&2; echo at line 7 >&2; exit 3", "rapidsnark: ended with 3: Error: bad key"),
        ("kill -9 $$", "rapidsnark: ended with -9: without a word"),
    ],
)
def test_a_peer_that_fails_or_is_wrong_is_told(program: Any, text: str, line: str) -> None:
    arguments = (
        "--pairs",
        1,
        "--only",
        "rapidsnark",
        "--rapidsnark",
        program(text),
        "--cuzk",
        program("exit 0", "cuzk"),
    )
    result = run("compare.py", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert line in result.stdout


def test_a_cuzk_that_fails_ends_it(program: Any) -> None:
    ours = program("echo 'cuzk: error: no such key' >&2; exit 1", "cuzk")
    result = run("compare.py", "--only", "rapidsnark", "--rapidsnark", program(COPY), "--cuzk", ours)
    assert result.returncode == 1
    assert result.stderr == "cuzk ended with 1: cuzk: error: no such key\n"


def test_a_peer_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = run("compare.py", "--only", "groth16py")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("groth16py not found; give its path with --groth16py (")
    given = run("compare.py", "--rapidsnark", tmp_path / "none")
    assert given.stderr == f"rapidsnark: {tmp_path}/none not found\n"


def test_the_command_for_snarkjs_names_both_bounds(program: Any) -> None:
    slow = program("sleep 1; shift 2; " + COPY, "snarkjs")
    arguments = ("--pairs", 1, "--snarkjs", slow, "--cuzk", program("exit 0", "cuzk"))
    result = run("prove_vs_snarkjs.py", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert "the peer's proof is right" in result.stdout
    assert "of snarkjs's, wanted at most 0.5" in result.stdout
    assert "(twice the key and 200 MB)" in result.stdout
    quick = program("shift 2; " + COPY, "snarkjs")
    assert run("prove_vs_snarkjs.py", "--json", *arguments[:2], "--snarkjs", quick, "--cuzk", slow).returncode == 1


def test_a_proof_as_ethereum_takes_it_is_read(tmp_path: Path) -> None:
    """As groth16py gives it: the coefficients of u come first."""
    proof = CASE.json("proof.json")
    (ax, ay, _), ((bx0, bx1), (by0, by1), _), (cx, cy, _) = proof["pi_a"], proof["pi_b"], proof["pi_c"]
    data = b"".join(int(x).to_bytes(32, "big") for x in (ax, ay, bx1, bx0, by1, by0, cx, cy))
    files = peers.Files(KEY, WITNESS, tmp_path / "proof", tmp_path / "none")
    files.proof.write_bytes(data)
    assert peers.verdict(files) == "right"
    files.proof.write_bytes(data[:32] + data[:32] + data[64:])
    assert peers.verdict(files).startswith("WRONG: ")
    files.proof.write_bytes(data[1:])
    assert peers.verdict(files) == "WRONG: 255 bytes, expected 256"


def test_memory_and_time_are_the_process_s_own() -> None:
    """Not those of the process that measures, which is larger."""
    grown = compare.measure([sys.executable, "-c", "x = bytearray(80 << 20); x[::4096] = b'1' * len(x[::4096])"], {})
    small = compare.measure([sys.executable, "-c", ""], {})
    assert grown.peak_bytes - small.peak_bytes >= 70 << 20
    assert small.peak_bytes < 40 << 20
    assert small.seconds > 0


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(compare.FailedRunError, match=r"could not be started: .*No such file"):
        compare.measure([str(tmp_path / "none")], {})


def test_the_reason_of_a_fault_is_the_line_that_speaks_of_it() -> None:
    assert compare._reason(b"Error: bad\n  at frame 1\n") == "Error: bad"
    assert compare._reason(b"a\nb\n") == "b"
    assert compare._reason(b" \n") == "without a word"


def test_the_table_of_modes_varies_one_axis_at_a_time(tmp_path: Path) -> None:
    found = tmp_path / "rows"
    arguments = ("--device", "cpu", "--vary", "workers,prestage", "--json", found)
    result = run("pipeline.py", "--base", "best", "--count", 5, "--vary-count", 3, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [json.loads(line) for line in found.read_text().splitlines()]
    assert [(row["arrangement"]["prestage"], row["arrangement"]["workers"], row["counted"]) for row in rows] == [
        *(("ahead", "2", 5), ("ahead", "1", 3), ("ahead", "3", 3), ("off", "2", 3), ("locked", "2", 3))
    ]
    table = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[2:5] for line in table[1:]] == [
        [row["arrangement"]["prestage"], "2", row["arrangement"]["workers"]] for row in rows
    ]
    for row in rows:
        assert row["ms"] >= row["kernel_ms"] > 0
        assert row["ratio"] == pytest.approx(1 / row["busy"])
        assert row["kernel_ms"] + sum(row["idle"].values()) == pytest.approx(row["ms"])
        assert 0 < row["peak"] <= row["plan"]
        assert 0 <= row["lock"] <= 1
        assert row["uploads"]["witness*"] > 0
        assert row["degraded"] == {}


def test_the_whole_table_is_made_in_parts(tmp_path: Path) -> None:
    found = tmp_path / "rows"
    arguments = ("--device", "cpu", "--product", "--count", 2, "--json", found)
    begun = run("pipeline.py", *arguments, "--base", "reference", "--budget", 0.5)
    part = found.read_text()
    left = begun.stdout.count("no time was left for")
    assert (begun.returncode, left + part.count("\n")) == (0, 72)
    assert left > 0
    whole = run("pipeline.py", *arguments)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert found.read_text().startswith(part)
    rows = [json.loads(line) for line in found.read_text().splitlines()]
    assert len({tuple(row["arrangement"].values()) for row in rows}) == len(rows) == 72
    assert {row["counted"] for row in rows} == {2}
    assert whole.stdout.count("\n| ") == 73  # with the head
    assert "times as long as the best one" in whole.stdout


def test_what_driving_a_gpu_costs_is_measured_without_one() -> None:
    script, options = ROOT / "benchmarks" / "driving.py", ["--count", "3", "--rounds", "2", "--json"]
    done = subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["workers_ms"]) == 2
    assert all(ms > 0 for ms in found["workers_ms"])
    calls = found["calls"]
    # Launches are the library's, and nobody asks the driver for a result or a time.
    assert calls["native replay"] == 10
    assert (calls["memcpyAsync"], calls.get("launch", 0)) == (1, 0)  # the witness


def test_rows_that_time_does_not_reach_are_named() -> None:
    result = run("pipeline.py", "--device", "cpu", "--vary", "evaluate", "--budget", 0)
    assert result.returncode == 0
    assert result.stdout.count("no time was left for Arrangement(") == 4
    short = run("pipeline.py", "--device", "cpu", "--vary", "none", "--base", "reference", "--seconds", 0)
    assert "no time was left for Arrangement(prestage='off'" in short.stdout
    assert run("pipeline.py", "--vary", "colour").returncode == 2


def test_without_another_prover_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers.Peer, "find", lambda peer, given: None)
    args = compare.parser("").parse_args([str(tmp_path / "k"), str(tmp_path / "w"), "--cuzk", sys.executable])
    args.only = []
    with pytest.raises(SystemExit, match=r"--snarkjs PATH \(npm ci in the project's folder\); --rapidsnark PATH"):
        compare.compare(args)


def test_engines_on_lists_of_devices_are_compared() -> None:
    result = run("several_gpus.py", "--devices", "cpu", "cpu", "--count", 12, "--job", 5, "--wanted", 0.01, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    first, second = document["engines"]
    assert document["ratio"] == second["per_second"] / first["per_second"]
    for engine in (first, second):
        assert (engine["partitions"], engine["counted"]) == (12, 6)
        assert 0 < engine["seconds"] < engine["wall"]
        (device,) = engine["devices"]
        assert (device["device"], device["partitions"]) == ("cpu", 6)
        assert 0 < device["busy"] <= 1
        assert device["busy"] + sum(device["idle"].values()) == pytest.approx(1)
    text = run("several_gpus.py", "--devices", "cpu", "--count", 12, "--wanted", 1.1, "--bench")
    assert text.returncode == 1
    assert "ratio 1.000, wanted 1.10" in text.stdout
    assert "cuzk bench --daemon, cpu:\ncircuit.zkey: 12 proofs a variation, 8 at once, on cpu" in text.stdout
