"""What a file is and holds, for `cuzk info`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from cuzk_engine.formats import compressed_proof, params, pce, r1cs, wtns, zkey
from cuzk_engine.formats.container import Container
from cuzk_engine.formats.guess import HEAD_BYTES, guess
from cuzk_engine.formats.json_input import load_json
from cuzk_engine.formats.proof import MAX_VERIFICATION_KEY_BYTES, Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.source import SourceFile


class FileKind(StrEnum):
    ZKEY = "zkey"
    WTNS = "wtns"
    R1CS = "r1cs"
    VERIFICATION_KEY = "verification_key"
    PROOF = "proof"
    PUBLIC = "public"
    PARAMS = "params"
    VK = "vk"
    PCE = "pce"
    COMPRESSED_PROOF = "compressed_proof"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FileDescription:
    """Kind and facts of one file.

    `fields` holds plain values (text, numbers, lists and dictionaries of them) in the order in which they are shown; it
    can be written as JSON as it is. No witness value is in it.
    """

    path: str
    kind: FileKind
    fields: dict[str, Any] = field(default_factory=dict)


def describe(path: Path | str) -> FileDescription:
    """Looks at a file of any kind.

    A file that says what it is but is damaged raises FormatError, like a file that cannot be opened. One that nothing
    is known about is described as unknown, with a guess where its first bytes suggest something.
    """
    source = SourceFile.open(path)
    head = source.data[:HEAD_BYTES].tobytes()
    describer = _BINARY.get(head[:4])
    if describer is not None:
        kind, facts = describer(source)
    elif Path(path).suffix in (".params", ".vk") or params.structure_of(source) is not None:
        kind, facts = _describe_bellperson_key(source)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        kind, facts = _describe_json(path)
    elif compressed_proof.looks_like_proofs(source.data.data):
        kind, facts = _describe_compressed_proofs(source)
    else:
        kind, facts = FileKind.UNKNOWN, {"guess": guess(head) or "no file that is known here"}
    return FileDescription(str(path), kind, {"kind": kind.value, "bytes": source.size, **facts})


_Description = tuple[FileKind, dict[str, Any]]


def _describe_zkey(source: SourceFile) -> _Description:
    key = zkey.ZKey.from_source(source)
    container = zkey.open_container(source)
    facts = {
        "protocol": "groth16",
        "curve": key.curve.name,
        "signals": key.n_vars,
        "public_signals": key.n_public,
        "private_signals": key.n_private,
        "domain": key.domain_size,
        "log2_domain": key.log_domain,
        "coefficients": key.n_coefficients,
        **_contributions(container),
        **_table(container),
    }
    return FileKind.ZKEY, facts


def _contributions(container: Container) -> dict[str, Any]:
    section = container.find(10)
    if section is None or section.size < 68:
        return {"contributions": None}
    data = container.view(10)
    return {
        "contributions": int.from_bytes(data[64:68].tobytes(), "little"),
        "circuit_hash": data[:64].tobytes().hex(),
    }


def _describe_wtns(source: SourceFile) -> _Description:
    witness = wtns.Witness.from_source(source)
    facts = {
        "curve": witness.curve.name,
        "values": len(witness),
        **_table(Container.parse(source, wtns.WTNS_SPEC)),
    }
    return FileKind.WTNS, facts


def _describe_r1cs(source: SourceFile) -> _Description:
    header = r1cs.R1cs.from_source(source).header
    facts = {
        "curve": header.curve.name,
        "constraints": header.n_constraints,
        "wires": header.n_wires,
        "outputs": header.n_outputs,
        "public_inputs": header.n_public_inputs,
        "private_inputs": header.n_private_inputs,
        "public_signals": header.n_public,
        "labels": header.n_labels,
        **_table(Container.parse(source, r1cs.R1CS_SPEC)),
    }
    return FileKind.R1CS, facts


def _describe_pce(source: SourceFile) -> _Description:
    system = pce.Pce.from_source(source)
    facts = {
        "curve": system.curve.name,
        "constraints": system.n_constraints,
        "inputs": system.n_inputs,
        "auxiliary_variables": system.n_aux,
        **{f"terms_{name}": matrix.n_terms for name, matrix in zip(pce.MATRICES, system.matrices, strict=True)},
        **{name.replace(" ", "_"): density.ones for name, density in zip(pce.DENSITIES, system.densities, strict=True)},
    }
    return FileKind.PCE, facts


def _describe_bellperson_key(source: SourceFile) -> _Description:
    """By its structure, else by its name: a damaged one has only that."""
    structure = params.structure_of(source)
    if structure == "params" or (structure is None and Path(source.path).suffix == ".params"):
        return _describe_params(source)
    key = params.verifying_key_from(source)
    return FileKind.VK, {"protocol": "groth16", "curve": key.curve.name, "public_signals": key.n_public}


def _describe_compressed_proofs(source: SourceFile) -> _Description:
    proofs = compressed_proof.decode_proofs(source.data.tobytes(), source.path)
    return FileKind.COMPRESSED_PROOF, {"protocol": "groth16", "curve": "bls12_381", "proofs": len(proofs)}


def _describe_params(source: SourceFile) -> _Description:
    key = params.Params.from_source(source)
    facts: dict[str, Any] = {
        "protocol": "groth16",
        "curve": key.curve.name,
        "inputs": key.n_inputs,
        "public_signals": key.n_public,
        "auxiliary_variables": key.n_aux,
        "domain": key.domain_size,
        "log2_domain": key.domain_size.bit_length() - 1,
        "variables_in_A": len(key.a),
        "variables_in_B": len(key.b1),
        "sections": [
            {
                "type": number,
                "name": section.name,
                "offset": section.offset,
                "bytes": section.size,
                "points": section.count,
            }
            for number, section in enumerate(key.sections, 1)
        ],
    }
    if key.trailing_bytes:
        facts["ceremony_bytes"] = key.trailing_bytes
    return FileKind.PARAMS, facts


def _table(container: Container) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "sections": [
            {
                "type": section.type,
                "name": container.spec.names.get(section.type),
                "offset": section.offset,
                "bytes": section.size,
            }
            for section in container.table
        ]
    }
    if container.trailing_bytes:
        facts["trailing_bytes"] = container.trailing_bytes
    return facts


def _describe_json(path: Path | str) -> _Description:
    document = load_json(path, "a proof, public signals or a verification key", MAX_VERIFICATION_KEY_BYTES)
    if isinstance(document, list):
        return FileKind.PUBLIC, {"public_signals": len(PublicSignals.from_document(document, path).values)}
    if "pi_a" in document:
        return FileKind.PROOF, {"protocol": "groth16", "curve": Proof.from_document(document, path).curve.name}
    if any(name.startswith("vk_") for name in document):
        key = VerificationKey.from_document(document, path)
        facts = {"protocol": "groth16", "curve": key.curve.name, "public_signals": key.n_public}
        return FileKind.VERIFICATION_KEY, facts
    return FileKind.UNKNOWN, {"guess": "JSON that is no proof, public signals or verification key"}


_BINARY: Final[dict[bytes, Callable[[SourceFile], _Description]]] = {
    b"zkey": _describe_zkey,
    b"wtns": _describe_wtns,
    b"r1cs": _describe_r1cs,
    pce.MAGIC: _describe_pce,
}
