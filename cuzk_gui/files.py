"""Writing a proof: both files whole, or none."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from cuzk_engine.client import ProofResult


def save_proof(folder: Path, proof: ProofResult) -> tuple[Path, Path]:
    """Writes ``proof.json`` and ``public.json`` into ``folder``; raises OSError, and then leaves neither
    half-written."""
    targets = (folder / "proof.json", folder / "public.json")
    made: list[Path] = []
    try:
        for target, text in zip(targets, (proof.proof_json, proof.public_json), strict=True):
            made.append(_write_beside(target, text))
        for temporary, target in zip(list(made), targets, strict=True):
            os.replace(temporary, target)
            made.remove(temporary)
    finally:
        for temporary in made:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return targets


def _write_beside(target: Path, text: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        path.chmod(0o666 & ~mask)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
