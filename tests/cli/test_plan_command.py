"""``cuzk plan``: its table, its verdict and its exit code."""

import json
from dataclasses import asdict

import pytest

from cuzk_engine.cli.main import main
from cuzk_engine.units import format_size
from tests.support.cases import BROKEN, case
from tests.support.daemons import running

KEY = case("bn128", "merkle10").path("circuit.zkey")


def plan(capsys, *options, key=KEY):
    code = main(["plan", str(key), "--device", "cpu", *options])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_as_json(capsys, monkeypatch):
    monkeypatch.setenv("CUZK_CPU_ARENA", "100MiB")
    code, out, _ = plan(capsys, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["key"], found["device"], found["workers"], found["capacity"]) == (str(KEY), "cpu", 2, 100 << 20)
    assert found["fits"] is True
    assert found["chosen"] == 0
    assert found["peak"] == sum(found["by_purpose"].values()) == found["choices"][0]["peak"]
    assert found["choices"][0]["settings"] == {
        "pipeline.prestage": "ahead",
        "pipeline.double_buffer": "true",
        "pipeline.evaluate": "host",
        "srs.residency": "host",
    }


def test_table(capsys, monkeypatch):
    monkeypatch.setenv("CUZK_CPU_ARENA", "100MiB")
    found = json.loads(plan(capsys, "--json", "--workers", "3")[1])
    code, out, err = plan(capsys, "--workers", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        f"{KEY}: pre-staging ahead, evaluation on the host, key in the host's memory, double-buffered results"
    )
    assert lines[2].split() == ["stage", *found["stages"]]
    rows = {line.split()[0]: line for line in lines[4:9]}
    assert set(rows) == {"witness", "abc", "ntt", "msm", "result"}
    together = next(line for line in lines if line.strip().startswith("together"))
    largest = format_size(found["peak"])
    mark = next(line for line in lines if line.endswith("peak ▲"))
    assert together[: len(mark)].rstrip().endswith(largest)
    assert f"  one partition    {largest} at the peak: fits" in lines
    assert f"  3 workers        {format_size(found['total'])} together: fits" in lines
    assert "  room             100 MiB on cpu (CUZK_CPU_ARENA)" in lines
    assert max(map(len, lines[1:])) <= 120


def test_options_change_the_plan(capsys):
    def total(*options):
        return json.loads(plan(capsys, "--json", *options)[1])["total"]

    assert total("--workers", "4") > total() > total("--workers", "1")
    assert total("--prestage", "off") == total("--prestage", "locked") < total()
    assert total("--double-buffer", "off") == total() - 2 * 128
    modes = json.loads(plan(capsys, "--json", "--evaluate", "device", "--residency", "device")[1])["choices"]
    assert {choice["settings"]["pipeline.evaluate"] for choice in modes} == {"device"}
    assert {choice["settings"]["srs.residency"] for choice in modes} == {"device"}


def test_the_configuration_counts(capsys, tmp_path, monkeypatch):
    path = tmp_path / "cuzk.toml"
    path.write_text(
        '[cpu]\narena = "100MiB"\n[pipeline]\nprestage = "off"\n[devices."cpu"]\nworkers = 3\n'
        "[gpus]\ngpu_workers_per_device = 4\n"
    )
    found = json.loads(plan(capsys, "--json", "--config", str(path))[1])
    assert (found["capacity"], found["workers"]) == (100 << 20, 3)
    assert found["choices"][found["chosen"]]["settings"]["pipeline.prestage"] == "off"
    other = json.loads(plan(capsys, "--json", "--config", str(path), "--workers", "1", "--prestage", "locked")[1])
    assert other["workers"] == 1
    assert other["choices"][other["chosen"]]["settings"]["pipeline.prestage"] == "locked"
    monkeypatch.setenv("CUZK_CONFIG", str(path))
    lines = plan(capsys, "--prestage", "locked")[1].splitlines()
    assert f"  settings         gpus.gpu_workers_per_device, cpu.arena from {path}" in lines


def test_it_is_the_plan_that_the_engine_makes(capsys, cuzk_home):
    config = (
        '[cpu]\narena = "100MiB"\n[memory]\ntotal_budget = "64MiB"\n[pipeline]\nprestage = "locked"\n'
        "[gpus]\ngpu_workers_per_device = 3\ngpu_threads = 3\n"
    )
    with running(cuzk_home, fake=False, config=config) as daemon, daemon.client() as client:
        made = asdict(client.plan(key_path=KEY))
    found = json.loads(plan(capsys, "--json", "--config", str(daemon.config))[1])
    assert found.pop("key") == str(KEY)
    assert found == json.loads(json.dumps(made))
    assert (found["capacity"], found["host_capacity"], found["workers"]) == (100 << 20, 64 << 20, 3)


def test_devices_share_the_host(capsys, tmp_path, monkeypatch):
    """As in the engine, which divides its budget among its device processes."""
    path = tmp_path / "cuzk.toml"
    monkeypatch.setenv("CUZK_TEST_CARDS", json.dumps([["GPU-1", "0000:01:00.0"]]))
    for devices, share in (('["cpu"]', 64), ('["cpu", "cuda:0"]', 32), ('["cuda:0"]', 64), ('["cuda:7"]', 64)):
        path.write_text(f'[memory]\ntotal_budget = "64MiB"\n[gpus]\ndevices = {devices}\n')
        assert json.loads(plan(capsys, "--json", "--config", str(path))[1])["host_capacity"] == share << 20


def test_the_host_s_budget_counts(capsys, tmp_path):
    path = tmp_path / "cuzk.toml"
    path.write_text('[memory]\ntotal_budget = "1MiB"\n')
    assert main(["workload", "chain:2^14", str(tmp_path / "w")]) == 0
    capsys.readouterr()
    code, out, _ = plan(capsys, "--config", str(path), key=tmp_path / "w/circuit.zkey")
    assert code == 1
    rows = out.splitlines()
    assert "  host memory      3 MiB of 1 MiB: 1.5 MiB for one partition does not fit" in rows
    assert next(row for row in rows if row.startswith("  one partition")).endswith("at the peak: fits")
    assert next(row for row in rows if row.startswith("  2 workers")).endswith("together: fits")
    assert "as asked for (the host's memory is short)" in out
    assert "(does not fit)" not in out
    assert "The host needs 2 MiB: raise memory.total_budget" in rows[-1]
    assert f"  settings         memory.total_budget from {path}" in out.splitlines()


def test_what_is_given_up(capsys, monkeypatch):
    peak = json.loads(plan(capsys, "--json", "--workers", "1")[1])["peak"]
    monkeypatch.setenv("CUZK_CPU_ARENA", f"{peak + 1024}B")
    code, out, _ = plan(capsys, "--workers", "2")
    assert code == 0
    assert "pre-staging locked" in out.splitlines()[0]
    assert "Tried in this order when memory is short:" in out
    (chosen,) = [line for line in out.splitlines() if line.startswith("  →")]
    assert chosen.endswith("pre-staging locked")


def test_what_can_never_fit(capsys, monkeypatch):
    monkeypatch.setenv("CUZK_CPU_ARENA", "1MiB")
    code, out, _ = plan(capsys)
    assert code == 1
    assert "at the peak: does not fit" in out
    assert "→" not in out
    assert plan(capsys, "--json")[0] == 1
    rows = out.splitlines()
    tried = rows[rows.index("Tried in this order when memory is short:") + 2 :]
    assert "pre-staging off" in rows[0]
    assert [row.split("  ")[-1] for row in tried[:3]] == [
        "as asked for (does not fit)", "pre-staging locked (does not fit)", "pre-staging off (does not fit)",
    ]  # fmt: skip
    least = rows[-1].removeprefix("Nothing more can be given up: set cpu.arena (or CUZK_CPU_ARENA) to ").split()[0]
    monkeypatch.setenv("CUZK_CPU_ARENA", least)
    assert plan(capsys)[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "argument --workers: invalid choice: 0"),
        (("--workers", "9"), "argument --workers: invalid choice: 9"),
        (("--prestage", "sometimes"), "argument --prestage: invalid choice: 'sometimes'"),
        (("--double-buffer", "maybe"), "argument --double-buffer: invalid choice"),
    ],
)
def test_wrong_usage(capsys, options, message):
    code, out, err = plan(capsys, *options)
    assert (code, out) == (2, "")
    assert message in err


def test_files_that_are_no_keys(capsys, tmp_path):
    for path, message in (
        (tmp_path / "missing.zkey", "no such file"),
        (BROKEN / "good.wtns", "expected"),
    ):
        code, out, err = plan(capsys, key=path)
        assert (code, out) == (1, "")
        assert err.startswith(f"cuzk: error: {path}")
        assert message in err


def test_without_the_pipeline_one_worker_counts(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("CUZK_CPU_ARENA", "100MiB")
    (file := tmp_path / "one.toml").write_text("[pipeline]\nenabled = false\n")
    found = json.loads(plan(capsys, "--json", "--config", str(file))[1])
    assert (found["workers"], found["total"]) == (1, found["peak"])
    _, out, _ = plan(capsys, "--config", str(file))
    assert f"  settings         pipeline.enabled from {file}" in out.splitlines()
