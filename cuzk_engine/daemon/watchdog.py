"""When the process of a device counts as hung, though nobody has heard that it died.

Time is counted in looks, a second apart, that the supervisor makes at it. However long the supervisor itself could not
run, on a machine that is overloaded or was suspended, that is one look long: the process may have been kept from
running just as well.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cuzk_engine.daemon.queue import PartId

LOOK_SECONDS: Final = 1.0
# A process says several times a second that it lives. One that is starved by the machine's load, or whose memory is
# being page-locked or fetched from the swap, may be silent for a few seconds, not for as many as these.
SILENT: Final = 60
SILENT_AT_THE_END: Final = 10  # while the engine ends: what runs there is queued for the next start anyway
DOUBTED: Final = 10  # from here on it gets no new orders
FIRST_WORD: Final = 300  # the interpreter and its libraries may come from a slow disk
# A driver that brings up many cards, or libraries from a slow disk, may take minutes for one step of opening a device;
# what takes longer than that, as compiling kernels may, tells how far it is.
OPENING: Final = 300
STALLED: Final = 30  # from here on nobody should wait for it
STOPPING: Final = 30  # native calls see a cancellation within milliseconds, transfers and kernels within seconds


class Watchdog:
    """Of one process, from its start to its end."""

    def __init__(self) -> None:
        self._silent = 0
        self._has_spoken = False
        self._limit = SILENT
        self._opening: int | None = 0  # looks since it got further with opening its device, None: it is open
        self._stopping: dict[PartId, int] = {}

    @property
    def is_doubted(self) -> bool:
        """Whether it has been silent for longer than it should be."""
        return self._has_spoken and self._silent >= DOUBTED

    @property
    def silent(self) -> int:
        """Seconds, as far as the supervisor can tell."""
        return round(self._silent * LOOK_SECONDS)

    def heard(self) -> None:
        """It said something, whatever that was."""
        if not self._has_spoken:
            self.progressed()
        self._silent, self._has_spoken = 0, True

    def progressed(self) -> None:
        """It got further with opening its device."""
        if self._opening is not None:
            self._opening = 0

    def opened(self) -> None:
        """The device is open."""
        self._opening = None

    def look(self, stopping: Collection[PartId], *, ending: bool) -> None:
        """``stopping``: the partitions that it was told to stop and that still run; ``ending``: the engine ends."""
        self._silent += 1
        if self._opening is not None and self._has_spoken:
            self._opening += 1
        self._stopping = {part: self._stopping.get(part, 0) + 1 for part in stopping}
        self._limit = SILENT_AT_THE_END if ending else SILENT

    @property
    def is_hung(self) -> bool:
        """Whether it has been silent for so long that it will not speak again."""
        return self._silent >= (self._limit if self._has_spoken else FIRST_WORD)

    @property
    def opening(self) -> int:
        """Seconds without any progress in opening its device, or without a first word; 0 once it is open."""
        return round(self._looks_at_opening * LOOK_SECONDS)

    @property
    def is_stalled(self) -> bool:
        """Whether opening its device takes longer than others should wait for."""
        return self._looks_at_opening >= STALLED

    @property
    def is_stalled_for_good(self) -> bool:
        """Whether its device will not open any more."""
        return self._opening is not None and self._opening >= OPENING

    @property
    def _looks_at_opening(self) -> int:
        return 0 if self._opening is None else self._opening if self._has_spoken else self._silent

    @property
    def stuck(self) -> frozenset[PartId]:
        """Partitions that should have stopped long ago."""
        return frozenset(part for part, looks in self._stopping.items() if looks >= STOPPING)
