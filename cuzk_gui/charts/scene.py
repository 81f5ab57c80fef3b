"""What all charts share: the session, the shown stretch of time, the device, the theme, where the pointer is, and what
is singled out."""

from __future__ import annotations

from dataclasses import dataclass

from cuzk_gui.models.session import DeviceTimeline, Session
from cuzk_gui.models.view import TimeView
from cuzk_gui.theme import Colours, Theme


@dataclass(slots=True)
class Scene:
    """``device`` is the one whose charts are shown; ``pointer`` the time under the mouse, in seconds on the axis;
    ``cause`` that of the gaps that stand out, "" for none; ``plan`` the bytes that all workers are planned to need.
    """

    session: Session
    view: TimeView
    theme: Theme
    device: str = ""
    pointer: float | None = None
    cause: str = ""
    plan: int | None = None

    @property
    def colours(self) -> Colours:
        return self.theme.colours

    @property
    def timeline(self) -> DeviceTimeline | None:
        return self.session.devices.get(self.device)

    @property
    def start_ns(self) -> int:
        return self.session.time_ns(self.view.start)

    @property
    def end_ns(self) -> int:
        return self.session.time_ns(self.view.end)

    @property
    def known_ns(self) -> int:
        """How far the present has come: nothing is drawn beyond it."""
        return self.session.time_ns(self.view.now)

    @property
    def capacity(self) -> int | None:
        """Bytes of the device's memory; None when not known."""
        described = self.session.described.get(self.device)
        if described is not None and described.capacity > 0:
            return described.capacity
        timeline = self.timeline
        sampled = timeline.samples.latest("memory_capacity") if timeline else None
        return int(sampled) if sampled else None
