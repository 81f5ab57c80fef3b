"""Where the project's own files are: beside the package in a checkout, inside the installed engine otherwise."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Demo:
    """The circuit at hand: a real circom circuit with a witness."""

    name: str
    key: Path
    witness: Path


def assets_folder() -> Path | None:
    """The folder of the assets; None when an installation lacks it."""
    beside = Path(__file__).resolve().parent.parent / "assets"
    if (beside / "demo").is_dir():
        return beside
    engine = importlib.util.find_spec("cuzk_engine")
    for place in (engine.submodule_search_locations or ()) if engine else ():
        installed = Path(place) / "_assets"
        if installed.is_dir():
            return installed
    return None


def demo() -> Demo | None:
    folder = assets_folder()
    if folder is None:
        return None
    key, witness = folder / "demo" / "circuit.zkey", folder / "demo" / "witness.wtns"
    return Demo("merkle10", key, witness) if key.is_file() and witness.is_file() else None


def icon_file() -> Path | None:
    folder = assets_folder()
    found = folder / "icon" / "cuzk-256.png" if folder else None
    return found if found is not None and found.is_file() else None
