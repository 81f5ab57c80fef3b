"""Name what a fresh Debian or Ubuntu lacks for building cuzk or for showing its window, with its package.

    check_system.py build window               one line on standard error, exit code 1 when something is missing
    check_system.py --packages build window    the missing packages alone, on standard output

Runs before the virtual environment exists, so it imports only the standard library.
"""

import argparse
import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping

# What libQt6Core, Gui, Widgets and DBus and the offscreen platform of PySide6's wheel leave to the system.
QT_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
X11_LIBRARIES = {
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
WAYLAND_LIBRARIES = {
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
}


def missing_for_build() -> Iterator[tuple[str, str]]:
    """Yield (what is missing, its package) for making the environment and compiling the native library."""
    if importlib.util.find_spec("ensurepip") is None:
        yield "Python's ensurepip", f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    compilers = [*os.environ.get("CXX", "").split()[:1], "c++", "g++", "clang++"]
    if not any(shutil.which(compiler) for compiler in compilers):
        yield "a C++ compiler", "g++"
    if shutil.which("make") is None:
        yield "make", "make"


def missing_for_window(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (library, its package) for what Qt needs on the display that `environ` names and the loader lacks."""
    libraries = dict(QT_LIBRARIES)
    if environ.get("QT_QPA_PLATFORM", "").partition(":")[0] not in ("offscreen", "minimal"):
        if environ.get("WAYLAND_DISPLAY"):
            libraries |= WAYLAND_LIBRARIES
        elif environ.get("DISPLAY"):
            libraries |= X11_LIBRARIES
    for library, package in libraries.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            yield library, package


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", action="store_true", help="print the missing packages alone")
    parser.add_argument("what", nargs="+", choices=["build", "window"])
    arguments = parser.parse_args()
    missing: dict[str, str] = {}
    if "build" in arguments.what:
        missing |= missing_for_build()
    if "window" in arguments.what:
        missing |= missing_for_window(os.environ)
    packages = sorted(set(missing.values()))
    if arguments.packages:
        if packages:
            print(*packages, sep="\n")
        return 0
    if packages:
        names = ", ".join(missing)
        print(f"cuzk: missing {names}; install with: apt-get install {' '.join(packages)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
