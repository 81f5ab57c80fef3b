"""What devices are called in the configuration and by callers: ``cpu``, ``cuda:N`` or N as CUDA numbers the visible
cards, a card's UUID (or its first digits) or its PCI bus id. Inside the daemon there is only the first form.

Tests put cards that are not there in place by the variable ``CUZK_TEST_CARDS``, a JSON list of [UUID, bus id].
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Card
from cuzk_engine.devices.select import check_name, usable_cards
from cuzk_engine.errors import CuzkError, SettingError

CPU: Final = "cpu"
_AUTO: Final = "auto"
_MOST_DIGITS: Final = 10
_TEST_VARIABLE: Final = "CUZK_TEST_CARDS"
_BUS_ID: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.ASCII)


class DeviceNames:
    """The cards of this machine, asked once."""

    def __init__(self, cards: Sequence[Card], usable: Sequence[str], *, check: bool = True, why_none: str = "") -> None:
        """``check``: ask the driver why a card cannot be used; ``why_none``: why none can, where that is so."""
        self._cards = cards
        self._usable = usable
        self._check = check
        self._why_none = why_none

    @classmethod
    def of_machine(cls) -> DeviceNames:
        made_up = os.environ.get(_TEST_VARIABLE)
        if made_up is not None:
            cards = [Card((0, 0), uuid=uuid, bus_id=bus_id) for uuid, bus_id in json.loads(made_up)]
            return cls(cards, [f"cuda:{number}" for number in range(len(cards))], check=False)
        driver = probe.read_driver()
        usable = usable_cards()
        why_none = "" if usable else probe.refusal(0, driver, probe.cupy_cuda()) or ""
        return cls(() if driver is None else driver.cards, usable, why_none=why_none)

    def resolve(self, name: str) -> str | None:
        """``cpu`` or ``cuda:N`` for any name of a device; None for one that is no name or that no card has. Raises
        SettingError for the beginning of several UUIDs."""
        text = name.strip().lower()
        if text == CPU:
            return CPU
        number = text.removeprefix("cuda:")
        if number.isascii() and number.isdecimal() and len(number) < _MOST_DIGITS:
            return f"cuda:{int(number)}"
        if text.startswith("gpu-"):
            found = [n for n, card in enumerate(self._cards) if card.uuid.lower().startswith(text)]
            if len(found) > 1:
                raise SettingError(f"{name!r} is the beginning of the UUIDs of {len(found)} cards: give more of it")
            return f"cuda:{found[0]}" if found else None
        bus = _bus(text)
        numbers = (n for n, card in enumerate(self._cards) if bus is not None and _bus(card.bus_id) == bus)
        return next((f"cuda:{n}" for n in numbers), None)

    def choose(self, texts: Iterable[str]) -> list[str]:
        """The devices of ``gpus.devices``; for nothing and for "auto" all cards, or the CPU where there is none.
        Raises SettingError for one that is not there."""
        chosen: list[str] = []
        for text in list(texts) or [_AUTO]:
            if text == _AUTO:
                chosen += self._usable or [CPU]
                continue
            name = self.resolve(text)
            try:
                self._refuse(text, name)
            except CuzkError as error:
                raise SettingError(f"gpus.devices names {text!r}: {error}") from error
            chosen.append(name or text)
        return list(dict.fromkeys(chosen))

    @property
    def has_cards(self) -> bool:
        """Whether there are any, if only such as cannot be used."""
        return bool(self._cards)

    def why_cpu(self, texts: Iterable[str]) -> str:
        """Why the choice of all cards is the CPU, so that nobody finds out days later; "" where it is not, or where
        the CPU was asked for."""
        return self._why_none if set(texts) <= {_AUTO} else ""

    def by_device(self, values: Mapping[str, int]) -> dict[str, str]:
        """Device → the name under which ``values`` holds its entry; the most exact one where there are several."""
        kinds = sorted(values, key=_exactness)
        found: dict[str, str] = {}
        for name in kinds:
            device = self.resolve(name)
            if device is not None:
                found.setdefault(device, name)
        return found

    def _refuse(self, text: str, name: str | None) -> None:
        """Raises CuzkError for a device that cannot be used."""
        if name is None and text.lower().startswith("mig-"):
            raise CuzkError("instances of a card are chosen by CUDA_VISIBLE_DEVICES, and are cuda:0 then")
        if name is None and (text.lower().startswith("gpu-") or _bus(text.lower())):
            there = "; ".join(f"cuda:{n} is {card.uuid}, {card.bus_id.lower()}" for n, card in enumerate(self._cards))
            raise CuzkError(f"no card that this process may see is called so; {there or 'there is none'}")
        if self._check or name is None:
            check_name(name or text)
        elif name != CPU and name not in self._usable:
            raise CuzkError(f"there is no such card; there is {', '.join(self._usable) or CPU}")


def _bus(text: str) -> tuple[int, ...] | None:
    """Domain, bus, device, function; the same for "0000:3b:00.0", "00000000:3B:00.0" and "3b:00"."""
    match = _BUS_ID.fullmatch(text.lower())
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def _exactness(name: str) -> tuple[int, int]:
    text = name.lower()
    kind = 0 if text.startswith("gpu-") else 1 if _bus(text) else 2 if text.isdecimal() else 3
    return kind, -len(text)
