"""`cuzk prove` as a process: interruptions at any moment, the progress line, and a running daemon."""

import json
import os
import pty
import random
import select
import signal
import subprocess
import time

import psutil
import pytest

from cuzk_engine.cli.prove import _Task
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.groth16.verify import verify
from tests.cli.conftest import ROOT, command, run_process
from tests.support.cases import BROKEN, case
from tests.support.daemons import running_alone

GOOD = (BROKEN / "good.zkey", BROKEN / "good.wtns")


def until_working(process):
    """Until the process has its second thread: from then on interruptions go to the work."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if psutil.Process(process.pid).num_threads() > 1:
            return
        time.sleep(0.001)  # nothing tells from outside when a thread starts
    pytest.fail("the work was never begun")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_at_any_moment(tmp_path, number):
    """Exit code 130 (143) and no file; or, when the signal came too late, code 0 and both files complete."""
    item = case("bls12381", "merkle10")
    vkey = VerificationKey.read(item.path("verification_key.json"))
    rng, codes = random.Random(number), []
    for attempt in range(10):
        outputs = tmp_path / f"{attempt}-proof.json", tmp_path / f"{attempt}-public.json"
        process = subprocess.Popen(
            command("prove", item.path("circuit.zkey"), item.path("witness.wtns"), *outputs),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until_working(process)
        time.sleep(rng.uniform(0, 0.5))
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert err == ""
        codes.append(process.returncode)
        written = [path.exists() for path in outputs]
        if process.returncode == 0:
            assert written == [True, True]
            public = PublicSignals.read(outputs[1], vkey.curve)
            verify(vkey, public.values, Proof.read(outputs[0], vkey.curve))
        else:
            assert process.returncode == 128 + number
            assert written == [False, False]
        for path in outputs:
            path.unlink(missing_ok=True)
        assert list(tmp_path.iterdir()) == []
    assert codes.count(128 + number) > 0


def test_a_second_signal_does_not_wait(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    task = _Task(None, lambda task: {})
    stops = []
    task.interrupt(signal.SIGINT)
    task.when_interrupted(lambda: stops.append("at once"))
    assert (stops, ended) == (["at once"], [])
    task.interrupt(signal.SIGINT)
    assert ended == [130]
    # While the files are put in place, which takes no time, nothing is cut short.
    task.committing = True
    task.interrupt(signal.SIGINT)
    assert ended == [130]


def test_no_progress_line_in_a_pipe(tmp_path):
    finished = run_process("prove", *GOOD, tmp_path / "p.json", tmp_path / "s.json")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_progress_line_on_a_terminal(tmp_path):
    item = case("bls12381", "merkle10")
    master, slave = pty.openpty()
    files = item.path("circuit.zkey"), item.path("witness.wtns"), tmp_path / "p.json", tmp_path / "s.json"
    process = subprocess.Popen(command("prove", *files), cwd=ROOT, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                shown += os.read(master, 4096)
            except OSError:  # the other end was closed
                break
    os.close(master)
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait() == 0
    assert "proof verified" in out
    text = shown.decode()
    assert "%" in text
    assert "·" in text or "█" in text
    # The line is wiped when the work is done.
    assert text.rstrip("\r\n").split("\r")[-1].strip() == ""


@pytest.fixture(scope="module")
def engine():
    with running_alone(fake=False) as daemon:
        yield daemon


@pytest.mark.parametrize("item", [case("bn128", "mul_pub"), case("bls12381", "chain_254")], ids=str)
def test_by_a_daemon(cuzk, engine, tmp_path, item):
    outputs = tmp_path / "proof.json", tmp_path / "public.json"
    files = item.path("circuit.zkey"), item.path("witness.wtns")
    result = cuzk("prove", *files, *outputs, "--daemon", engine.address, "--json")
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert (document["curve"], document["device"]) == (item.snarkjs_curve, "cpu")
    assert document["job"]
    assert outputs[1].read_text() == item.path("public.json").read_text()
    vkey = VerificationKey.read(item.path("verification_key.json"))
    verify(vkey, PublicSignals.read(outputs[1]).values, Proof.read(outputs[0]))


def test_refused_by_a_daemon(cuzk, engine, tmp_path):
    outputs = tmp_path / "proof.json", tmp_path / "public.json"
    result = cuzk("prove", GOOD[0], BROKEN / "truncated.wtns", *outputs, "--daemon", engine.address)
    assert result.code == 1
    assert "truncated.wtns" in result.error
    assert list(tmp_path.iterdir()) == []


def test_no_daemon_there(cuzk, tmp_path):
    address = f"unix://{tmp_path}/nothing.sock"
    result = cuzk("prove", *GOOD, tmp_path / "p.json", tmp_path / "s.json", "--daemon", address)
    assert result.code == 1
    assert "no engine answers" in result.error
    assert list(tmp_path.iterdir()) == []


def test_a_proof_that_cannot_be_announced_is_delivered(tmp_path):
    outputs = tmp_path / "proof.json", tmp_path / "public.json"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("prove", *GOOD, *outputs), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(path.exists() for path in outputs)


def test_kernels_that_are_compiled_show_in_the_middle_of_a_proof() -> None:
    """The bar stays where the proof is, and goes on from there."""
    task = _Task(None, lambda task: {})
    task.report("upload", 0.25)
    task.compiling("sm_90", 7, 14)
    assert task.progress == ("compiling GPU kernels for sm_90 (7 of 14)", 0.25)
    task.report("msm", 0.5)
    assert task.progress == ("msm", 0.5)
