"""What the diagnosis found, newest of each kind, and whether what it advises can be done here and now."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cuzk_engine.client import SettingChange
from cuzk_engine.events import Finding, Remedy
from cuzk_gui.models import words
from cuzk_gui.models.settings import inert_reason

if TYPE_CHECKING:
    from cuzk_gui.models.session import Session

KEPT: Final = 200
STALE_NS: Final = 45_000_000_000  # the engine says again what still holds; what it has not said for longer is over
RECORDED: Final = "this is a recording: what happened cannot be changed"
ENGINE_AWAY: Final = "the engine is not running"


class FindingList:
    """The newest finding of each device and kind; the oldest ones go beyond ``KEPT``."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Finding] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._found)

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            key = (finding.device, finding.kind)
            before = self._found.pop(key, None)
            self._found[key] = finding if before is None or finding.time_ns >= before.time_ns else before
            self.version += 1
        while len(self._found) > KEPT:
            self._found.pop(next(iter(self._found)))

    def clear(self) -> None:
        self._found.clear()
        self.version += 1

    def of(self, device: str, since_ns: int = 0, kept: Container[tuple[str, str]] = ()) -> list[Finding]:
        """Those of a device, most gain first, then the newest; those that were told before ``since_ns`` are left out
        unless their (device, kind) is in ``kept``."""
        found = [
            f for key, f in self._found.items() if key[0] in ("", device) and (f.time_ns >= since_ns or key in kept)
        ]
        return sorted(found, key=lambda f: (-(gain(f) or 0.0), -f.time_ns))


def gain(finding: Finding) -> float | None:
    """The most that one of its remedies would save, as a share of the idle time; None where none says."""
    return max((r.gain for r in finding.remedies if r.gain is not None), default=None)


def gain_text(value: float | None) -> str:
    if value is None or not 0 < value <= 1:
        return ""
    return f"saves about {value * 100:.0f} % of the idle time" if value >= 0.01 else "saves less than 1 % of idle time"


@dataclass(frozen=True, slots=True)
class RemedyState:
    """What the button of a remedy says, whether it can be pressed, and if not, why not."""

    text: str
    enabled: bool
    reason: str = ""
    done: bool = False


def remedy_state(remedy: Remedy, session: Session, device: str) -> RemedyState:
    """``device``: the one that the finding or incident is about."""
    if session.recorded:
        return RemedyState("Apply", False, RECORDED)
    if session.identity is None:
        return RemedyState("Apply", False, ENGINE_AWAY)
    info = session.settings.info(remedy.key, remedy.device)
    if info is None:
        return RemedyState("Apply", False, f"this engine has no setting {words.plain(remedy.key, 60)}")
    if session.settings.pending(remedy.key, remedy.device):
        return RemedyState("Applying…", False)
    if session.settings.value(remedy.key, remedy.device) == remedy.value:
        return RemedyState("In effect", False, done=True)
    if not info.live:
        return RemedyState("Apply", False, "takes effect at the next start only: set it in the configuration file")
    described = session.described.get(remedy.device or device)
    inert = inert_reason(remedy.key, described) if described else ""
    if inert:
        return RemedyState("Apply", False, inert)
    return RemedyState("Apply", True)


def change_of(remedy: Remedy) -> SettingChange:
    return SettingChange(remedy.key, remedy.value, remedy.device)


def setting_text(session: Session, key: str, value: str, device: str = "") -> str:
    """A setting with its value in few words: "pre-staging → locked"."""
    info = session.settings.info(key, device)
    title = words.plain(info.title, 40) if info and info.title else words.plain(key.rpartition(".")[2], 40)
    shown = {"true": "on", "false": "off"}.get(value, words.plain(value, 24))
    return f"{title[:1].lower()}{title[1:]} → {shown}"
