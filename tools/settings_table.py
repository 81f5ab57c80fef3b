"""The table of settings of docs/guide.md. ``python tools/settings_table.py`` writes it there; a test compares."""

from __future__ import annotations

import sys
from pathlib import Path

from cuzk_engine.settings import TABLE, Definition, Type

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
BEGIN = "<!-- settings: made by tools/settings_table.py -->"
END = "<!-- end of settings -->"
_VALUES = {
    Type.BOOL: "`true`, `false`",
    Type.SIZE: 'a size, as in `"2GiB"`',
    Type.DURATION: 'a duration, as in `"90s"`',
    Type.STRING: "a text",
    Type.LIST: "a list of texts",
}


def table() -> str:
    """Markdown, one row a setting in the order of the table; old keys are left out."""
    rows = ["| setting | values | default | changes live | meaning |", "|---|---|---|---|---|"]
    for item in TABLE:
        if item.replacement is None:
            live = "no effect yet" if item.inert else "yes" if item.live else "at start"
            rows.append(f"| `{item.key}` | {_values(item)} | {_default(item)} | {live} | {_cell(item.help)} |")
    return "\n".join(rows)


def _values(item: Definition) -> str:
    if item.type is Type.ENUM:
        return ", ".join(f'`"{choice}"`' for choice in item.choices)
    if item.type is Type.INT:
        return f"{item.minimum} to {item.maximum:,}"
    words = "".join(f'`"{word}"` or ' for word in item.words)
    return words + _VALUES[item.type]


def _default(item: Definition) -> str:
    if isinstance(item.default, str):
        return f'`"{item.default}"`'
    return f"`{item.text(item.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def replaced(guide: str) -> str:
    """``guide`` with the table between its two comments. Raises ValueError where they are missing."""
    before, begin, rest = guide.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{GUIDE}: expected {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(0 if GUIDE.write_text(replaced(GUIDE.read_text(encoding="utf-8")), encoding="utf-8") else 1)
