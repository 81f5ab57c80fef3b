"""Which build this is: a hash over the text of the package and of the kernels.

A daemon computes it once, when it starts, and keeps it; whoever compares it with the installed one computes that anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PACKAGE_SUFFIXES: Final = frozenset({".py", ".proto"})
_KERNEL_SUFFIXES: Final = frozenset({".h", ".hpp", ".cuh", ".c", ".cpp", ".cu", ".inc", ".txt", ".cmake", ".S"})
_DIGITS: Final = 12


def build_id() -> str:
    """Twelve hexadecimal digits of SHA-256 over names and contents, as they lie on the disk now."""
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for root, suffixes in ((package, _PACKAGE_SUFFIXES), (kernels_folder(package), _KERNEL_SUFFIXES)):
        for path in sorted(_files(root, suffixes)):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()[:_DIGITS]


def kernels_folder(package: Path) -> Path:
    """The kernels of an installed package lie inside it, those of a checkout beside it."""
    inside = package / "_kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


def _files(root: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    if not root.is_dir():
        return
    for path in root.rglob("*"):
        if (
            path.suffix in suffixes
            and "__pycache__" not in path.parts
            and "_kernels" not in path.relative_to(root).parts
        ):
            try:
                if path.is_file():
                    yield path
            except OSError:
                continue
