"""``cuzk verify``: says "valid", or "invalid: …" with what is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuzk_engine.cli.console import say, say_json
from cuzk_engine.errors import FormatError, ProofInvalidError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "verify",
        help="check a proof",
        description="Checks a Groth16 proof; exit code 0: valid, 1: not.",
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
    """Why the proof is invalid, None when it is valid.

    Raises FormatError for files that are not what they should be at all, and for any fault of the verification key; a
    value that is out of range or not a number makes the proof invalid.
    """
    from cuzk_engine.formats.json_input import load_json
    from cuzk_engine.formats.proof import MAX_PROOF_BYTES, MAX_PUBLIC_BYTES, Proof, PublicSignals, VerificationKey
    from cuzk_engine.groth16.verify import PreparedKey

    vkey = VerificationKey.read(vkey_path)
    public_document = load_json(public_path, "public signals", MAX_PUBLIC_BYTES)
    proof_document = load_json(proof_path, "a proof", MAX_PROOF_BYTES)
    try:
        public = PublicSignals.from_document(public_document, public_path, vkey.curve, vkey.n_public)
        proof = Proof.from_document(proof_document, proof_path, vkey.curve)
        PreparedKey.checked(vkey, vkey_path).verify(public.values, proof)
    except ProofInvalidError as error:
        return str(error)
    except FormatError as error:
        if error.path == str(vkey_path):
            raise
        return str(error)
    return None
