import shutil
import subprocess
import sys
from pathlib import Path

import cuzk_engine
from cuzk_engine.build import build_id

PACKAGE = Path(cuzk_engine.__file__).parent
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from cuzk_engine.build import build_id
print(build_id())
"""


def id_of(root: Path) -> str:
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_covers_the_package_and_the_kernels_and_nothing_else(tmp_path: Path) -> None:
    assert len(build_id()) == 12
    assert build_id() == build_id()
    (tmp_path / "cuzk_engine").mkdir()
    for name in ("__init__.py", "build.py", "units.py"):
        shutil.copy(PACKAGE / name, tmp_path / "cuzk_engine" / name)
    kernel = tmp_path / "kernels" / "ff" / "field.hpp"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("// one")
    first = id_of(tmp_path)
    (tmp_path / "cuzk_engine" / "notes.md").write_text("no part of the build")
    (tmp_path / "kernels" / "build.log").write_text("nor this")
    assert id_of(tmp_path) == first
    kernel.write_text("// two")
    second = id_of(tmp_path)
    assert second != first
    (tmp_path / "cuzk_engine" / "units.py").rename(tmp_path / "cuzk_engine" / "measures.py")
    assert id_of(tmp_path) not in (first, second)
