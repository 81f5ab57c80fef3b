"""What a file is and holds, for `cuzk info`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from cuzk_engine.formats import r1cs, wtns, zkey
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
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        kind, facts = _describe_json(path)
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
}
