"""`cuzk doctor`: its lines, its JSON and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuzk_engine.build import build_id
from cuzk_engine.native import library
from tests.cli.conftest import Cuzk
from tests.client.test_foreign_servers import web_server
from tests.support.daemons import running

NAMES = [
    *("python", "native library", "processor", "memory", "memory lock limit", "nvidia driver", "cupy", "kernel cache"),
    *("bellman locks", "configuration", "folders", "engine", "status page"),
]


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
    check = next(check for check in json.loads(result.out)["checks"] if check["name"] == "engine")
    assert check["verdict"] == "problem"
    assert f"127.0.0.1:{port} is in use by pid" in check["found"]
    assert check["advice"] == "end that program, or choose another daemon.listen"


def test_a_running_engine_and_a_stale_one(cuzk: Cuzk, cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(cuzk_home) as daemon:
        ready = json.loads(cuzk("doctor", "--config", daemon.config, "--json").out)["checks"][11]
        assert (ready["name"], ready["verdict"]) == ("engine", "ok")
        assert f"(pid {daemon.pid}, started by the test)" in ready["found"]
        monkeypatch.setattr("cuzk_engine.client.lifecycle.build_id", lambda: "123456abcdef")
        stale = json.loads(cuzk("doctor", "--config", daemon.config, "--json").out)["checks"][11]
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
