"""What ``--vary`` asks for: every combination of the named settings' values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cuzk_engine.errors import SettingError, UsageError
from cuzk_engine.settings import TABLE, WORKERS_KEY, definition, nearest, value_text

MAX_VARIATIONS: Final = 64
SHORT_NAMES: Final = {
    "workers": WORKERS_KEY,
    "prestage": "pipeline.prestage",
    "double_buffer": "pipeline.double_buffer",
    "evaluate": "pipeline.evaluate",
    "residency": "srs.residency",
    "arena": "cpu.arena",
}
_SHORT_BY_KEY: Final = {key: name for name, key in SHORT_NAMES.items()}
_SWITCHES: Final = {"on": "true", "off": "false"}


@dataclass(frozen=True, slots=True)
class Variation:
    """Settings that differ from what is configured: (key, text of the value) each. ``name`` for people."""

    name: str
    settings: tuple[tuple[str, str], ...] = ()

    def value(self, key: str) -> str | None:
        return dict(self.settings).get(key)


AS_CONFIGURED: Final = Variation("as configured")


def parse_variations(words: Sequence[str]) -> list[Variation]:
    """``["workers=1,2", "prestage=off,ahead"]`` → four variations, the last name varying fastest.

    Raises UsageError for an unknown name, a value that the setting cannot have, a name or value given twice, and more
    than MAX_VARIATIONS combinations.
    """
    axes: dict[str, list[str]] = {}
    for word in words:
        name, sign, values = word.partition("=")
        if not sign or not values:
            raise UsageError(
                f'--vary: "{word}" is not understood, expected a setting and its values, as in workers=1,2'
            )
        key = _key(name)
        if key in axes:
            raise UsageError(f"--vary: {name} is given twice")
        axes[key] = _values(key, name, values.split(","))
    count = 1
    for texts in axes.values():
        count *= len(texts)
    if count > MAX_VARIATIONS:
        raise UsageError(f"--vary: {count} variations, expected at most {MAX_VARIATIONS}")
    if not axes:
        return [AS_CONFIGURED]
    return [_variation(tuple(zip(axes, chosen, strict=True))) for chosen in itertools.product(*axes.values())]


def _key(name: str) -> str:
    live = [item.key for item in TABLE if item.live and item.replacement is None]
    key = SHORT_NAMES.get(name.replace("-", "_"), name)
    if key not in live:
        known = [*SHORT_NAMES, *live]
        hint = nearest(name, known) or f"; known: {', '.join(SHORT_NAMES)}, and every setting that can change live"
        raise UsageError(f"--vary: {name!r} is no setting that can change while the engine runs{hint}")
    return key


def _values(key: str, name: str, words: list[str]) -> list[str]:
    setting = definition(key)
    texts: list[str] = []
    for word in words:
        text = _SWITCHES.get(word, word) if setting.type.value == "bool" else word
        try:
            text = value_text(setting.parse(text))
        except SettingError as error:
            raise UsageError(f"--vary: {error}") from error
        if text in texts:
            raise UsageError(f"--vary: {name} has the value {word} twice")
        texts.append(text)
    return texts


def _variation(settings: tuple[tuple[str, str], ...]) -> Variation:
    return Variation(" ".join(f"{_SHORT_BY_KEY.get(key, key)}={text}" for key, text in settings), settings)
