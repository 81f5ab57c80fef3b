"""The real circom and snarkjs files under tests/data, and where to find them unpacked."""

from __future__ import annotations

import atexit
import functools
import json
import lzma
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"
BROKEN = DATA / "broken"
SAPLING_OUTPUT = DATA / "bellman" / "sapling_output"

# snarkjs's curve names and ours.
CURVE_NAMES = {"bn128": "bn254", "bls12381": "bls12_381"}


@functools.cache
def _unpack_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cuzk-cases-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _unpacked(packed: Path) -> Path:
    target = _unpack_folder() / packed.relative_to(DATA).with_suffix("")
    target.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(packed) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    return target


@dataclass(frozen=True)
class Case:
    """One circuit with its key, witness and a proof by snarkjs.

    `facts` is case.json: n_constraints, n_vars, n_public, n_outputs, n_public_inputs, domain_size,
    n_contributions, zkey_bytes, section_order, what.
    """

    snarkjs_curve: str  # "bn128" or "bls12381", as snarkjs writes it
    name: str

    def __str__(self) -> str:
        return f"{self.snarkjs_curve}-{self.name}"

    @property
    def folder(self) -> Path:
        return DATA / "cases" / self.snarkjs_curve / self.name

    @property
    def curve(self) -> str:
        """The project's name of the curve: "bn254" or "bls12_381"."""
        return CURVE_NAMES[self.snarkjs_curve]

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.json("case.json")
        return facts

    @property
    def small(self) -> bool:
        return not (self.folder / "circuit.zkey.xz").exists()

    def path(self, file: str) -> Path:
        """Path of a file of the case, unpacked (once a process) if it is stored as .xz. Treat it as read-only."""
        plain = self.folder / file
        return plain if plain.exists() else _unpacked(self.folder / (file + ".xz"))

    def json(self, file: str) -> Any:
        return json.loads(self.path(file).read_text(encoding="utf-8"))


def case(snarkjs_curve: str, name: str) -> Case:
    found = Case(snarkjs_curve, name)
    if not found.folder.is_dir():
        raise LookupError(f"no case {found} under {DATA / 'cases'}")
    return found


CASES: tuple[Case, ...] = tuple(
    Case(folder.parent.name, folder.name) for folder in sorted((DATA / "cases").glob("*/*")) if folder.is_dir()
)
SMALL_CASES: tuple[Case, ...] = tuple(item for item in CASES if item.small)
# One case for each kind of circuit, for tests that cost more.
TINY_CASES: tuple[Case, ...] = tuple(item for item in CASES if item.name.startswith("mul_"))
