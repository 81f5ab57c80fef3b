"""`cuzk bench`: figures that fit together, settings that are put back, and faults in one line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import EngineClient, JobState
from cuzk_engine.events import Cause
from cuzk_engine.runner import PipelineSettings, Prestage, Runner
from tests.cli.conftest import ROOT, Cuzk, command
from tests.support.cases import BROKEN, case
from tests.support.daemons import Daemon, Witnesses, running, wait_for

KEY = case("bn128", "mul_pub").path("circuit.zkey")
WITNESS = case("bn128", "mul_pub").path("witness.wtns")
TIGHT_HOST = '[memory]\ntotal_budget = "1MiB"\n'
WORKERS = "gpus.gpu_workers_per_device"


def spread_is_sound(spread: dict[str, Any], count: int) -> bool:
    first, third = spread["quartiles"]
    ordered = spread["min"] <= first <= spread["median"] <= third <= spread["max"]
    return ordered and spread["min"] > 0 and spread["count"] == count


def shares_add_up(document: dict[str, Any]) -> None:
    """A round is busy or idle, and every idle moment has a cause."""
    spreads = [document["busy"], *document["idle"].values()]
    least, most = (sum(spread[end] for spread in spreads) for end in ("min", "max"))
    assert 0 < document["busy"]["min"] <= document["busy"]["max"] <= 1
    assert least <= 1 + 1e-9
    assert most >= 1 - 1e-9
    assert set(document["idle"]) <= {*Cause, "short"}


def test_figures_of_this_process(cuzk: Cuzk) -> None:
    vary = ["workers=1,2", "prestage=off,ahead"]
    result = cuzk("bench", KEY, WITNESS, "-c", 13, "-j", 2, "--json", "--vary", *vary)
    assert (result.code, result.err) == (0, "")
    document = json.loads(result.out)
    assert (document["device"], document["count"], document["concurrency"], document["warm_up"]) == ("cpu", 13, 2, 2)
    assert [each["variation"] for each in document["variations"]] == [
        f"workers={workers} prestage={prestage}" for workers in (1, 2) for prestage in ("off", "ahead")
    ]
    for each in document["variations"]:
        assert spread_is_sound(each["seconds"], 13)
        assert [part["proofs"] for part in each["rounds"]] == [7, 6]
        assert spread_is_sound(each["proofs_a_minute"], 2)
        shares_add_up(each)
        assert spread_is_sound(each["kernels"], 2)
        assert each["kernels"]["median"] < each["seconds"]["max"]
        assert each["device_peak_bytes"] > 0
        assert each["resident_peak_bytes"] is None or each["resident_peak_bytes"] > each["device_peak_bytes"]
        medians = {name: phase["median"] for name, phase in each["phases"].items()}
        assert {"evaluate", "ntt", "msm", "verify"} <= set(medians)
        assert all(phase["count"] == 13 for phase in each["phases"].values())
        for part in each["rounds"]:
            # What one worker did one after another, or two at once, took as long as the round at least.
            workers = int(each["settings"][WORKERS])
            assert sum(part["seconds"]) <= workers * part["wall"] * 1.001
            assert part["wall"] >= max(part["seconds"])


def test_the_text_says_what_was_counted(cuzk: Cuzk) -> None:
    result = cuzk("bench", KEY, WITNESS, "-c", 2, "--vary", "residency=host,auto")
    assert result.code == 0
    assert "2 proofs a variation, 1 at once, on cpu" in result.out
    assert "1 proof a variation, 1 at once, on cpu" in cuzk("bench", KEY, WITNESS, "-c", 1, "--warm-up", 0).out
    assert "The first 1 of each variation warmed up and do not count." in result.out
    assert "Note: srs.residency makes no difference on cpu." in result.out
    assert "2 rounds a variation, in turn." in result.out
    lines = result.out.splitlines()
    tables = [lines[at + 1 : at + 3] for at, line in enumerate(lines) if line.startswith(" " * 14 + "  s a proof")]
    tables += [lines[at + 1 : at + 3] for at, line in enumerate(lines) if line.startswith("median ")]
    assert [[row.split()[0] for row in rows] for rows in tables] == [["residency=host", "residency=auto"]] * 3


def test_one_round_says_how_to_get_more(cuzk: Cuzk) -> None:
    result = cuzk("bench", KEY, WITNESS, "-c", 5, "-j", 2)
    assert result.code == 0
    assert "One round a variation; from -c 12 on there are several" in result.out


def test_a_profile_is_made(cuzk: Cuzk, cuzk_home: Path) -> None:
    result = cuzk("bench", "chain:2^4", "--curve", "bls12_381", "-c", 1, "--warm-up", 0, "--json")
    assert result.code == 0
    document = json.loads(result.out)
    assert (document["profile"], document["curve"], document["warm_up"]) == ("chain:2^4", "bls12_381", 0)
    assert document["variations"][0]["proofs"] == 1
    assert [path.name[:19] for path in (cuzk_home / "cache/bench").iterdir()] == ["chain-2-4-bls12_381"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([KEY], "a witness is missing; expected KEY.zkey WITNESS.wtns, or a profile"),
        (["chain:16"], 'profile "chain:16" has another form'),
        (["chain:2^4", "--curve", "p256"], '--curve: "p256" is not known'),
        ([KEY, WITNESS, "--vary", "arena=1GiB"], "cpu.arena can be varied through a running engine only (--daemon)"),
        ([KEY, WITNESS, "--vary", "wokers=1"], "did you mean 'workers'?"),
        ([KEY, WITNESS, "-c", "0"], '"0": expected a number from 1 to 100000'),
        ([KEY, WITNESS, "-j", "1e3"], '"1e3": expected a number from 1 to 256'),
        ([KEY, WITNESS, "--plot", "figures.svg"], "figures.svg is no .png"),
        ([KEY, WITNESS, "--plot", "missing/figures.png"], "expected a file in a folder that exists"),
        ([KEY, WITNESS, "--device", "gpu"], 'device "gpu" is not known'),
    ],
)
def test_wrong_usage(cuzk: Cuzk, arguments: list[Any], message: str) -> None:
    result = cuzk("bench", *arguments)
    assert result.code == 2
    assert message in result.error
    assert result.out == ""


def test_a_bad_file_is_named(cuzk: Cuzk) -> None:
    witness = next(path for path in sorted(BROKEN.glob("*.wtns")) if not path.name.startswith("good"))
    result = cuzk("bench", BROKEN / "good.zkey", witness, "-c", 3, "-j", 2)
    assert result.code == 1
    assert result.error


def test_a_picture(cuzk: Cuzk, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "figures.png"
    result = cuzk("bench", KEY, WITNESS, "-c", 2, "--plot", path)
    assert result.code == 0
    assert f"drawn into {path}" in result.out
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_without_pillow_the_extra_is_named_before_anything_is_measured(
    cuzk: Cuzk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.ImageDraw", None)
    result = cuzk("bench", "missing.zkey", "missing.wtns", "--plot", tmp_path / "figures.png")
    assert result.code == 1
    assert "--plot needs Pillow" in result.error
    assert "cuzk[plot]" in result.error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_it_without_a_word(cuzk_home: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("bench", KEY, WITNESS, "-c", 100_000, "-j", 2), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        # The check of the key is remembered when the first proof has it.
        wait_for(lambda: any(path.is_file() for path in (cuzk_home / "cache").rglob("*")), 30)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (128 + number, b"", b"")


def taken_by_proofs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PipelineSettings, int, int]]:
    """Settings, worker and evaluation threads of each proof from now on."""
    taken: list[tuple[PipelineSettings, int, int]] = []
    prove = Runner.prove

    def watched(runner: Any, key: Any, witness: Any, owner: Any, settings: Any, **more: Any) -> Any:
        taken.append((settings, owner.worker, runner._evaluation_threads))
        return prove(runner, key, witness, owner, settings, **more)

    monkeypatch.setattr(Runner, "prove", watched)
    return taken


def test_the_configuration_counts_and_variations_go_before_it(
    cuzk: Cuzk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cuzk.toml"
    path.write_text(
        '[pipeline]\nprestage = "locked"\ndouble_buffer = false\n[synthesis]\nthreads = 1\n'
        '[devices."cpu"]\nworkers = 1\n[logging]\nlevel = "warning"\n'
    )
    taken = taken_by_proofs(monkeypatch)
    result = cuzk("bench", KEY, WITNESS, "-c", 6, "-j", 3, "--config", path, "--json")
    assert (result.code, result.err) == (0, "")
    (each,) = json.loads(result.out)["variations"]
    assert (each["variation"], each["staged_otherwise"]) == ("as configured", {})
    assert set(map(repr, taken)) == {repr((PipelineSettings(Prestage.LOCKED, False), 0, 1))}
    taken.clear()
    monkeypatch.setenv("CUZK_CONFIG", str(path))
    text = cuzk("bench", KEY, WITNESS, "-c", 6, "-j", 3, "--vary", "prestage=off", "workers=2").out
    assert {(settings.prestage, settings.double_buffer) for settings, _, _ in taken} == {(Prestage.OFF, False)}
    assert {worker for _, worker, _ in taken} == {0, 1}
    assert f"Note: pipeline.double_buffer, synthesis.threads as in {path}." in text


def test_the_limits_of_memory_count(cuzk: Cuzk, tmp_path: Path) -> None:
    path = tmp_path / "cuzk.toml"
    for text, named in (('[cpu]\narena = "1MiB"\n', "cpu.arena"), (TIGHT_HOST, "memory.total_budget")):
        path.write_text(text)
        result = cuzk("bench", "chain:2^14", "-c", 1, "--config", path)
        assert result.code == 1
        assert f"raise {named}" in result.error
    path.write_text('[cpu]\narena = "lots"\n')
    assert "cpu.arena is 'lots'" in cuzk("bench", KEY, WITNESS, "--config", path).error


# ---- through an engine ----


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="cuzk-b-"))  # short, for the socket
    yield folder
    shutil.rmtree(folder)


def settings_of(client: EngineClient) -> dict[tuple[str, str], str]:
    return {(item.key, item.device): item.value for item in client.settings()}


def test_an_engine_proves_under_each_variation_and_gets_its_settings_back(cuzk: Cuzk, home: Path) -> None:
    config = '[pipeline]\nprestage = "locked"\n[devices."cpu"]\nworkers = 3\n'
    with running(home, config=config) as daemon, daemon.client() as client:
        witness = Witnesses(home)(seconds=0.05)
        before = settings_of(client)
        vary = ["prestage=off,ahead", "workers=1"]
        result = cuzk("bench", KEY, witness, "-c", 3, "-j", 3, "--daemon", daemon.address, "--json", "--vary", *vary)
        assert (result.code, result.err) == (0, "")
        document = json.loads(result.out)
        assert document["where"] == f"engine at {daemon.address}"
        assert settings_of(client) == before
        jobs = [job for job in client.jobs() if job.label == "bench"]
        assert len(jobs) == 2 * (3 + 3)
        results = [client.fetch(job.id) for job in jobs]
        used = [json.loads(each.proof_json)["pipeline.prestage"] for each in results]
        assert sorted(used) == ["ahead"] * 6 + ["off"] * 6
        # One worker, although the device has 3 of its own.
        assert {each.public_json for each in results} == {'[\n "0"\n]'}
        for each in document["variations"]:
            assert each["seconds"]["min"] >= 0.05
            assert each["device_peak_bytes"] >= 1000
            assert each["rounds"][0]["wall"] >= 3 * 0.05


def test_a_job_that_fails_ends_it_and_the_settings_are_put_back(cuzk: Cuzk, home: Path) -> None:
    with running(home) as daemon, daemon.client() as client:
        before = settings_of(client)
        witness = Witnesses(home)(error="the witness is of another circuit")
        result = cuzk("bench", KEY, witness, "-c", 9, "-j", 2, "--daemon", daemon.address, "--vary", "workers=1")
        assert result.code == 1
        assert result.error == "the witness is of another circuit"
        assert settings_of(client) == before
        assert all(job.state.ended for job in client.jobs())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cancels_and_puts_back(home: Path, number: signal.Signals) -> None:
    with running(home) as daemon, daemon.client() as client:
        before = settings_of(client)
        witness = Witnesses(home)(seconds=60)
        arguments = ["bench", KEY, witness, "-c", 9, "-j", 2, "--daemon", daemon.address, "--vary", "workers=1"]
        process = subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_for(lambda: any(job.state is JobState.RUNNING for job in client.jobs()), 30)
            assert settings_of(client) != before
            process.send_signal(number)
            process.send_signal(number)  # while it cleans up
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, out, err) == (128 + number, b"", b"")
        assert settings_of(client) == before
        assert {job.state for job in client.jobs()} == {JobState.CANCELLED}


def test_an_engine_that_is_not_there(cuzk: Cuzk, tmp_path: Path) -> None:
    result = cuzk("bench", KEY, WITNESS, "--daemon", f"unix://{tmp_path}/none.sock")
    assert result.code == 1
    assert "no engine answers at" in result.error


def test_an_engine_that_dies_is_told_in_one_line(home: Path) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        witness = Witnesses(home)(seconds=60)
        arguments = ["bench", KEY, witness, "--daemon", daemon.address, "--vary", "workers=1"]
        process = subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with daemon.client() as client:
            wait_for(lambda: any(job.state is JobState.RUNNING for job in client.jobs()), 30)
        daemon.kill()
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, b"")
        assert err.count(b"\n") == 1
        assert err.startswith(b"cuzk: error: ")
    finally:
        daemon.close()


def test_real_proofs_of_an_engine_have_all_figures(cuzk: Cuzk, home: Path) -> None:
    with running(home, fake=False) as daemon:
        result = cuzk("bench", KEY, WITNESS, "-c", 4, "-j", 2, "--daemon", daemon.address, "--json")
        document = json.loads(result.out)
        (each,) = document["variations"]
        assert each["variation"] == "as configured"
        shares_add_up(each)
        assert each["kernels"]["min"] > 0
        assert each["device_peak_bytes"] > 0
        assert each["resident_peak_bytes"] > 1 << 20
        assert {"evaluate", "ntt", "msm", "verify"} <= set(each["phases"])
