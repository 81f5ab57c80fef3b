"""`cuzk doctor`: its lines, its JSON and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuzk_engine.build import build_id
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Driver
from cuzk_engine.doctor import cards as each_card
from cuzk_engine.doctor import gpu
from cuzk_engine.doctor.check import ok
from cuzk_engine.doctor.gpu import Cards
from cuzk_engine.native import library
from tests.cli.conftest import Cuzk
from tests.client.test_foreign_servers import web_server
from tests.support.daemons import running

NAMES = [
    *("python", "native library", "processor", "memory", "memory lock limit", "surroundings", "nvidia driver", "nvml"),
    *("cupy", "kernel cache", "bellman locks", "configuration", "folders", "engine", "status page"),
]


def engine_check(output: str) -> dict[str, str]:
    return next(check for check in json.loads(output)["checks"] if check["name"] == "engine")


@pytest.fixture
def config(cuzk_home: Path) -> Path:
    """A configuration whose addresses are this test's own."""
    path = cuzk_home / "config" / "cuzk.toml"
    path.parent.mkdir()
    path.write_text(f'[daemon]\nlisten = "unix://{cuzk_home}/run/engine.sock"\nstatus_listen = ""\n')
    return path


def test_a_sound_machine(cuzk: Cuzk, config: Path, cuzk_home: Path) -> None:
    before = sorted(cuzk_home.rglob("*"))
    result = cuzk("doctor", "--json")
    document = json.loads(result.out)
    assert (result.code, result.err, document["problems"]) == (0, "", 0)
    checks = {check["name"]: check for check in document["checks"]}
    assert list(checks) == NAMES
    assert build_id() in checks["python"]["found"]
    assert library().isa() in checks["native library"]["found"]
    assert checks["configuration"]["found"] == str(config)
    assert checks["engine"]["verdict"] == "ok"
    assert sorted(cuzk_home.rglob("*")) == before  # nothing was made


def test_the_text_has_a_line_for_each(cuzk: Cuzk, config: Path) -> None:
    result = cuzk("doctor")
    assert result.code == 0
    lines = [line for line in result.out.splitlines() if "→" not in line]
    assert len(lines) == len(NAMES) + 1
    for line, name in zip(lines, NAMES, strict=False):
        assert line.split(None, 1)[1].startswith(name)
    assert lines[-1].startswith("0 problems, ")


def test_a_broken_configuration_is_a_problem(cuzk: Cuzk, config: Path) -> None:
    config.write_text("[pipeline]\nprestag = 1\n")
    result = cuzk("doctor")
    assert result.code == 1
    assert f"problem  configuration      {config}:2: " in result.out
    assert "did you mean" in result.out


def test_another_program_on_the_port(cuzk: Cuzk, config: Path) -> None:
    with web_server() as port:
        config.write_text(f'[daemon]\nlisten = "127.0.0.1:{port}"\nstatus_listen = ""\n')
        result = cuzk("doctor", "--json")
    assert result.code == 1
    check = engine_check(result.out)
    assert check["verdict"] == "problem"
    assert f"127.0.0.1:{port} is in use by pid" in check["found"]
    assert check["advice"] == "end that program, or choose another daemon.listen"


def test_a_running_engine_and_a_stale_one(cuzk: Cuzk, cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(cuzk_home) as daemon:
        ready = engine_check(cuzk("doctor", "--config", daemon.config, "--json").out)
        assert (ready["name"], ready["verdict"]) == ("engine", "ok")
        assert f"(pid {daemon.pid}, started by the test)" in ready["found"]
        monkeypatch.setattr("cuzk_engine.client.lifecycle.build_id", lambda: "123456abcdef")
        stale = engine_check(cuzk("doctor", "--config", daemon.config, "--json").out)
        assert stale["verdict"] == "warning"
        assert "installed is 123456abcdef" in stale["found"]
        assert stale["advice"] == "cuzk daemon restart --if-stale"


def test_a_daemon_that_crashed(cuzk: Cuzk, cuzk_home: Path, config: Path) -> None:
    lock = cuzk_home / "run" / "daemon.lock"
    lock.parent.mkdir(mode=0o700)
    lock.write_text("{}")
    result = cuzk("doctor")
    assert result.code == 0
    assert "warning  engine             the engine ended without being asked to" in result.out
    lock.unlink()


def test_cards(cuzk: Cuzk, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in one part keeps no other from being told."""
    card = probe.Card((7, 0), "Tesla V100", "GPU-aaaa", "0000:1B:00.0", 16 << 30)
    found = Cards("580.95", Driver((13, 0), (card,)), nvml_fault="NVML does not answer (5 s)")
    monkeypatch.setattr(gpu, "look", lambda: found)
    monkeypatch.setattr(probe, "cupy_cuda", lambda: 13)
    monkeypatch.setattr(gpu, "cupy", lambda cards: ok("cupy", "fine"))
    result = cuzk("doctor")
    assert result.code == 0
    assert "warning  cuda:0             Tesla V100, compute capability 7.0, 16 GiB" in result.out
    assert json.loads(cuzk("doctor", "--json").out)["cards"][0]["uuid"] == "GPU-aaaa"

    def broken(*_: object) -> list[each_card.CardState]:
        raise FileNotFoundError("kernels/ not found")

    monkeypatch.setattr(each_card, "states", broken)
    result = cuzk("doctor")
    assert result.code == 1
    assert "problem  cards" in result.out
    assert "status page" in result.out
