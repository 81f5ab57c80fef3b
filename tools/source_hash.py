"""Prints the SHA-256 over everything under kernels/: sorted relative paths and contents.

CMake builds it into the native library; ``cuzk_engine/native.py`` computes the same and refuses a library that was
built from other sources. Usage: ``source_hash.py FOLDER [OUTPUT]``; with OUTPUT, writes it there as a C constant,
and only when it changed.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def source_hash(folder: Path) -> str:
    """64 hex digits over every regular file under ``folder``; of each its relative path, its length and its bytes."""
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(files):
        if name.rpartition("/")[2].startswith(".") or "__pycache__" in name:
            continue
        data = files[name].read_bytes()
        encoded = name.encode()
        digest.update(b"%d %d\n" % (len(encoded), len(data)))
        digest.update(encoded)
        digest.update(data)
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    """Command line."""
    if len(arguments) not in (1, 2) or not Path(arguments[0]).is_dir():
        print("usage: source_hash.py FOLDER [OUTPUT]", file=sys.stderr)
        return 2
    value = source_hash(Path(arguments[0]))
    if len(arguments) == 1:
        print(value)
        return 0
    output = Path(arguments[1])
    text = f'#define CUZK_SOURCE_HASH "{value}"\n'
    if not output.exists() or output.read_text() != text:
        output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
