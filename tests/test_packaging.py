"""What pyproject.toml, the lock and the system check say agrees with each other and with the machine."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import cuzk_engine
from tools import check_system

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WANTED = [Requirement(line) for line in PYPROJECT["project"]["dependencies"] + PYPROJECT["dependency-groups"]["dev"]]


def locked() -> list[Requirement]:
    lines = (ROOT / "requirements/lock.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("wanted", WANTED, ids=lambda requirement: requirement.name)
def test_lock_satisfies_requirement(wanted: Requirement, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    name = wanted.name.lower().replace("_", "-")
    pins = [pin for pin in locked() if pin.name == name and (not pin.marker or pin.marker.evaluate(environment))]
    assert len(pins) == 1, f"found {len(pins)} pins of {name}, expected one; run `make lock`"
    version = str(pins[0].specifier).removeprefix("==")
    assert wanted.specifier.contains(version), f"{version} is outside {wanted}; run `make lock`"


def test_lock_names_no_index() -> None:
    assert "://" not in (ROOT / "requirements/lock.txt").read_text()
    assert "resolved" not in (ROOT / "package-lock.json").read_text()


def test_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("cuzk") == cuzk_engine.__version__


def test_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_system, "QT_LIBRARIES", {"libno-such.so.7": "libno-such7"})
    assert list(check_system.missing_for_window({})) == [("libno-such.so.7", "libno-such7")]


@pytest.mark.parametrize(
    ("environ", "asked"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, False)],
)
def test_x11_libraries_are_asked_for_with_a_display_only(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], asked: bool
) -> None:
    monkeypatch.setattr(check_system, "X11_LIBRARIES", {"libno-such-x11.so.7": "libno-such-x11-7"})
    assert (("libno-such-x11.so.7", "libno-such-x11-7") in check_system.missing_for_window(environ)) is asked


def test_missing_compiler_is_named_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tools/check_system.py", "build"]
    result = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == "cuzk: missing a C++ compiler, make; install with: apt-get install g++ make\n"
