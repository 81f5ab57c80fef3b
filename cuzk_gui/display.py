"""Whether Qt can open a window here; asked before Qt is, because Qt aborts the process when it cannot."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PACKAGES = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libfontconfig.so.1": "libfontconfig1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libX11-xcb.so.1": "libx11-xcb1",
}
ALTERNATIVE = "`cuzk prove` and `cuzk daemon` work without a window"


def has_display(environment: Mapping[str, str]) -> bool:
    """Whether there is a screen to open a window on, or a platform plugin was asked for that needs none."""
    if environment.get("QT_QPA_PLATFORM") or not sys.platform.startswith("linux"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def problem(environment: Mapping[str, str] | None = None) -> str:
    """Why no window can be opened, in one line with what to do; "" when nothing stands against it."""
    environment = os.environ if environment is None else environment
    if importlib.util.find_spec("PySide6") is None:
        return f"PySide6 is not installed: install PySide6-Essentials; {ALTERNATIVE}"
    if not sys.platform.startswith("linux"):
        return ""
    if not has_display(environment):
        return f"there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set); {ALTERNATIVE}"
    platform = environment.get("QT_QPA_PLATFORM", "").partition(":")[0]
    x11 = platform == "xcb" or (not platform and not environment.get("WAYLAND_DISPLAY"))
    missing = missing_libraries(x11)
    if missing:
        packages = " ".join(_PACKAGES.get(name, name) for name in missing)
        return f"Qt lacks {', '.join(missing)}: install {packages} (names of Debian and Ubuntu); {ALTERNATIVE}"
    return ""


def missing_libraries(x11: bool) -> list[str]:
    """Shared libraries that Qt's own ones need and the system does not have, as ``ldd`` finds them."""
    ldd = shutil.which("ldd")
    spec = importlib.util.find_spec("PySide6")
    if ldd is None or spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))) / "Qt"
    files = [folder / "lib" / "libQt6Gui.so.6", folder / "lib" / "libQt6Widgets.so.6"]
    if x11:
        files.append(folder / "plugins" / "platforms" / "libqxcb.so")
    there = [str(file) for file in files if file.is_file()]
    if not there:
        return []
    try:
        answer = subprocess.run(
            [ldd, *there], capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = (line.split("=>")[0].strip() for line in answer.stdout.splitlines() if "not found" in line)
    return list(dict.fromkeys(found))
