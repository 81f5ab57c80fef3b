"""``cuzk verify``: says "valid", or "invalid: …" with what is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json
from cuzk_engine.errors import FormatError, ProofInvalidError

if TYPE_CHECKING:
    from cuzk_engine.formats.proof import VerificationKey

    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "verify",
        help="check a proof",
        description="Checks a Groth16 proof; exit code 0: valid, 1: not. Key and proof may be bellperson's, too: a .vk "
        "or .params file, and proofs of 192 bytes each, for several of which PUBLIC.json holds a list of lists.",
        allow_abbrev=False,
    )
    parser.add_argument("vkey", metavar="VKEY.json", type=Path)
    parser.add_argument("public", metavar="PUBLIC.json", type=Path)
    parser.add_argument("proof", metavar="PROOF.json", type=Path)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    reason = find_fault(args.vkey, args.public, args.proof)
    if args.json:
        say_json({"valid": reason is None, "reason": reason})
    else:
        say("valid" if reason is None else f"invalid: {reason}")
    return 0 if reason is None else 1


def find_fault(vkey_path: Path, public_path: Path, proof_path: Path) -> str | None:
    """Why the proof (or the first bad one of several) is invalid, None when all are valid.

    The verification key is verification_key.json or a bellperson key (.vk or .params), the proof proof.json or
    compressed proofs of 192 bytes each. Raises FormatError for files that are not what they should be at all, and for
    any fault of the verification key; a value that is out of range or not a number makes the proof invalid.
    """
    from cuzk_engine.formats.params import read_verifying_key
    from cuzk_engine.formats.proof import VerificationKey

    vkey = read_verifying_key(vkey_path) if _is_bellperson_key(vkey_path) else VerificationKey.read(vkey_path)
    check = _check_compressed if _is_compressed_proof(proof_path) else _check_json
    try:
        return check(vkey, vkey_path, public_path, proof_path)
    except ProofInvalidError as error:
        return str(error)


def _check_json(vkey: VerificationKey, vkey_path: Path, public_path: Path, proof_path: Path) -> str | None:
    from cuzk_engine.formats.json_input import load_json
    from cuzk_engine.formats.proof import MAX_PROOF_BYTES, MAX_PUBLIC_BYTES, Proof, PublicSignals
    from cuzk_engine.groth16.verify import PreparedKey

    public_document = load_json(public_path, "public signals", MAX_PUBLIC_BYTES)
    proof_document = load_json(proof_path, "a proof", MAX_PROOF_BYTES)
    key = PreparedKey.checked(vkey, vkey_path, independent=True)
    try:
        public = PublicSignals.from_document(public_document, public_path, vkey.curve, vkey.n_public)
        proof = Proof.from_document(proof_document, proof_path, vkey.curve)
    except FormatError as error:
        return str(error)
    key.verify(public.values, proof)
    return None


def _check_compressed(vkey: VerificationKey, vkey_path: Path, public_path: Path, proof_path: Path) -> str | None:
    from cuzk_engine.formats.compressed_proof import PROOF_BYTES, decode_proofs, read_proof_bytes
    from cuzk_engine.formats.json_input import load_json
    from cuzk_engine.formats.proof import MAX_PUBLIC_BYTES, public_lists
    from cuzk_engine.groth16.verify import PreparedKey

    public_document = load_json(public_path, "public signals", MAX_PUBLIC_BYTES)
    data = read_proof_bytes(proof_path)
    key = PreparedKey.checked(vkey, vkey_path, independent=True)
    try:
        publics = public_lists(public_document, public_path, vkey.curve, vkey.n_public, len(data) // PROOF_BYTES)
        proofs = decode_proofs(data, proof_path)
    except FormatError as error:
        return str(error)
    for number, (public, proof) in enumerate(zip(publics, proofs, strict=True)):
        try:
            key.verify(public.values, proof)
        except ProofInvalidError as error:
            return str(error) if len(proofs) == 1 else f"proof {number}: {error}"
    return None


def _is_bellperson_key(path: Path) -> bool:
    """By its name, else by its structure: the format has no magic."""
    from cuzk_engine.formats.params import structure_of
    from cuzk_engine.formats.source import SourceFile

    if path.suffix in (".vk", ".params"):
        return True
    return path.suffix != ".json" and structure_of(SourceFile.open(path)) is not None


def _is_compressed_proof(path: Path) -> bool:
    """Whether a file is no JSON, or not meant to be."""
    from cuzk_engine.formats.source import open_regular, read_at

    with open_regular(path) as (descriptor, _):
        head = bytes(read_at(descriptor, 64))
    if head and head[0] & 0xC0 == 0x80:  # the flags of a compressed point; no text begins so
        return True
    return path.suffix != ".json" and not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
