"""Everything a proof of a profile needs: constraint system, witness, key and verification key, on disk or in memory."""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.errors import CuzkError
from cuzk_engine.formats.atomic import Sink, write_atomically
from cuzk_engine.formats.points import integers
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.formats.source import BytesLike, SourceFile, reason
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.groth16.layouts import write_zkey
from cuzk_engine.groth16.setup import Progress, System
from cuzk_engine.groth16.toxic import ToxicWaste
from cuzk_engine.native import Group, PointOp, aligned
from cuzk_engine.workload.rows import Circuit

R1CS, ZKEY, WTNS, VKEY = "circuit.r1cs", "circuit.zkey", "witness.wtns", "verification_key.json"
NAMES: Final = (R1CS, WTNS, ZKEY, VKEY)
# snarkjs's pairings are powers of the reduced ones, as the shorter final exponentiations leave them: on BN254
# 2x (6x² + 3x + 1) with the curve's x (Fuentes-Castañeda and others, "Faster Hashing to G2"), on BLS12-381 3.
_BN_X: Final = 4965661367192848881
_SNARKJS_EXPONENT: Final = {"bn254": 2 * _BN_X * (6 * _BN_X**2 + 3 * _BN_X + 1), "bls12_381": 3}
_SHARES: Final = {"constraints": (0.0, 0.04), "witness": (0.04, 0.08), "key": (0.08, 1.0)}


def secrets_for(curve: Curve, seed: str | None) -> ToxicWaste:
    """From the seed, or without one from the system's randomness."""
    return ToxicWaste.random(curve) if seed is None else ToxicWaste.from_seed(curve, seed)


def check_folder(folder: Path, *, replace: bool) -> None:
    """Refuses a folder that cannot take the four files, or (without ``replace``) has one of them. Raises CuzkError."""
    for name in NAMES:
        if (folder / name).is_dir():
            raise CuzkError(f"{folder / name}: cannot be written: is a folder")
    there = [] if replace else [name for name in NAMES if os.path.lexists(folder / name)]
    if there:
        names, them = " and ".join(filter(None, (", ".join(there[:-1]), there[-1]))), "them" if there[1:] else "it"
        raise CuzkError(f"{folder}: has {names} already; name another folder, or give --force to replace {them}")


def write_folder(
    circuit: Circuit,
    folder: Path,
    *,
    seed: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> None:
    """Writes the four files into ``folder``, which is made where it does not exist; all of them or none.

    Files of these names are replaced, or without ``replace`` an error. Raises CuzkError.
    """
    check_folder(folder, replace=replace)
    hidden = folder / f".cuzk-{secrets.token_hex(8)}.tmp"
    made = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        hidden.mkdir()
    except OSError as error:
        raise CuzkError(f"{folder}: cannot be made: {reason(error)}") from error
    try:
        _write_files(circuit, hidden, seed, progress)
        check_folder(folder, replace=replace)  # somebody else may have been quicker
        for name in NAMES:
            os.replace(hidden / name, folder / name)
    except CuzkError as error:
        # The user knows nothing of the folder in between.
        raise CuzkError(str(error).replace(str(hidden), str(folder))) from error
    except OSError as error:
        raise CuzkError(f"{folder}: cannot be written: {reason(error)}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()


def in_memory(
    circuit: Circuit, *, seed: str | None = None, progress: Progress | None = None
) -> tuple[BytesLike, BytesLike]:
    """Key and witness as the bytes of their files."""
    system, witness, key = io.BytesIO(), io.BytesIO(), io.BytesIO()
    circuit.write_r1cs(system, _part(progress, "constraints"))
    circuit.write_wtns(witness, _part(progress, "witness"))
    _write_key(SourceFile.from_buffer(system.getbuffer(), circuit.profile), key, seed, progress)
    return key.getbuffer(), witness.getbuffer()


def verification_key_json(zkey: ZKey) -> str:
    """verification_key.json of a key, as snarkjs exports it."""
    curve, library = zkey.curve, native.library()
    alpha, out = aligned(curve.g1_bytes), aligned(12 * curve.n8q)
    exponent = _SNARKJS_EXPONENT[curve.name].to_bytes(32, "little")
    library.point_op(curve, Group.G1, PointOp.MUL, alpha, zkey.alpha1, exponent, 1)
    library.pairing(curve, alpha, zkey.beta2, out)
    return VerificationKey.from_zkey(zkey).to_json(integers(out.tobytes(), curve.n8q))


def _write_files(circuit: Circuit, folder: Path, seed: str | None, progress: Progress | None) -> None:
    write_atomically(folder / R1CS, lambda stream: circuit.write_r1cs(stream, _part(progress, "constraints")))
    write_atomically(folder / WTNS, lambda stream: circuit.write_wtns(stream, _part(progress, "witness")))
    source = SourceFile.open(folder / R1CS)
    write_atomically(folder / ZKEY, lambda stream: _write_key(source, stream, seed, progress))
    write_atomically(folder / VKEY, verification_key_json(ZKey.open(folder / ZKEY)))


def _write_key(source: SourceFile, stream: Sink, seed: str | None, progress: Progress | None) -> None:
    system = System.load(source)
    toxic = secrets_for(system.curve, seed)
    first, last = _SHARES["key"]

    def report(phase: str, fraction: float) -> None:
        if progress is not None:
            progress(phase, first + (last - first) * fraction)

    write_zkey(system, toxic, stream, report)


def _part(progress: Progress | None, phase: str) -> Callable[[float], None] | None:
    if progress is None:
        return None
    first, last = _SHARES[phase]
    return lambda fraction: progress(phase, first + (last - first) * fraction)
