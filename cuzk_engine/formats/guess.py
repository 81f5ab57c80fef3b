"""What a file seems to be, from its first bytes: for messages about a file of the wrong kind."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 512  # what `guess` looks at

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"zkey", "a proving key (zkey)"),
    (b"wtns", "a witness (wtns)"),
    (b"r1cs", "a constraint system (r1cs)"),
    (b"ptau", "a powers of tau file (ptau)"),
    (b"PCE\x02", "a saved constraint system (pce)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xfd7zXZ\x00", "packed with xz; unpack it first"),
    (b"\x1f\x8b", "packed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd; unpack it first"),
    (b"BZh", "packed with bzip2; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x00asm", "a WebAssembly module"),
    (b"\x7fELF", "a program or library (ELF)"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch it with git lfs pull"),
)


def guess(head: bytes) -> str | None:
    """What the file that starts with `head` is, to be put after "this is"; None where nothing speaks for anything."""
    if not head:
        return "empty"
    for magic, meaning in _MAGIC:
        if head.startswith(magic):
            return meaning
    try:
        text = head[:HEAD_BYTES].decode("utf-8")
    except UnicodeDecodeError as error:
        # Cut within a character at the end of the head is still text.
        if error.start < len(head[:HEAD_BYTES]) - 3:
            return None
        text = head[: error.start].decode("utf-8")
    start = text.lstrip("\ufeff \t\r\n").lower()
    if not start:
        return "blank"
    if start.startswith(("<!doctype html", "<html", "<head", "<body")):
        return "an HTML page, perhaps from a failed download"
    if start.startswith(("<?xml", "<")):
        return "an XML or HTML document"
    if start.startswith(("{", "[")):
        return "JSON text"
    if start.startswith("pragma circom"):
        return "circom source; compile it first"
    if not all(character.isprintable() or character in "\t\r\n\ufeff" for character in text):
        return None
    return "text"
