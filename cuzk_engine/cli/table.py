"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest cell, two blanks apart."""
    cells = [[plain(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def plain(text: str) -> str:
    """In one line: what others named may hold anything."""
    return "".join(character if character.isprintable() else " " for character in text)
