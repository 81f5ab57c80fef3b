"""What devices are called in the configuration and by callers: ``cpu``, ``cuda:N`` or N as CUDA numbers the visible
cards, a card's UUID (or its first digits) or its PCI bus id. Inside the daemon there is only the first form.

A number is a name whether or not there is such a card: what to say of it is known where it is used, with what there is.
Of a UUID and a bus id nothing else is known where no card has it.

Tests put cards that are not there in place by the variable ``CUZK_TEST_CARDS``, a JSON list of [UUID, bus id].
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Card, Driver
from cuzk_engine.devices.select import Machine
from cuzk_engine.errors import CuzkError, SettingError
from cuzk_engine.nvml import bus_id

CPU: Final = "cpu"
_AUTO: Final = "auto"
_MOST_DIGITS: Final = 10
_TEST_VARIABLE: Final = "CUZK_TEST_CARDS"
_TEST_CUDA: Final = 13


class DeviceNames:
    """Those of a machine that was read once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._cards = machine.cards

    @classmethod
    def of_machine(cls) -> DeviceNames:
        made_up = os.environ.get(_TEST_VARIABLE)
        if made_up is None:
            return cls(Machine.read())
        cards = (Card(probe.LEAST_CAPABILITY, uuid=uuid, bus_id=bus) for uuid, bus in json.loads(made_up))
        return cls(Machine(Driver((_TEST_CUDA, 0), tuple(cards)), _TEST_CUDA))

    def resolve(self, name: str) -> str | None:
        """``cpu`` or ``cuda:N`` for any name of a device; None for one that is no name, and for a UUID or a bus id that
        no card has. Raises SettingError for the beginning of several UUIDs."""
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
        bus = bus_id(text)
        numbers = (n for n, card in enumerate(self._cards) if bus is not None and bus_id(card.bus_id) == bus)
        return next((f"cuda:{n}" for n in numbers), None)

    def choose(self, texts: Iterable[str]) -> list[str]:
        """The devices of ``gpus.devices``; for nothing and for "auto" all cards, or the CPU where there is none.
        Raises SettingError for one that is not there."""
        chosen: list[str] = []
        for text in list(texts) or [_AUTO]:
            if text == _AUTO:
                chosen += self._machine.usable() or [CPU]
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
        if not set(texts) <= {_AUTO} or self._machine.usable():
            return ""
        why = self._machine.refusal(0) or ""
        why = re.sub(rf"(; |, or ){re.escape(probe.CPU_INSTEAD)}$", "", why)
        return why.replace("; install the driver", ", which a GPU needs")

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
        if name is None and (text.lower().startswith("gpu-") or bus_id(text)):
            there = "; ".join(f"cuda:{n} is {card.uuid}, {card.bus_id.lower()}" for n, card in enumerate(self._cards))
            why = f"no card that this process may see is called so; {there}" if there else self._machine.refusal(0)
            assert why is not None  # without any card none can be used
            raise CuzkError(why)
        self._machine.check(name or text)


def _exactness(name: str) -> tuple[int, int]:
    text = name.lower()
    kind = 0 if text.startswith("gpu-") else 1 if bus_id(text) else 2 if text.isdecimal() else 3
    return kind, -len(text)
