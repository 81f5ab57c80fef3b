"""The provers that cuzk is measured beside: where to find each, how to run it, and whether its proof is right.

None of them is needed by cuzk or part of it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# One proof by a Python package, as a program of its own; what it returns goes into the third file.
_GROTH16PY = (
    "import sys, groth16py; key, witness, proof = sys.argv[1:4]; "
    "open(proof, 'wb').write(groth16py.prove_wtns(groth16py.import_zkey(key)[0], witness))"
)

Command = Callable[[str, "Files"], list[str]]


@dataclass(frozen=True)
class Files:
    key: Path
    witness: Path
    proof: Path
    public: Path

    @property
    def arguments(self) -> list[str]:
        return [str(self.key), str(self.witness), str(self.proof), str(self.public)]


@dataclass(frozen=True)
class Peer:
    """``places``: where its program is looked for; ``command``: its command line; ``hint``: how to get it."""

    name: str
    places: tuple[str, ...]
    command: Command
    hint: str

    def find(self, given: str | None) -> str | None:
        """The absolute path of its program; None where it is not installed. A path that was given must exist."""
        for place in [given] if given else self.places:
            path = place if "/" in place else shutil.which(place)
            if path and Path(path).exists():
                return str(Path(path).absolute())
        if given:
            raise SystemExit(f"{self.name}: {given} not found")
        return None


def _plain(program: str, files: Files) -> list[str]:
    return [program, *files.arguments]


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "snarkjs",
            (str(ROOT / "node_modules/.bin/snarkjs"), "snarkjs"),
            lambda program, files: [program, "groth16", "prove", *files.arguments],
            "npm ci in the project's folder",
        ),
        Peer("rapidsnark", ("prover", "rapidsnark"), _plain, "its `prover`, from github.com/iden3/rapidsnark"),
        Peer(
            "groth16py",
            ("groth16py-python",),
            lambda program, files: [program, "-c", _GROTH16PY, *files.arguments],
            "the python of a virtual environment with groth16py in it",
        ),
        Peer(
            "groth16-zorch",
            ("groth16-zorch",),
            lambda program, files: [program, "circom", "prove", *files.arguments],
            "its program, from the package groth16-zorch",
        ),
    )
}


def cuzk_program(given: str | None) -> list[str]:
    """The command of cuzk: the program given or installed, else this Python's package."""
    if given:
        if not Path(given).exists():
            raise SystemExit(f"cuzk: {given} not found")
        return [str(Path(given).absolute())]
    beside = Path(sys.executable).parent / "cuzk"
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "cuzk_engine.cli.main"]


def verdict(files: Files) -> str:
    """ "right", "WRONG: …", or "not checked" where the proof is in a form of the peer's own."""
    from cuzk_engine.errors import CuzkError
    from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
    from cuzk_engine.formats.wtns import Witness
    from cuzk_engine.formats.zkey import ZKey
    from cuzk_engine.groth16.verify import verify

    zkey = ZKey.open(files.key)
    key = VerificationKey.from_zkey(zkey)
    try:
        if files.public.exists():
            public: Sequence[int] = PublicSignals.read(files.public, key.curve).values
            proof = Proof.read(files.proof, key.curve)
        else:
            public = Witness.open(files.witness).public_values(zkey.n_public)
            proof = _from_ethereum(files.proof.read_bytes(), key.curve)
        verify(key, public, proof)
    except (CuzkError, ValueError) as error:
        return f"WRONG: {error}"
    except OSError as error:
        return f"WRONG: no proof: {error}"
    return "right"


def _from_ethereum(data: bytes, curve: Any) -> Any:
    """A proof as Ethereum's precompiles take it: 8 big-endian numbers, of Fq2 the coefficient of u first."""
    from cuzk_engine.formats.proof import Proof

    if len(data) != 8 * curve.n8q:
        raise ValueError(f"{len(data)} bytes, expected {8 * curve.n8q}")
    size = curve.n8q
    ax, ay, bx1, bx0, by1, by0, cx, cy = (int.from_bytes(data[i : i + size], "big") for i in range(0, 8 * size, size))
    return Proof.from_document(
        json.loads(
            json.dumps(
                {
                    "pi_a": [str(ax), str(ay), "1"],
                    "pi_b": [[str(bx0), str(bx1)], [str(by0), str(by1)], ["1", "0"]],
                    "pi_c": [str(cx), str(cy), "1"],
                    "protocol": "groth16",
                    "curve": curve.snarkjs_name,
                }
            )
        ),
        "proof",
    )
