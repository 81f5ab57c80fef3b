"""The folders, also of a user who has no home: as in a container that runs under any number."""

import os
import pwd
from pathlib import Path

import pytest

from cuzk_engine import config, paths
from cuzk_engine.cli.main import main
from cuzk_engine.daemon.files import AllowedPaths
from cuzk_engine.errors import CuzkError, SettingError
from tests.support.cases import case


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, cuzk_home: Path) -> Path:
    """No home folder in the environment and none in the list of users; returns cuzk_home, which is not set."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("CUZK_HOME", "HOME", *(name for name in os.environ if name.startswith("XDG_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    return cuzk_home


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("folder", [paths.config_dir, paths.data_dir, paths.cache_dir, paths.log_dir])
def test_without_a_home_the_user_is_told_what_to_set(folder) -> None:
    with pytest.raises(CuzkError, match="this user has no home folder: set HOME, or CUZK_HOME"):
        folder()


@pytest.mark.usefixtures("homeless")
def test_a_proof_needs_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = case("bn128", "mul_pub")
    files = [item.path("circuit.zkey"), item.path("witness.wtns"), tmp_path / "proof.json", tmp_path / "public.json"]
    assert main(["prove", *map(str, files)]) == 0
    assert capsys.readouterr().err == ""


def test_with_cuzk_home_no_other_home_is_needed(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_HOME", str(homeless))
    assert paths.data_dir() == homeless / "data"
    allowed = AllowedPaths([], "/params")
    assert allowed.check("/params/a") == "/params/a"
    with pytest.raises(CuzkError, match="lies outside the folders that may be read"):
        allowed.check(str(Path.cwd() / "~" / "a"))


def test_a_refusal_says_where_to_allow_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_HOME", str(tmp_path))
    for file, named in ((None, tmp_path / "config" / "cuzk.toml"), (tmp_path / "my.toml", tmp_path / "my.toml")):
        with pytest.raises(CuzkError) as refusal:
            AllowedPaths(["/params"], "", file).check("/elsewhere/a")
        assert str(refusal.value).endswith(f"add its folder to daemon.allowed_paths in {named} and restart the engine")


def test_a_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_HOME", "~no-such-user/x")
    assert paths.data_dir() == Path.cwd() / "~no-such-user/x/data"
    with pytest.raises(SettingError, match="no such configuration file"):
        config.find_file("~no-such-user/cuzk.toml", {})


def test_a_home_whose_name_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_HOME", os.fsdecode(b"/tmp/h\xff"))
    with pytest.raises(CuzkError, match=r"CUZK_HOME is '/tmp/h\\udcff': expected a name in UTF-8"):
        paths.data_dir()


def test_a_configuration_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="x: cannot be looked at: file name too long"):
        config.find_file(tmp_path / ("x" * 300), {})
    monkeypatch.setenv("CUZK_HOME", str(tmp_path / ("x" * 300)))
    with pytest.raises(SettingError, match=r"cuzk\.toml: cannot be looked at: file name too long"):
        config.find_file(None, {})
