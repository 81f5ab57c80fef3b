"""Proofs as bellman and bellperson write them: 192 bytes each, on BLS12-381, the proofs of several partitions one after
the other.

A (G1, 48 bytes), B (G2, 96), C (G1, 48), compressed in the zcash encoding (see `zcash`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cuzk_engine.curves import BLS12_381
from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats import zcash
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.proof import Proof
from cuzk_engine.formats.source import open_regular, read_at

PROOF_BYTES: Final = 192
MAX_PROOFS: Final = 4096
_NOUN: Final = "compressed proofs of 192 bytes each"
_PARTS: Final = (
    ("A", 0, zcash.G1_COMPRESSED_BYTES),
    ("B", zcash.G1_COMPRESSED_BYTES, zcash.G2_COMPRESSED_BYTES),
    ("C", zcash.G1_COMPRESSED_BYTES + zcash.G2_COMPRESSED_BYTES, zcash.G1_COMPRESSED_BYTES),
)


def read_proofs(path: Path | str) -> tuple[Proof, ...]:
    """All proofs of a file; raises FormatError (IncompleteFileError)."""
    return decode_proofs(read_proof_bytes(path), path)


def read_proof_bytes(path: Path | str) -> bytes:
    """The content of a file that has the length of such proofs; raises FormatError (IncompleteFileError)."""
    limit = MAX_PROOFS * PROOF_BYTES
    with open_regular(path) as (descriptor, status):
        if status.st_size > limit:
            raise FormatError(path, f"has {status.st_size:,} bytes, expected {_NOUN}, at most {limit:,} bytes")
        data = bytes(read_at(descriptor, status.st_size))
    _check_length(data, path)
    return data


def decode_proofs(data: bytes, path: Path | str) -> tuple[Proof, ...]:
    """Like `read_proofs`, from bytes; `path` is for messages."""
    _check_length(data, path)
    several = len(data) > PROOF_BYTES
    return tuple(
        _decode(data[start : start + PROOF_BYTES], path, f"proof {start // PROOF_BYTES}, " if several else "")
        for start in range(0, len(data), PROOF_BYTES)
    )


def _check_length(data: bytes, path: Path | str) -> None:
    seems = guess(data[:HEAD_BYTES]) if data else None
    if seems:
        raise FormatError(path, f"this is {seems}, expected {_NOUN}")
    if not data or len(data) % PROOF_BYTES:
        whole = max(PROOF_BYTES, -(-len(data) // PROOF_BYTES) * PROOF_BYTES)
        raise IncompleteFileError(path, _NOUN, whole, len(data))


def encode_proofs(proofs: Sequence[Proof]) -> bytes:
    """The proofs one after the other, 192 bytes each. Proofs with a point at infinity do not occur; ValueError."""
    return b"".join(_encode(proof) for proof in proofs)


def looks_like_proofs(data: bytes | memoryview) -> bool:
    """Whether the length and the flags are those of such proofs."""
    return (
        0 < len(data) <= MAX_PROOFS * PROOF_BYTES
        and len(data) % PROOF_BYTES == 0
        and all(
            data[start + offset] & 0xC0 == 0x80 for start in range(0, len(data), PROOF_BYTES) for _, offset, _ in _PARTS
        )
    )


def _decode(raw: bytes, path: Path | str, prefix: str) -> Proof:
    points: dict[str, Any] = {}
    for name, start, size in _PARTS:
        read: Any = zcash.decompress_g2 if name == "B" else zcash.decompress_g1
        try:
            points[name.lower()] = read(raw[start : start + size])
        except zcash.EncodingFaultError as error:
            raise FormatError(path, f"{prefix}point {name} {error}") from error
    return Proof(BLS12_381, **points)


def _encode(proof: Proof) -> bytes:
    if proof.curve is not BLS12_381:
        raise ValueError(f"compressed proofs are of BLS12-381, this one is of {proof.curve.title}")
    if not any(proof.a) or not any(proof.c) or not any(proof.b[0] + proof.b[1]):
        raise ValueError("a proof with a point at infinity cannot be written")
    return zcash.compress_g1(proof.a) + zcash.compress_g2(proof.b) + zcash.compress_g1(proof.c)
