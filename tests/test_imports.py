"""The contracts of pyproject.toml are such that a forbidden import breaks them, and an allowed one does not."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"

PACKAGES = {
    "cuzk_engine/__init__.py": "",
    "cuzk_engine/events.py": "",
    "cuzk_engine/client/__init__.py": "from cuzk_engine.client import wire",
    "cuzk_engine/client/wire.py": "import grpc",
    **{
        f"cuzk_engine/{name}.py": ""
        for name in ("cli", "config", "daemon", "devices", "formats", "groth16", "native", "pipeline", "runner")
    },
    "cuzk_gui/__init__.py": "",
    "cuzk_gui/chart.py": "import pyqtgraph\nfrom cuzk_engine import client\nfrom cuzk_engine.events import __doc__",
}

FORBIDDEN = {
    "engine imports Qt": ("cuzk_engine/daemon.py", "from PySide6.QtCore import QObject", "The engine knows neither Qt"),
    "engine imports the window": ("cuzk_engine/daemon.py", "import cuzk_gui.chart", "The engine knows neither Qt"),
    "window imports the daemon": ("cuzk_gui/chart.py", "from cuzk_engine import daemon", "only the engine's client"),
    "window imports a new module": ("cuzk_gui/chart.py", "from cuzk_engine.fresh import x", "only the engine's client"),
    "window imports CuPy": ("cuzk_gui/chart.py", "import cupy", "reaches no device"),
    "window imports ctypes": ("cuzk_gui/chart.py", "import ctypes", "reaches no device"),
    "window imports gRPC": ("cuzk_gui/chart.py", "import grpc", "reaches no device"),
    "client imports the daemon": ("cuzk_engine/client/wire.py", "from cuzk_engine import daemon", "The client knows"),
    "formats import the library": ("cuzk_engine/formats.py", "from cuzk_engine import native", "File formats know no"),
    "devices import the runner": ("cuzk_engine/devices.py", "from cuzk_engine import runner", "Devices know neither"),
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Hold the packages that PACKAGES describes, changed as `folder` has them, against the project's contracts."""
    # -S leaves out what leads from site-packages to the installed cuzk.
    command = [sys.executable, "-S", "-c", "import importlinter.cli as cli; cli.lint_imports_command()"]
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{sysconfig.get_path('purelib')}"}
    options = [str(PYPROJECT), "--no-cache"]
    return subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, text in PACKAGES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_allowed_imports_pass(packages: Path) -> None:
    result = lint_imports(packages)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Contracts: 6 kept, 0 broken." in result.stdout


@pytest.mark.parametrize("case", FORBIDDEN)
def test_forbidden_import_breaks_its_contract(packages: Path, case: str) -> None:
    name, line, contract = FORBIDDEN[case]
    (packages / "cuzk_engine/fresh.py").touch()
    (packages / name).write_text(f"{line}\n{PACKAGES[name]}")
    result = lint_imports(packages)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [text for text in result.stdout.splitlines() if " BROKEN" in text]
    assert len(broken) == 1
    assert contract in broken[0]
