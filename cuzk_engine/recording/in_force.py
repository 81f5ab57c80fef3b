"""Which settings were in force at a time: the engine tells all of them now and then, and of each change when it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cuzk_engine.client.types import SettingInfo
from cuzk_engine.diagnosis.remedies import WORKERS
from cuzk_engine.events import Mark

_ARROW = " → "


@dataclass(frozen=True, slots=True)
class InForce:
    """``common``: key → text, without what the recording does not tell; ``workers``: device → text, of devices with a
    number of their own, "" where it does not tell which."""

    common: dict[str, str] = field(default_factory=dict)
    workers: dict[str, str] = field(default_factory=dict)

    def of(self, device: str) -> dict[str, str]:
        return {**self.common, WORKERS: self.workers[device]} if device in self.workers else self.common


def in_force(told: Sequence[tuple[int, Sequence[SettingInfo]]], changes: Iterable[Mark], at_ns: int) -> InForce:
    """``told``: at which times the engine told all settings, in order, and what they were then."""
    if not told:
        return InForce()
    time_ns, settings = next((one for one in reversed(told) if one[0] <= at_ns), told[0])
    values: dict[tuple[str, str], str] = {(one.key, one.device): one.value for one in settings}
    keys = {_lowered(one.title): one.key for _, each in told for one in each if one.title}
    for change in sorted(changes, key=lambda mark: mark.time_ns):
        title, _, value = change.text.partition(_ARROW)
        where = (keys.get(_lowered(title), ""), change.device)
        if time_ns < change.time_ns <= at_ns:
            values[where] = value
        elif at_ns < change.time_ns <= time_ns:  # told after the change: nothing says what it was before
            values[where] = ""
    return InForce(
        {key: value for (key, device), value in values.items() if key and value and not device},
        {device: value for (key, device), value in values.items() if key == WORKERS and device},
    )


def _lowered(title: str) -> str:
    return title.lower()
