"""Which engine a command talks to."""

import json
import re
from pathlib import Path

import pytest

from cuzk_engine.client import EngineClient
from cuzk_engine.client.recording import Recording
from tests.cli.conftest import Cuzk
from tests.support.cases import case
from tests.support.daemons import running

KEY, WITNESS = (case("bn128", "mul_pub").path(name) for name in ("circuit.zkey", "witness.wtns"))


def test_record_finds_the_engine_that_runs(cuzk: Cuzk, cuzk_home: Path, tmp_path: Path) -> None:
    with running(cuzk_home, listen="127.0.0.1:0") as daemon:
        result = cuzk("record", tmp_path / "r.cuzkrec", "--seconds", "0.3")
        assert (result.code, result.err) == (0, "")
    with Recording.open(tmp_path / "r.cuzkrec") as recording:
        assert recording.info.address == daemon.address


def test_an_address_of_its_own_that_is_none(cuzk: Cuzk, cuzk_home: Path) -> None:
    (cuzk_home / "config").mkdir(parents=True)
    (cuzk_home / "config" / "cuzk.toml").write_text('[daemon]\nlisten = "nonsense"\n')
    other = cuzk("jobs", "--daemon", f"unix://{cuzk_home}/none.sock")  # which has nothing to do with it
    assert other.error.startswith(f"no engine answers at unix://{cuzk_home}/none.sock")
    assert cuzk("jobs").error.startswith("daemon.listen: address 'nonsense' is not one: expected ")


@pytest.mark.parametrize("arguments", [("prove", KEY, WITNESS, "p", "s"), ("bench", KEY, WITNESS)])
def test_a_configuration_that_would_have_no_effect(
    cuzk: Cuzk, tmp_path: Path, arguments: tuple[str | Path, ...]
) -> None:
    result = cuzk(*arguments, "--daemon", f"unix://{tmp_path}/none.sock", "--config", tmp_path / "cuzk.toml")
    assert (result.code, result.out) == (2, "")
    assert result.error.startswith("--config: is for proofs in this process")


def test_record_says_how_far_back_it_reaches(cuzk: Cuzk, cuzk_home: Path, tmp_path: Path) -> None:
    with running(cuzk_home, listen="127.0.0.1:0") as daemon:
        with daemon.client() as client:
            until_seconds_old(client, 0.6)
        text = cuzk("record", tmp_path / "a", "--seconds", "0.3", "--history", "10m").out
        document = json.loads(cuzk("record", tmp_path / "b", "--seconds", "0.3", "--history", "10m", "--json").out)
    assert re.search(r" events of 0\.\d s and of \d+\.\d s before, ", text), text
    assert document["covered_seconds"] > document["seconds"] + 0.3


def until_seconds_old(client: EngineClient, seconds: float) -> None:
    """Until the engine has a past of that length: it sends something several times a second."""
    started = client.identify().started_unix_ns
    for update in client.telemetry():
        if update.wall_ns - started > seconds * 1e9:
            return


def test_record_looks_where_the_engine_would_run(cuzk: Cuzk, cuzk_home: Path, tmp_path: Path) -> None:
    (cuzk_home / "config").mkdir()
    (cuzk_home / "config" / "cuzk.toml").write_text(f'[daemon]\nlisten = "unix://{tmp_path}/none.sock"\n')
    result = cuzk("record", tmp_path / "r.cuzkrec", "--seconds", "1")
    assert result.code == 1
    assert result.error.startswith(f"no engine answers at unix://{tmp_path}/none.sock: start it")


def test_an_engine_of_other_folders_is_not_taken_for_ones_own(cuzk: Cuzk, cuzk_home: Path, tmp_path: Path) -> None:
    with running(tmp_path / "other", listen="127.0.0.1:0") as daemon:
        result = cuzk("daemon", "start", "--listen", daemon.address)
        assert result.code == 0
        assert f"; it is another one than that of {cuzk_home}/run (CUZK_HOME)" in result.out
    with running(cuzk_home, listen="127.0.0.1:0") as daemon:
        assert "it is another one" not in cuzk("daemon", "start", "--listen", daemon.address).out


@pytest.mark.parametrize("command", ["prove", "bench", "record"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--daemon", "127.0.0.1:1", "--cert", "c"), "--cert and --token go together: an engine elsewhere asks for"),
        (("--cert", "c", "--token", "t"), "--cert: is for the engine at an address; name it with --daemon"),
        (
            ("--daemon", "127.0.0.1:1", "--cert", "/no", "--token", "t"),
            "the engine's certificate or token file cannot be read: /no: no such file or directory",
        ),
    ],
)
def test_certificate_and_token(
    cuzk: Cuzk, cuzk_home: Path, tmp_path: Path, command: str, options: tuple[str, ...], message: str
) -> None:
    outputs = (tmp_path / "proof.json", tmp_path / "public.json")
    files = {"prove": (KEY, WITNESS, *outputs), "bench": (KEY, WITNESS), "record": (tmp_path / "r",)}[command]
    result = cuzk(command, *files, *options)
    assert result.code == (1 if "/no" in options else 2)
    assert result.error.startswith(message)
