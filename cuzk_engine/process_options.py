"""What of the settings a process that proves has for life, and what its partitions are ordered with: the same for a
device process of the daemon and for the commands that work in their own process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cuzk_engine.config import Settings
from cuzk_engine.settings import PIPELINE_KEYS, value_text

PROCESS_KEYS: Final = frozenset(
    {
        "cpu.arena",
        "gpus.gpu_threads",
        "synthesis.threads",
        "memory.total_budget",
        "memory.safety_margin",
        "memory.eviction_min_idle",
    }
)
"""The settings of ``ProcessOptions``."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Texts of cpu.arena and of memory.* (``budget``, ``margin``, ``min_idle``), threads (0: all), and among how many
    ``processes`` of this machine budget and threads are shared."""

    arena: str
    threads: int
    evaluation_threads: int
    budget: str
    margin: str
    min_idle: str
    processes: int = 1

    @classmethod
    def of(cls, settings: Settings, processes: int = 1) -> ProcessOptions:
        return cls(
            settings.text("cpu.arena"),
            settings.number("gpus.gpu_threads"),
            settings.number("synthesis.threads"),
            settings.text("memory.total_budget"),
            settings.text("memory.safety_margin"),
            settings.text("memory.eviction_min_idle"),
            processes,
        )


def pipeline_texts(settings: Settings) -> dict[str, str]:
    """What each partition is ordered with."""
    return {key: value_text(settings.values[key]) for key in PIPELINE_KEYS}
