"""Each card: what it is called, whether proofs can run on it, and which kernels are compiled for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cuzk_engine import nvml
from cuzk_engine.curves import BLS12_381, BN254, curve_title
from cuzk_engine.devices.cuda import nvrtc, probe, programs
from cuzk_engine.devices.cuda.compiling import missing
from cuzk_engine.devices.cuda.probe import CPU_INSTEAD, Card
from cuzk_engine.doctor.check import Check, Verdict, ok, warning
from cuzk_engine.doctor.gpu import Cards
from cuzk_engine.units import format_size

_CURVES: Final = (BN254, BLS12_381)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Programs that a proof needs, and how many of them are compiled."""

    curve: str
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class CardState:
    """One card as ``cuzk doctor`` shows it. ``number``: CUDA's, which `--device cuda:N` takes; ``nvml_number``: that of
    nvidia-smi, None where it is not listed; ``refusal``: why proofs cannot run on it, "" where they can."""

    number: int
    name: str
    uuid: str
    bus_id: str
    capability: str
    architecture: str
    memory: int
    nvml_number: int | None
    mig: bool | None
    refusal: str
    kernels: tuple[Kernels, ...] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        return {
            **{key: getattr(self, key) for key in ("number", "name", "uuid", "bus_id", "capability", "architecture")},
            **{key: getattr(self, key) for key in ("memory", "nvml_number", "mig", "refusal")},
            "kernels": {k.curve: {"compiled": k.cached, "needed": k.total} for k in self.kernels},
        }


def states(cards: Cards, cupy: int | None, cache: Path) -> list[CardState]:
    """Of every card that the driver lists. ``cupy`` as ``probe.cupy_cuda`` gives it; ``cache``: the folder of compiled
    kernels."""
    found = cards.driver.cards if cards.driver is not None else ()
    return [_state(number, card, cards, cupy, cache) for number, card in enumerate(found)]


def _state(number: int, card: Card, cards: Cards, cupy: int | None, cache: Path) -> CardState:
    twin = _listed(card, cards.listed)
    why = probe.refusal(number, cards.driver, cupy) or nvrtc.refusal(card.architecture) or ""
    return CardState(
        number,
        card.name or (twin.name if twin else ""),
        card.uuid or (twin.uuid if twin else ""),
        card.bus_id or (twin.bus_id if twin else ""),
        ".".join(map(str, card.capability)),
        card.architecture,
        card.memory or (twin.memory.total if twin and twin.memory else 0),
        twin.number if twin else None,
        twin.mig if twin else None,
        why,
        () if why else tuple(_kernels(card.architecture, cache)),
    )


def _kernels(architecture: str, cache: Path) -> list[Kernels]:
    found = []
    for curve in _CURVES:
        wanted = programs.for_proof(curve)
        found.append(Kernels(curve.name, len(wanted), len(wanted) - len(missing(wanted, architecture, cache))))
    return found


def _listed(card: Card, listed: tuple[nvml.Card, ...]) -> nvml.Card | None:
    """The same card by its bus id: the two count in different orders."""
    wanted = nvml.normal_bus_id(card.bus_id)
    return next((other for other in listed if card.bus_id and other.bus_id == wanted), None)


def check(state: CardState) -> Check:
    name = f"cuda:{state.number}"
    words = [state.name or "a card", f"compute capability {state.capability}"]
    words += [format_size(state.memory)] if state.memory else []
    words += [text for text in (state.uuid, state.bus_id) if text]
    if state.nvml_number is not None and state.nvml_number != state.number:
        words.append(f"number {state.nvml_number} in nvidia-smi")
    if state.mig:
        words.append("an instance of a card in MIG mode")
    found = ", ".join(words)
    if state.refusal:
        why, _, advice = state.refusal.partition("; ")
        return warning(name, f"{found}: cannot be used: {why}", advice or CPU_INSTEAD)
    compiled = ", ".join(f"{k.cached} of {k.total} for {curve_title(k.curve)}" for k in state.kernels)
    rest = any(k.cached < k.total for k in state.kernels)
    later = "; the first proof compiles the rest, once" if rest else ""
    return ok(name, f"{found}; kernels for {state.architecture} compiled: {compiled}{later}")


def visible(cards: Cards) -> Check | None:
    """What CUDA_VISIBLE_DEVICES leaves; None where it is not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    found = cards.driver.cards if cards.driver is not None else ()
    shown = []
    for number, card in enumerate(found):
        twin = _listed(card, cards.listed)
        shown.append(f"cuda:{number} is number {twin.number} in nvidia-smi" if twin else f"cuda:{number}")
    words = ", ".join(shown) or "no card is left"
    hidden = len(cards.listed) - len(found)
    more = f"; {hidden} more {'is' if hidden == 1 else 'are'} hidden" if shown and hidden > 0 else ""
    return ok("visible cards", f'CUDA_VISIBLE_DEVICES="{value}": {words}{more}')


def mig(cards: Cards) -> Check | None:
    """Cards that are split into instances; None where none is."""
    split = [card for card in cards.listed if card.mig]
    if not split:
        return None
    words = "; ".join(
        f"number {card.number} ({card.name}) has {', '.join(card.instances) or 'no instance'}" for card in split
    )
    advice = "CUDA uses one instance a process: name it in CUDA_VISIBLE_DEVICES, or switch MIG off"
    if all(card.instances for card in split):
        return Check("mig", Verdict.OK, words, advice)
    return warning("mig", words, f"make an instance (nvidia-smi mig -cgi), or switch MIG off; {advice}")
