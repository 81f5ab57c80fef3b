"""The engine's process in words: what the pill says, what can be pressed, what the banner asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cuzk_engine.client import DaemonStatus, EngineIdentity, ProcessState
from cuzk_gui.models import words


class Tone(StrEnum):
    """How much attention a state asks for."""

    QUIET = "quiet"
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"


class Action(StrEnum):
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    CONNECT = "connect"  # the user is asked which engine it shall be


@dataclass(frozen=True, slots=True)
class Appearance:
    word: str
    tone: Tone
    actions: frozenset[Action]
    prove: bool  # whether the engine takes jobs


_NONE: Final[frozenset[Action]] = frozenset()
APPEARANCES: Final = {
    ProcessState.STOPPED: Appearance("Stopped", Tone.QUIET, frozenset({Action.START}), False),
    ProcessState.STARTING: Appearance("Starting…", Tone.BUSY, frozenset({Action.STOP}), False),
    ProcessState.READY: Appearance("Ready", Tone.GOOD, frozenset({Action.STOP, Action.RESTART}), True),
    ProcessState.DRAINING: Appearance("Draining", Tone.BUSY, frozenset({Action.STOP}), False),
    ProcessState.STOPPING: Appearance("Stopping…", Tone.BUSY, _NONE, False),
    ProcessState.CRASHED: Appearance("Crashed", Tone.BAD, frozenset({Action.START, Action.STOP}), False),
    ProcessState.FOREIGN: Appearance("Port taken", Tone.WARN, _NONE, False),
}
NOT_REACHED: Final = Appearance("Not reached", Tone.BAD, _NONE, False)
CHECKING: Final = Appearance("Checking…", Tone.QUIET, _NONE, False)


@dataclass(frozen=True, slots=True)
class Banner:
    """A sentence across the window with at most one button."""

    text: str
    tone: Tone
    action: Action | None


@dataclass(frozen=True, slots=True)
class EngineView:
    """What is known of the engine: the status from outside, and what the stream said last."""

    status: DaemonStatus | None = None
    identity: EngineIdentity | None = None  # only while the stream is up
    asked: Action | None = None  # on its way from this window
    elsewhere: str = ""  # how an engine is reached that cannot be started and stopped from here

    @property
    def state(self) -> ProcessState | None:
        if self.asked in (Action.START, Action.RESTART):
            return ProcessState.STARTING
        if self.asked is Action.STOP:
            return ProcessState.STOPPING
        if self.identity is not None:
            try:
                return ProcessState(self.identity.state)
            except ValueError:
                return ProcessState.READY
        return self.status.state if self.status else None

    @property
    def appearance(self) -> Appearance:
        shown = APPEARANCES.get(self.state, CHECKING) if self.state else CHECKING
        if self.elsewhere:
            return NOT_REACHED if self.state is ProcessState.FOREIGN else replace(shown, actions=_NONE)
        if self.asked:
            return Appearance(shown.word, shown.tone, _NONE, False)
        return shown

    def facts(self, now_unix_ns: int) -> list[str]:
        """What stands beside the pill: build, up time, process, who started it."""
        identity, status = self.identity, self.status
        if self.state not in (ProcessState.READY, ProcessState.DRAINING, ProcessState.STOPPING, ProcessState.STARTING):
            return []
        build = identity.build if identity else status.build if status else None
        started = identity.started_unix_ns if identity else status.started_unix_ns if status else None
        pid = identity.pid if identity else status.pid if status else None
        by = identity.started_by if identity else status.started_by if status else None
        found = [self.elsewhere] if self.elsewhere else []
        if build:
            found.append(f"build {words.short_build(build)}")
        if started:
            found.append(f"up {words.span((now_unix_ns - started) / 1e9)}")
        if pid:
            found.append(f"pid {pid}")
        if by:
            found.append(
                f"started by the {by}"
                if by in ("window", "command line", "service")
                else f"started by {words.plain(by, 40)}"
            )
        return found

    @property
    def address(self) -> str:
        known = self.status.address if self.status else ""
        if self.identity and not self.elsewhere:  # an engine elsewhere says where it listens, not how it is reached
            known = self.identity.address
        return words.plain(known, 60)

    @property
    def open_to_network(self) -> bool:
        """Whether the engine listens beyond this machine."""
        if (
            self.elsewhere
            or self.state is not ProcessState.READY
            or not self.address
            or self.address.startswith(("unix:", "/"))
        ):
            return False
        host = self.address.rpartition(":")[0].strip("[]")
        return not (host.startswith("127.") or host in ("localhost", "::1", ""))

    def banner(self) -> Banner | None:
        """The one thing to say first; None when all is well."""
        state, status = self.state, self.status
        if self.elsewhere:
            said = words.plain(status.message, 300) if status and state is ProcessState.FOREIGN else ""
            return Banner(said, Tone.BAD, Action.CONNECT) if said else None
        if state is ProcessState.STOPPED:
            return Banner("The engine is not running.", Tone.QUIET, None if self.asked else Action.START)
        if state is ProcessState.CRASHED:
            said = (
                words.plain(status.message, 220)
                if status and status.message
                else "The engine ended without being asked to."
            )
            return Banner(said, Tone.BAD, None if self.asked else Action.START)
        if state is ProcessState.FOREIGN:
            said = (
                words.plain(status.message, 220)
                if status and status.message
                else f"Another program holds {self.address}."
            )
            return Banner(said, Tone.WARN, None)
        if state is ProcessState.READY and status and status.stale:
            return Banner(
                f"The running engine is build {words.short_build(status.build)}, installed is "
                f"{words.short_build(status.installed_build)}: restart it to run what is installed.",
                Tone.WARN,
                None if self.asked else Action.RESTART,
            )
        if self.open_to_network:
            return Banner(f"The engine listens on {self.address}: other machines can reach it.", Tone.WARN, None)
        return None
