"""The demo without a display, with a real engine and a real proof."""

import json
import os
import subprocess
import sys
from pathlib import Path

from PySide6.QtGui import QImage

from cuzk_gui import assets


def test_assets_are_small_and_there() -> None:
    demo = assets.demo()
    assert demo is not None
    folder = demo.key.parent
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    assert (folder / "verification_key.json").exists()
    assert assets.icon_file() is not None


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
