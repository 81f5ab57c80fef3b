"""The demo without a display, with a real engine and a real proof."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from cuzk_gui import assets


def test_assets_are_small_and_there() -> None:
    demo = assets.demo()
    assert demo is not None
    folder = demo.key.parent
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    assert (folder / "verification_key.json").exists()
    assert assets.icon_file() is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_demo_leaves_no_engine_behind(tmp_path: Path, number: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    (temporary := tmp_path / "tmp").mkdir()
    script = "import sys; from cuzk_gui.main import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", script, "--demo", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(temporary)},
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "starting an engine" in line:
                break
        demo.send_signal(number)
        rest = demo.stdout.read()
        assert demo.wait(100) == 128 + number
    assert rest == "cuzk: the engine has stopped\n"
    assert list(temporary.glob("cuzk-demo-*")) == []


def test_demo_without_a_display_leaves_proof_and_picture(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    script = "import sys; from cuzk_gui.main import main; sys.exit(main(sys.argv[1:]))"
    out = tmp_path / "out"
    answer = subprocess.run(
        [sys.executable, "-c", script, "--demo", str(out)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=110,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.startswith("cuzk: no display here")
    assert sorted(file.name for file in out.iterdir()) == ["proof.json", "public.json", "window.png"]
    assert json.loads((out / "proof.json").read_text())["protocol"] == "groth16"
    assert len(json.loads((out / "public.json").read_text())) == 3
    picture = QImage(str(out / "window.png"))
    assert (picture.width(), picture.height()) == (1600, 1000)
    demo = assets.demo()
    assert demo is not None
    verified = subprocess.run(
        [
            sys.executable,
            "-m",
            "cuzk_engine.cli.main",
            "verify",
            str(demo.key.parent / "verification_key.json"),
            str(out / "public.json"),
            str(out / "proof.json"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr
